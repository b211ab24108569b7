"""UCF101: 13,320 videos of 101 actions."""

import dataclasses
import os
import re

import keras

from tfrobust.data.checks import shorten
from tfrobust.data.sources.videos import VideoSource
from tfrobust.errors import InputError

_RECORDING = re.compile(r"(.+_g\d+)_c\d+\.\w+")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ucf101(VideoSource):
    """UCF101 as unpacked: `path/<class>/v_<class>_g01_c01.avi`, with the folder of its official lists.

    The lists are `classInd.txt`, `trainlist01.txt` to `trainlist03.txt` and `testlist01.txt` to `testlist03.txt`, from
    the archive "UCF101TrainTestSplits-RecognitionTask". The videos of a class come from 25 recordings ("g01" to "g25"),
    which neither the official splits nor the validation split divide. For the other arguments see `VideoSource`.

    Args:
        path: the folder "UCF-101".
        lists: the folder "ucfTrainTestlist".

    Source:
        Soomro, Zamir and Shah 2012 (arXiv 1212.0402).
    """

    def listed(self) -> tuple[tuple[str, ...], dict[str, int], dict[str, int]]:
        """Read the class names and the lists of the split."""
        names = []
        for number, line in enumerate(self.lines("classInd.txt"), start=1):
            first, _, name = line.partition(" ")
            if first != str(number) or not name:
                raise InputError(f"{shorten(self.lists)}/classInd.txt: line {number} is not '{number} <class>'.")
            names.append(name)
        train, test = (self._labels(f"{part}list0{self.split}.txt", names) for part in ("train", "test"))
        return tuple(names), train, test

    def recording(self, path: str) -> str:
        """Return class and group, such as "v_Archery_g01"."""
        name = os.path.basename(path)
        match = _RECORDING.fullmatch(name)
        if match is None:
            raise InputError(f"{shorten(name)} is no video of UCF101; names end in _g01_c01.avi, for group and clip.")
        return match[1]

    def _labels(self, file: str, names: list[str]) -> dict[str, int]:
        """Return the label of each video, by its folder; that of a training video is also written after its path."""
        ids, labels = {name: label for label, name in enumerate(names)}, {}
        for line in self.lines(file):
            path, _, number = line.partition(" ")
            folder, _, name = path.partition("/")
            if folder not in ids or (number and number != str(ids[folder] + 1)):
                raise InputError(f"{shorten(self.lists)}/{file}: {shorten(line)!r} does not fit classInd.txt.")
            labels[self.inside(folder, name)] = ids[folder]
        return labels

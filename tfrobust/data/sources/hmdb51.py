"""HMDB51: videos of 51 actions from films and the web."""

import dataclasses
import os
import re

import keras

from tfrobust.common import files
from tfrobust.data.checks import DataNotFoundError, shorten
from tfrobust.data.sources.videos import VideoSource
from tfrobust.errors import InputError

_LIST = re.compile(r"(.+)_test_split1\.txt")
# Visible body parts, camera motion, number of people, viewpoint, quality, number of the clip.
_RECORDING = re.compile(r"(.+)_[a-z]_[a-z]{2}_np\d_[a-z]{2}_[a-z]{3}_\d+\.\w+")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Hmdb51(VideoSource):
    """HMDB51 as unpacked: `path/<class>/*.avi`, with the folder of its official lists.

    The lists are `<class>_test_split1.txt` to `<class>_test_split3.txt`. Each line has a video and a number: 1 for
    training, 2 for testing, 0 for neither. The authors chose the splits so that no recording is in both parts. The
    validation split divides no recording either, not even between classes: the file name without the class and its last
    six tags names it. For the other arguments see `VideoSource`.

    Args:
        path: the folder of the videos.
        lists: the folder "testTrainMulti_7030_splits".

    Source:
        Kuehne et al. 2011, HMDB: A large video database for human motion recognition.
    """

    def listed(self) -> tuple[tuple[str, ...], dict[str, int], dict[str, int]]:
        """Read the lists of all classes, in alphabetical order."""
        folder = files.expanded(self.lists)
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        names = [match[1] for match in (_LIST.fullmatch(file.name) for file in entries) if match]
        if not names:
            raise DataNotFoundError(f"{shorten(folder)} has no <class>_test_split1.txt; give the folder of the lists.")
        parts = {"0": {}, "1": {}, "2": {}}
        for label, name in enumerate(names):
            file = f"{name}_test_split{self.split}.txt"
            for line in self.lines(file):
                video, _, tag = line.rpartition(" ")
                if tag not in parts:
                    raise InputError(f"{shorten(folder)}/{file}: {shorten(line)!r} is no video and 0, 1 or 2.")
                parts[tag][self.inside(name, video.strip())] = label
        return tuple(names), parts["1"], parts["2"]

    def recording(self, path: str) -> str:
        """Return the file name without class and tags, such as "April_09" of brush_hair/April_09_brush_hair_..."""
        folder, name = os.path.split(path)
        match = _RECORDING.fullmatch(name)
        if match is None:
            raise InputError(
                f"{shorten(name)} is no video of HMDB51; names end in six tags, as in _u_nm_np1_ba_goo_0.avi."
            )
        return match[1].removesuffix(f"_{os.path.basename(folder)}")

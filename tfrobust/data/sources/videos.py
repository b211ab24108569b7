"""Base of sources of videos with lists of the official training and test videos."""

import concurrent.futures
import dataclasses
import re

import numpy as np

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.common import files
from tfrobust.common.outside import LocalPath
from tfrobust.common.settings import require_tuple, require_whole
from tfrobust.data.checks import DataNotFoundError, check_class_names, shorten
from tfrobust.data.clips import ClipSampling, VideoExamples
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import FITS, Dataset
from tfrobust.data.splits import grouped, resolve_size
from tfrobust.errors import InputError
from tfrobust.security import video_files

_PLAIN_NAME = re.compile(r"[^./\\\0][^/\\\0]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoSource(Source):
    """Videos in `path/<class>/*`, split by official lists, and read as clips float32 [frames, height, width, 3].

    The clips of a video are examples of their own in the validation and test splits, whose `groups` has their videos.
    Training takes one clip of each video in an epoch, from a random start. A validation split never has a recording
    of which another part is in the training split. It may be smaller than asked for, because recordings are not split.

    The videos are decoded in the input pipeline, ahead of the training step, by PyAV (extra `video`). Unlike OpenCV it
    takes the container and the codecs that it may use as arguments, see `security.video_files`, which also says what
    risk is left. Unlike Decord it has releases for current versions of Python.

    Args:
        path: the folder with a folder of videos for each class.
        lists: the folder with the official lists of training and test videos.
        split: number of the official split, 1 to 3.
        frames: see `data.clips.ClipSampling`.
        stride: see `data.clips.ClipSampling`.
        clips: clips of each video for validation and test, see `data.clips.ClipSampling`.
        short: see `data.clips.ClipSampling`.
        size: height and width of the clips.
        fit: how frames of another size are fitted to `size`, see `ImageFolder`; the same for all frames of a clip.
        short_side: a crop from the center after resizing the shorter side to this many pixels; None for `fit`.
        training_crop: a random crop of the original frames for training, the same for all frames of a clip; None for
            no crop.
        verify: decode every video once before training, so that all damaged files are reported at the start. Without
            it the number of frames is the one that the file states.
    """

    path: LocalPath
    lists: LocalPath
    split: int = 1
    frames: int = 16
    stride: int = 2
    clips: int = 1
    short: str = "mirror"
    size: tuple[int, int] = (112, 112)
    fit: str = "crop"
    short_side: int | None = None
    training_crop: RandomResizedCrop | None = None
    verify: bool = True

    def __post_init__(self):
        super().__post_init__()
        name = type(self).__name__
        if self.split not in (1, 2, 3):
            raise InputError(f"{name}.split is {self.split}; the official splits are 1, 2 and 3.")
        if self.fit not in FITS:
            raise InputError(f"{name}.fit is {self.fit!r}; it is one of {', '.join(map(repr, FITS))}.")
        if min(require_tuple(self.size, f"{name}.size", 2)) < 1:
            raise InputError(f"{name}.size is {self.size}; it is (height, width), in pixels.")
        if self.short_side is not None:
            require_whole(self.short_side, f"{name}.short_side", max(self.size))
        self._sampling(self.clips)

    def listed(self) -> tuple[tuple[str, ...], dict[str, int], dict[str, int]]:
        """Read the lists: the class names, and the label of each training and each test video by its path in `path`.

        Raises:
            ValueError: ill-formed lists.
            FileNotFoundError: missing lists.
        """
        raise NotImplementedError

    def recording(self, path: str) -> str:
        """Return the recording that a video was cut from, by its path, `<class>/<file name>`."""
        raise NotImplementedError

    def load(self) -> Dataset:
        """Read the lists, examine the videos, and split them."""
        names, train, test = self.listed()
        both = sorted(train.keys() & test.keys())
        if both:
            raise InputError(f"{shorten(self.lists)}: {shorten(both[0])} is listed for training and for testing.")
        lengths = self._lengths([*train, *test])
        train, test = (self._examples(part, lengths) for part in (train, test))
        data = self.assemble(type(self).__name__, check_class_names(names, shorten(self.lists)), train, test)
        sampling = self._sampling(self.clips)
        held_out = {part: getattr(data, part) for part in ("validation", "test")}
        note = f"{len(lengths):,} videos of {len(names)} classes, official split {self.split}, read by PyAV"
        return dataclasses.replace(
            data,
            **{part: examples.of(np.arange(len(examples)), sampling) for part, examples in held_out.items()},
            note=note,
        )

    def hold_out(self, examples: VideoExamples, size: int | float, purpose: str) -> tuple:
        """Split off at most `size` videos, whole recordings of each class in proportion."""
        count = resolve_size(size, len(examples), f"{purpose}_size")
        recordings = [self.recording(path) for path in examples.videos]
        rest, taken = grouped(examples.labels, recordings, count, self.split_seed, purpose)
        return examples.take(rest), examples.take(taken)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a list that are not empty.

        Raises:
            FileNotFoundError: there is no such list.
            ValueError: it is no text.
        """
        file = files.expanded(self.lists) / name
        if not file.is_file():
            raise DataNotFoundError(f"there is no file {shorten(file)}; give the folder of the official lists.")
        return [line.strip() for line in files.read_text(file).splitlines() if line.strip()]

    def inside(self, folder: str, name: str) -> str:
        """Return the path of a video of a list, which must be a plain file in a folder of `path`."""
        for part in (folder, name):
            if not _PLAIN_NAME.fullmatch(part):
                raise InputError(f"{shorten(self.lists)}: {shorten(part)!r} is no plain name of a folder or a video.")
        return f"{folder}/{name}"

    def _examples(self, labels: dict[str, int], lengths: dict[str, int]) -> VideoExamples:
        root = files.expanded(self.path)
        return VideoExamples(
            [str(root / name) for name in labels],
            [lengths[name] for name in labels],
            np.array(list(labels.values()), np.int32),
            self.size,
            self._sampling(1),
            fit=self.fit if self.short_side is None else self.short_side,
            training_crop=self.training_crop,
        )

    def _lengths(self, names: list[str]) -> dict[str, int]:
        """Return the number of frames of each video, from all of its frames or from its header."""
        root = files.expanded(self.path)
        missing = [name for name in names if not (root / name).is_file()]
        if missing:
            raise DataNotFoundError(
                f"{shorten(root, 60)} lacks {len(missing)} of {len(names)} listed videos: {shorten(missing[0])}."
            )
        video_files.library()
        count = video_files.examine if self.verify else video_files.length

        def examined(name):
            try:
                return count(str(root / name)) or f"{shorten(name)} has no frame."
            except InputError as error:
                return str(error)

        with concurrent.futures.ThreadPoolExecutor() as pool:  # the decoder runs without Python's lock
            outcomes = list(pool.map(examined, names))
        bad = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if bad:
            raise InputError(f"{shorten(root, 60)}: {len(bad)} of {len(names)} videos cannot be read. {bad[0]}")
        return dict(zip(names, outcomes, strict=True))

    def _sampling(self, clips: int) -> ClipSampling:
        return ClipSampling(frames=self.frames, stride=self.stride, clips=clips, short=self.short)

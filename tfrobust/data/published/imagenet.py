"""ImageNet-C, -P, -R and -A: trees of image files in folders that are named by WordNet ids."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

import keras
import numpy as np

from tfrobust.common import files
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import DataNotFoundError, shorten
from tfrobust.data.published.published_set import (
    CorruptedImages,
    Opened,
    PerturbedImages,
    ShiftedImages,
    Target,
    decoded,
)
from tfrobust.data.spec import decode_image
from tfrobust.errors import InputError

_IMAGES, _CLASSES = 50_000, 1_000  # images and classes of the validation split
_SUFFIXES = (".jpeg", ".jpg", ".png")
_VIDEOS = (".mp4", ".avi", ".gif")
# Shorter side of the resized image over the side of its center crop, as in the evaluation on ImageNet.
_MARGIN = 256 / 224


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNetC(CorruptedImages):
    """ImageNet-C: `<corruption>/<severity>/<class>/*.JPEG`, 224 x 224; stretched if the model takes another size.

    Args:
        classes: a text file with the model's classes in the order of its logits, one WordNet id ("n01440764") at the
            start of each line. "": `class_ids` finds the order.

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261).
    """

    title = "ImageNet-C"
    files_to_watch = "*/[1-5]/*"

    classes: LocalPath = ""

    def open(self, names: Sequence[str], severities: Sequence[int], target: Target) -> Opened:
        """Check folders and files of all parts, and list the images."""
        parts = [f"{name}/{severity}" for name, severity in itertools.product(names, severities)]
        self.require(parts, "Get the .tar files from zenodo.org/records/2235448, unpacked side by side.")
        files = _images_by_class(self.root / parts[0])
        for part in parts[1:]:
            _refuse_other_files(self.root, parts[0], part, files)
        count = sum(map(len, files.values()))
        self.check_count("images at each severity", count, _IMAGES)
        self.check_count("class folders", len(files), _CLASSES)
        labels = _labels(files, class_ids(list(files), target, self.classes))
        relative = [f"{wnid}/{name}" for wnid, names in files.items() for name in names]

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            folder = self.root / part[0] / str(part[1])
            paths = [str(folder / relative[position]) for position in positions]
            return decoded(paths, lambda encoded: decode_image(encoded, target.image_shape, upright=False), size)

        return Opened(labels, read, self.notes())


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNetP(PerturbedImages):
    """ImageNet-P as folders of frames: `<sequence>/<class>/<clip>/*.png` (or .jpg), in the order of their names.

    The set is published as .mp4 files. No video decoder is among the dependencies, so that each clip must first be
    converted to a folder of frames.

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261), section 4.2.
    """

    title = "ImageNet-P"
    files_to_watch = "*/*/*"

    def open(self, names: Sequence[str], target: Target) -> Opened:
        """Check the clips of all sequences, and list their frames."""
        self.require(names, "Get the .tar files from zenodo.org/records/3565846.")
        clips = {name: self._clips(self.root / name) for name in names}
        counts = {name: len(folders) for name, folders in clips.items()}
        if len(set(counts.values())) > 1:
            raise InputError(
                f"{shorten(self.root)}: the folders have different numbers of clips: {shorten(counts, 150)}."
            )

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            chosen = [clips[part[0]][position] for position in positions]
            frames = len(_names(chosen[0], _SUFFIXES))
            paths = [str(clip / name) for clip in chosen for name in _frames(clip, frames)]
            return decoded(
                paths, lambda encoded: decode_image(encoded, target.image_shape, upright=False), size, group=frames
            )

        return Opened(np.full(next(iter(counts.values())), -1, np.int32), read, self.notes())

    def _clips(self, folder: pathlib.Path) -> list[pathlib.Path]:
        folders = [folder / wnid / clip for wnid in _folders(folder) for clip in _folders(folder / wnid)]
        videos = [folder / wnid / video for wnid in _folders(folder) for video in _names(folder / wnid, _VIDEOS)]
        if folders:
            unconverted = {video.with_suffix("") for video in videos}.difference(folders)
            if unconverted and self.as_published:
                raise InputError(
                    f"{shorten(folder, 70)} has {len(unconverted)} videos without a folder of frames and "
                    f"{len(folders)} with one: convert all, or set ImageNetP.as_published = False."
                )
            _frames(folders[0], len(_names(folders[0], _SUFFIXES)))
            return folders
        if videos:
            name, stem = videos[0].name, videos[0].stem
            raise InputError(
                f"{shorten(folder, 70)} contains videos, which cannot be decoded here: convert each to a folder of "
                f"frames, for example by mkdir {stem} && ffmpeg -i {name} {stem}/%03d.png"
            )
        raise DataNotFoundError(f"{shorten(folder)} has no clips; they are expected as <class>/<clip>/*.png.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Renditions(ShiftedImages):
    """Sets of 200 classes: `<class>/*`."""

    files_to_watch = "*"
    image_count: ClassVar[int]
    site: ClassVar[str]

    classes: LocalPath = ""

    def open(self, target: Target) -> Opened:
        """Check the class folders, and list the images."""
        self.require([], self.site)
        files = _images_by_class(self.root)
        self.check_count("class folders", len(files), 200)
        self.check_count("images", sum(map(len, files.values())), self.image_count)
        if len(files) < 2:
            raise InputError(f"{self.title} in {shorten(self.root)} has one class folder; it needs at least two.")
        labels = _labels(files, class_ids(list(files), target, self.classes))
        paths = [str(self.root / wnid / name) for wnid, names in files.items() for name in names]
        height, width, _ = target.image_shape
        short_side = round(max(height, width) * _MARGIN)

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            chosen = [paths[position] for position in positions]
            return decoded(
                chosen, lambda encoded: decode_image(encoded, target.image_shape, short_side, upright=False), size
            )

        return Opened(labels, read, self.notes(images=f"shorter side {short_side}, centre {height} x {width}"))


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNetR(_Renditions):
    """ImageNet-R: `<class>/*.jpg`, 30,000 renditions (paintings, toys, ...) of 200 of ImageNet's 1000 classes.

    Args:
        classes: as in `ImageNetC`.

    Source:
        Hendrycks et al. 2021 (arXiv 2006.16241); images are resized and cropped as in its code.
    """

    title, name = "ImageNet-R", "imagenet_r"
    image_count, site = 30_000, "Get imagenet-r.tar from github.com/hendrycks/imagenet-r."


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageNetA(_Renditions):
    """ImageNet-A: `<class>/*.jpg`, 7,500 natural photographs of 200 classes that a ResNet-50 misclassifies.

    Args:
        classes: as in `ImageNetC`.

    Source:
        Hendrycks et al. 2021 (arXiv 1907.07174); images are resized and cropped as in its code.
    """

    title, name = "ImageNet-A", "imagenet_a"
    image_count, site = 7_500, "Get imagenet-a.tar from github.com/hendrycks/natural-adv-examples."


def class_ids(wnids: Sequence[str], target: Target, classes: str = "") -> np.ndarray:
    """Find the logit of each class folder.

    The order of the logits is the first of these that applies: that of the file; that of the model's own class names,
    if they contain all folders; alphabetical, if there are as many folders as logits; ImageNet's, for 1000 logits.

    Args:
        wnids: names of class folders.
        target: the model.
        classes: a text file, one class at the start of each line; "" for none.

    Returns:
        int32, one per folder.

    Raises:
        ValueError: a folder that is no class of the model, or an order that cannot be determined.
    """
    order = _order(wnids, target, classes)
    unknown = [wnid for wnid in wnids if wnid not in order]
    if unknown:
        raise InputError(
            f"The folder {shorten(unknown[0], 40)} is not a class of the model, which has {order[0]} and others."
        )
    return np.array([order.index(wnid) for wnid in wnids], np.int32)


def _order(wnids: Sequence[str], target: Target, classes: str) -> list[str]:
    count = target.class_count
    if classes:
        path = files.expanded(classes)
        if not path.is_file():
            raise DataNotFoundError(f"There is no file {shorten(path)} with the classes of the model.")
        listed = [line.split()[0] for line in files.read_text(path).splitlines() if line.strip()]
        if len(listed) != count or len(set(listed)) < count:
            raise InputError(f"{shorten(path)} names {len(set(listed))} classes; the model has {count} logits.")
        return listed
    if target.class_names is not None and set(wnids) <= set(target.class_names):
        return list(target.class_names)
    if len(wnids) == count:
        return sorted(wnids)
    if count == _CLASSES:
        from tensorflow_datasets.datasets.imagenet2012 import imagenet_common

        return pathlib.Path(imagenet_common.label_names_file()).read_text(encoding="utf-8").split()
    raise InputError(
        f"The model has {count} logits but {len(wnids)} class folders ({shorten(wnids[0], 40)}, ...) do not name their "
        "classes: set `classes` to a text file with one WordNet id per logit."
    )


# -------------------------------------------------------------------------------------------------- details


def _folders(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")


def _names(folder: pathlib.Path, suffixes: tuple[str, ...]) -> list[str]:
    names = (entry.name for entry in os.scandir(folder) if entry.name[0] != ".")
    return sorted(name for name in names if name.lower().endswith(suffixes))


def _images_by_class(folder: pathlib.Path) -> dict[str, list[str]]:
    """Map each class folder to its image files."""
    images = {wnid: _names(folder / wnid, _SUFFIXES) for wnid in _folders(folder)}
    empty = [wnid for wnid, names in images.items() if not names]
    if empty or not images:
        fault = f"{empty[0]} holds no image files ({', '.join(_SUFFIXES)})" if empty else "there are no class folders"
        raise DataNotFoundError(f"{shorten(folder)}: {fault}.")
    return images


def _labels(files: dict[str, list[str]], ids: np.ndarray) -> np.ndarray:
    return np.repeat(ids, [len(names) for names in files.values()])


def _refuse_other_files(root: pathlib.Path, first: str, part: str, files: dict[str, list[str]]) -> None:
    images = _images_by_class(root / part)
    if images == files:
        return
    ours, theirs = (
        {f"{wnid}/{name}" for wnid, names in mapping.items() for name in names} for mapping in (files, images)
    )
    lacking, name = (part, min(ours - theirs)) if ours - theirs else (first, min(theirs - ours))
    raise DataNotFoundError(
        f"{shorten(root, 70)} has different images in {first} and {part}: {lacking} lacks {shorten(name, 60)}."
    )


def _frames(clip: pathlib.Path, count: int) -> list[str]:
    names = _names(clip, _SUFFIXES)
    if len(names) != count or count < 2:
        expectation = f"another clip of that sequence {count}" if count >= 2 else "a sequence needs two"
        raise InputError(f"{shorten(clip)} has {len(names)} frames; {expectation}.")
    return names

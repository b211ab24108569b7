"""Folders of PNG and JPEG files, one folder per class."""

import dataclasses
import os
import pathlib

import keras

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.data.checks import DataNotFoundError, check_class_names, shorten
from tfrobust.data.sources.base import Source
from tfrobust.data.spec import Dataset, FileExamples
from tfrobust.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Image files in `path/train/<class>/*` and `path/test/<class>/*`, or in `path/<class>/*` alone.

    Files are PNG or JPEG. `path/validation/<class>/*` is the validation split if it exists. Class ids follow the sorted
    names of the class folders. Other files and names that start with a dot are ignored. Images are read on demand and
    converted to one shape.

    Args:
        path: the root.
        image_shape: (height, width, channels); channels 1 (gray), 3 or 4.
        test_size: a count or a fraction (1.0 for everything), if there is no test folder.
        short_side: None stretches every image to height and width. Otherwise its shorter side is resized to this many
            pixels, and height and width are cropped from the center: 256 for the usual 224 of ImageNet.
        training_crop: a random crop for training, taken from the original pixels of the file: a `RandomResizedCrop`.
            The pixels depend on (seed, epoch, position), as with any augmentation.
        verify: decode every file once before training, so that an unreadable file is reported at the start and not in
            the middle; takes about as long as reading one epoch.
    """

    path: str
    image_shape: tuple[int, int, int] = (32, 32, 3)
    test_size: int | float = 0.2
    short_side: int | None = None
    training_crop: RandomResizedCrop | None = None
    verify: bool = True

    def load(self) -> Dataset:
        """List the files and split them."""
        root = pathlib.Path(self.path).expanduser()
        if not root.is_dir():
            raise DataNotFoundError(f"there is no folder {shorten(root)}; give one with a folder per class.")
        name = root.resolve().name
        if not (root / "train").is_dir():
            class_names = _class_names(root)
            train, test = self.hold_out(self._read(root, class_names), self.test_size, "test")
            return self.assemble(name, class_names, train, test)
        class_names = _class_names(root / "train")
        train = self._read(root / "train", class_names)
        if (root / "test").is_dir():
            test = self._read(root / "test", class_names)
        else:
            train, test = self.hold_out(train, self.test_size, "test")
        if not (root / "validation").is_dir():
            return self.assemble(name, class_names, train, test)
        if self.validation_size:
            raise InputError(f"{shorten(root)} has a validation folder; leave validation_size at 0.")
        validation = self._read(root / "validation", class_names)
        return dataclasses.replace(self.assemble(name, class_names, train, test), validation=validation)

    def _read(self, folder: pathlib.Path, class_names: tuple[str, ...]) -> FileExamples:
        unknown = sorted(set(_folders(folder)) - set(class_names))
        if unknown:
            raise InputError(f"{shorten(folder)}: class {unknown[0]!r} is not among the training classes.")
        paths, labels = [], []
        for label, class_name in enumerate(class_names):
            files = _images(folder / class_name)
            paths += files
            labels += [label] * len(files)
        if not paths:
            raise InputError(f"{shorten(folder)} holds no image files ({', '.join(SUFFIXES)}).")
        reading = {"short_side": self.short_side, "training_crop": self.training_crop}
        examples = FileExamples(paths, labels, self.image_shape, **reading)
        if self.verify:
            examples.verify()
        return examples


def _folders(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")


def _images(folder: pathlib.Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    return [str(folder / name) for name in names if name[0] != "." and name.lower().endswith(SUFFIXES)]


def _class_names(folder: pathlib.Path) -> tuple[str, ...]:
    names = check_class_names(_folders(folder), shorten(folder))
    for name in names:
        if not _images(folder / name):
            raise InputError(f"{shorten(folder / name)} holds no image files ({', '.join(SUFFIXES)}).")
    return names

"""Data sets in the IDX format of MNIST: any folder of four such files, MNIST and Fashion-MNIST."""

import dataclasses
import os
import pathlib
from typing import ClassVar

import keras
import numpy as np

from tfrobust.common import files, outside
from tfrobust.common.arrays import check_labels
from tfrobust.common.outside import Download, LocalPath
from tfrobust.data.checks import DataNotFoundError, check_class_names, shorten
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.errors import InputError
from tfrobust.security.idx_files import read_idx

# What the names of the two splits begin with, after the prefix.
_SPLITS = {"train": ("train",), "test": ("t10k", "test")}
_KINDS = {"images": "idx3", "labels": "idx1"}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Idx(Source):
    """Images of any set in MNIST's IDX format: KMNIST, EMNIST, or files of your own; bytes, gray or with channels.

    Read are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same names with `t10k` or `test` in place of
    `train`; gzipped (`.gz`) or not, and also with `.idx3` in place of `-idx3`. Images are read as they are stored. The
    IDX files of EMNIST store them transposed, with rows and columns exchanged.

    Example:
        >>> from tfrobust import keras as robust
        >>> source = robust.data.Idx(path="data/emnist", prefix="emnist-letters-")
        >>> source.validation_size
        0

    Args:
        path: the folder of the four files.
        prefix: what the names of the files begin with, such as "emnist-letters-".
        class_names: by class id; empty: the ids themselves.

    Source:
        The format is described at LeCun, Cortes and Burges, The MNIST database, http://yann.lecun.com/exdb/mnist.
    """

    path: LocalPath
    prefix: str = ""
    class_names: tuple[str, ...] = ()

    def load(self) -> Dataset:
        """Read the four files."""
        folder = files.expanded(self.path)
        return self.load_folder(folder, folder.resolve().name, self.class_names)

    def load_folder(self, folder: pathlib.Path, name: str, class_names: tuple[str, ...]) -> Dataset:
        """Read the four files of a folder as the data set `name`."""
        missing = [f"{split} {kind}" for split in _SPLITS for kind in _KINDS if not self._file(folder, split, kind)]
        if missing:
            raise DataNotFoundError(
                f"{shorten(folder)} has no {' and no '.join(missing)} in IDX format, such as "
                f"{self.prefix}train-images-idx3-ubyte.gz."
            )
        return self.assemble_arrays([self._split(folder, split) for split in _SPLITS], name, class_names)

    def assemble_arrays(self, splits, name: str, class_names: tuple[str, ...]) -> Dataset:
        """Create the data set from (images [n, h, w] or [n, h, w, c], labels [n]) of training and test."""
        if not class_names:
            class_names = tuple(str(label) for label in range(1 + max(int(labels.max()) for _, labels in splits)))
        names = check_class_names(class_names, name)
        examples = []
        for split, (images, labels) in zip(_SPLITS, splits, strict=True):
            labels = check_labels(labels.astype(np.int64), len(images), len(names), f"{name}, {split}")
            examples.append(ArrayExamples(images[..., None] if images.ndim == 3 else images, labels))
        return self.assemble(name, names, *examples)

    def _split(self, folder: pathlib.Path, split: str) -> tuple[np.ndarray, np.ndarray]:
        paths = {kind: self._file(folder, split, kind) for kind in _KINDS}
        images, labels = read_idx(paths["images"], (3, 4)), read_idx(paths["labels"], (1,))
        if len(images) != len(labels):
            raise InputError(
                f"{paths['images'].name} has {len(images)} images, and {paths['labels'].name} {len(labels)} labels: "
                "are they of one set?"
            )
        return images, labels

    def _file(self, folder: pathlib.Path, split: str, kind: str) -> pathlib.Path | None:
        names = [
            f"{self.prefix}{start}-{kind}{dot}{_KINDS[kind]}-ubyte{end}"
            for start in _SPLITS[split]
            for dot in "-."
            for end in (".gz", "")
        ]
        return next((folder / name for name in names if (folder / name).is_file()), None)


def is_idx_folder(folder: pathlib.Path) -> bool:
    """Return True if a folder has the images of a training split under their usual name."""
    return any((folder / f"train-images{dot}idx3-ubyte{end}").is_file() for dot in "-." for end in (".gz", ""))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedIdx(Idx):
    """Base of published sets, which have a name, class names, and folders where they are usually found.

    Args:
        path: the folder of the four files, or one in torchvision's layout; None: Keras's cache, then the folders of
            packages.
        download: without `path`, if no folder has the files: let Keras fetch them. Otherwise nothing uses the network.
    """

    path: LocalPath | None = None
    download: Download = False

    title: ClassVar[str]
    keras_name: ClassVar[str]
    folders: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""

    def load(self) -> Dataset:
        """Read the files in `path`, or in the first of the usual folders that has them."""
        if self.path is not None:
            folder = files.expanded(self.path)
            inner = folder / self.title.replace("-", "") / "raw"  # torchvision's layout
            return self.load_folder(inner if inner.is_dir() else folder, self.keras_name, self.class_names)
        for folder in self._usual_folders():
            if all(self._file(folder, split, kind) for split in _SPLITS for kind in _KINDS):
                return self.load_folder(folder, self.keras_name, self.class_names)
        if self.download:
            return self.assemble_arrays(self._load_from_keras(), self.keras_name, self.class_names)
        kind = type(self).__name__
        raise DataNotFoundError(
            f"{self.title} is not on this machine: {self.package}set {kind}.download = True (Keras fetches it; "
            f"commands need --allow_downloads), or {kind}.path to the folder of its four IDX files."
        )

    def _usual_folders(self) -> list[pathlib.Path]:
        cache = files.expanded(os.environ.get("KERAS_HOME", "~/.keras"))
        return [cache / "datasets" / self.keras_name.replace("_", "-"), *map(pathlib.Path, self.folders)]

    def _load_from_keras(self):
        cached = self._usual_folders()[0].with_name(f"{self.keras_name}.npz")
        if not cached.is_file():
            outside.require_download(f"the data set {self.title} ({type(self).__name__}.download = True)")
        try:
            return getattr(keras.datasets, self.keras_name).load_data()
        except Exception as error:  # Keras raises Exception itself for a host that does not answer
            reason = shorten(" ".join(str(error).split()), 120)
            raise DataNotFoundError(f"Keras could not fetch {self.title}: {reason}") from error


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FashionMnist(PublishedIdx):
    """Fashion-MNIST: 60,000 and 10,000 gray images of 28x28 pixels, ten kinds of clothing.

    Example:
        >>> from tfrobust import keras as robust
        >>> source = robust.data.FashionMnist(validation_size=5000)
        >>> source.path is None, source.class_names[9]
        (True, 'Ankle boot')

    Args:
        path, download: as in `PublishedIdx`. Debian and Ubuntu have the files in the package `dataset-fashion-mnist`.
        prefix, class_names: as in `Idx`.

    Source:
        Xiao, Rasul and Vollgraf 2017, https://arxiv.org/abs/1708.07747 (MIT license)
    """

    class_names: tuple[str, ...] = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip

    title: ClassVar[str] = "Fashion-MNIST"
    keras_name: ClassVar[str] = "fashion_mnist"
    folders: ClassVar[tuple[str, ...]] = ("/usr/share/datasets/fashion-mnist",)
    package: ClassVar[str] = "apt-get install dataset-fashion-mnist (Debian, Ubuntu), "


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mnist(PublishedIdx):
    """MNIST: 60,000 and 10,000 gray images of handwritten digits, 28x28 pixels.

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.data.Mnist(path="data/mnist", validation_size=5000).download
        False

    Args:
        path, download: as in `PublishedIdx`. Keras's cache has MNIST in one file, which `download` reads or fetches.
        prefix, class_names: as in `Idx`.

    Source:
        LeCun, Bottou, Bengio and Haffner 1998, Gradient-based learning applied to document recognition
    """

    title: ClassVar[str] = "MNIST"
    keras_name: ClassVar[str] = "mnist"

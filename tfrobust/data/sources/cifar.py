"""The official CIFAR-10 and CIFAR-100 archives, in their Python and binary versions."""

import dataclasses
import pathlib
from collections.abc import Iterator

import keras
import numpy as np

from tfrobust.common.arrays import check_labels
from tfrobust.common.files import expanded, read_bounded, text_of
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import DataNotFoundError, check_class_names, shorten
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.errors import InputError
from tfrobust.security import archives
from tfrobust.security.pickles import ForbiddenPickleError, load_plain

_SITE = "https://www.cs.toronto.edu/~kriz/"
_SHAPE = (3, 32, 32)  # the channel axis is first in the files
_PIXELS = 3 * 32 * 32
_PUBLISHED = (50_000, 10_000)  # training and test images of either set
LARGEST_FILE = 2**28  # bytes of one file of the folder


@dataclasses.dataclass(frozen=True)
class _Layout:
    """File names and keys of one of the four archives.

    Attributes:
        label_bytes: label bytes of a binary record, of which the last one is used; 0 for pickles.
    """

    name: str
    train: tuple[str, ...]
    test: str
    classes: str
    label_key: bytes = b""
    names_key: bytes = b""
    label_bytes: int = 0


# Binary layouts first: a Python archive has no file of their names.
_LAYOUTS = (
    _Layout(
        "cifar10", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt",
        label_bytes=1,
    ),
    _Layout("cifar100", ("train.bin",), "test.bin", "fine_label_names.txt", label_bytes=2),
    _Layout(
        "cifar10", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta",
        b"labels", b"label_names",
    ),
    _Layout("cifar100", ("train",), "test", "meta", b"fine_labels", b"fine_label_names"),
)  # fmt: skip


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar(Source):
    """CIFAR-10 or CIFAR-100 (fine labels) as published by its authors; the files determine which.

    Args:
        path: `cifar-10-python.tar.gz`, `cifar-10-binary.tar.gz`, `cifar-100-python.tar.gz`, `cifar-100-binary.tar.gz`
            (never unpacked to disk), the unpacked folder of one of them, or its parent. The reader of pickles accepts
            only lists, strings and byte arrays.

    Source:
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images;
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    path: LocalPath

    def load(self) -> Dataset:
        """Read the archive or folder."""
        path = expanded(self.path)
        if path.is_dir():
            layout, files = _folder_files(path)
        elif path.is_file():
            layout, files = _archive_files(path)
        else:
            raise DataNotFoundError(
                f"CIFAR is not at {shorten(path, 70)}: download cifar-10-python.tar.gz or "
                f"cifar-100-python.tar.gz from {_SITE} and set Cifar.path to it."
            )
        names = check_class_names(_class_names(layout, files[layout.classes], path), shorten(path))
        train = [_batch(layout, name, files[name], len(names), path) for name in layout.train]
        test = _batch(layout, layout.test, files[layout.test], len(names), path)
        images, labels = (np.concatenate(column) for column in zip(*train, strict=True))
        data = self.assemble(layout.name, names, ArrayExamples(images, labels), ArrayExamples(*test))
        return dataclasses.replace(data, note=_note(len(images), len(test[1])))


def _note(train: int, test: int) -> str:
    """Return what distinguishes the files from the published ones, for the report; "" if they have as many images."""
    if (train, test) == _PUBLISHED:
        return ""
    return f"not the published files: {train:,} and {test:,} images in place of {_PUBLISHED[0]:,} and {_PUBLISHED[1]:,}"


def is_cifar_folder(path: pathlib.Path) -> bool:
    """Return True if a folder, or one in it, holds files of a CIFAR archive by their original names, complete or not.

    The names `train`, `test` and `meta` of CIFAR-100 are ambiguous on their own: all three must exist.
    """
    return path.is_dir() and any(present & _TELLING or _find_layout(present) for _, present in _places(path))


_TELLING = {name for layout in _LAYOUTS for name in (*layout.train, layout.test, layout.classes)}
_TELLING -= {"train", "test", "meta"}


def _places(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, set[str]]]:
    """Yield the folder and its subfolders, each with the names of its files."""
    for directory in (folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())):
        yield directory, {entry.name for entry in directory.iterdir() if entry.is_file()}


def _folder_files(folder: pathlib.Path) -> tuple[_Layout, dict[str, bytes]]:
    for directory, present in _places(folder):
        layout = _find_layout(present)
        if layout is not None:
            return layout, {name: read_bounded(directory / name, LARGEST_FILE) for name in _file_names(layout)}
    raise DataNotFoundError(_incomplete(folder))


def _archive_files(path: pathlib.Path) -> tuple[_Layout, dict[str, bytes]]:
    def needed_members(present: set[str]) -> tuple[str, ...]:
        layout = _find_layout(present)
        if layout is None:
            raise InputError(_incomplete(path))
        return _file_names(layout)

    try:
        files = archives.read_tar(path, needed_members)
    except archives.TAR_ERRORS as error:
        raise InputError(f"{shorten(path)} is not a tar archive, or is cut short; download it again.") from error
    return _find_layout(set(files)), files


def _file_names(layout: _Layout) -> tuple[str, ...]:
    return (*layout.train, layout.test, layout.classes)


def _find_layout(present: set[str]) -> _Layout | None:
    return next((layout for layout in _LAYOUTS if present.issuperset(_file_names(layout))), None)


def _incomplete(path) -> str:
    return (
        f"{shorten(path)} holds no complete CIFAR archive; expected data_batch_1 to 5, test_batch and "
        "batches.meta, or train, test and meta (or the .bin files with their name lists)."
    )


def _class_names(layout: _Layout, content: bytes, path) -> tuple[str, ...]:
    if layout.label_bytes:
        return tuple(text_of(content, shorten(path)).split())
    names = _unpickled(content, layout.classes, path).get(layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise InputError(f"{shorten(path)}: {layout.classes} has no list {layout.names_key.decode()!r}.")
    return tuple(text_of(name, f"{shorten(path)}: a name in {layout.classes}") for name in names)


def _batch(layout: _Layout, name: str, content: bytes, class_count: int, path):
    """Parse one file to images, uint8 [n, 32, 32, 3], and labels, int32 [n]."""
    where = f"{shorten(path)}, {name}"
    if layout.label_bytes:
        pixels, labels = _binary_records(content, layout.label_bytes, where)
    else:
        table = _unpickled(content, name, path)
        pixels, labels = table.get(b"data"), table.get(layout.label_key)
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
            raise InputError(f"{where}: 'data' is not an array of bytes [n, {_PIXELS}].")
        if not isinstance(labels, list) or not all(type(label) is int and label.bit_length() < 32 for label in labels):
            raise InputError(f"{where}: {layout.label_key.decode()!r} is not a list of integers.")
    labels = check_labels(np.array(labels, np.int64), len(pixels), class_count, where)
    return pixels.reshape(-1, *_SHAPE).transpose(0, 2, 3, 1), labels


def _binary_records(content: bytes, label_bytes: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    size = label_bytes + _PIXELS
    if not content or len(content) % size:
        raise InputError(
            f"{where}: {len(content)} bytes are no whole number of records of {size} bytes; download it again."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, label_bytes:], records[:, label_bytes - 1]


def _unpickled(content: bytes, name: str, path) -> dict:
    try:
        table = load_plain(content)
    except ForbiddenPickleError as error:
        raise InputError(f"{shorten(path)}, {name}: {error}") from error
    if not isinstance(table, dict):
        raise InputError(f"{shorten(path)}, {name} has no table of a CIFAR batch.")
    return table

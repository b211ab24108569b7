"""Arrays in one `.npz` file, the shortest way to use own data."""

import dataclasses
import math
import os
import zipfile

import keras
import numpy as np

from tfrobust.common import files
from tfrobust.common.arrays import check_labels
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import MOST_CLASSES, DataNotFoundError, check_class_names, check_images, shorten
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.errors import InputError
from tfrobust.security import archives


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Npz(Source):
    """File with `images` [n, h, w, c], or clips [n, t, h, w, c] (uint8, or floats in [0, 1]), and `labels`.

    Labels are integer ids [n], one-hot rows [n, k] of k classes, or texts [n], which become the class names: their ids
    follow the sorted texts, or `class_names`. `test_images` and `test_labels` in the file, if present, are the test
    split; otherwise `test_size` examples are held out. The file may contain the class names as `class_names`, and names
    of groups, such as hospitals or cameras, as `groups` [n], with `test_groups` for a test split: an evaluation then
    measures the accuracy of each group. The `note` of the data set names the arrays that are left out.

    Args:
        path: the file, as written by `numpy.savez` or `numpy.savez_compressed`.
        class_names: by class id; empty: those of the file, or the ids themselves.
        test_size: a count or a fraction (1.0 for everything), if the file has no test split.
    """

    path: LocalPath
    class_names: tuple[str, ...] = ()
    test_size: int | float = 0.2

    def load(self) -> Dataset:
        """Read the arrays and split them."""
        arrays = {"images", "labels", "class_names", "groups"}
        with _opened(self.path) as file:
            names = self.class_names or _texts(file, "class_names", self.path)
            if names is None:
                names = _read(file, "class_names", self.path, optional=True).ravel()
            has_test = "test_images" in file.files
            arrays |= {"test_images", "test_labels", "test_groups"} if has_test else set()
            left_out = ", ".join(key for key in file.files if key not in arrays)
            columns = _read(file, "labels", self.path, optional=True).shape[1:]
            texts = [_texts(file, key, self.path) for key in ("labels", "test_labels")]
            groups = [_groups(file, key, self.path) for key in ("groups", "test_groups")]
        if texts[0] is not None and not len(names):
            names = np.unique(np.concatenate([values for values in texts if values is not None]))
        images, labels = read_npz(self.path, class_names=names)
        if has_test and groups[0] is not None and groups[1] is None:
            raise InputError(
                f"{shorten(self.path)} has groups and test_images, but no test_groups, whose accuracies an evaluation "
                "would measure: add them, or leave groups out."
            )
        train, test = ArrayExamples(images, labels, groups[0]), None
        if has_test:
            test = ArrayExamples(*read_npz(self.path, "test_images", "test_labels", names), groups[1])
        else:
            train, test = self.hold_out(train, self.test_size, "test")
        name = os.path.basename(self.path)
        if not len(names):
            check_labels(labels, len(labels), MOST_CLASSES, name)
            # One-hot rows name all classes, also one without examples.
            names = tuple(str(number) for number in range(max(int(labels.max()) + 1, *columns, 0)))
        check_labels(labels, len(labels), len(names), name)
        data = self.assemble(os.path.splitext(name)[0], check_class_names(names, name), train, test)
        return dataclasses.replace(data, note=f"{name}: left out: {shorten(left_out, 100)}" if left_out else "")


def read_npz(path: str, images_key: str = "images", labels_key: str = "labels", class_names=()):
    """Read and check two arrays of an `.npz` file; nothing in it is ever unpickled.

    Args:
        path: the file.
        images_key: name of the images in it.
        labels_key: name of the labels in it.
        class_names: by class id, for labels that are texts.

    Returns:
        images, uint8 or float32 [n, h, w, c], n >= 1, and labels, int32 [n].

    Raises:
        FileNotFoundError: no such file.
        ValueError: truncated or pickled file, missing key, wrong shape, dtype or range.
    """
    name = shorten(path)
    with _opened(path) as file:
        images = check_images(_read(file, images_key, path), name)
        texts, labels = _texts(file, labels_key, path), _read(file, labels_key, path)
        labels = labels if texts is None else _ids(texts, class_names, name)
        labels = check_labels(labels, len(images), where=name)
    if not len(images):
        raise InputError(f"{name}: {images_key} holds no images.")
    return images, labels


def _texts(file, key: str, path: str) -> np.ndarray | None:
    """Return labels that are texts, str [n]; None if they are numbers or missing."""
    if key not in file.files or (labels := _read(file, key, path)).dtype.kind not in "US":
        return None
    labels = labels.ravel()
    if labels.dtype.kind == "U":
        return labels
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shorten(path)}: {key!r} has texts that are not UTF-8, such as {shorten(error.object, 40)}; save "
            f"{key}=np.char.decode({key}, 'latin-1'), or with the encoding that they have."
        ) from error


def _groups(file, key: str, path: str) -> np.ndarray | None:
    """Return the names of groups, or their numbers; None if they are missing."""
    if key not in file.files:
        return None
    texts = _texts(file, key, path)
    return _read(file, key, path).ravel() if texts is None else texts


def _ids(texts: np.ndarray, class_names, name: str) -> np.ndarray:
    ids = {str(text): position for position, text in enumerate(class_names)}
    unknown = next((text for text in texts.tolist() if text not in ids), None)
    if unknown is not None:
        choices = shorten(", ".join(ids) or "none", 100)
        raise InputError(f"{name}: the label {shorten(unknown, 40)!r} is not among the class names: {choices}.")
    return np.array([ids[text] for text in texts.tolist()], np.int64)


def _opened(path: str):
    name, path = shorten(path), files.expanded(path)
    if not os.path.isfile(path):
        raise DataNotFoundError(f"there is no file {name}; give an .npz with `images` and `labels`.")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{name} is not an .npz archive, or is cut short; write it with numpy.savez.")
    try:
        archives.check_zip(path, test_contents=False)  # the checksum of each array is verified when it is read
        return np.load(path, allow_pickle=False)
    except archives.RefusedArchiveError:
        raise
    except archives.ZIP_ERRORS as error:
        raise InputError(f"{name} cannot be read as an .npz archive; write it with numpy.savez.") from error


def _read(file, key: str, path: str, optional: bool = False) -> np.ndarray:
    name = shorten(path)
    if key not in file.files:
        if optional:
            return np.zeros(0, "U1")
        keys = ", ".join(sorted(file.files)) or "nothing"
        raise InputError(f"{name} has no array {key!r}; it holds {shorten(keys, 100)}.")
    try:
        if _has_objects(file, key):
            raise InputError(
                f"{name}: {key!r} is a pickled object, which is never read; save plain arrays (texts: .astype(str))."
            )
        return file[key]
    except archives.ARRAY_ERRORS as error:
        if "pickled" in str(error):
            raise
        raise InputError(f"{name}: {key!r} is damaged or cut short; save plain arrays with numpy.savez.") from error


def _has_objects(file, key: str) -> bool:
    """Return True if an array holds Python objects, which would be unpickled.

    NumPy allocates the memory that a header announces before it reads any data, so the size is checked first.

    Raises:
        ValueError: a header with another size than that of the data.
    """
    part = file.zip.getinfo(f"{key}.npy")
    with file.zip.open(part) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != part.file_size - stream.tell():
            raise InputError("another size than its header says")
        # An empty array may have an axis of any length.
        if max(shape, default=0) > part.file_size:
            raise InputError("an axis longer than the file")
    return dtype.hasobject

"""Data sets of TensorFlow Datasets, by name or from a prepared folder; the network is used on request only."""

import dataclasses
import json
import pathlib
import re
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common import files, outside
from tfrobust.common.arrays import check_labels
from tfrobust.common.nearest import nearest
from tfrobust.common.outside import Download, LocalPath
from tfrobust.data.checks import (
    MOST_CLASSES,
    DataNotFoundError,
    check_class_names,
    check_images,
    check_memory,
    check_pixels_of_example,
    shorten,
)
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import PIXEL_SCALE, ArrayExamples, Dataset
from tfrobust.errors import InputError
from tfrobust.security import picture_files

_HOST = "storage.googleapis.com"  # the host that TFDS contacts first for every data set
_CHUNK = 256
# The factor that scales pixels of each type to [0, 1], and the rounding errors of resizing.
_SCALES, _ROUNDING = {np.uint8: PIXEL_SCALE, np.uint16: 1 / 65535, np.float32: 1.0}, 1e-5
# Channels of the stored images, and other channels that they can be read as.
_CONVERSIONS = ((1, 3), (3, 1), (4, 3), (4, 1))
_LARGEST_TEXT = 2**24  # bytes of a description or of a list of labels
# The classes of TFDS itself; that of segmented images reads the file that its labels name.
_OWN_FEATURE = re.compile(r"tensorflow_datasets\.core\.features\.(?!labeled_image)\w+\.\w+", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedSource(Source):
    """Base of sources that read a TFDS set, found by name or folder and prepared on request only.

    Args:
        dataset: a name ("cifar10", "mnist_corrupted/shear", "cifar10:3.0.2"), or a prepared folder that contains
            `dataset_info.json`, itself or one or two levels below.
        data_dir: folder of prepared data and downloads; None for the TFDS default.
        download: download and prepare missing data. Without it nothing ever uses the network.
        train_split: TFDS split, slices allowed ("train[:80%]").
    """

    dataset: LocalPath
    data_dir: LocalPath | None = None
    download: Download = False
    train_split: str = "train"

    otherwise: ClassVar[str] = "read files of your own with Npz, ImageFolder or Cifar"

    def prepared(self):
        """Return the builder of the set, prepared if necessary.

        Raises:
            FileNotFoundError: the set is not prepared, and must not or cannot be.
            ValueError: no such data set.
        """
        builder = self._builder()
        if not builder.info.splits:
            self._prepare(builder)
        return builder

    def batches(
        self, builder, split: str, pick: Callable, decoders: dict | None = None
    ) -> list[tuple[np.ndarray, ...]]:
        """Read a split in the order of its files.

        Args:
            builder: the prepared builder.
            split: TFDS split.
            pick: example -> the tensors to keep.
            decoders: decoders of TFDS by feature; None for its own.

        Returns:
            Batches of the picked tensors as NumPy arrays.

        Raises:
            ValueError: no such split, an empty one, or damaged files.
        """
        damaged = InputError(f"{shorten(builder.data_path)}, split {split!r}: damaged or cut short.")
        try:
            stream = builder.as_dataset(split=split, shuffle_files=False, decoders=decoders)
        except (ValueError, KeyError, AssertionError) as error:
            raise (damaged if split in builder.info.splits else self._no_split(builder, split)) from error
        try:
            batches = list(stream.map(pick).batch(_CHUNK).as_numpy_iterator())
        except tf.errors.OpError as error:
            raise damaged from error
        if not batches:
            raise InputError(f"{shorten(self.dataset, 60)!r}: split {split!r} is empty.")
        return batches

    def examples_in(self, builder, split: str) -> int:
        """Return the number of examples in a split, from the metadata alone.

        Raises:
            ValueError: no such split.
        """
        try:
            return builder.info.splits[split].num_examples
        except (ValueError, KeyError, AssertionError) as error:
            raise self._no_split(builder, split) from error

    def _no_split(self, builder, split: str) -> InputError:
        splits = shorten(", ".join(builder.info.splits), 80)
        return InputError(f"{shorten(self.dataset, 60)!r} has no split {split!r}; it has {splits}.")

    def _builder(self):
        import tensorflow_datasets as tfds

        folder = files.expanded(self.dataset)
        if folder.is_dir():
            dataset_folder = _prepared_folder(folder)
            _check_prepared(dataset_folder)
            try:
                return tfds.builder_from_directory(str(dataset_folder))
            except Exception as error:  # TFDS raises whatever the part at fault raises
                reason = shorten(" ".join(str(error).split()), 100)
                raise InputError(f"{shorten(dataset_folder)} cannot be read by TFDS: {reason}") from error
        if folder.is_absolute() or self.dataset.startswith((".", "~")):
            raise DataNotFoundError(f"there is no folder {shorten(folder)} with a prepared TFDS data set.")
        name = self.dataset.split("/")[0].split(":")[0]
        builders = tfds.list_builders(with_community_datasets=False)
        if name not in builders:
            near = nearest(name, builders)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise InputError(
                f"There is no folder {shorten(folder)}, and TFDS has no data set {shorten(name, 60)!r}{hint}."
            )
        for pattern in ("*", "*/*") if self.data_dir else ():
            # TFDS takes a version that it has no code for from its files.
            for file in (files.expanded(self.data_dir) / name).glob(f"{pattern}/features.json"):
                _check_prepared(file.parent)
        try:
            return tfds.builder(self.dataset, data_dir=self.data_dir)
        except Exception as error:  # see above
            reason = shorten(" ".join(str(error).split())[-150:], 150)
            raise InputError(f"TFDS cannot build {shorten(self.dataset, 60)!r}: {reason}") from error

    def _prepare(self, builder):
        if not self.download:
            raise DataNotFoundError(
                f"{shorten(self.dataset, 40)!r} is not in {shorten(builder.data_path, 100)}: set "
                f"{type(self).__name__}.download = True with --allow_downloads, or copy the prepared folder there, or "
                f"{self.otherwise}."
            )
        name = shorten(self.dataset, 60)
        outside.require_download(f"the data set {name!r} ({type(self).__name__}.download = True)")
        manual = pathlib.Path(builder.data_path).parents[1] / "downloads" / "manual"
        by_hand = manual.is_dir() and any(manual.iterdir())
        if not by_hand and not network_reachable():  # TFDS itself would silently retry for minutes
            raise DataNotFoundError(
                f"{shorten(self.dataset, 40)!r} is not in {shorten(builder.data_path, 70)} and {_HOST} "
                f"cannot be reached: copy the prepared folder there from another machine, or {self.otherwise}."
            )
        try:
            builder.download_and_prepare()
        except (OSError, AssertionError) as error:  # network errors are OSErrors
            reason = shorten(" ".join(str(error).split()), 80)
            raise DataNotFoundError(f"TFDS could not prepare {shorten(self.dataset, 60)!r}: {reason}") from error


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorFlowDatasets(PreparedSource):
    """TFDS image classification set with one `Image` and one `ClassLabel` feature, read into memory.

    Images of 8 and 16 bits are scaled to [0, 1]; floats must lie there. JPEG images of any size are turned as their
    EXIF orientation says.

    Args:
        dataset, data_dir, download, train_split: see `PreparedSource`.
        test_split: TFDS split; None holds `test_size` out of the training split.
        test_size: a count or a fraction, if test_split is None.
        image_shape: (height, width, channels) to which images are resized; required if sizes vary. Transparency is left
            out if channels are fewer than the images have.
    """

    test_split: str | None = "test"
    test_size: int | float = 0.2
    image_shape: tuple[int, int, int] | None = None

    def load(self) -> Dataset:
        """Read the splits into memory."""
        builder, image_key, label_key = self.opened()
        train = self._read(builder, self.train_split, image_key, label_key)
        if self.test_split is None:
            train, test = self.hold_out(train, self.test_size, "test")
        else:
            test = self._read(builder, self.test_split, image_key, label_key)
        names = check_class_names(builder.info.features[label_key].names, shorten(self.dataset))
        data = self.assemble(builder.name, names, train, test)
        stored = builder.info.features[image_key]
        note = "" if stored.np_dtype != np.uint16 else "images of 16 bits, divided by 65535"
        if stored.shape[-1] == 4 and self.image_shape is not None and self.image_shape[2] < 4:
            note = f"{note}{'; ' if note else ''}transparency left out"
        return dataclasses.replace(data, note=f"{shorten(self.dataset, 60)}: {note}" if note else "")

    def opened(self) -> tuple:
        """Return the prepared builder and the names of its image and label features.

        Raises:
            FileNotFoundError: the set is not prepared, and must not or cannot be.
            ValueError: no such data set, or no image classification.
        """
        builder = self.prepared()
        return builder, *self._keys(builder)

    def _keys(self, builder) -> tuple[str, str]:
        import tensorflow_datasets as tfds

        features = builder.info.features
        images = [key for key, feature in features.items() if isinstance(feature, tfds.features.Image)]
        labels = [key for key, feature in features.items() if isinstance(feature, tfds.features.ClassLabel)]
        if len(images) != 1 or len(labels) < 1:
            raise InputError(
                f"{shorten(self.dataset, 60)!r} has {len(images)} images and {len(labels)} class labels per example; "
                "image classification needs one of each."
            )
        # Several label features (fine and coarse): the one named label, else the one with most classes.
        labels.sort(key=lambda key: (key != "label", -features[key].num_classes, key))
        if self.image_shape is None and None in features[images[0]].shape:
            raise InputError(
                f"the images of {shorten(self.dataset, 60)!r} vary in size ({features[images[0]].shape}); "
                "set TensorFlowDatasets.image_shape."
            )
        channels, target = features[images[0]].shape[-1], (self.image_shape or features[images[0]].shape)[-1]
        if channels != target and (channels, target) not in _CONVERSIONS:
            raise InputError(
                f"{shorten(self.dataset, 60)!r} has images of {channels} channels, which cannot be read as {target}: "
                f"set the last number of TensorFlowDatasets.image_shape to {channels}."
            )
        return images[0], labels[0]

    def _read(self, builder, split: str, image_key: str, label_key: str) -> ArrayExamples:
        stored = builder.info.features[image_key]
        shape = tuple(self.image_shape or stored.shape)
        convert = self.image_shape is not None and shape != tuple(stored.shape)
        convert |= stored.np_dtype == np.uint16
        if self.image_shape is not None:
            check_pixels_of_example(shape[:2])
            check_memory(self.examples_in(builder, split), shape, 4 if convert else 1, "data")

        def pick(example):
            image = example[image_key]
            return (_converted(image, shape) if convert else image), example[label_key]

        decoders = {image_key: _upright()} if None in stored.shape and stored.np_dtype == np.uint8 else None
        batches = self.batches(builder, split, pick, decoders)
        where = shorten(f"{self.dataset}, {split}")
        images = check_images(np.concatenate([batch[0] for batch in batches]), where)
        labels = check_labels(np.concatenate([batch[1] for batch in batches]), len(images), where=where)
        return ArrayExamples(images, labels)


def network_reachable(timeout: float = 3.0) -> bool:
    """Return True if names resolve within `timeout` seconds, or a proxy is configured, which then resolves them."""
    if urllib.request.getproxies():
        return True
    answers = []

    def resolve():
        try:
            answers.append(socket.getaddrinfo(_HOST, 443))
        except OSError:
            pass

    thread = threading.Thread(target=resolve, daemon=True)  # the resolver itself has no time limit
    thread.start()
    thread.join(timeout)
    return bool(answers)


def is_prepared(folder: pathlib.Path) -> bool:
    """Return True if a folder holds a prepared set, itself or one or two levels below."""
    return bool(_prepared_folders(folder))


def _prepared_folders(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the prepared folders at the first level that has any."""
    levels = (folder.glob(f"{pattern}dataset_info.json") for pattern in ("", "*/", "*/*/"))
    return next((folders for level in levels if (folders := sorted(file.parent for file in level))), [])


def _check_prepared(folder: pathlib.Path) -> None:
    """Raise InputError for a prepared folder that would make TFDS run code, wait, or read elsewhere.

    TFDS imports the module of each class that features.json names, reads any file that its labels name, and counts all
    classes.
    """
    for path in sorted(folder.iterdir()):
        if not (path.is_file() or path.is_dir()):
            raise InputError(f"{shorten(path)} is not a regular file, as in a prepared data set.")
        if path.suffix in (".json", ".txt"):
            fault = _text_fault(path.name, files.read_bounded(path, _LARGEST_TEXT))
            if fault:
                raise InputError(f"{shorten(path)}: {fault}.")


def _text_fault(name: str, content: bytes) -> str:
    """Return what TFDS must not read in a text of a prepared folder, or ""."""
    is_harmless = {"features.json": _is_harmless_feature, "dataset_info.json": _is_harmless_fact}.get(name)
    if is_harmless is None:
        return ""
    try:
        waiting = [json.loads(content)]
    except (ValueError, RecursionError):
        return "it is no JSON"
    while waiting:
        part = waiting.pop()
        fields = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, value in fields:
            if not is_harmless(key, value):
                return f"{key} {shorten(repr(value), 60)} is not read"
            waiting.append(value)
    return ""


def _is_harmless_feature(key, value) -> bool:
    if key in ("numClasses", "num_classes") and not isinstance(value, dict):
        digits = str(value)[:20]
        return digits.isdecimal() and int(digits) <= MOST_CLASSES
    if not isinstance(value, str):
        return key not in ("jsonFeature", "json_feature")  # JSON inside JSON
    if key in ("type", "pythonClassName", "python_class_name"):
        return _OWN_FEATURE.fullmatch(value) is not None
    return key != "names_file"  # a file anywhere


def _is_harmless_fact(key, value) -> bool:
    return key not in ("filepathTemplate", "filepath_template") or (isinstance(value, str) and "/" not in value)


def _prepared_folder(folder: pathlib.Path) -> pathlib.Path:
    folders = _prepared_folders(folder)
    if len(folders) == 1:
        return folders[0]
    if folders:
        names = ", ".join(str(path.relative_to(folder)) for path in folders)
        raise InputError(f"{shorten(folder)} has several data sets; name one: {shorten(names, 120)}.")
    raise DataNotFoundError(f"{shorten(folder)} has no prepared TFDS data set (no dataset_info.json).")


def _upright():
    """Return a decoder of TFDS that turns JPEG images as their EXIF orientation says."""
    import tensorflow_datasets as tfds

    @tfds.decode.make_decoder()
    def upright(encoded, feature):
        return picture_files.turned(feature.decode_example(encoded), picture_files.orientation(encoded))

    return upright()


def _converted(image: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """Scale an integer image to [0, 1], and convert it to a shape; floats outside [0, 1] stay there, to be refused."""
    image = tf.cast(image, tf.float32) * np.float32(_SCALES[image.dtype.as_numpy_dtype])
    if image.shape[-1] == 4 and shape[2] < 4:
        image = image[..., :3]
    if image.shape[-1] == 1 and shape[2] == 3:
        image = tf.image.grayscale_to_rgb(image)
    elif image.shape[-1] == 3 and shape[2] == 1:
        image = tf.image.rgb_to_grayscale(image)
    image = tf.image.resize(image, shape[:2], antialias=True)
    clipped = tf.clip_by_value(image, 0.0, 1.0)
    return tf.ensure_shape(tf.where(tf.abs(image - clipped) < _ROUNDING, clipped, image), shape)

"""Interface of data to the rest of the library: splits of labeled images, clips or sentences, fetched by position."""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.augment.resampling import INTERPOLATIONS
from tfrobust.augment.resized_crop import RandomResizedCrop, resized
from tfrobust.common.arrays import check_groups, check_labels
from tfrobust.common.kinds import TEXT, Kind, kind_of
from tfrobust.common.settings import require_choice, require_tuple
from tfrobust.data.checks import (
    check_images,
    check_memory,
    check_pixels_of_example,
    check_tokens,
    check_utf8,
    check_vocabulary,
)
from tfrobust.errors import InputError
from tfrobust.security import picture_files

# Always multiply, never divide: TensorFlow's graph optimizer turns x / 255 into x * (1 / 255), which differs from
# the eager quotient in the last bit of 126 of the 256 values. 255 * PIXEL_SCALE is exactly 1.
PIXEL_SCALE = np.float32(1 / 255)

FITS = ("stretch", "crop", "pad")

_CHUNK = 256
_LARGEST_FILE = 2**28  # bytes of one file: the size of the largest accepted image, uncompressed


class Examples:
    """One split: labeled images by position. Subclasses define where the pixels are stored.

    Clips use the same interface, with examples [t, h, w, c], and sentences, as rows of token ids, int32 [length]
    (`data.text.TokenExamples`).
    """

    labels: np.ndarray
    image_shape: tuple[int, ...]
    dtype: np.dtype = np.dtype(np.float32)  # of the output of `fetch`
    strengths: np.ndarray | None = None  # of each token, see `data.text.TokenExamples`
    # Names of the group of each example, str [n], such as a hospital; or int32 [n], the video of each clip.
    groups: np.ndarray | None = None
    fit: int | str = "stretch"  # see `decode_image`
    interpolation: str = "bilinear"  # see `decode_image`

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, index: tf.Tensor) -> tf.Tensor:
        """Return the images at some positions, eagerly, in a graph or inside `tf.data`.

        Args:
            index: integer [b], positions in this split.

        Returns:
            float32 [b, h, w, c] in [0, 1].
        """
        raise NotImplementedError

    def fetch_training(self, index: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Return the images at some positions for training.

        As `fetch`, but images that are cropped as they are read get a new random crop for each key.

        Args:
            index: integer [b], positions in this split.
            keys: int32 [b, 2], one per example.

        Returns:
            float32 [b, h, w, c] in [0, 1].
        """
        return self.fetch(index)

    def take(self, positions: Sequence[int]) -> "Examples":
        """Return the examples at some positions, in that order, as a separate split."""
        raise NotImplementedError

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) of the images and labels in order, equal in every process."""
        digest = hashlib.sha256(f"labels {len(self)}\n".encode())
        digest.update(self.labels.astype("<i4").tobytes())
        self._hash_images(digest)
        return digest.hexdigest()

    def arrays(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the examples as arrays.

        Args:
            limit: largest number of examples, spread evenly over the split (the first ones of a class-sorted folder
                would all have one class); None for all.

        Returns:
            float32 [n, h, w, c] images in [0, 1], or int32 [n, length] tokens, and int32 [n] labels.

        Raises:
            ValueError: a negative limit, or more examples than fit into the free memory.
        """
        count = len(self) if limit is None else min(limit, len(self))
        if count < 0:
            raise InputError(f"limit is {limit}; it must be at least 0.")
        positions = np.arange(count, dtype=np.int64) * len(self) // max(count, 1)
        # A chunk exists as single examples and as a batch before it is copied.
        check_memory(count, self.image_shape, self.dtype.itemsize, "data", buffered=2 * min(count, _CHUNK))
        images = np.empty((count, *self.image_shape), self.dtype)
        for start in range(0, count, _CHUNK):
            images[start : start + _CHUNK] = self.fetch(tf.constant(positions[start : start + _CHUNK])).numpy()
        return images, self.labels[positions]

    def _hash_images(self, digest):
        raise NotImplementedError


class ArrayExamples(Examples):
    """Images or clips in memory.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> examples = robust.data.ArrayExamples(np.zeros((2, 8, 8, 1), "uint8"), [0, 1])
        >>> len(examples), examples.image_shape
        (2, (8, 8, 1))

    Args:
        images: uint8 [n, h, w, c] in 0..255 (stored as such, scaled when fetched), or floats in [0, 1]; or clips
            [n, t, h, w, c].
        labels: integer [n] class ids.
        groups: names [n] of the group of each example, whose accuracies an evaluation then measures; or None.

    Raises:
        ValueError: see `check_images`, `arrays.check_labels`, `arrays.check_groups`.
    """

    def __init__(self, images, labels, groups=None):
        self.images = check_images(images)
        self.labels = check_labels(labels, len(self.images))
        self.groups = check_groups(groups, len(self.images))
        self.image_shape = tuple(int(size) for size in self.images.shape[1:])

    @functools.cached_property
    def _tensor(self) -> tf.Tensor:
        # In host memory and outside any graph: a graph captures the tensor without copying it.
        with tf.init_scope(), tf.device("CPU"):
            return tf.constant(self.images)

    def fetch(self, index: tf.Tensor) -> tf.Tensor:
        """Return the images at some positions, float32 [b, h, w, c]."""
        images = tf.gather(self._tensor, index)
        return tf.cast(images, tf.float32) * PIXEL_SCALE if self.images.dtype == np.uint8 else images

    def take(self, positions: Sequence[int]) -> "ArrayExamples":
        """Return the examples at some positions as a separate split."""
        positions = np.asarray(positions, np.int64)
        groups = None if self.groups is None else self.groups[positions]
        return ArrayExamples(self.images[positions], self.labels[positions], groups)

    def _hash_images(self, digest):
        digest.update(f"{self.images.dtype.name} {list(self.images.shape)}\n".encode())
        digest.update(np.ascontiguousarray(self.images).data)


class FileExamples(Examples):
    """PNG or JPEG files, read when fetched: only paths and labels stay in memory.

    Args:
        paths: n file names.
        labels: integer [n] class ids.
        image_shape: (height, width, channels) of the returned images; channels 1, 3 or 4.
        fit: see `decode_image`.
        interpolation: see `decode_image`; `training_crop` is always bilinear.
        training_crop: random crop of the original image, for `fetch_training`; None for no crop.
        groups: names [n] of the group of each file; or None.

    Raises:
        ValueError: a file name that is not UTF-8, labels or groups that do not fit, or an invalid `image_shape` or
            `fit`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels,
        image_shape: tuple[int, ...],
        *,
        fit: int | str = "stretch",
        interpolation: str = "bilinear",
        training_crop: RandomResizedCrop | None = None,
        groups=None,
    ):
        self.paths = tuple(str(path) for path in paths)
        for path in self.paths:
            check_utf8(path, "the file name")
        self.labels = check_labels(labels, len(self.paths))
        self.groups = check_groups(groups, len(self.paths))
        self.image_shape = tuple(int(size) for size in require_tuple(image_shape, "image_shape", 3))
        self.fit = fit
        self.interpolation = require_choice(interpolation, "interpolation", INTERPOLATIONS)
        self.training_crop = training_crop
        check_shape(self.image_shape, fit)

    @functools.cached_property
    def _tensor(self) -> tf.Tensor:
        with tf.init_scope(), tf.device("CPU"):
            return tf.constant(self.paths, tf.string, [len(self.paths)])

    def fetch(self, index: tf.Tensor) -> tf.Tensor:
        """Read and decode the files at some positions, float32 [b, h, w, c]."""
        return self._mapped(self._decoded, tf.gather(self._tensor, index))

    def fetch_training(self, index: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Read the files at some positions with a random crop, float32 [b, h, w, c]."""
        if self.training_crop is None:
            return self.fetch(index)
        return self._mapped(self._cropped, (tf.gather(self._tensor, index), keys))

    def _mapped(self, function, elements) -> tf.Tensor:
        return tf.map_fn(function, elements, fn_output_signature=tf.TensorSpec(self.image_shape, tf.float32))

    def _decoded(self, path: tf.Tensor) -> tf.Tensor:
        return decode_image(tf.io.read_file(path), self.image_shape, self.fit, self.interpolation)

    def _cropped(self, pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        path, key = pair
        image = decode_pixels(tf.io.read_file(path), self.image_shape[2])
        draw = self.training_crop.draw(key[None], (1, *tf.unstack(tf.shape(image))))
        return self.training_crop.cut(image, draw["box"][0], self.image_shape[:2])

    def take(self, positions: Sequence[int]) -> "FileExamples":
        """Return the examples at some positions as a separate split."""
        positions = np.asarray(positions, np.int64)
        reading = {"fit": self.fit, "interpolation": self.interpolation, "training_crop": self.training_crop}
        reading |= {"groups": None if self.groups is None else self.groups[positions]}
        return FileExamples([self.paths[i] for i in positions], self.labels[positions], self.image_shape, **reading)

    def _hash_images(self, digest):
        size = f"{list(self.image_shape)}" + ("" if self.fit == "stretch" else f" of {self.fit}")
        size += "" if self.interpolation == "bilinear" else f" {self.interpolation}"
        digest.update(f"files {size}\n".encode())
        for path in self.paths:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())


def check_shape(image_shape: tuple[int, ...], fit: int | str) -> None:
    """Raise InputError for a shape or a fit that `decode_image` does not take, or of too many pixels."""
    if min(require_tuple(image_shape, "image_shape", 3)) < 1 or image_shape[2] not in (1, 3, 4):
        raise InputError(f"image_shape is {image_shape}, not (height, width, 1, 3 or 4).")
    names = ", ".join(map(repr, FITS))
    if not isinstance(fit, (str, int)):
        raise InputError(f"fit or short_side is {fit!r}; it is a whole number of pixels, or one of {names}.")
    check_pixels_of_example(image_shape[:2], fit)
    if isinstance(fit, str) and fit not in FITS:
        raise InputError(f"fit is {fit!r}; it is one of {names}.")
    if isinstance(fit, int) and fit < max(image_shape[:2]):
        raise InputError(f"short_side is {fit}; it must be at least {max(image_shape[:2])} to crop {image_shape[:2]}.")


def examine(paths: Sequence[str], shape: tuple[int, int, int] | None = None, fit: int | str = "stretch") -> np.ndarray:
    """Read and decode image files once, to find those that cannot be read.

    Args:
        paths: n names of files, or of links to files that are missing.
        shape: (height, width, channels) that images will be converted to; 4 channels only from PNG. None for their
            own size, in color.
        fit: see `decode_image`.

    Returns:
        int64 [n, 4]: height and width of the upright image; 1 for a gray or 3 for a color image, 2 or 4 with an alpha
        channel; and the EXIF orientation, 1 for images that are stored upright. Zeros for a file that is missing,
        unreadable, no PNG or JPEG, larger than 256 MiB, or so long and narrow that it cannot be resized.
    """
    sizes = np.zeros((len(paths), 4), np.int64)
    positions = [i for i, path in enumerate(paths) if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST_FILE]
    channels = shape[2] if shape else 3

    def examined(path):
        encoded = tf.io.read_file(path)
        # Return a pixel value: if only the size were needed, TensorFlow would prune the decoding.
        pixel = tf.reduce_max(picture_files.decoded(encoded, channels))
        height, width, depth = tf.unstack(picture_files.shape(encoded))
        orientation = picture_files.orientation(encoded)
        sides = tf.where(orientation >= 5, [width, height], [height, width])
        if shape and fit != "stretch":
            with tf.control_dependencies([_resized_sides(sides, shape[:2], fit)]):
                sides = tf.identity(sides)
        return tf.stack([*tf.unstack(sides), depth, orientation]), pixel

    names = tf.constant([paths[i] for i in positions], tf.string, [len(positions)])
    stream = iter(
        tf.data.Dataset.from_tensor_slices(names).map(examined, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    for position in positions:
        with contextlib.suppress(tf.errors.OpError):
            sizes[position] = next(stream)[0]
    return sizes


def decode_image(
    encoded: tf.Tensor,
    image_shape: tuple[int, ...],
    fit: int | str = "stretch",
    interpolation: str = "bilinear",
    *,
    upright: bool = True,
) -> tf.Tensor:
    """Decode one PNG or JPEG image to the shape that models use (resized with antialiasing).

    A JPEG image is turned as its EXIF orientation says.

    Args:
        encoded: string scalar, the file's bytes; gray and color are converted to the requested channels.
        image_shape: (height, width, channels).
        fit: "stretch" resizes to height and width, whatever the proportions. The others keep the proportions. "crop"
            fills height and width, and cuts the rest off evenly; "pad" resizes the whole image to lie inside, and adds
            black borders evenly. A number resizes the shorter side to this many pixels, and height and width are
            cropped from the center.
        interpolation: "bilinear" or "bicubic".
        upright: False for pixels as they are stored, whatever the EXIF orientation, as published protocols read them.

    Returns:
        float32 [h, w, c] in [0, 1].
    """
    height, width, channels = image_shape
    image = decode_pixels(encoded, channels, upright=upright)
    return tf.ensure_shape(fitted(image, (height, width), fit, interpolation), image_shape)


def fitted(image: tf.Tensor, size: tuple[int, int], fit: int | str, interpolation: str = "bilinear") -> tf.Tensor:
    """Resize one image to `size` = (height, width); the other arguments are those of `decode_image`.

    Args:
        image: float32 [h, w, c] in [0, 1].
        size: height and width.
        fit: see `decode_image`.
        interpolation: see `decode_image`.

    Returns:
        float32 [height, width, c] in [0, 1].
    """
    height, width = size
    if fit == "stretch":
        return resized(image, [height, width], interpolation)
    sides = _resized_sides(tf.shape(image, tf.int64)[:2], size, fit)
    image = resized(image, sides, interpolation)
    if fit == "pad":
        top, left = tf.unstack(([height, width] - sides) // 2)
        return tf.image.pad_to_bounding_box(image, top, left, height, width)
    margin = tf.cast(tf.round((sides - [height, width]) / 2), tf.int32)
    return tf.slice(image, [*tf.unstack(margin), 0], [height, width, -1])


def _resized_sides(sides: tf.Tensor, size: tuple[int, int], fit: int | str) -> tf.Tensor:
    """Return the sides of an image after `fitted` has resized it, before it is cropped or padded, int32 [2].

    Args:
        sides: int64 [2], height and width of the image.
        size: see `fitted`.
        fit: see `fitted`, except "stretch".

    Raises:
        tf.errors.InvalidArgumentError: a long and narrow image would have more than `picture_files.LARGEST` pixels.
    """
    if isinstance(fit, int):
        sides = fit * sides // tf.reduce_min(sides)
    else:
        ratios = tf.constant(size, tf.float64) / tf.cast(sides, tf.float64)
        ratio = tf.reduce_max(ratios) if fit == "crop" else tf.reduce_min(ratios)
        sides = tf.maximum(tf.cast(tf.round(ratio * tf.cast(sides, tf.float64)), tf.int64), 1)
    check = tf.debugging.Assert(
        tf.reduce_prod(sides) <= picture_files.LARGEST, ["resized, this image has the sides", sides]
    )
    with tf.control_dependencies([check]):
        return tf.cast(sides, tf.int32)


def decode_pixels(encoded: tf.Tensor, channels: int, *, upright: bool = True) -> tf.Tensor:
    """Decode one PNG or JPEG image at its own size, float32 [h, w, channels] in [0, 1].

    A JPEG image is turned as its EXIF orientation says, unless `upright` is False.
    """
    pixels = picture_files.decoded(encoded, channels)
    pixels = picture_files.turned(pixels, picture_files.orientation(encoded)) if upright else pixels
    return tf.cast(pixels, tf.float32) * PIXEL_SCALE


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Three splits of one classification task.

    Attributes:
        name: name in reports.
        class_names: one per class id.
        train, validation, test: `Examples` of one image shape; validation may be empty.
        vocabulary: for text, the word of each token id; () for images.
        note: what the source did to the examples, as one line for people; "" if nothing.

    Raises:
        ValueError: splits of different shapes, labels that are no classes, or tokens that are not in the vocabulary.
    """

    name: str
    class_names: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    vocabulary: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self):
        if self.vocabulary:
            check_vocabulary(self.vocabulary, self.name)
        for split in ("train", "validation", "test"):
            examples = getattr(self, split)
            if examples.image_shape != self.train.image_shape:
                raise InputError(
                    f"{self.name}: {split} examples have shape {list(examples.image_shape)}, "
                    f"training examples {list(self.train.image_shape)}."
                )
            where = f"{self.name}, {split}"
            check_labels(examples.labels, len(examples), len(self.class_names), where)
            if self.is_text:
                check_tokens(examples.arrays()[0], where, len(self.vocabulary))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels), (frames, height, width, channels) of clips, or (length,) of text."""
        return self.train.image_shape

    @property
    def kind(self) -> Kind:
        """Kind of the examples, which the rank of `image_shape` defines."""
        return kind_of(self.image_shape)

    @property
    def is_text(self) -> bool:
        """True if the examples are sentences, rows of token ids."""
        return self.kind is TEXT

    @property
    def class_count(self) -> int:
        """The number of classes, whether or not each has examples."""
        return len(self.class_names)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of examples by split name."""
        return {split: len(getattr(self, split)) for split in ("train", "validation", "test")}

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) over the images and labels of the three splits, and the vocabulary of text."""
        parts = [f"{split} {getattr(self, split).fingerprint}" for split in ("train", "validation", "test")]
        parts += self.vocabulary
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

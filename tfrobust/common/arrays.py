"""Checks of arrays of images and labels; messages name the array, the first example at fault and what is allowed."""

import numpy as np

from tfrobust.errors import InputError

_MOST_GROUPS = 1000


def check_pixels(images, where: str = "images", low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Check that every pixel is finite and within the bounds, and return the images as float32.

    Args:
        images: floating-point array [n, ...], also of bfloat16.
        where: name of the images in messages, for instance a file name.
        low: lower bound of a pixel.
        high: upper bound of a pixel.

    Returns:
        float32 [n, ...], little-endian and contiguous.

    Raises:
        InputError: another dtype, NaN, infinity, or a pixel outside the bounds.
    """
    images = np.asarray(images)
    if images.dtype.name == "bfloat16":  # of ml_dtypes: no floating-point number to NumPy
        images = images.astype(np.float32)
    bounds, is_integer = f"[{low:g}, {high:g}]", images.dtype.kind in "iu"
    remedy = ("cast them by images.astype(np.float32), and " if is_integer else "") + "scale the images to these bounds"
    if (low, high) == (0, 1):
        is_wide = is_integer and images.size and images.max() > 255
        remedy = f"divide {'16 bits by 65535' if is_wide else 'bytes by 255'}"
        remedy = "convert them by images.astype(np.float32)" if images.dtype.kind == "b" else remedy
    if not np.issubdtype(images.dtype, np.floating):
        raise InputError(f"{where}: pixels are {images.dtype}, not floating point in {bounds}; {remedy}.")
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity, which is reported below
        images = np.ascontiguousarray(images, "<f4")
    if images.size and not (images.min() >= low and images.max() <= high):  # not(): NaN fails every comparison
        bad = ~((images >= low) & (images <= high))
        position = int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
        value = images[position][bad[position]][0]
        raise InputError(
            f"{where}: image {position} has a pixel of {value!s}; pixels must be finite and in {bounds}: {remedy}, "
            "clip rounding errors (np.clip), and keep normalization inside the model."
        )
    return images


def channels_first(shape) -> str:
    """Return a remedy if the shape of images [n, c, h, w] or clips [n, c, t, h, w], [n, t, c, h, w] has them first."""
    before = [axis for axis in range(1, len(shape) - 2) if shape[axis] in (1, 3, 4)]
    if len(shape) not in (4, 5) or not before or min(shape[-2:]) <= 4:
        return ""
    remedy = "; the channels come first" + (" (NCHW)" if len(shape) == 4 else "") + ", so move them to the end"
    return remedy + (f": np.moveaxis(images, {before[0]}, -1)" if len(before) == 1 else "")


def check_groups(groups, count: int, where: str = "groups") -> np.ndarray | None:
    """Check the names of groups, such as hospitals, and return them as texts.

    Args:
        groups: texts or numbers [n], one per example; or None.
        count: number of examples they belong to.
        where: name of the groups in messages.

    Returns:
        str [n], or None.

    Raises:
        InputError: another rank or length, an empty name, or more than 1000 different names.
    """
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.ndim != 1 or len(names) != count:
        raise InputError(f"{where}: the shape is {list(names.shape)}, not [{count}], one name for each example.")
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names):  # a column of pandas
        names = names.astype(str)
    if names.dtype.kind not in "Uiub":
        raise InputError(f"{where}: names are {names.dtype}; give texts, or integers.")
    names = names.astype(str)
    different = np.unique(names)
    if len(different) > _MOST_GROUPS or "" in different:
        fault = "an empty name" if "" in different else f"{len(different)} different names, more than {_MOST_GROUPS}"
        raise InputError(f"{where}: {fault}.")
    return names


def check_labels(
    labels, count: int, class_count: int | None = None, where: str = "labels", *, floats: bool = False
) -> np.ndarray:
    """Check labels and return them as class ids, from ids or one-hot rows.

    Args:
        labels: integers [n] or [n, 1], each in 0..class_count-1; or one-hot rows [n, k] of any numeric type.
        count: number of examples they belong to.
        class_count: number of classes; None does not check an upper bound.
        where: name of the labels in messages.
        floats: True to accept ids that are whole numbers of a floating-point type.

    Returns:
        int32 [n].

    Raises:
        InputError: another rank, length or dtype, an id out of range, or rows that are not one-hot, since success
            against a soft label is not defined.
    """
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2):
        raise InputError(f"{where}: the shape is {list(labels.shape)}, not [n] or, one-hot, [n, k].")
    if len(labels) != count:
        raise InputError(f"{where}: {len(labels)} labels for {count} examples.")
    if labels.ndim == 2:
        labels = labels[:, 0] if labels.shape[1] == 1 else _from_one_hot(labels, where)
    if labels.dtype.kind not in ("iuf" if floats else "iu"):
        raise InputError(f"{where}: labels are {labels.dtype}; class ids are integers.")
    upper = np.iinfo(np.int32).max if class_count is None else class_count - 1
    ids = "whole numbers from 0" if class_count is None else f"0 to {upper}"
    bad = ~((labels >= 0) & (labels <= upper))  # not(): NaN fails every comparison
    if labels.dtype.kind == "f":
        bad |= labels != np.trunc(labels)
    if bad.any():
        position = int(np.argmax(bad))
        raise InputError(f"{where}: label {labels[position]} of example {position} is not a class id; ids are {ids}.")
    return labels.astype(np.int32)


def _from_one_hot(labels: np.ndarray, where: str) -> np.ndarray:
    numbers = labels.dtype.kind in "biuf"
    if not numbers or not np.all((labels == 0) | (labels == 1)) or not np.all(labels.sum(axis=1) == 1):
        raise InputError(f"{where}: rows of labels must be one-hot, each with one 1 and zeros.")
    return labels.argmax(axis=1).astype(np.int32)

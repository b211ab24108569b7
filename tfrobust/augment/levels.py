"""Image operations by level, 0 to 10 of each operation's range, as in AutoAugment, RandAugment and AugMix."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfrobust.augment import operations
from tfrobust.errors import InputError


def operate(pixels: tf.Tensor, operation: tf.Tensor, level: tf.Tensor, changes: Sequence[Callable]) -> tf.Tensor:
    """Apply one operation to each image.

    Args:
        pixels: uint8 [n, h, w, c], c = 1 or 3; or any tensor that the `changes` accept.
        operation: int32 [n], indices into `changes`; len(changes) leaves an image unchanged.
        level: float32 [n].
        changes: functions (pixels, level) -> pixels, such as those of `CODE`.

    Returns:
        A tensor like `pixels`.
    """
    rows = [tf.where(operation == number) for number in range(len(changes))]
    changed = [
        change(tf.gather_nd(pixels, chosen), tf.gather_nd(level, chosen))
        for change, chosen in zip(changes, rows, strict=True)
    ]
    return tf.tensor_scatter_nd_update(pixels, tf.concat(rows, axis=0), tf.concat(changed, axis=0))


def check_channels(images: tf.Tensor, owner: str) -> None:
    """Raise ValueError for images that are neither gray nor RGB; `owner` is named in the message."""
    if images.shape[-1] not in (1, 3):
        raise InputError(f"{owner} supports gray and RGB images, not {images.shape[-1]} channels.")


def _integer(level: tf.Tensor, largest: float) -> tf.Tensor:
    """Convert a level to an integer parameter as the authors' code does, int32, truncated."""
    return tf.cast(level * (largest / 10), tf.int32)


def _nearest(level: tf.Tensor, largest: float) -> tf.Tensor:
    return tf.cast(tf.round(level * (largest / 10)), tf.int32)


def _enhanced(operation):
    return lambda pixels, level: operation(pixels, tf.abs(level) * 0.18 + 0.1)


# Parameters by level in the authors' released code (AutoAugment for CIFAR-10, and AugMix after it). A negative level is
# the opposite direction if there is one; the other operations use its absolute value.
CODE = {
    "autocontrast": lambda pixels, level: operations.autocontrast(pixels),
    "equalize": lambda pixels, level: operations.equalize(pixels),
    "posterize": lambda pixels, level: operations.posterize(pixels, 4 - _integer(tf.abs(level), 4)),
    "rotate": lambda pixels, level: operations.rotate(pixels, _integer(level, 30)),
    "solarize": lambda pixels, level: operations.solarize(pixels, 256 - _integer(tf.abs(level), 256)),
    "shear_x": lambda pixels, level: operations.shear_x(pixels, level * 0.03),
    "shear_y": lambda pixels, level: operations.shear_y(pixels, level * 0.03),
    "translate_x": lambda pixels, level: operations.translate_x(pixels, _integer(level, pixels.shape[2] / 3)),
    "translate_y": lambda pixels, level: operations.translate_y(pixels, _integer(level, pixels.shape[1] / 3)),
    "color": _enhanced(operations.color),
    "contrast": _enhanced(operations.contrast),
    "brightness": _enhanced(operations.brightness),
    "sharpness": _enhanced(operations.sharpness),
    "invert": lambda pixels, level: 255 - pixels,
    "identity": lambda pixels, level: pixels,
}
# The ranges in the table of operations of the AutoAugment paper, in equal steps: 8 to 4 bits, and up to 150 of
# ImageNet's 331 pixels.
PAPER = CODE | {
    "posterize": lambda pixels, level: operations.posterize(pixels, 8 - _nearest(tf.abs(level), 4)),
    "rotate": lambda pixels, level: operations.rotate(pixels, level * 3.0),
    "solarize": lambda pixels, level: operations.solarize(pixels, 256 - _nearest(tf.abs(level), 256)),
    "translate_x": lambda pixels, level: operations.translate_x(pixels, _nearest(level, pixels.shape[2] * 150 / 331)),
    "translate_y": lambda pixels, level: operations.translate_y(pixels, _nearest(level, pixels.shape[1] * 150 / 331)),
}
READINGS = {"paper": PAPER, "code": CODE}

"""AutoAugment and RandAugment: sequences of operations, sampled for each image from a published policy.

`keras.layers.RandAugment` samples its operations once for a whole batch, from a stateful generator, in ranges of its
own, and its equalization differs from Pillow's. Keras has no AutoAugment.
"""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.augment import levels, operations
from tfrobust.augment.augmentation import Augmentation, draw_uniform
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError

# One sub-policy per line: operation, probability in tenths, magnitude, twice. Operations without a magnitude have the
# printed one.
_CIFAR10 = """
    invert 1 7        contrast 2 6
    rotate 7 2        translate_x 3 9
    sharpness 8 1     sharpness 9 3
    shear_y 5 8       translate_y 7 9
    autocontrast 5 8  equalize 9 2
    shear_y 2 7       posterize 3 7
    color 4 3         brightness 6 7
    sharpness 3 9     brightness 7 9
    equalize 6 5      equalize 5 1
    contrast 6 7      sharpness 6 5
    color 7 7         translate_x 5 8
    equalize 3 7      autocontrast 4 8
    translate_y 4 3   sharpness 2 6
    brightness 9 6    color 2 8
    solarize 5 2      invert 0 3
    equalize 2 0      autocontrast 6 0
    equalize 2 8      equalize 6 4
    color 9 9         equalize 6 6
    autocontrast 8 4  solarize 2 8
    brightness 1 3    color 7 0
    solarize 4 5      autocontrast 9 3
    translate_y 9 9   translate_y 7 9
    autocontrast 9 2  solarize 8 3
    equalize 8 8      invert 1 3
    translate_y 7 9   autocontrast 9 1
"""
_IMAGENET = """
    posterize 4 8     rotate 6 9
    solarize 6 5      autocontrast 6 5
    equalize 8 8      equalize 6 3
    posterize 6 7     posterize 6 6
    equalize 4 7      solarize 2 4
    equalize 4 4      rotate 8 8
    solarize 6 3      equalize 6 7
    posterize 8 5     equalize 10 2
    rotate 2 3        solarize 6 8
    equalize 6 8      posterize 4 6
    rotate 8 8        color 4 0
    rotate 4 9        equalize 6 2
    equalize 0 7      equalize 8 8
    invert 6 4        equalize 10 8
    color 6 4         contrast 10 8
    rotate 8 8        color 10 2
    color 8 8         solarize 8 7
    sharpness 4 7     invert 6 8
    shear_x 6 5       equalize 10 9
    color 4 0         equalize 6 3
    equalize 4 7      solarize 2 4
    solarize 6 5      autocontrast 6 5
    invert 6 4        equalize 10 8
    color 6 4         contrast 10 8
    equalize 8 8      equalize 6 3
"""


def _sub_policies(text: str) -> tuple:
    """Parse lines to ((operation, probability, magnitude), (...)) for each sub-policy."""
    words = [line.split() for line in text.strip().splitlines()]
    return tuple(tuple((row[i], int(row[i + 1]) / 10, int(row[i + 2])) for i in (0, 3)) for row in words)


POLICIES = {"cifar10": _sub_policies(_CIFAR10), "imagenet": _sub_policies(_IMAGENET)}
OPERATIONS = tuple(levels.CODE)
RAND_AUGMENT_OPERATIONS = (
    *("identity", "autocontrast", "equalize", "rotate", "solarize", "color", "posterize"),
    *("contrast", "brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y"),
)


class _Policy(Augmentation):
    """Base of both policies: application of the sampled operations."""

    ranges: str

    @property
    def names(self) -> tuple[str, ...]:
        """The operations that may be sampled."""
        raise NotImplementedError

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply the sampled operations one after another."""
        levels.check_channels(images, type(self).__name__)
        changes = [levels.READINGS[self.ranges][name] for name in self.names]
        pixels = operations.to_pixels(images)
        for step in range(draw["operation"].shape[1]):
            pixels = levels.operate(pixels, draw["operation"][:, step], draw["level"][:, step], changes)
        # An unchanged image is not rounded to gray levels either.
        changed = tf.reduce_any(draw["operation"] < len(changes), axis=1)
        return tf.where(changed[:, None, None, None], operations.to_images(pixels), images)

    def _check_ranges(self) -> None:
        if self.ranges not in levels.READINGS:
            name = type(self).__name__
            raise InputError(f"{name}.ranges is {self.ranges!r}; it is one of {list(levels.READINGS)}.")


def _either_way(level: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
    return tf.where(chance < 0.5, level, -level)


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoAugment(_Policy):
    """The published AutoAugment policies: one of 25 pairs of operations for each image, each with a probability.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, key = tf.random.stateless_uniform([4, 32, 32, 3], (0, 1)), tf.constant([0, 1])
        >>> augmented = robust.augment.AutoAugment(policy="cifar10")(images, key)
        >>> augmented.shape, bool(tf.reduce_all(augmented == images))
        (TensorShape([4, 32, 32, 3]), False)

    Args:
        policy: "cifar10" or "imagenet".
        ranges: meaning of a magnitude m = 0 .. 9. "paper": ten equal steps over the printed ranges, m / 9 (posterize 8
            .. 4 bits, translations up to 150 / 331 of the image). "code": the released code for CIFAR-10, m / 10 and
            truncated to integers (posterize 4 - int(0.4 m) bits, translations up to a third, rotation in degrees).

    Draw:
        operation: int32 [b, 2], indices into `names`; len(names) for none.
        level: float32 [b, 2] in [-10, 10], negative for the other direction.

    Raises:
        ValueError: an unknown policy or `ranges`; in `apply`, images that are neither gray nor RGB.

    Source:
        Cubuk et al. 2019, https://arxiv.org/abs/1805.09501, its tables of policies and of ranges. The released code
        samples the nearest pixel and fills with the mean; here sampling is bilinear and the fill is 0. Cutout follows
        in the released code.
    """

    policy: str = "cifar10"
    ranges: str = "paper"

    def __post_init__(self):
        self._check_ranges()
        require_choice(self.policy, "AutoAugment.policy", POLICIES)

    @property
    def names(self):
        """The operations of the policy."""
        used = {entry[0] for pair in POLICIES[self.policy] for entry in pair}
        return tuple(name for name in OPERATIONS if name in used)

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample a pair of operations, whether each is applied, and the directions."""
        pairs, names = POLICIES[self.policy], self.names
        # Columns: the pair, the chances of its two operations, their directions.
        uniform = draw_uniform(key, images_shape[0], [5], "policy")
        pair = tf.cast(uniform[:, 0] * len(pairs), tf.int32)
        index = tf.gather(tf.constant([[names.index(entry[0]) for entry in row] for row in pairs]), pair)
        probability = tf.gather(tf.constant([[entry[1] for entry in row] for row in pairs]), pair)
        full = 9.0 if self.ranges == "paper" else 10.0
        level = tf.gather(tf.constant([[10.0 * entry[2] / full for entry in row] for row in pairs]), pair)
        operation = tf.where(uniform[:, 1:3] < probability, index, len(names))
        return {"operation": operation, "level": _either_way(level, uniform[:, 3:])}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandAugment(_Policy):
    """Sequence of operations for each image, all equally likely, at one magnitude.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> augmentation = robust.augment.RandAugment(count=1, magnitude=5.0, operations=("invert",))
        >>> round(float(augmentation(tf.fill([1, 8, 8, 1], 0.2), tf.constant([0, 1]))[0, 0, 0, 0]), 3)
        0.8

    Args:
        count: N, number of operations, >= 1.
        magnitude: M in [0, 10], 10 is the full range of each operation. (Other implementations count to 30.)
        operations: names from `OPERATIONS` to sample from. The default is the paper's 14. A later release of the
            authors samples from 16 (without identity, with invert, cutout and an addition to dark levels), each with a
            probability of its own.
        ranges: as in `AutoAugment`; those of the paper are wider.

    Draw:
        operation: int32 [b, count], indices into `operations`.
        level: float32 [b, count], magnitude or minus it.

    Raises:
        ValueError: an argument out of its range, or an unknown operation; in `apply`, images that are neither gray nor
            RGB.

    Source:
        Cubuk et al. 2020, https://arxiv.org/abs/1909.13719; N = 2, M = 9 for ResNet-50 on ImageNet. Here sampling is
        bilinear and the fill is 0.
    """

    count: int = 2
    magnitude: float = 9.0
    operations: tuple[str, ...] = RAND_AUGMENT_OPERATIONS
    ranges: str = "paper"

    def __post_init__(self):
        self._check_ranges()
        object.__setattr__(self, "count", require_whole(self.count, "RandAugment.count"))
        if not 0 <= self.magnitude <= 10:
            raise InputError(f"RandAugment.magnitude is {self.magnitude}; it must lie in [0, 10].")
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown or not self.operations:
            raise InputError(f"RandAugment.operations is {self.operations}; it names some of {list(OPERATIONS)}.")

    @property
    def names(self):
        """The operations that may be sampled, `operations`."""
        return tuple(self.operations)

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample operations and directions."""
        # Rows: the operations, their directions.
        uniform = draw_uniform(key, images_shape[0], [2, self.count], "operations")
        operation = tf.cast(uniform[:, 0] * len(self.operations), tf.int32)
        level = tf.fill(tf.shape(operation), float(self.magnitude))
        return {"operation": operation, "level": _either_way(level, uniform[:, 1])}

"""AugMix: several chains of image operations per image, mixed with each other and with the image."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from tfrobust.augment import levels, operations
from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.mixing import CANDIDATES, log_gamma_of
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.ops import distribution, hashing, randomness
from tfrobust.ops.shapes import batch_size

# The authors' order. The last four are optional, because corruptions of the benchmark resemble them.
OPERATIONS = (
    *("autocontrast", "equalize", "posterize", "rotate", "solarize"),
    *("shear_x", "shear_y", "translate_x", "translate_y"),
)
ALL_OPERATIONS = (*OPERATIONS, "color", "contrast", "brightness", "sharpness")
_DEEPEST = 3


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class AugMix(Augmentation):
    """Mixture of an image with chains of random operations on it, sampled independently for each image.

    (1 - m) x + m sum_i w_i chain_i(x), w ~ Dirichlet(alpha, ..., alpha), m ~ Beta(alpha, alpha). A chain is a sequence
    of `depth` operations, each uniform on 9 (autocontrast, equalize, posterize, rotate, solarize, shear and translate
    both ways; with `all_operations` on 13: color, contrast, brightness, sharpness as well), at a level l ~ U(0.1,
    severity) on a scale that ends at 10, in either direction. The chains operate on x rounded to 256 gray levels, as
    Pillow does.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, key = tf.random.stateless_uniform([4, 32, 32, 3], (0, 1)), tf.constant([0, 1])
        >>> augmix = robust.augment.AugMix(severity=3.0)
        >>> first, second = augmix(images, key), augmix(images, key + 1)
        >>> first.shape, bool(tf.reduce_any(first == second)), bool(tf.reduce_all(augmix(images, key) == first))
        (TensorShape([4, 32, 32, 3]), False, True)

    Args:
        width: chains, >= 1.
        depth: operations of each chain, >= 1; None for 1, 2 or 3 with equal probability.
        severity: in [0.1, 10]. At 3 an image is rotated by up to 8 degrees and translated by up to a tenth.
        alpha: > 0, of both distributions.
        all_operations: sample from 13 operations. The four additional ones resemble corruptions of the benchmark.

    Draw:
        weights: float32 [b, width], w.
        mix: float32 [b], m.
        depth: int32 [b, width].
        operation: int32 [b, width, steps], indices into `ALL_OPERATIONS`, steps the largest depth.
        level: float32 [b, width, steps], l; negative for the other direction.

    Raises:
        ValueError: an argument out of its range; in `apply`, images that are neither gray nor RGB.

    Source:
        Hendrycks et al. 2020, https://arxiv.org/abs/1912.02781, and their code, in which m weights the chains, as here.
        The paper has m on x and 1 - m on the chains. Both are the same in distribution, because Beta(alpha, alpha) is
        symmetric. Images that are not square are translated by a share of their own height or width.
    """

    width: int = 3
    depth: int | None = None
    severity: float = 3.0
    alpha: float = 1.0
    all_operations: bool = False

    def __post_init__(self):
        for name in ("width",) if self.depth is None else ("width", "depth"):
            object.__setattr__(self, name, require_whole(getattr(self, name), f"AugMix.{name}"))
        if not 0.1 <= self.severity <= 10:
            raise InputError(f"AugMix.severity is {self.severity}; it must lie in [0.1, 10].")
        if not 0 < self.alpha < math.inf:
            raise InputError(f"AugMix.alpha is {self.alpha}; it must be finite and above 0.")

    @property
    def _names(self) -> tuple[str, ...]:
        return ALL_OPERATIONS if self.all_operations else OPERATIONS

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample weights, depths, operations and levels."""
        if key.shape.rank == 1:
            key = randomness.example_keys(key, distribution.global_rows(images_shape[0]))
        steps = self.depth or _DEEPEST
        shape = [self.width, steps]
        mix, weights = self._draw_mixture(key)
        if self.depth is None:
            depth = 1 + tf.cast(_DEEPEST * hashing.uniform(key, [self.width], "depth"), tf.int32)
        else:
            depth = tf.fill([tf.shape(key)[0], self.width], self.depth)
        level = hashing.uniform(key, shape, "level", 0.1, self.severity)
        flipped = hashing.uniform(key, shape, "direction") < 0.5
        return {
            "weights": weights,
            "mix": mix,
            "depth": depth,
            "operation": tf.cast(len(self._names) * hashing.uniform(key, shape, "operation"), tf.int32),
            "level": tf.where(flipped, -level, level),
        }

    def _draw_mixture(self, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sample m, float32 [b], and w, float32 [b, width]."""
        # A logarithm may differ in the last bit between vectorized and scalar code. Rounded from double precision, the
        # numbers of an example do not depend on its place in the batch.
        count = self.width + 2
        uniform = tf.cast(hashing.uniform(key, [count, 2 * CANDIDATES + 1], "mixture"), tf.float64)
        normal, accept, scale = tf.split(uniform, [CANDIDATES, CANDIDATES, 1], axis=-1)
        normal = tf.math.ndtri(normal + 2.0**-25)
        logits = log_gamma_of(np.full(count, self.alpha), normal, accept, scale[..., 0])
        weights = tf.nn.softmax(logits[:, 2:])
        return tf.cast(tf.sigmoid(logits[:, 0] - logits[:, 1]), tf.float32), tf.cast(weights, tf.float32)

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply the sampled chains and mix them with the images."""
        levels.check_channels(images, "AugMix")
        changes = [levels.CODE[name] for name in self._names]
        steps = draw["operation"].shape[-1]
        chosen, level = (tf.reshape(draw[name], [-1, steps]) for name in ("operation", "level"))
        active = tf.range(steps) < tf.reshape(draw["depth"], [-1, 1])
        chosen = tf.where(active, chosen, len(changes))

        def body(step, chains):
            return step + 1, levels.operate(chains, chosen[:, step], level[:, step], changes)

        # With a loop, the graph contains the operations only once.
        chains = tf.repeat(operations.to_pixels(images), self.width, axis=0)
        _, chains = tf.while_loop(lambda step, _: step < steps, body, (0, chains), parallel_iterations=1)
        chains = tf.reshape(operations.to_images(chains), [batch_size(images), self.width, *images.shape[1:]])
        mixture = tf.reduce_sum(draw["weights"][:, :, None, None, None] * chains, axis=1)
        mix = draw["mix"][:, None, None, None]
        return tf.clip_by_value((1.0 - mix) * images + mix * mixture, 0.0, 1.0)

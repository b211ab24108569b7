"""The last layer of SwAV and DINO: the similarity of an embedding to each of several learned prototypes."""

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.ops import similarity

LENGTHS = ("projected", "weight_norm", "trained")


@keras.saving.register_keras_serializable(package="tfrobust")
class Prototypes(Configured, keras.layers.Layer):
    """Scores s_k = g_k <z / |z|, c_k> of k prototypes c_k of length 1, float32 under any dtype policy.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.Prototypes(3)
        >>> scores = layer(tf.random.stateless_normal([4, 8], (0, 1)))
        >>> scores.shape, bool(tf.reduce_all(tf.abs(scores) <= 1.0001))
        (TensorShape([4, 3]), True)

    Args:
        count: k >= 1. The papers have 3000 (SwAV) and 65,536 (DINO).
        lengths: how they stay 1. "projected": the kernel holds c_k, and `project` sets the lengths to 1, which a method
            calls after each step; the gradient does not see it (SwAV). "weight_norm": c_k = v_k / |v_k|, through which
            gradients flow, g_k = 1 (DINO, ViT-B). "trained": the same with trained g_k (DINO, ViT-S).

    Raises:
        ValueError: a count below 1, or unknown `lengths`.

    Source:
        facebookresearch/swav, src/resnet50.py; facebookresearch/dino, vision_transformer.py.
    """

    def __init__(self, count: int, *, lengths: str = "projected", name: str | None = None, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)
        self.count = require_whole(count, "Prototypes.count")
        self.lengths = require_choice(lengths, "Prototypes.lengths", LENGTHS)

    def build(self, input_shape):
        """Create the kernel [d, k]."""
        uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        shape = (int(input_shape[-1]), self.count)

        def unit_columns(shape, dtype):
            return tf.cast(_unit(uniform(shape, dtype)), dtype)

        # By the initializer, since a model that `fit` builds is traced, where an assignment would be lost.
        initializer = unit_columns if self.lengths == "projected" else uniform
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=initializer, autocast=False)
        if self.lengths == "trained":
            self.scale = self.add_weight(name="scale", shape=(1, self.count), initializer="ones", autocast=False)

    def compute_output_shape(self, input_shape):
        """Return (b, count)."""
        return (*tuple(input_shape)[:-1], self.count)

    def call(self, embedding):
        """Compute the scores [b, k] of embeddings [b, d]."""
        kernel = tf.cast(self.kernel, tf.float32)
        if self.lengths != "projected":
            kernel = _unit(kernel)
        scores = tf.matmul(similarity.normalize(embedding), kernel)
        return scores * tf.cast(self.scale, tf.float32) if self.lengths == "trained" else scores

    def project(self) -> None:
        """Set the lengths of the kernel's columns to 1."""
        self.kernel.assign(_unit(tf.convert_to_tensor(self.kernel)))


def _unit(kernel: tf.Tensor) -> tf.Tensor:
    return tf.transpose(similarity.normalize(tf.transpose(kernel)))

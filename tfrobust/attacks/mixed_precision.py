"""Projected gradient ascent whose first steps compute the model in 16 bits."""

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared import modes
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError

PRECISIONS = ("mixed_bfloat16", "mixed_float16")
# The last steps, rounded up, compute in float32.
_LAST = 5


@keras.saving.register_keras_serializable(package="tfrobust")
class MixedPrecisionPGD(PGD):
    """PGD with the model in 16 bits during the first four fifths of the steps; the last fifth computes in float32.

    Weights, points, losses and projections stay float32. The last steps correct points at which 16-bit gradients have a
    wrong sign. In evaluation, a batch computes in float32 as soon as one of its examples is in its last fifth, and
    success is verified in float32, as for every attack. It is faster than PGD on processors with 16-bit arithmetic
    only: `tools/benchmarks/bench_attacks.py` measures it.

    The model is a Keras model with float32 layers; layers of another precision stay as they are. A function has no
    layers, and neither has a SavedModel. In training, `Adversary` uses it for every method with adversarial examples of
    the images.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((2, 2, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])
        >>> attack = robust.attacks.MixedPrecisionPGD(robust.attacks.ThreatModel(epsilon=0.1), steps=10)
        >>> images, labels = np.random.rand(6, 2, 2, 1).astype("float32"), np.arange(6) % 3
        >>> result = robust.attacks.run_attack(attack, model, images, labels)
        >>> attack.reduced_steps, bool(np.abs(result.adversarial - images).max() <= 0.1 + 1e-6)
        (8, True)

    Args beyond those of PGD:
        precision: "mixed_bfloat16" or "mixed_float16".

    Raises:
        ValueError: a value out of its range; (when called) a model without Keras layers in float32.

    Source:
        The layers' policies are those of Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740.
    """

    name = "mixed_precision_pgd"

    def __init__(self, threat: ThreatModel | None = None, *, precision: str = "mixed_bfloat16", **kwargs):
        super().__init__(threat, **kwargs)
        self.precision = require_choice(precision, "MixedPrecisionPGD.precision", PRECISIONS)

    @property
    def reduced_steps(self) -> int:
        """Number of steps in 16 bits."""
        return self.steps - -(-self.steps // _LAST)

    def _memory(self, inputs):
        return {"step": tf.zeros([tf.shape(inputs)[0]], tf.int32)}

    def _steer(self, gradient, memory):
        return gradient, {"step": tf.ensure_shape(memory["step"] + 1, memory["step"].shape)}

    def _gradient(self, objective, leaves, points, memories):
        gradient = super()._gradient
        outputs = []

        def full_pass():
            gradients, _, logits = gradient(objective, leaves, points, memories)
            outputs.append(logits)
            return [*gradients, *([] if logits is None else [logits])]

        def reduced_pass():
            with modes.reduced_precision(self.precision) as layers:
                results = full_pass()
            if not layers:
                raise InputError(
                    "MixedPrecisionPGD needs a Keras model with layers in float32, whose precision it can change; use "
                    "PGD for functions, SavedModels and objectives other than adversarial examples of the images."
                )
            return results

        early = tf.reduce_all(memories[0]["step"] < self.reduced_steps)
        results = tf.cond(early, reduced_pass, full_pass)
        logits = None if outputs[-1] is None else results.pop()
        return results, points, logits

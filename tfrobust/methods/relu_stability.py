"""Adversarial training with ReLU stability (Xiao et al., 2019): few ReLUs may change their sign within epsilon."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared.threat import USUAL_RADII
from tfrobust.certification import intervals
from tfrobust.certification.network import Network, walk
from tfrobust.certification.nonlinear import ReLU
from tfrobust.certification.operations import Box
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.methods.adversarial_training import AdversarialTraining


@keras.saving.register_keras_serializable(package="tfrobust")
class ReLUStability(AdversarialTraining):
    """Cross-entropy on clean images and on adversarial examples, and a penalty on ReLUs of unknown sign.

    L = ce + ce_adv + weight stability, with

        stability = sum over the inputs of all ReLUs of  -tanh(1 + lower upper)

    for the interval [lower, upper] of an input within epsilon: the product is negative where the sign is unknown. Such
    ReLUs are what branch and bound splits (`CertifiedAccuracy.method = 'complete'`), so fewer of them let it finish,
    at little cost in accuracy under attack. Batch normalization uses the statistics of the clean images for the
    intervals, too. The authors also add a small L1 norm of the weights.

    Terms: `ce`, `ce_adv`, `stability`. Needs: labels, and layers that bounds can pass (`certification.network.walk`).

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.ReLUStability(*parts, attack=attack, epsilon=0.1)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'ce_adv', 'loss', 'stability']

    Args:
        encoder, head: as in `Method`.
        epsilon: radius of the intervals in L∞, in pixel units, > 0; it has no default.
        norm: 'linf', the only norm of the intervals.
        **kwargs: as in `AdversarialTraining`. The weight is `term_weights["stability"]`, 1e-4 by default.

    Raises:
        ValueError: an epsilon that is missing or not positive, another norm; when built, a layer that bounds cannot
            pass, by name.

    Source:
        Xiao et al. 2019, https://arxiv.org/abs/1809.03008, section 3.2; MadryLab/relu_stable, whose default weight is
        1e-4.
    """

    terms = ("ce", "ce_adv", "stability")
    default_weights = {"stability": 1e-4}

    def __init__(self, encoder, head, *, epsilon: float | None = None, norm: str = "linf", **kwargs):
        super().__init__(encoder, head, **kwargs)
        if epsilon is None or not epsilon > 0:
            raise InputError(
                f"ReLUStability.epsilon is {epsilon}; it must be > 0, and no radius fits all data; {USUAL_RADII}."
            )
        require_choice(norm, "ReLUStability.norm", ("linf",))  # no attribute: it is always the same
        self.epsilon = epsilon

    def build(self, input_shape=None):
        """Build the parts, and check that bounds can pass them."""
        super().build(input_shape)
        walk(self)

    @property
    def passes_per_step(self):
        """Passes per step: those of adversarial training, the statistics, centers and radii."""
        return super().passes_per_step + 3

    def loss_terms(self, views, batch, context):
        """Compute the terms and the clean logits."""
        terms, logits = super().loss_terms(views, batch, context)
        network, images = walk(self), views["images"]
        arithmetic = intervals.batch_arithmetic(network, images)
        box = intervals.input_box(images, self.epsilon, *self.pixel_bounds)
        boxes = intervals.propagate(network, box, arithmetic)
        return terms | {"stability": stability(network, boxes)}, logits


def stability(network: Network, boxes: list[Box]) -> tf.Tensor:
    """Return the sum over the inputs of all ReLUs of -tanh(1 + lower upper), float [b]."""
    total = tf.zeros(tf.shape(boxes[0].lower)[:1], boxes[0].lower.dtype)
    for operation, (source, *_) in network.nodes:
        if isinstance(operation, ReLU):
            lower, upper = boxes[source]
            total -= tf.reduce_sum(tf.tanh(1.0 + lower * upper), list(range(1, lower.shape.rank)))
    return total

"""IBP training (Gowal et al., 2018): cross-entropy of the worst logits that interval bounds allow."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared.threat import USUAL_RADII
from tfrobust.certification import intervals
from tfrobust.certification.network import walk
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.shared import interval_training
from tfrobust.methods.shared.method import Method


@keras.saving.register_keras_serializable(package="tfrobust")
class IBP(Method):
    """Cross-entropy on clean images, and on lower bounds of all margins within epsilon.

    L = kappa ce + (1 - kappa) ce_certified + lambda (tightness + balance). ce_certified is the cross-entropy of the
    logits -m_j, where m_j is the lower bound of the label's margin over class j, by intervals. During the ramp p from 0
    to 1 the radius is p times the final one, kappa falls from 1 to its final value, and lambda from `regularization` to
    0. Batch normalization uses the statistics of the clean images for the bounds, too.

    Terms: `ce`, `ce_certified`, `tightness`, `balance`. Needs: labels, and layers that bounds can pass
    (`certification.network.walk`).

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.IBP(*parts, epsilon=0.1)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['balance', 'ce', 'ce_certified', 'loss', 'tightness']

    Args:
        encoder, head: as in `Method`.
        epsilon: radius in L∞ to be certified, in pixel units, > 0; it has no default, because no radius fits all data.
        norm: 'linf', the only norm of these bounds.
        enlargement: the radius of training is so many times epsilon, >= 1.
        ramp: schedule of the step from 0 to 1, such as `SmoothedRamp`; None is 1 from the start.
        kappa: final weight of the clean cross-entropy, in [0, 1].
        regularization: first weight of `tightness` and `balance`, >= 0; without a ramp they have no weight.
        initialization: draw the kernels of an encoder that is not built yet from the distribution of Shi et al., for
            which the width of the bounds does not grow from layer to layer.
        **kwargs: as in `Method`.

    Raises:
        ValueError: arguments out of range; when built, a layer that bounds cannot pass, by name.

    Source:
        Gowal et al. 2018, https://arxiv.org/abs/1810.12715, eqs 10 to 12 (linear ramp, 1.1 times epsilon, kappa 0.5);
        Shi et al. 2021, https://arxiv.org/abs/2103.17268, sections 3.2 and 3.3 (initialization, regularizers, weight
        0.5, smoothed ramp; their kappa is 0).
    """

    terms = ("ce", "ce_certified", "tightness", "balance")

    def __init__(
        self,
        encoder,
        head,
        *,
        epsilon: float | None = None,
        norm: str = "linf",
        enlargement: float = 1.1,
        ramp: keras.optimizers.schedules.LearningRateSchedule | None = None,
        kappa: float = 0.5,
        regularization: float = 0.5,
        initialization: bool = True,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        if epsilon is None:
            raise InputError(f"{type(self).__name__}.epsilon is not set, and no radius fits all data; {USUAL_RADII}.")
        require_choice(norm, f"{type(self).__name__}.norm", ("linf",))  # no attribute: it is always the same
        if not epsilon > 0 or not enlargement >= 1 or not 0 <= kappa <= 1 or not regularization >= 0:
            raise InputError(
                f"{type(self).__name__} has epsilon {epsilon} (> 0), enlargement {enlargement} (>= 1), kappa {kappa} "
                f"(in [0, 1]) and regularization {regularization} (>= 0)."
            )
        self.epsilon = epsilon
        self.enlargement = enlargement
        self.ramp = ramp
        self.kappa = kappa
        self.regularization = regularization
        self.initialization = initialization

    def build(self, input_shape=None):
        """Build the parts, check that bounds can pass them, and draw their kernels."""
        is_new = not (self.built or self.encoder.built)
        super().build(input_shape)
        network = walk(self)
        if is_new and self.initialization:
            interval_training.initialize(network, self.seed)

    @property
    def default_weights(self):
        """The weights of the terms: numbers, or with a ramp functions of the step."""
        weights = {
            self.terms[0]: lambda progress: 1.0 - (1.0 - self.kappa) * progress,
            "ce_certified": lambda progress: (1.0 - self.kappa) * progress,
            "tightness": lambda progress: self.regularization * (1.0 - progress),
            "balance": lambda progress: self.regularization * (1.0 - progress),
        }
        if self.ramp is None:
            return {name: weight(1.0) for name, weight in weights.items()}
        return {name: lambda step, weight=weight: weight(self.ramp(step)) for name, weight in weights.items()}

    @property
    def radius_ramp(self):
        """The `ramp`, and the final radius."""
        return None if self.ramp is None else (self.ramp, self.epsilon * self.enlargement)

    @property
    def passes_per_step(self):
        """Passes per step: the images, their statistics, centers and radii."""
        return 4

    def loss_terms(self, views, batch, context):
        """Compute the terms and the logits of the images."""
        _, logits = self.propagate(views["images"])
        terms = {"ce": cross_entropy(logits, batch.labels)}
        return terms | self.bounded_terms(views["images"], batch.labels, context), logits

    def bounded_terms(self, images: tf.Tensor, labels: tf.Tensor, context) -> dict[str, tf.Tensor]:
        """Return the terms of the bounds, `ce_certified`, `tightness` and `balance`, each float32 [b].

        Args:
            images: float32 [b, ...].
            labels: int32 [b].
            context: of the step.
        """
        network = walk(self)
        progress = tf.cast(1.0 if self.ramp is None else self.ramp(context.step), tf.float32)
        low, high = self.pixel_bounds
        # A box of one point has no width, whose ratios the regularizers are made of.
        radius = tf.maximum(progress * self.epsilon * self.enlargement, 1e-6 * (high - low))
        arithmetic = intervals.batch_arithmetic(network, images)
        boxes = intervals.propagate(network, intervals.input_box(images, radius, low, high), arithmetic)
        margins = self.margins(network, boxes, labels, arithmetic, progress)
        tightness, balance = interval_training.regularizers(network, boxes, high - low)
        ones = tf.ones_like(labels, tf.float32)
        return {
            "ce_certified": cross_entropy(-margins, labels),
            "tightness": tightness * ones,
            "balance": balance * ones,
        }

    def margins(self, network, boxes, labels, arithmetic, progress) -> tf.Tensor:
        """Return lower bounds of the margins, float32 [b, k]; `progress` is that of the ramp."""
        return intervals.margins(network, boxes, labels, arithmetic)

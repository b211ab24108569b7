"""GradAlign: input gradients at an image and at random points near it should have the same direction."""

import dataclasses
import math

import keras
import tensorflow as tf

from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.losses.gradient_penalty import GradientPenalty
from tfrobust.ops import distribution, gradients, norms, randomness


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class GradAlign(GradientPenalty):
    """Gradient alignment, against catastrophic overfitting: adds lambda (1 - cos) to any method, as term `grad_align`.

    cos is the cosine between the input gradients of a loss at the image x and at x + u, u uniform in [-epsilon,
    epsilon] per pixel, not cut to the pixel box. The first gradient is a constant; second derivatives flow through the
    second one. Images for which either gradient is 0 are left out of the mean. The pass at x + u updates no statistics.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(epsilon=0.2)
        >>> fast = robust.methods.FastAdversary(attack=robust.attacks.FGSM(threat), noise=0.0, step=1.0)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.AdversarialTraining(
        ...     *parts, adversary=fast, penalty=robust.methods.GradAlign(epsilon=0.2)
        ... )
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'ce_adv', 'grad_align', 'loss']

    Attributes:
        epsilon: half width of u in pixel units, > 0: that of the attack in training.
        weight: lambda >= 0, a number or a schedule of the step. The authors use 0.2 at 8/255 and 2.0 at 16/255 on
            CIFAR-10.
        of: the terms whose summed gradient is compared, without their weights.

    Raises:
        ValueError: a number out of its range.

    Source:
        Andriushchenko and Flammarion 2020, https://arxiv.org/abs/2007.02617, eq 6; tml-epfl/understanding-fast-adv-
        training @ ceed4944, which takes the first gradient from the attack (FGSM without noise).
    """

    epsilon: float
    weight: float | keras.optimizers.schedules.LearningRateSchedule = 0.2
    of: tuple[str, ...] = ("ce",)

    def __post_init__(self):
        if not self.epsilon > 0:
            raise InputError(f"GradAlign.epsilon is {self.epsilon}; it must be > 0.")
        if not callable(self.weight):
            require_least(self.weight, "GradAlign.weight", 0)

    @property
    def weights(self):
        """The weight of the term `grad_align`."""
        return {"grad_align": self.weight}

    @property
    def passes_per_view(self):
        """The gradient at the image, the pass at the other point, and its second derivatives."""
        return 3

    def penalized(self, terms):
        """Return `of`."""
        return tuple(self.of)

    def add(self, evaluate, watched, weight_of, key):
        """Add the term `grad_align`; see `GradientPenalty.add`."""
        here, (values, auxiliary) = self._gradient(evaluate, watched)
        moved = {name: view + tf.cast(self._noise(key, name, view), view.dtype) for name, view in watched.items()}
        with keras.StatelessScope():  # batch norm has already been updated with this batch
            there, _ = self._gradient(evaluate, moved)
        first, defined = gradients.directions(tf.stop_gradient(here))
        second, also_defined = gradients.directions(there)
        counted = tf.cast(defined & also_defined, second.dtype)
        # The mean over the global batch is then the mean over the images with both gradients.
        all_of_them = distribution.global_sum(tf.reduce_sum(tf.ones_like(counted)))
        share = all_of_them / tf.maximum(distribution.global_sum(tf.reduce_sum(counted)), 1.0)
        term = share * counted * (1.0 - tf.reduce_sum(first * second, axis=1))
        return {**values, "grad_align": term}, auxiliary

    def _noise(self, key: tf.Tensor, name: str, view: tf.Tensor) -> tf.Tensor:
        return norms.random_in_ball(randomness.fold(key, "grad_align", name), view, "linf", self.epsilon)

    def _gradient(self, evaluate, views: dict) -> tuple:
        """Return the gradient of the summed terms by all views, [b, n], and the output of `evaluate`."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(views)
            values, auxiliary = evaluate(views)
            total = tf.add_n([tf.reduce_sum(values[name]) for name in self.of])
        gradient = tape.gradient(total, views)
        idle = tuple(name for name, leaf in gradient.items() if leaf is None)
        if idle:
            raise InputError(f"GradAlign.of {self.of} does not depend on the views {idle}; see `on`.")
        flat = [tf.reshape(leaf, [-1, math.prod(leaf.shape[1:])]) for leaf in gradient.values()]
        return tf.concat(flat, axis=1), (values, auxiliary)

"""Random noise as a baseline: a model should withstand it before its robust accuracy means anything."""

import math

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.random_search import RandomSearch
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.common import norm_table
from tfrobust.errors import InputError
from tfrobust.ops import hashing, randomness
from tfrobust.ops.shapes import shape_of


class _Noise(RandomSearch):
    """Best of several independent draws around the image; see `UniformNoise`."""

    def maximize(self, objective, inputs, key):
        """Return one draw per leaf, whatever the objective; otherwise as `Attack.perturb`."""
        checks.check_views(self, inputs)
        leaves = tf.nest.flatten(inputs)
        keys = [randomness.fold(key, "start", number) for number in range(len(leaves))]
        noisy = [tf.ensure_shape(self._noisy(*pair), pair[0].shape) for pair in zip(leaves, keys, strict=True)]
        return tf.nest.pack_sequence_as(inputs, noisy)

    def _first_point(self, inputs, keys):
        return tf.identity(inputs)

    def _draws(self, inputs, keys, iterations):
        return tf.bitcast(hashing.random_bits(keys, iterations, 2, "noise"), tf.int32)

    def _proposals(self, inputs):
        return lambda point, keys: self._noisy(inputs, keys)

    def _noisy(self, inputs, key):
        """Return a draw around each image, inside the threat set; key int32 [2] or [b, 2]."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfrobust")
class UniformNoise(_Noise):
    """Uniform noise from the ball, projected into the box: the random start of PGD, without PGD.

    In evaluation the attack succeeds if any of an example's draws is misclassified. In training it returns one draw,
    whatever the objective.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.UniformNoise(robust.attacks.ThreatModel(epsilon=0.1))
        >>> points = attack.perturb(None, tf.fill([100, 2, 2, 1], 0.95), tf.constant([0, 1]))
        >>> bool(tf.reduce_all((points >= 0.85) & (points <= 1.0))), bool(tf.math.reduce_std(points) > 0.04)
        (True, True)

    Args:
        threat: the threat model, with its radius.
        draws: per example, one query each, >= 1.

    Raises:
        ValueError: a value out of its range.

    Source:
        Foolbox's additive noise attacks, as baselines; the draw is uniform by volume in every norm.
    """

    name = "uniform_noise"

    def __init__(self, threat: ThreatModel | None = None, *, draws: int = 10):
        self.threat = required_threat(threat, type(self).__name__)
        self.draws = self.steps = draws
        checks.check_counts(self, "draws")

    def _noisy(self, inputs, key):
        return self.threat.random_start(inputs, key)


@keras.saving.register_keras_serializable(package="tfrobust")
class GaussianNoise(_Noise):
    """Gaussian noise on every value, projected into the threat set.

    In evaluation the attack succeeds if any of an example's draws is misclassified. In training it returns one draw,
    whatever the objective.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="l2", epsilon=0.5)
        >>> attack = robust.attacks.GaussianNoise(threat)
        >>> points = attack.perturb(None, tf.fill([100, 5, 5, 1], 0.5), tf.constant([0, 1]))
        >>> bool(tf.reduce_all(threat.distance(tf.fill([100, 5, 5, 1], 0.5), points) <= 0.5001))
        True
        >>> attack.resolved_deviation((5, 5, 1))
        0.1

    Args:
        threat: the threat model, with its radius.
        draws: per example, one query each, >= 1.
        deviation: standard deviation in pixel units, > 0; None: see `resolved_deviation`.

    Raises:
        ValueError: a value out of its range.

    Source:
        Foolbox's additive noise attacks, as baselines; there the noise is scaled to norm epsilon, here projected.
    """

    name = "gaussian_noise"

    def __init__(self, threat: ThreatModel | None = None, *, draws: int = 10, deviation: float | None = None):
        self.threat = required_threat(threat, type(self).__name__)
        self.draws = self.steps = draws
        self.deviation = deviation
        checks.check_counts(self, "draws")
        if deviation is not None and not deviation > 0:
            raise InputError(
                f"GaussianNoise.deviation is {deviation!r}; it is a number > 0 in pixel units, or None for the default."
            )

    def resolved_deviation(self, image_shape) -> float:
        """Return the standard deviation used; by default the one at which the noise is as large as the ball.

        Linf: epsilon. L2: epsilon / sqrt(d), so that the root mean square norm is epsilon. L1: epsilon / (d sqrt(2 /
        pi)), so that the mean norm is epsilon.

        Args:
            image_shape: (h, w, c), d values.

        Returns:
            Standard deviation in pixel units.
        """
        if self.deviation is not None:
            return self.deviation
        return self.threat.epsilon / norm_table.NORMS[self.threat.norm].noise(math.prod(image_shape))

    def _noisy(self, inputs, key):
        normal = randomness.normal(self.resolved_deviation(inputs.shape[1:]))
        return self.threat.project(inputs, inputs + randomness.draw(normal, key, shape_of(inputs)))

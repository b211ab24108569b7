"""Adversarial examples of a single gradient step from a noisy start: FGSM-RS and N-FGSM."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.ops import norms, randomness
from tfrobust.ops.gradients import finite, input_gradient


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FastAdversary(Adversary):
    """One step of the fast gradient sign method from noise: the adversary of fast adversarial training.

    x^a = x + u + step epsilon v, with u uniform in the ball of radius noise x epsilon, cut to the pixel box, and v the
    steepest direction at x + u. `projected`: x^a is projected onto ball and box, otherwise cut to the box alone.

    | method | noise | step | projected | mode |
    |---|---|---|---|---|
    | FGSM-RS (Wong et al.) | 1 | 1.25 | True | "train" |
    | N-FGSM (de Jorge et al.) | 2 | 1 | False | "train" |
    | FGSM | 0 | 1 | True | "train" |

    Without the projection, training points lie up to (noise + step) epsilon from the image, outside the threat set:
    N-FGSM trains so, and is evaluated within epsilon.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.1))
        >>> fast = robust.methods.FastAdversary(attack=attack, noise=2.0, step=1.0, projected=False)
        >>> predict = lambda images, training: tf.reshape(images, [-1, 1]) * [[-1.0, 1.0]]
        >>> moved = fast.perturb(predict, tf.fill([50, 1, 1, 1], 0.5), tf.zeros([50], tf.int32), tf.constant([0, 1]))
        >>> float(tf.reduce_min(moved)) > 0.4, 0.7 < float(tf.reduce_max(moved)) <= 0.8 + 1e-6
        (True, True)

    Attributes:
        attack: `FGSM`, whose threat model is used.
        noise: radius of the start in units of epsilon, >= 0.
        step: length of the step in units of epsilon, > 0.
        projected: whether x^a is projected onto the ball of radius epsilon.

    Raises:
        ValueError: a number out of its range, an attack of several steps or with a start of its own, or the objective
            "kl" without noise.

    Source:
        Wong et al. 2020, https://arxiv.org/abs/2001.03994; de Jorge et al. 2022, https://arxiv.org/abs/2202.01181.
    """

    attack: PGD | None = None
    noise: float = 1.0
    step: float = 1.25
    projected: bool = True

    def __post_init__(self):
        super().__post_init__()
        require_least(self.noise, "FastAdversary.noise", 0)
        if not self.step > 0:
            raise InputError(f"FastAdversary.step is {self.step}; it must be > 0.")
        if type(self.attack) is not FGSM:
            raise InputError(
                f"FastAdversary.attack is {type(self.attack).__name__}; it is FGSM, the only attack of one step from "
                "the given point. Its noise and step are those of FastAdversary."
            )
        if self.attack.threat.variant:
            raise InputError("FastAdversary bounds the norm of whole clips: leave out per_frame and max_frames.")

    @property
    def starts_at_image(self) -> bool:
        """True without noise."""
        return not self.noise

    def find(self, attack: Attack, objective: Callable, inputs: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Take the step from noise, within the attack's threat model; see `RampedAdversary.search`."""
        threat = attack.threat
        start = inputs
        if self.noise:
            drawn = norms.random_in_ball(
                randomness.fold(key, "start"), inputs, threat.norm, self.noise * threat.epsilon
            )
            start = tf.clip_by_value(inputs + drawn, *threat.bounds)
        _, gradient = input_gradient(objective, start)
        moved = threat.step(start, finite(gradient), self.step * threat.epsilon)
        moved = threat.project(inputs, moved) if self.projected else tf.clip_by_value(moved, *threat.bounds)
        return tf.stop_gradient(moved)

"""Threat models: the set of images that an attack may reach, a norm ball intersected with the pixel box."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.errors import InputError
from tfrobust.ops import norms


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreatModel(Configured):
    """The set {z : |z - x| <= epsilon, low <= z <= high} around each image x.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="linf", epsilon=0.25)
        >>> inputs, candidate = tf.constant([[0.0, 0.5, 1.0]]), tf.constant([[-1.0, 0.625, 0.5]])
        >>> threat.project(inputs, candidate).numpy().tolist()
        [[0.0, 0.625, 0.75]]

    Attributes:
        norm: 'linf', 'l2', 'l1' or 'l0', of the whole image as one vector. 'l0' counts the values that change (a pixel
            of three channels has three); only attacks that list it in `norms` support it.
        epsilon: radius in pixel units, > 0. Pixels lie in [0, 1]; normalization belongs in the model. With 'l0' an
            integer >= 1.
        bounds: (low, high) of the pixels.
        l1_share: share of the coordinates over which one L1 step spreads, in [0, 1]; 0 is the exact steepest step,
            which fills one coordinate after the other. The default, 1 %, is that of SLIDE (Tramèr & Boneh, 2019).

    Raises:
        ValueError: unknown norm, epsilon not a positive number (with 'l0' not an integer), empty bounds, `l1_share`
            outside [0, 1], or in Linf an epsilon greater than high - low.
    """

    norm: str = "linf"
    epsilon: float = 0.2
    bounds: tuple[float, float] = (0.0, 1.0)
    l1_share: float = 0.01

    def __post_init__(self):
        norms.check_kind(self.norm, norms.ALL_KINDS)
        if isinstance(self.epsilon, np.generic):  # JSON cannot represent NumPy scalars
            object.__setattr__(self, "epsilon", self.epsilon.item())
        if not _is_number(self.epsilon) or not self.epsilon > 0:
            raise InputError(f"ThreatModel.epsilon is {self.epsilon!r}; it is a radius in pixel units, a number > 0.")
        if self.norm == "l0" and self.epsilon != round(self.epsilon):
            raise InputError(
                f"ThreatModel.epsilon is {self.epsilon!r}; with norm 'l0' it counts changed values, a whole number "
                ">= 1: set EPSILON (in evaluation EVAL_EPSILON), such as EPSILON=5. Of the attacks only ProxLogBarrier "
                "(gin/eval/prox_log_barrier.gin) supports it."
            )
        bounds = tuple(self.bounds)
        if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] < bounds[1]:
            raise InputError(f"ThreatModel.bounds is {self.bounds!r}; it is (lowest, highest) pixel, like (0.0, 1.0).")
        if not _is_number(self.l1_share) or not 0 <= self.l1_share <= 1:
            raise InputError(f"ThreatModel.l1_share is {self.l1_share!r}; it is a share of the pixels, from 0 to 1.")
        object.__setattr__(self, "bounds", bounds)
        if self.norm == "linf":
            self.check_radius(1)

    def check_radius(self, values: int) -> None:
        """Raise ValueError if the ball around any image contains the whole pixel box, as for epsilon in gray levels.

        Args:
            values: number of values of an image, h w c.
        """
        low, high = self.bounds
        farthest = {"linf": 1.0, "l2": math.sqrt(values), "l1": values, "l0": math.inf}[self.norm] * (high - low)
        if self.epsilon <= farthest:
            return
        box = f"pixels lie in [{low:g}, {high:g}]"
        if self.norm != "linf":
            box = (
                f"two images of {values} values in [{low:g}, {high:g}] are at most {farthest:.4g} apart in {self.norm}"
            )
        meant = self.epsilon / 255 * (high - low)
        hint = f"Did you mean {self.epsilon:g}/255 = {meant:.3g}?" if high - low == 1 and meant <= farthest else ""
        raise InputError(f"EPSILON is {self.epsilon:g}, but {box}. {hint}".rstrip())

    def project(self, inputs: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Project a candidate onto the intersection of ball and pixel box, exactly.

        Args:
            inputs: float32 [b, ...], the centers.
            candidate: float32 [b, ...].

        Returns:
            float32 [b, ...], the point of the set nearest to the candidate.
        """
        return norms.project_ball_in_box(inputs, candidate, self.norm, self.epsilon, *self.bounds)

    def random_start(self, inputs: tf.Tensor, key: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
        """Sample a point uniformly from the ball of radius scale x epsilon and project it into the box.

        Args:
            inputs: float32 [b, ...].
            key: int32 [2] for the whole batch, or [b, 2] per example.
            scale: radius of the ball in units of epsilon, > 0.

        Returns:
            float32 [b, ...].
        """
        return self.project(inputs, inputs + norms.random_in_ball(key, inputs, self.norm, scale * self.epsilon))

    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the direction of norm 1 in which an objective rises fastest, ignoring the box.

        Args:
            gradient: float32 [b, ...].

        Returns:
            float32 [b, ...], 0 where the gradient is 0.
        """
        return norms.unit_steepest(gradient, self.norm)

    def step(self, point: tf.Tensor, gradient: tf.Tensor, size: float) -> tf.Tensor:
        """Take a step of length `size` up the gradient, without projecting.

        Linf and L2: size x the steepest direction. L1: a sparse step on coordinates that the box lets move.

        Args:
            point: float32 [b, ...].
            gradient: float32 [b, ...].
            size: length in the threat's norm, > 0.

        Returns:
            float32 [b, ...], the point reached.
        """
        if self.norm != "l1":
            return point + size * self.steepest(gradient)
        low, high = self.bounds
        room = tf.maximum(tf.where(gradient > 0, high - point, point - low), 0.0)
        return point + norms.sparse_step(gradient, room, size, self.l1_share)

    def distance(self, inputs: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Return the norm of candidate - inputs, float32 [b]."""
        return norms.norm(candidate - inputs, self.norm)


def _is_number(value) -> bool:
    # Excludes `Fraction` and `Decimal`, which a configuration cannot hold.
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return real and math.isfinite(value)

"""Multi steepest descent (MSD): one search within the balls of several norms."""

import copy
import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.errors import InputError
from tfrobust.ops.gradients import finite
from tfrobust.ops.shapes import select


@keras.saving.register_keras_serializable(package="tfrobust")
class MSD(PGD):
    """Multi steepest descent (Maini et al., 2020): each step is the worst of the steepest steps of all norms.

    z_p = P_p(x_i + s_p v_p(x_i)) for each threat model p; x_{i+1} = the z_p with the largest objective

    with v_p the steepest direction of p, s_p its step size and P_p the exact projection onto its ball and the pixel
    box. Every point lies in one of the balls, or in several. With one threat model it is PGD.

    Training: returns the last iterate, as algorithm 1; the authors' code returns the worst iterate. Evaluation: an
    accuracy belongs to one ball, so that several threat models are refused; use the evaluator `Union`.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threats = [robust.attacks.threat_of(norm, radii=(0.1, 0.15, 0.5)) for norm in ("linf", "l2", "l1")]
        >>> attack = robust.attacks.MSD(threats, steps=4)
        >>> first = lambda images: images[:, 0, 0, 0]  # an objective that depends on one pixel: L1 moves it farthest
        >>> points = attack.perturb(first, tf.zeros([1, 2, 2, 1]), tf.constant([0, 1]))
        >>> round(float(points[0, 0, 0, 0]), 6)
        0.5

    Args:
        threats: the threat models, with one pixel box. A report names the first as that of the training.
        steps: steps, >= 1.
        step_sizes: length of a step in each norm, in pixel units; None: 2.5 epsilon / steps.
        random_start: 'none', or a start in the ball of the first threat model, as in PGD.
        restarts: as in PGD.

    Raises:
        InputError: no threat model, several pixel boxes, another number of step sizes, or as PGD.

    Source:
        Maini et al. 2020, https://arxiv.org/abs/1909.04068, algorithm 1. In L1 the authors step on 5 to 20 pixels,
        drawn at random; here it is the `l1_share` of the threat model.
    """

    name = "msd"
    bounds_frames = False

    def __init__(
        self,
        threats: tuple[ThreatModel, ...] = (),
        *,
        steps: int = 50,
        step_sizes: tuple[float, ...] | None = None,
        random_start: str = "none",
        restarts: int = 1,
    ):
        if not isinstance(threats, (tuple, list)):
            raise InputError(f"MSD.threats is a {type(threats).__name__}; it must be a tuple of threat models.")
        self.threats = tuple(threats)
        self.step_sizes = None if step_sizes is None else tuple(step_sizes)
        if not self.threats or len({threat.bounds for threat in self.threats}) > 1:
            raise InputError("MSD.threats needs threat models with one pixel box, such as one each in linf, l2 and l1.")
        if self.step_sizes is not None and (len(self.step_sizes) != len(self.threats) or min(self.step_sizes) <= 0):
            raise InputError(f"MSD.step_sizes is {step_sizes!r}; it holds a number > 0 for each threat model.")
        for threat in reversed(self.threats):  # each is checked; the first one stays
            super().__init__(threat, steps=steps, random_start=random_start, restarts=restarts)

    @property
    def resolved_step_sizes(self) -> tuple[float, ...]:
        """Length of a step in each norm, also where `step_sizes` is None."""
        return self.step_sizes or tuple(2.5 * threat.epsilon / self.steps for threat in self.threats)

    def with_epsilon(self, epsilon: float) -> "MSD":
        """Return this attack with another first radius; the other radii and the step sizes keep their ratios to it."""
        scale = epsilon / self.threat.epsilon
        first, *further = self.threats
        radii = [epsilon, *(scale * threat.epsilon for threat in further)]
        threats = [dataclasses.replace(t, epsilon=radius) for t, radius in zip((first, *further), radii, strict=True)]
        sizes = None if self.step_sizes is None else tuple(scale * size for size in self.step_sizes)
        settings = {name: getattr(self, name) for name in ("steps", "random_start", "restarts")}
        return type(self)(tuple(threats), step_sizes=sizes, **settings)

    def scaled(self, share):
        """Return this attack with a share of all its radii and steps; see `PGD.scaled`."""
        smaller = copy.copy(self)
        smaller.threat = self.threat.scaled(share)
        smaller.threats = tuple(threat.scaled(share) for threat in self.threats)
        smaller.step_sizes = tuple(share * size for size in self.resolved_step_sizes)
        return smaller

    def contains(self, inputs, points):
        """Return which points lie in the set of a threat model, bool [b]."""
        return tf.reduce_any([threat.contains(inputs, points) for threat in self.threats], axis=0)

    def maximize(self, objective: Callable, inputs, key: tf.Tensor):
        """Maximize the objective and return the last iterate; see `Attack.perturb`."""
        if not isinstance(inputs, tf.Tensor):
            raise InputError("MSD perturbs one batch of images at a time; use PGD for a nest of views.")
        return super().maximize(objective, inputs, key)

    def rounds(self, class_count: int) -> int:
        """Return the number of restarts; refuse several threat models, in which an accuracy would have no name."""
        if len(self.threats) > 1:
            raise InputError(
                "MSD with several threat models is for training; evaluate with Union (gin/eval/norms.gin), whose "
                "attacks have one threat model each."
            )
        return super().rounds(class_count)

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the forward and backward passes of one round for one example."""
        return self.steps * (1 + len(self.threats)), self.steps

    def _gradient(self, objective, leaves, points, memories):
        """Return the next point in place of a gradient: the worst of the steps of all norms."""
        (slope,), _, _ = super()._gradient(objective, leaves, points, memories)
        (inputs,), (point,), slope = leaves, points, finite(slope)
        steps = zip(self.threats, self.resolved_step_sizes, strict=True)
        candidates = [threat.project(inputs, threat.step(point, slope, size)) for threat, size in steps]
        worst, (value, logits) = candidates[0], objective(candidates[:1])
        for candidate in candidates[1:]:
            other, other_logits = objective([candidate])
            is_worse = other > value
            worst, value = select(is_worse, candidate, worst), tf.maximum(value, other)
            logits = None if logits is None else select(is_worse, other_logits, logits)
        return [worst], [worst], logits

    def _move(self, inputs, point, direction, *_):
        return direction

"""Threat models: the set of points that an attack may reach, a norm ball intersected with the pixel box."""

import copy
import dataclasses
import math
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common import norm_table
from tfrobust.common.configured import Configured
from tfrobust.common.settings import as_plain, require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.ops import frames, norms, randomness
from tfrobust.ops.shapes import by_example

# For the messages about a radius that is missing.
USUAL_RADII = "usual in Linf, for pixels in [0, 1]: 8/255 for photographs, 0.3 for MNIST, 0.2 for digits of 8x8 pixels"

# Radii in Linf, L2 and L1 of papers on several norms, for pixels in [0, 1].
_NORMS = ("linf", "l2", "l1")
_RADII = {
    "mnist": (0.3, 2.0, 10.0),
    "cifar": (8 / 255, 0.5, 12.0),
    "imagenet": (4 / 255, 2.0, 255.0),
}


def required_threat(threat: "ThreatModel | None", owner: str) -> "ThreatModel":
    """Return a threat model; raise InputError if it is missing.

    Args:
        threat: the argument of a constructor.
        owner: name of the class, for the message.
    """
    if threat is None:
        raise InputError(
            f"{owner} needs a threat model with a radius, such as ThreatModel(epsilon=8 / 255); {USUAL_RADII}."
        )
    return threat


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ThreatModel(Configured):
    """The set {z : |z - x| <= epsilon, low <= z <= high} around each image or clip x.

    For clips there are two further sets, which the gradient attacks FGSM, PGD and APGD support. `per_frame`: each frame
    has a ball of radius epsilon of its own. `max_frames`: at most so many frames differ from those of x.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="linf", epsilon=0.25)
        >>> inputs, candidate = tf.constant([[0.0, 0.5, 1.0]]), tf.constant([[-1.0, 0.625, 0.5]])
        >>> threat.project(inputs, candidate).numpy().tolist()
        [[0.0, 0.625, 0.75]]

    Attributes:
        norm: 'linf', 'l2', 'l1' or 'l0' of the whole image or clip as one vector; NumPy's numbers, such as `np.inf`,
            mean the same. 'l0' counts the values that change (a pixel of three channels has three); only attacks that
            list it in `norms` support it.
        epsilon: radius in pixel units, > 0; it has no default, because no radius fits all data. Pixels lie in [0, 1];
            normalization belongs in the model. With 'l0' an integer >= 1.
        bounds: (low, high) of the pixels.
        l1_share: share of the coordinates over which one L1 step spreads, in [0, 1]; 0 is the exact steepest step,
            which fills one coordinate after the other. The default, 1 %, is that of SLIDE (Tramèr & Boneh, 2019).
        per_frame: clips only. True: epsilon bounds the norm of each frame's perturbation. In Linf this is the same set.
        max_frames: clips only. The number of frames that may change, >= 1; None: all.

    Raises:
        ValueError: unknown norm, epsilon missing or not a positive number (with 'l0' not an integer), empty bounds,
            `l1_share` outside [0, 1], in Linf an epsilon greater than high - low, or `max_frames` below 1.
    """

    norm: str = "linf"
    epsilon: float = None  # type: ignore[assignment]  # None is refused below, with usual radii
    bounds: tuple[float, float] = (0.0, 1.0)
    l1_share: float = 0.01
    per_frame: bool = False
    max_frames: int | None = None

    def __post_init__(self):
        if isinstance(self.norm, (int, float)) and not isinstance(self.norm, bool):
            object.__setattr__(self, "norm", norm_table.by_order(self.norm) or self.norm)
        norms.check_kind(self.norm, norms.ALL_KINDS)
        if self.epsilon is None:
            raise InputError(f"ThreatModel.epsilon is not set, and no radius fits all data; {USUAL_RADII}.")
        for name in ("epsilon", "l1_share"):
            object.__setattr__(self, name, as_plain(getattr(self, name)))
        if not _is_number(self.epsilon) or not self.epsilon > 0:
            raise InputError(f"ThreatModel.epsilon is {self.epsilon!r}; it is a radius in pixel units, a number > 0.")
        if self.norm == "l0" and self.epsilon != round(self.epsilon):
            raise InputError(
                f"ThreatModel.epsilon is {self.epsilon!r}; with norm 'l0' it counts changed values, a whole number "
                ">= 1: set EPSILON (in evaluation EVAL_EPSILON), such as EPSILON=5. Of the attacks only FMN "
                "(gin/eval/curve.gin) and ProxLogBarrier (gin/eval/prox_log_barrier.gin) support it."
            )
        bounds = tuple(map(as_plain, self.bounds))
        if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] < bounds[1]:
            raise InputError(f"ThreatModel.bounds is {self.bounds!r}; it is (lowest, highest) pixel, like (0.0, 1.0).")
        if not _is_number(self.l1_share) or not 0 <= self.l1_share <= 1:
            raise InputError(f"ThreatModel.l1_share is {self.l1_share!r}; it is a share of the pixels, from 0 to 1.")
        object.__setattr__(self, "bounds", bounds)
        if not isinstance(self.per_frame, bool):
            raise InputError(f"ThreatModel.per_frame is {self.per_frame!r}; it is True or False.")
        if self.max_frames is not None:
            object.__setattr__(self, "max_frames", require_whole(self.max_frames, "ThreatModel.max_frames"))
        if self.norm == "linf":
            self.check_radius(1)

    @property
    def variant(self) -> str:
        """The end of an id: "_per_frame", "_max_frames_2", both, or "" for the norm of the whole example."""
        limit = "" if self.max_frames is None else f"_max_frames_{self.max_frames}"
        return "_per_frame" * self.per_frame + limit

    @property
    def frame_settings(self) -> dict:
        """`per_frame` and `max_frames` for a report, as far as they restrict the set."""
        restricted = {"per_frame": self.per_frame or None, "max_frames": self.max_frames}
        return {name: value for name, value in restricted.items() if value is not None}

    def possible(self, epsilons: Iterable[float]) -> tuple[float, ...]:
        """Return the radii among some multiples of epsilon that do not exceed the pixel box, in their order."""
        low, high = self.bounds
        return tuple(epsilon for epsilon in epsilons if self.norm != "linf" or epsilon <= max(self.epsilon, high - low))

    @property
    def budget(self) -> str:
        """The norm and epsilon as text, to six significant digits: "linf 0.2", "l2 1.5 per frame"."""
        return f"{self.norm} {self.epsilon:.6g}{self.variant.replace('_', ' ')}"

    def scaled(self, share: tf.Tensor) -> "ThreatModel":
        """Return the set with a share of its radius, for the operations on tensors inside a training step.

        Args:
            share: float32 scalar, > 0.
        """
        return self._with("epsilon", share * self.epsilon)

    def of_all_frames(self) -> "ThreatModel":
        """Return the set without a limit of the frames that change."""
        return self if self.max_frames is None else self._with("max_frames", None)

    def _with(self, name: str, value) -> "ThreatModel":
        """Return a copy with another value, which may be a tensor and is not checked."""
        other = copy.copy(self)
        object.__setattr__(other, name, value)
        return other

    def check_radius(self, values: int) -> None:
        """Raise ValueError if the ball around any image contains the whole pixel box, as for epsilon in gray levels.

        Args:
            values: number of values of an image, h w c.
        """
        low, high = self.bounds
        farthest = norm_table.NORMS[self.norm].farthest(values) * (high - low)
        if self.norm == "l0" or self.epsilon <= farthest:
            return
        box = f"pixels lie in [{low:g}, {high:g}]"
        if self.norm != "linf":
            box = (
                f"two images of {values} values in [{low:g}, {high:g}] are at most {farthest:.4g} apart in {self.norm}"
            )
        meant = self.epsilon / 255 * (high - low)
        hint = f"Did you mean {self.epsilon:g}/255 = {meant:.3g}?" if high - low == 1 and meant <= farthest else ""
        raise InputError(f"epsilon is {self.epsilon:g}, but {box}. {hint}".rstrip())

    def check_examples(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if the threat model does not suit examples of this shape; see also `check_radius`.

        Args:
            shape: (h, w, c) of images, (t, h, w, c) of clips, (length,) of text.
        """
        self.check_frames(shape)
        self.check_radius(math.prod(shape[-3:] if self.per_frame else shape))

    def check_frames(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError for a budget for frames if examples of this shape are no clips or have too few frames."""
        if not self.variant:
            return
        count = frames.frame_count(tf.TensorSpec([None, *shape]))
        if self.max_frames is not None and self.max_frames > count:
            raise InputError(f"ThreatModel.max_frames is {self.max_frames}, but each example has {count} frames.")

    def project(self, inputs: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Project a candidate onto the set: the nearest point in L2, but see `max_frames`.

        With `max_frames` = k, the k frames stay whose own projections reduce the squared distance to the candidate
        most, and these are projected. That is the nearest point in Linf, with `per_frame` in every norm, and in L2
        wherever the pixel box does not bind. Otherwise the choice of frames is a heuristic, and the point, which lies
        in the set, is nearest among those that change the chosen frames only. Points of the set stay where they are.

        Args:
            inputs: float32 [b, ...], the centers.
            candidate: float32 [b, ...].

        Returns:
            float32 [b, ...].
        """
        if self.max_frames is not None:
            alone = norms.project_ball_in_box(*map(frames.split, (inputs, candidate)), *self._ball)
            moved = tf.abs(alone - frames.split(inputs))
            gain = norms.distance_reduction(frames.split(candidate - inputs), moved)
            gain = frames.by_frame(tf.reduce_sum(gain, [1, 2, 3]), inputs)
            candidate = frames.keep(norms.largest_mask(gain, self.max_frames), candidate, inputs)
        return self.project_ball(inputs, candidate, self.epsilon)

    def project_ball(self, inputs: tf.Tensor, candidate: tf.Tensor, epsilon) -> tf.Tensor:
        """Project a candidate onto the intersection of ball and pixel box, exactly, whatever `max_frames` is.

        Args:
            inputs: float32 [b, ...], the centers.
            candidate: float32 [b, ...].
            epsilon: radius, > 0, a number or a float32 scalar; in L1 also float32 [b].

        Returns:
            float32 [b, ...], the nearest point in L2.
        """
        epsilon = self.by_part(epsilon, inputs) if tf.is_tensor(epsilon) and epsilon.shape.rank else epsilon
        both = self.parts(inputs), self.parts(candidate)
        return self.joined(norms.project_ball_in_box(*both, self.norm, epsilon, *self.bounds), inputs)

    def random_start(self, inputs: tf.Tensor, key: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
        """Sample a point uniformly from the ball of radius scale x epsilon and project it onto the set.

        Args:
            inputs: float32 [b, ...].
            key: int32 [2] for the whole batch, or [b, 2] per example.
            scale: radius of the ball in units of epsilon, > 0.

        Returns:
            float32 [b, ...].
        """
        if self._splits and key.shape.rank == 2:
            numbers = tf.range(frames.frame_count(inputs))
            key = tf.reshape(tf.map_fn(lambda example_key: randomness.example_keys(example_key, numbers), key), [-1, 2])
        noise = norms.random_in_ball(key, self.parts(inputs), self.norm, scale * self.epsilon)
        return self.project(inputs, inputs + self.joined(noise, inputs))

    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the direction of norm 1 in which an objective rises fastest, ignoring the box and `max_frames`.

        Args:
            gradient: float32 [b, ...].

        Returns:
            float32 [b, ...], 0 where the gradient is 0.
        """
        return self.joined(norms.unit_steepest(self.parts(gradient), self.norm), gradient)

    def step(self, point: tf.Tensor, gradient: tf.Tensor, size) -> tf.Tensor:
        """Take a step of length `size` up the gradient, without projecting.

        Linf and L2: size x the steepest direction. L1: a sparse step on coordinates that the box lets move.

        Args:
            point: float32 [b, ...].
            gradient: float32 [b, ...].
            size: length in the threat's norm, >= 0: a number, a scalar, or float32 [b].

        Returns:
            float32 [b, ...], the point reached.
        """
        varies = tf.is_tensor(size) and size.shape.rank  # by example; a scalar is that of a ramp
        if self.norm != "l1":
            return point + (by_example(size, point) if varies else size) * self.steepest(gradient)
        low, high = self.bounds
        room = tf.maximum(tf.where(gradient > 0, high - point, point - low), 0.0)
        size = self.by_part(size, point)[:, None] if varies and size.shape.rank else size
        moved = norms.sparse_step(self.parts(gradient), self.parts(room), size, self.l1_share)
        return point + self.joined(moved, point)

    def focus(self, inputs: tf.Tensor, point: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Set a gradient to 0 in all frames that the next step must leave alone; without `max_frames` return it.

        Frames that the point changes already keep their places. The others go to the frames in which the gradient is
        largest in the dual norm, by which a step of norm 1 in the frame raises the objective. From the clean clip the
        steepest direction of the result is therefore the steepest of all that change so many frames.

        Args:
            inputs: float32 [b, t, h, w, c], the clean clips.
            point: float32 [b, t, h, w, c], the current point.
            gradient: float32 [b, t, h, w, c], at the point.

        Returns:
            float32 [b, t, h, w, c].
        """
        if self.max_frames is None:
            return gradient
        return frames.keep(self._free(inputs, point, gradient), gradient, tf.zeros_like(gradient))

    def settle(self, inputs: tf.Tensor, point: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Undo the change of a point in all frames but `max_frames`, which `focus` chooses; arguments as there."""
        if self.max_frames is None:
            return point
        return frames.keep(self._free(inputs, point, gradient), point, inputs)

    def distance(self, inputs: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Return the norm of candidate - inputs, with `per_frame` the largest of a frame; float32 [b]."""
        if not self._splits:
            return norms.norm(candidate - inputs, self.norm)
        return tf.reduce_max(frames.by_frame(norms.norm(frames.split(candidate - inputs), self.norm), inputs), axis=1)

    def in_box(self, points: tf.Tensor) -> tf.Tensor:
        """Return which points [b, ...] lie in the pixel box, bool [b]; False for NaN."""
        low, high = self.bounds
        return tf.reduce_all((points >= low) & (points <= high), axis=list(range(1, points.shape.rank)))

    def contains(self, inputs: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
        """Return which points lie in the set, up to rounding of the radius; bool [b], False for NaN."""
        largest = max(map(abs, self.bounds))
        # In a box beyond [-1, 1] the float32 numbers are farther apart than 1e-6 allows for.
        rounding = 2.0**-23 * largest * norm_table.NORMS[self.norm].farthest(math.prod(points.shape[1:]))
        allowance = max(1e-6, rounding) if largest > 1 and self.norm != "l0" else 1e-6
        inside = self.in_box(points) & (self.distance(inputs, points) <= self.epsilon * (1 + 1e-4) + allowance)
        if self.max_frames is None:
            return inside
        count = tf.reduce_sum(tf.cast(frames.changed(points, inputs), tf.int32), axis=1)
        return inside & (count <= self.max_frames)

    def parts(self, examples: tf.Tensor) -> tf.Tensor:
        """Return the parts that have a ball of their own: the frames [b t, h, w, c], or the examples [b, ...]."""
        return frames.split(examples) if self._splits else examples

    def joined(self, parts: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
        """Return parts as examples, in the shape of `examples` [b, ...]."""
        return tf.reshape(parts, [-1, *examples.shape[1:]]) if self._splits else parts

    def by_part(self, values: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
        """Return values [b] of the examples as those of their `parts`."""
        return frames.per_frame(values, examples) if self._splits else values

    @property
    def _ball(self) -> tuple:
        return self.norm, self.epsilon, *self.bounds

    @property
    def _splits(self) -> bool:
        # In Linf the balls of the frames are that of the clip.
        return self.per_frame and self.norm != "linf"

    def _free(self, inputs, point, gradient):
        """Return the frames that the next step may change, bool [b, t]; see `focus`."""
        length = frames.by_frame(norms.dual_norm(frames.split(gradient), self.norm), inputs)
        share = tf.math.divide_no_nan(length, tf.reduce_max(length, axis=1, keepdims=True))
        return norms.largest_mask(2.0 * tf.cast(frames.changed(point, inputs), share.dtype) + share, self.max_frames)


def threat_of(norm: str = "linf", *, radii: str | tuple[float, float, float] = "mnist") -> ThreatModel:
    """Return the threat model in one norm of a set of radii, so that one knob sets those of all norms.

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.attacks.threat_of("l2", radii="cifar").epsilon
        0.5

    Args:
        norm: 'linf', 'l2' or 'l1'.
        radii: of Linf, L2 and L1, or the name of the usual ones: 'mnist' (0.3, 2, 10), 'cifar' (8/255, 0.5, 12) or
            'imagenet' (4/255, 2, 255).

    Raises:
        InputError: an unknown norm or name, or not three radii.

    Source:
        Maini et al. 2020, https://arxiv.org/abs/1909.04068 (MNIST); Croce & Hein 2022,
        https://arxiv.org/abs/2105.12508 (CIFAR, ImageNet).
    """
    position = _NORMS.index(require_choice(norm, "threat_of.norm", _NORMS))
    if isinstance(radii, str):
        radii = _RADII[require_choice(radii, "threat_of.radii", tuple(_RADII))]
    if len(radii) != len(_NORMS):
        raise InputError(f"threat_of.radii is {radii!r}; it holds three radii, of {', '.join(_NORMS)}.")
    return ThreatModel(norm=norm, epsilon=float(radii[position]))


def _is_number(value) -> bool:
    # Excludes `Fraction` and `Decimal`, which a configuration cannot hold.
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return real and math.isfinite(value)

"""What the mixing family shares: weights, partners, Mixup and CutMix of a batch, noise on features, one stage of many.

A step draws one weight and one permutation from a key for the global batch (`Mixing.draw`), then mixes whatever stands
at the rows: images, hidden states, labels. Nothing here knows an encoder: `at_one_stage` makes the function that
encoders call at each of their stages.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import distribution, randomness
from tfrobust.ops.configured import Configured
from tfrobust.ops.shapes import by_example, shape_of

# Candidates of the rejection sampler. One is accepted with probability above 0.95, all fail once in 2e10 draws.
CANDIDATES = 8


# ----------------------------------------------------------------------------------------------- distributions


def log_gamma(concentration: float | Sequence[float]) -> Callable:
    """A sampler of the logarithm of Gamma(concentration, 1), finite where the value itself would underflow.

    Marsaglia and Tsang's rejection with a fixed number of candidates, for concentration + 1, scaled down by
    U^(1 / concentration). (TensorFlow's own stateless gamma cannot be compiled by XLA.)

    Args:
        concentration: > 0; several for the last axis of the shape.

    Returns:
        (shape, key int32 [2]) -> float32. A softmax of such draws is Dirichlet.
    """
    concentration = np.asarray(concentration, np.float32)

    def sample(shape, key):
        wide = [*shape, CANDIDATES]
        normal = tf.random.stateless_normal(wide, randomness.fold(key, "normal"))
        accept, scale = (
            tf.random.stateless_uniform(size, randomness.fold(key, word))
            for size, word in ((wide, "accept"), (shape, "scale"))
        )
        return log_gamma_of(concentration, normal, accept, scale)

    return sample


def log_gamma_of(concentration: np.ndarray, normal: tf.Tensor, accept: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """What `log_gamma` makes of its random numbers.

    Args:
        concentration: [] or [n], > 0.
        normal: float [..., n, CANDIDATES], standard normal.
        accept: of the same shape, uniform on [0, 1).
        scale: float [..., n], uniform on [0, 1).

    Returns:
        [..., n] in the dtype of the normals.
    """
    dtype = normal.dtype.as_numpy_dtype
    concentration = concentration.astype(dtype)
    offset = concentration + dtype(1.0) - dtype(1.0 / 3.0)
    wide_offset = offset[..., None]  # of each candidate
    slope = (9.0 * wide_offset) ** -0.5
    # In (0, 1]: a logarithm is taken of both.
    accept, scale = 1.0 - accept, 1.0 - scale
    root = 1.0 + slope * normal
    log_cube = 3.0 * tf.math.log(tf.maximum(root, 1e-12))
    bound = 0.5 * normal**2 + wide_offset * (1.0 - root**3 + log_cube)
    accepted = tf.cast((root > 0) & (tf.math.log(accept) < bound), dtype)
    first = accepted * tf.cast(tf.cumsum(accepted, axis=-1) == 1.0, dtype)
    # No candidate: log_cube 0, the mode.
    return tf.reduce_sum(first * log_cube, axis=-1) + tf.math.log(offset) + tf.math.log(scale) / concentration


def beta(first: float, second: float) -> Callable:
    """A sampler of Beta(first, second), by two gammas.

    Args:
        first, second: concentrations, > 0. The mean is first / (first + second).

    Returns:
        (shape, key int32 [2]) -> float32 in [0, 1].
    """

    def sample(shape, key):
        own, other = tf.unstack(log_gamma((first, second))([*shape, 2], key), axis=-1)
        return tf.sigmoid(own - other)

    return sample


def partners(key: tf.Tensor, count, group: int = 32) -> tf.Tensor:
    """Whom each example is mixed with: a random permutation inside each group of adjacent rows.

    The papers permute the whole batch. Groups that divide the local batch give N replicas the partners of one; a
    remainder of the last group is a smaller group. Like the papers' permutation, it may leave rows where they are.

    Args:
        key: int32 [2]; draws for the global batch.
        count: rows of the local batch, an integer or a scalar tensor.
        group: rows in a group, >= 1.

    Returns:
        int32 [count], rows of the local batch.

    Raises:
        ValueError: several replicas whose local batch is not made of whole groups.
    """
    replicas, _ = distribution.replica()
    if replicas > 1:
        _require_whole_groups(count, group)
    scores = randomness.draw(randomness.uniform(), key, [count])
    groups = -(-count // group)
    # What fills up the last group sorts behind everything drawn, so it is never anybody's partner.
    filled = tf.pad(scores, [[0, groups * group - count]], constant_values=2.0)
    order = tf.argsort(tf.reshape(filled, [groups, group]), axis=-1, stable=True)
    rows = tf.reshape(order + group * tf.range(groups)[:, None], [-1])
    return rows[:count]


def _require_whole_groups(count, group: int) -> None:
    if isinstance(count, int):
        if count % group:
            raise InputError(
                f"Mixing pairs rows in groups of {group}, which do not divide the {count} rows of a replica's batch; "
                f"set Mixing.group to a divisor of {count}."
            )
    else:
        message = f"Mixing.group {group} must divide the rows of a replica's batch."
        tf.debugging.assert_equal(count % group, 0, message=message)


# ------------------------------------------------------------------------------------------------------ mixing


class Mix(NamedTuple):
    """How a batch is mixed. weight: lambda of an example's own part, float32 [] or [b]. partner: int32 [b]."""

    weight: tf.Tensor
    partner: tf.Tensor


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixing(Configured):
    """How the weights and partners of a batch are drawn.

    lambda ~ Beta(alpha, alpha); mixed_i = lambda value_i + (1 - lambda) value_partner(i).

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> mix = robust.methods.Mixing(alpha=1.0, group=2).draw(tf.constant([0, 1]), 6)
        >>> mix.weight.shape, (mix.partner // 2).numpy().tolist()  # partners stay inside their group of two
        (TensorShape([]), [0, 0, 1, 1, 2, 2])

    Attributes:
        alpha: >= 0; larger is closer to half and half, 1 is uniform, 0 mixes nothing.
        group: rows in a group of possible partners, see `partners`; must divide the batch of a replica.
        per_example: one weight for each example. The papers' code draws one for the whole batch.
    """

    alpha: float = 1.0
    group: int = 32
    per_example: bool = False

    def __post_init__(self):
        if not 0 <= self.alpha < math.inf:
            raise InputError(f"Mixing.alpha is {self.alpha}; it must be finite and not negative.")
        if isinstance(self.group, bool) or not isinstance(self.group, int) or self.group < 1:
            raise InputError(f"Mixing.group is {self.group!r}; it must be a whole number >= 1.")

    def draw(self, key: tf.Tensor, count) -> Mix:
        """The weights and partners of one batch.

        Args:
            key: int32 [2]; draws for the global batch.
            count: rows of the local batch, an integer or a scalar tensor.
        """
        partner = partners(randomness.fold(key, "partner"), count, self.group)
        return Mix(self.weights(randomness.fold(key, "weight"), count), partner)

    def weights(self, key: tf.Tensor, count) -> tf.Tensor:
        """lambda in [0, 1], float32 [], or [count] with `per_example`."""
        if not self.alpha:
            return tf.ones([count] if self.per_example else [])
        return self.per_step(beta(self.alpha, self.alpha), key, count)

    def per_step(self, sampler: Callable, key: tf.Tensor, count, shape: Sequence[int] = ()) -> tf.Tensor:
        """One draw for the whole step, of `shape`; with `per_example` one for each example, [count, *shape]."""
        if not self.per_example:
            return sampler(list(shape), key)
        return randomness.draw(sampler, key, [count, *shape])


def mix_rows(values: tf.Tensor, mix: Mix) -> tf.Tensor:
    """weight * values_i + (1 - weight) * values_partner(i), in the dtype of the values.

    Args:
        values: float [b, ...].
        mix: as `Mixing.draw` returns it.
    """
    weight = mix.weight
    if weight.shape.rank:
        weight = by_example(weight, values)
    weight = tf.cast(weight, values.dtype)
    return weight * values + (1 - weight) * tf.gather(values, mix.partner)


def cut_box(weight: tf.Tensor, centre: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The pixels that CutMix takes from the partner, and the weight that is left.

    Sides int(height sqrt(1 - weight)) and int(width sqrt(1 - weight)); half of each, rounded down, to either side
    of the centre pixel, cut off at the border: with c the centre's row, rows c - half <= r < c + half.

    Args:
        weight: float32 [...], lambda in [0, 1].
        centre: float32 [..., 2] in [0, 1), as a fraction of height and width.
        height, width: of the images, in pixels.

    Returns:
        bool [..., height, width], true inside the box; float32 [...], 1 - area / (height width).

    Source: the authors' code; the whole-pixel sides are even, so that small images see a smaller box than 1 - weight.
    """
    inside = []
    for axis, size in enumerate((height, width)):
        side = tf.cast(size * tf.sqrt(tf.maximum(1.0 - weight, 0.0)), tf.int32)
        middle = tf.cast(centre[..., axis] * size, tf.int32)
        low, high = (tf.clip_by_value(middle + sign * (side // 2), 0, size)[..., None] for sign in (-1, 1))
        pixels = tf.range(size)
        inside.append((low <= pixels) & (pixels < high))
    box = inside[0][..., :, None] & inside[1][..., None, :]
    return box, 1.0 - tf.reduce_mean(tf.cast(box, tf.float32), axis=[-2, -1])


# ---------------------------------------------------------------------------------------------- hidden states


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureNoise(Configured):
    """Noise on the features of a stage, of a random size drawn once per step.

    hidden * (1 + multiplicative s u) + additive s' n; u ~ U(-1, 1) and n ~ N(0, 1) per entry, s and s' ~
    Beta(*scale), one each for the batch. Entries of either noise are dropped with probability `sparsity`.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> noise = robust.methods.FeatureNoise(additive=0.0, multiplicative=0.2, scale=None)
        >>> noisy = noise(tf.ones([4, 8, 8, 16]), tf.constant([0, 1]))
        >>> 0.8 <= float(tf.reduce_min(noisy)) < 0.81 and 1.19 < float(tf.reduce_max(noisy)) <= 1.2
        True

    Attributes:
        additive: level of the additive noise, >= 0, in units of the features; 0 leaves it out.
        multiplicative: level of the multiplicative noise, >= 0; 0 leaves it out.
        sparsity: in [0, 1).
        scale: concentrations of the Beta. The papers (001, eq. of the NFM loss) have levels alone: None.

    Source: paper 001, section 3.1; the authors' code (Beta(2, 5) scale, sparsity).
    """

    additive: float = 0.4
    multiplicative: float = 0.2
    sparsity: float = 0.0
    scale: tuple[float, float] | None = (2.0, 5.0)

    def __post_init__(self):
        if not (self.additive >= 0 and self.multiplicative >= 0):
            levels = f"{self.additive} and {self.multiplicative}"
            raise InputError(f"FeatureNoise has levels {levels} (additive, multiplicative); neither may be negative.")
        if not 0 <= self.sparsity < 1:
            raise InputError(f"FeatureNoise.sparsity is {self.sparsity}; it lies in [0, 1).")
        pair = isinstance(self.scale, (tuple, list)) and len(self.scale) == 2
        if self.scale is not None and not (pair and all(0 < one < math.inf for one in self.scale)):
            raise InputError(f"FeatureNoise.scale is {self.scale!r}; it is two positive numbers, or None.")

    def scales(self, key: tf.Tensor, *count: int) -> tf.Tensor:
        """s and s' of a step, float32 [2]; with a count, [count, 2], of independent ones."""
        shape = [*count, 2]
        return tf.ones(shape) if self.scale is None else beta(*self.scale)(shape, randomness.fold(key, "scale"))

    def draw(self, key: tf.Tensor, shape: Sequence, scales: tf.Tensor | None = None) -> dict:
        """The noise for hidden states of one shape.

        Args:
            key: int32 [2]; draws for the global batch.
            shape: (b, ...) of the hidden states; b may be a scalar tensor, the others are integers.
            scales: s and s', float32 [2] or, where rows differ, [2, ...] against `shape`; so that they can be drawn
                once for several stages. None draws them.

        Returns:
            `factor` and `offset`, float32 [b, ...]; what has level 0 is missing.
        """
        kinds = {
            "factor": (self.multiplicative, randomness.uniform(-1.0, 1.0), 1.0),
            "offset": (self.additive, randomness.normal(), 0.0),
        }
        scales = self.scales(key) if scales is None else scales
        made = {}
        for place, (name, (level, sampler, neutral)) in enumerate(kinds.items()):
            if level == 0:
                continue
            own = randomness.fold(key, name)
            noise = level * scales[place] * randomness.draw(sampler, randomness.fold(own, "noise"), shape)
            if self.sparsity:
                chance = randomness.draw(randomness.uniform(), randomness.fold(own, "sparsity"), shape)
                noise = tf.where(chance < self.sparsity, 0.0, noise)
            made[name] = neutral + noise
        return made

    def apply(self, hidden: tf.Tensor, draw: dict) -> tf.Tensor:
        """The hidden states [b, ...] under a draw, in their own dtype."""
        if "factor" in draw:
            hidden *= tf.cast(draw["factor"], hidden.dtype)
        if "offset" in draw:
            hidden += tf.cast(draw["offset"], hidden.dtype)
        return hidden

    def __call__(self, hidden: tf.Tensor, key: tf.Tensor, **keywords) -> tf.Tensor:
        """Draws, then applies."""
        return self.apply(hidden, self.draw(key, shape_of(hidden), **keywords))


def at_one_stage(key: tf.Tensor, stages: Sequence[int], change: Callable) -> Callable:
    """A function for an encoder's `at_stage` that changes the hidden states at one drawn stage, once.

    Args:
        key: int32 [2].
        stages: the stages to draw from, each as likely as it is named.
        change: hidden -> hidden of the same shape and dtype. No collective may stand in it.

    Returns:
        (index, hidden) -> hidden.
    """
    place = tf.random.stateless_uniform([], key, 0, len(stages), tf.int32)
    drawn = tf.gather(tf.constant(stages, tf.int32), place)

    def at_stage(index, hidden):
        if index not in stages:
            return hidden
        return tf.cond(tf.equal(drawn, index), lambda: change(hidden), lambda: tf.identity(hidden))

    return at_stage


def require_stages(encoder, stages: Sequence[int], owner: str) -> tuple[int, ...]:
    """The stages themselves, if the encoder has them; a plain Keras model would ignore `at_stage` in silence.

    Args:
        encoder: of a method.
        stages: 0 is the input, k the output of stage k.
        owner: who asks, for the message.

    Raises:
        ValueError: no stages named, an encoder that has none, or not these.
    """
    stages = tuple(stages) if isinstance(stages, (list, tuple)) else (stages,)
    count = getattr(encoder, "stage_count", None)
    if count is None:
        raise InputError(
            f"{owner} mixes hidden states at the stages of its encoder, and {type(encoder).__name__} has none; "
            f"take an encoder of tfrobust.keras.models or a subclass of its Encoder."
        )
    if not stages or not all(type(stage) is int and 0 <= stage <= count for stage in stages):
        raise InputError(f"{owner}.stages is {stages}; {type(encoder).__name__} has the stages 0 to {count}.")
    return stages

"""Parts of the mixing methods: weights, partners, Mixup and CutMix of a batch, feature noise, and a random stage.

A step samples one weight and one permutation from a key for the global batch (`Mixing.draw`), then mixes rows of
images, hidden states or labels. The module does not depend on encoders: `at_one_stage` returns the function that
encoders call at each of their stages.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import is_whole, require_whole
from tfrobust.errors import InputError
from tfrobust.ops import distribution, randomness
from tfrobust.ops.shapes import by_example, shape_of

# Candidates of the rejection sampler. One is accepted with probability above 0.95, all fail once in 2e10 samples.
CANDIDATES = 8


# ----------------------------------------------------------------------------------------------- distributions


def log_gamma(concentration: float | Sequence[float]) -> Callable:
    """Return a sampler of the logarithm of Gamma(concentration, 1), which is finite even if the value would underflow.

    It is Marsaglia and Tsang's rejection sampler with a fixed number of candidates, for concentration + 1, scaled down
    by U^(1 / concentration). (XLA cannot compile TensorFlow's own stateless gamma.)

    Args:
        concentration: > 0; several for the last axis of the shape.

    Returns:
        (shape, key int32 [2]) -> float32. A softmax of such samples is Dirichlet.
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
    """Compute the samples of `log_gamma` from given random numbers.

    Args:
        concentration: [] or [n], > 0.
        normal: float [..., n, CANDIDATES], standard normal.
        accept: of the same shape, uniform on [0, 1).
        scale: float [..., n], uniform on [0, 1).

    Returns:
        [..., n] in the dtype of `normal`.
    """
    dtype = normal.dtype.as_numpy_dtype
    concentration = concentration.astype(dtype)
    offset = concentration + dtype(1.0) - dtype(1.0 / 3.0)
    wide_offset = offset[..., None]  # with an axis for candidates
    slope = (9.0 * wide_offset) ** -0.5
    # In (0, 1], because the logarithm of both is computed.
    accept, scale = 1.0 - accept, 1.0 - scale
    root = 1.0 + slope * normal
    log_cube = 3.0 * tf.math.log(tf.maximum(root, 1e-12))
    bound = 0.5 * normal**2 + wide_offset * (1.0 - root**3 + log_cube)
    accepted = tf.cast((root > 0) & (tf.math.log(accept) < bound), dtype)
    first = accepted * tf.cast(tf.cumsum(accepted, axis=-1) == 1.0, dtype)
    # If all candidates are rejected, log_cube is 0: the mode.
    return tf.reduce_sum(first * log_cube, axis=-1) + tf.math.log(offset) + tf.math.log(scale) / concentration


def beta(first: float, second: float) -> Callable:
    """Return a sampler of Beta(first, second), by two gammas.

    Args:
        first: concentration, > 0.
        second: concentration, > 0. The mean is first / (first + second).

    Returns:
        (shape, key int32 [2]) -> float32 in [0, 1].
    """

    def sample(shape, key):
        log_first, log_second = tf.unstack(log_gamma((first, second))([*shape, 2], key), axis=-1)
        return tf.sigmoid(log_first - log_second)

    return sample


def partners(key: tf.Tensor, count, group: int = 32) -> tf.Tensor:
    """Sample the partner of each example by a random permutation inside each group of adjacent rows.

    The papers permute the whole batch. With groups that divide the local batch, N replicas get the partners of a single
    one. A remainder of the last group is a smaller group. As with the papers' permutation, some rows may be their own
    partners.

    Args:
        key: int32 [2], one key for the global batch.
        count: rows of the local batch, an integer or a scalar tensor.
        group: rows in a group, >= 1.

    Returns:
        int32 [count], rows of the local batch.

    Raises:
        ValueError: several replicas whose local batch does not consist of whole groups.
    """
    replicas, _ = distribution.replica()
    if replicas > 1:
        _require_whole_groups(count, group)
    scores = randomness.draw(randomness.uniform(), key, [count])
    groups = -(-count // group)
    # Padding of the last group is sorted after all rows, so that it is never a partner.
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
    """Weights and partners of a batch.

    Attributes:
        weight: lambda, the weight of an example's own value, float32 [] or [b].
        partner: int32 [b].
    """

    weight: tf.Tensor
    partner: tf.Tensor


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixing(Configured):
    """Distribution of the weights and partners of a batch.

    lambda ~ Beta(alpha, alpha); mixed_i = lambda value_i + (1 - lambda) value_partner(i).

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> mix = robust.methods.Mixing(alpha=1.0, group=2).draw(tf.constant([0, 1]), 6)
        >>> mix.weight.shape, (mix.partner // 2).numpy().tolist()  # partners stay inside their group of two
        (TensorShape([]), [0, 0, 1, 1, 2, 2])

    Attributes:
        alpha: >= 0; 1 is uniform, larger values are closer to 1/2, 0 does not mix.
        group: rows in a group of possible partners, see `partners`; must divide the batch of a replica.
        per_example: one weight for each example. The papers' code samples one for the whole batch.

    Raises:
        ValueError: a negative or infinite alpha, or a group that is no integer >= 1.
    """

    alpha: float = 1.0
    group: int = 32
    per_example: bool = False

    def __post_init__(self):
        if not 0 <= self.alpha < math.inf:
            raise InputError(f"Mixing.alpha is {self.alpha}; it must be finite and not negative.")
        object.__setattr__(self, "group", require_whole(self.group, "Mixing.group"))

    def draw(self, key: tf.Tensor, count) -> Mix:
        """Sample the weights and partners of one batch.

        Args:
            key: int32 [2], one key for the global batch.
            count: rows of the local batch, an integer or a scalar tensor.
        """
        partner = partners(randomness.fold(key, "partner"), count, self.group)
        return Mix(self.weights(randomness.fold(key, "weight"), count), partner)

    def weights(self, key: tf.Tensor, count) -> tf.Tensor:
        """Sample lambda in [0, 1], float32 [], or [count] with `per_example`."""
        if not self.alpha:
            return tf.ones([count] if self.per_example else [])
        return self.per_step(beta(self.alpha, self.alpha), key, count)

    def per_step(self, sampler: Callable, key: tf.Tensor, count, shape: Sequence[int] = ()) -> tf.Tensor:
        """Sample numbers of `shape` once per step, or with `per_example` once per example, [count, *shape]."""
        if not self.per_example:
            return sampler(list(shape), key)
        return randomness.draw(sampler, key, [count, *shape])


def mix_rows(values: tf.Tensor, mix: Mix) -> tf.Tensor:
    """Compute weight * values_i + (1 - weight) * values_partner(i), in the dtype of the values.

    Args:
        values: float [b, ...].
        mix: the output of `Mixing.draw`.
    """
    weight = mix.weight
    if weight.shape.rank:
        weight = by_example(weight, values)
    weight = tf.cast(weight, values.dtype)
    return weight * values + (1 - weight) * tf.gather(values, mix.partner)


def cut_box(weight: tf.Tensor, center: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the box that CutMix takes from the partner, and the remaining weight.

    Sides int(height sqrt(1 - weight)) and int(width sqrt(1 - weight)); half of each, rounded down, to either side of
    the center pixel, clipped at the border: with c the center's row, rows c - half <= r < c + half.

    Args:
        weight: float32 [...], lambda in [0, 1].
        center: float32 [..., 2] in [0, 1), as a fraction of height and width.
        height: of the images, in pixels.
        width: of the images, in pixels.

    Returns:
        bool [..., height, width], true inside the box; float32 [...], 1 - area / (height width).

    Source: the authors' code. Its sides in whole pixels are even, so that the box in small images is smaller than 1 -
        weight.
    """
    inside = []
    for axis, size in enumerate((height, width)):
        side = tf.cast(size * tf.sqrt(tf.maximum(1.0 - weight, 0.0)), tf.int32)
        middle = tf.cast(center[..., axis] * size, tf.int32)
        low, high = (tf.clip_by_value(middle + sign * (side // 2), 0, size)[..., None] for sign in (-1, 1))
        pixels = tf.range(size)
        inside.append((low <= pixels) & (pixels < high))
    box = inside[0][..., :, None] & inside[1][..., None, :]
    return box, 1.0 - tf.reduce_mean(tf.cast(box, tf.float32), axis=[-2, -1])


# ---------------------------------------------------------------------------------------------- hidden states


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureNoise(Configured):
    """Noise on the features of a stage, with a random scale sampled once per step.

    hidden * (1 + multiplicative s u) + additive s' n; u ~ U(-1, 1) and n ~ N(0, 1) per entry, s and s' ~ Beta(*scale),
    one each for the batch. Entries of either noise are dropped with probability `sparsity`.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> noise = robust.methods.FeatureNoise(additive=0.0, multiplicative=0.2, scale=None)
        >>> noisy = noise(tf.ones([4, 8, 8, 16]), tf.constant([0, 1]))
        >>> 0.8 <= float(tf.reduce_min(noisy)) < 0.81 and 1.19 < float(tf.reduce_max(noisy)) <= 1.2
        True

    Attributes:
        additive: level of the additive noise, >= 0, in units of the features; 0 for none.
        multiplicative: level of the multiplicative noise, >= 0; 0 for none.
        sparsity: in [0, 1).
        scale: concentrations of the Beta distribution. The papers have no random scale: None.

    Raises:
        ValueError: an argument out of its range.

    Source: Erichson et al. 2022, section 3.1; the authors' code (Beta(2, 5) scale, sparsity).
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
        if self.scale is not None and not (pair and all(0 < scale < math.inf for scale in self.scale)):
            raise InputError(f"FeatureNoise.scale is {self.scale!r}; it is two positive numbers, or None.")

    def scales(self, key: tf.Tensor, *count: int) -> tf.Tensor:
        """Sample s and s' of a step, float32 [2]; with a count, independent ones, [count, 2]."""
        shape = [*count, 2]
        return tf.ones(shape) if self.scale is None else beta(*self.scale)(shape, randomness.fold(key, "scale"))

    def draw(self, key: tf.Tensor, shape: Sequence, scales: tf.Tensor | None = None) -> dict:
        """Sample the noise for hidden states of one shape.

        Args:
            key: int32 [2], one key for the global batch.
            shape: (b, ...) of the hidden states; b may be a scalar tensor, the others are integers.
            scales: s and s', float32 [2] or, if rows differ, [2, ...] that broadcasts to `shape`. Passing them allows
                sampling once for several stages. None samples them.

        Returns:
            `factor` and `offset`, float32 [b, ...]; a noise of level 0 is missing.
        """
        kinds = {
            "factor": (self.multiplicative, randomness.uniform(-1.0, 1.0), 1.0),
            "offset": (self.additive, randomness.normal(), 0.0),
        }
        scales = self.scales(key) if scales is None else scales
        terms = {}
        for number, (name, (level, sampler, neutral)) in enumerate(kinds.items()):
            if level == 0:
                continue
            noise_key = randomness.fold(key, name)
            noise = level * scales[number] * randomness.draw(sampler, randomness.fold(noise_key, "noise"), shape)
            if self.sparsity:
                chance = randomness.draw(randomness.uniform(), randomness.fold(noise_key, "sparsity"), shape)
                noise = tf.where(chance < self.sparsity, 0.0, noise)
            terms[name] = neutral + noise
        return terms

    def apply(self, hidden: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply sampled noise to hidden states [b, ...], in their own dtype."""
        if "factor" in draw:
            hidden *= tf.cast(draw["factor"], hidden.dtype)
        if "offset" in draw:
            hidden += tf.cast(draw["offset"], hidden.dtype)
        return hidden

    def __call__(self, hidden: tf.Tensor, key: tf.Tensor, **keywords) -> tf.Tensor:
        """Sample and apply."""
        return self.apply(hidden, self.draw(key, shape_of(hidden), **keywords))


def at_one_stage(key: tf.Tensor, stages: Sequence[int], change: Callable) -> Callable:
    """Return a function for an encoder's `at_stage` that changes the hidden states at one random stage, once.

    Args:
        key: int32 [2].
        stages: the stages to choose from; a stage listed several times is proportionally more likely.
        change: hidden -> hidden of the same shape and dtype. It must not contain collective operations.

    Returns:
        (index, hidden) -> hidden.
    """
    choice = tf.random.stateless_uniform([], key, 0, len(stages), tf.int32)
    drawn = tf.gather(tf.constant(stages, tf.int32), choice)

    def at_stage(index, hidden):
        if index not in stages:
            return hidden
        return tf.cond(tf.equal(drawn, index), lambda: change(hidden), lambda: tf.identity(hidden))

    return at_stage


def more_stages(encoder) -> str:
    """Return the end of a message: how an encoder gets more stages, or nothing."""
    return "; more are set by its stage_names" if hasattr(encoder, "stage_names") else ""


def require_stages(encoder, stages: Sequence[int] | int, owner: str) -> tuple[int, ...]:
    """Check that an encoder has the stages, and return them as a tuple.

    A plain Keras model would silently ignore `at_stage`.

    Args:
        encoder: encoder of a method.
        stages: 0 is the input, k the output of stage k.
        owner: name of the method, for the message.

    Raises:
        ValueError: no stages given, or stages that the encoder does not have.
    """
    chosen = tuple(stages) if isinstance(stages, (list, tuple)) else (stages,)
    count = getattr(encoder, "stage_count", None)
    if count is None:
        raise InputError(
            f"{owner} mixes hidden states at the stages of its encoder, and {type(encoder).__name__} has none; "
            f"take an encoder of tfrobust.keras.models or a subclass of its Encoder."
        )
    if not chosen or not all(is_whole(stage, 0) and stage <= count for stage in chosen):
        raise InputError(
            f"{owner}.stages is {chosen}; {type(encoder).__name__} has the stages 0 to {count}{more_stages(encoder)}."
        )
    return tuple(map(int, chosen))

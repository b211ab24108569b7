"""Norms of perturbations: exact projections onto balls (and a box), proximal operators, steps and random points.

Everything is per example: the first axis counts examples, all others together are one vector of length d.
"""

import tensorflow as tf

from tfrobust.common import norm_table
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.shapes import by_example, shape_of

KINDS = norm_table.DIRECTED
# Also the number of nonzero values, which is not a norm: it has no steepest direction.
ALL_KINDS = tuple(norm_table.NORMS)

# Each pass fixes at least one more coordinate at the box, and in practice a few are enough. Stopping early is safe:
# every intermediate scale is a lower bound of the exact one.
_MAX_SCALING_PASSES = 60
# L1: relative tolerance for equality with the radius, and the number of passes after which the feasible end of the
# bracket is used.
_CLOSE = 1e-6
_MAX_SHRINKING_PASSES = 60


def check_kind(kind: str, kinds: tuple[str, ...] = KINDS) -> str:
    """Return `kind`, or raise ValueError that lists the valid ones."""
    if kind not in kinds:
        raise InputError(f"Unknown norm {kind!r}; it is one of {list(kinds)}.")
    return kind


def norm(x: tf.Tensor, kind: str) -> tf.Tensor:
    """Compute the norm of each example: max |x_j|, sqrt(sum x_j^2), sum |x_j|, or the number of x_j that are not 0.

    Args:
        x: float [b, ...]. It is divided by its largest entry before squaring, so that the smallest gradients do not
            underflow.
        kind: 'linf', 'l2', 'l1' or 'l0'.

    Returns:
        float [b], >= 0.

    Raises:
        ValueError: unknown kind.
    """
    axes = _axes(x)
    magnitude = tf.abs(x)
    if check_kind(kind, ALL_KINDS) == "linf":
        return tf.reduce_max(magnitude, axes)
    if kind == "l0":
        return tf.reduce_sum(tf.cast(magnitude > 0, x.dtype), axes)
    if kind == "l1":
        return tf.reduce_sum(magnitude, axes)
    largest = tf.reduce_max(magnitude, axes, keepdims=True)
    scaled = x / tf.where(largest > 0, largest, tf.ones_like(largest))
    return tf.reshape(largest, [-1]) * tf.sqrt(tf.reduce_sum(tf.square(scaled), axes))


def dual_norm(x: tf.Tensor, kind: str) -> tf.Tensor:
    """Compute max <v, x> over |v| <= 1 for each example: how much a step of length 1 changes a linear function.

    Args:
        x: float [b, ...].
        kind: 'linf', 'l2' or 'l1', the norm of v.

    Returns:
        float [b], >= 0.
    """
    return norm(x, norm_table.NORMS[check_kind(kind)].dual)


def project_ball(x: tf.Tensor, kind: str, epsilon) -> tf.Tensor:
    """Project each example onto the ball |.| <= epsilon around 0: the nearest point in L2.

    Linf: clip. L2: scale. L1: soft threshold (Duchi et al. 2008). L0: keep the largest.

    Args:
        x: float [b, ...].
        kind: 'linf', 'l2', 'l1' or 'l0'.
        epsilon: radius, > 0; L0: the number of values that may differ from 0. A number, or float [b].

    Returns:
        Like x; points inside the ball are returned unchanged.
    """
    if check_kind(kind, ALL_KINDS) == "l0":
        return tf.where(largest_mask(tf.abs(x), epsilon), x, tf.zeros_like(x))
    if kind == "l1":
        return _shrink(x, tf.abs(x), epsilon)
    epsilon = by_example(epsilon, x) if tf.is_tensor(epsilon) else epsilon
    if kind == "linf":
        return tf.clip_by_value(x, -epsilon, epsilon)
    size = by_example(norm(x, "l2"), x)
    return tf.where(size > epsilon, x * (epsilon / tf.maximum(size, epsilon)), x)


def project_ball_in_box(centers, candidate, kind: str, epsilon: float, low: float, high: float) -> tf.Tensor:
    """Project each example onto {|z - centers| <= epsilon, low <= z <= high}: the nearest point in L2.

    With d = candidate - centers and room_j the distance, at most |d_j|, that coordinate j can move towards d_j in the
    box:

        Linf: both sets are boxes: clip to their intersection.
        L2:   |p_j| = min(s |d_j|, room_j), the largest s <= 1 with |p|_2 <= epsilon.
        L1:   |p_j| = |d_j| - clip(t, |d_j| - room_j, |d_j|), the smallest t >= 0 with |p|_1 <= epsilon.
        L0:   p_j = d_j clipped to its room where that reduces the distance to d most, else 0.

    Args:
        centers: float [b, ...], inside the box.
        candidate: float [b, ...].
        kind: 'linf', 'l2', 'l1' or 'l0'.
        epsilon: radius, > 0, a number or a scalar tensor; L0: the number of values that may change. L1: also a float
            tensor [b], one per example.
        low: lower bound of the box.
        high: upper bound of the box.

    Returns:
        Like centers; inside both sets up to rounding of the radius (a few 1e-7 of the box).

    Source:
        L1: Croce & Hein 2021 (https://arxiv.org/abs/2103.01208), section 3.1. L2: the same optimality conditions;
        AutoAttack scales first and clips after, which is feasible but not nearest.
    """
    if check_kind(kind, ALL_KINDS) == "linf":
        lower, upper = tf.maximum(centers - epsilon, low), tf.minimum(centers + epsilon, high)
        return tf.clip_by_value(candidate, lower, upper)
    difference = candidate - centers
    # The distance that each coordinate can move inside the box; without tf.where, which costs as much as ten other
    # operations.
    room = tf.abs(tf.clip_by_value(candidate, low, high) - centers)
    if kind == "l0":
        chosen = largest_mask(distance_reduction(difference, room), epsilon)
        return tf.where(chosen, tf.clip_by_value(candidate, low, high), centers)
    shrink = _scale if kind == "l2" else _shrink
    return tf.clip_by_value(centers + shrink(difference, room, epsilon), low, high)


def distance_reduction(difference: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
    """Return the reduction of the squared distance to d_j if coordinate j may move by room_j, instead of staying at 0.

    c (2 |d_j| - c) with c = min(|d_j|, room_j), which is d_j^2 - (|d_j| - c)^2.

    Args:
        difference: float [b, ...], d.
        room: float [b, ...], >= 0.

    Returns:
        Like difference, >= 0.
    """
    magnitude = tf.abs(difference)
    moved = tf.minimum(magnitude, room)
    return moved * (2.0 * magnitude - moved)


def largest_mask(score: tf.Tensor, count) -> tf.Tensor:
    """Return a mask of the `count` largest scores of each example; among equal scores the first.

    Args:
        score: float [b, ...].
        count: a number, or int32 [b].

    Returns:
        bool, like score.
    """
    order = tf.argsort(_flat(score), axis=-1, direction="DESCENDING", stable=True)
    rank = tf.argsort(order, axis=-1)
    count = tf.reshape(tf.cast(count, tf.int32), [-1, 1])
    return tf.reshape(rank < count, tf.shape(score))


def unit_steepest(gradient: tf.Tensor, kind: str) -> tf.Tensor:
    """Return the direction of steepest ascent: the v with |v| <= 1 that maximizes <gradient, v>.

    Linf: sign(g). L2: g / |g|_2, without an epsilon in the denominator: a gradient of 1e-30 gives a full step, only an
    exact zero gives none. L1: all on the largest |g_j|, shared evenly where several tie.

    Args:
        gradient: float [b, ...].
        kind: 'linf', 'l2' or 'l1'.

    Returns:
        Like gradient, norm 1 per example (0 where the gradient is 0).
    """
    if check_kind(kind) == "linf":
        return tf.sign(gradient)
    if kind == "l2":
        return _unit(gradient)
    scaled = _unit_largest(gradient)
    chosen = tf.where(tf.abs(scaled) >= 1.0, tf.sign(scaled), tf.zeros_like(scaled))
    return chosen / tf.maximum(tf.reduce_sum(tf.abs(chosen), _axes(scaled), keepdims=True), 1.0)


def sparse_step(gradient: tf.Tensor, room: tf.Tensor, size: float, share: float) -> tf.Tensor:
    """Return an L1 step of length `size` along the largest gradients that the box leaves room for.

    In the order of |g_j|, each coordinate moves by min(room_j, size / k), k = max(1, round(share x d)), until the
    length is used up. With k = 1 this is the v with |v|_1 <= size inside the box that maximizes <g, v>. A larger k
    changes more pixels per step, which is faster where d is large.

    Args:
        gradient: float [b, ...].
        room: float [b, ...], >= 0, the distance that each coordinate can move in the direction of its gradient.
        size: length of the step, > 0.
        share: share of the coordinates, 0 <= share <= 1.

    Returns:
        Like gradient; shorter than `size` where there is less room.

    Source:
        Tramer & Boneh 2019 (https://arxiv.org/abs/1904.13000), SLIDE, which ignores the box.
    """
    magnitude = tf.abs(_flat(gradient))
    cap = tf.minimum(_flat(room), size / max(1, round(share * _size(gradient))))
    cap = tf.where(magnitude > 0, cap, tf.zeros_like(cap))
    order = tf.argsort(magnitude, axis=-1, direction="DESCENDING", stable=True)
    before = tf.cumsum(tf.gather(cap, order, batch_dims=1), axis=-1, exclusive=True)
    before = tf.gather(before, tf.argsort(order, axis=-1), batch_dims=1)
    length = tf.clip_by_value(size - before, 0.0, cap)
    return tf.sign(gradient) * tf.reshape(length, tf.shape(gradient))


def random_in_ball(key: tf.Tensor, like: tf.Tensor, kind: str, epsilon: float) -> tf.Tensor:
    """Sample a point of the ball |.| <= epsilon, uniform by volume, for each example.

    Linf: each coordinate uniform. L2: a normal direction times epsilon U^(1/d). L1: d + 1 exponentials E,
    p_j = +- epsilon E_j / sum E.

    Args:
        key: int32 [2] (a draw for the global batch) or [b, 2] (one per example).
        like: float32 [b, ...]; all dimensions but b are static.
        kind: 'linf', 'l2' or 'l1'.
        epsilon: radius, > 0.

    Returns:
        float32, like `like`.
    """
    shape, size = shape_of(like), _size(like)
    if check_kind(kind) == "linf":
        return randomness.draw(randomness.uniform(-epsilon, epsilon), key, shape)
    if kind == "l2":
        direction = randomness.draw(randomness.normal(), randomness.fold(key, "direction"), shape)
        radius = randomness.draw(randomness.uniform(), randomness.fold(key, "radius"), [shape[0], 1])[:, 0]
        return unit_steepest(direction, "l2") * by_example(epsilon * radius ** (1.0 / size), like)
    signed = randomness.draw(randomness.uniform(-1.0, 1.0), randomness.fold(key, "direction"), [shape[0], size + 1])
    exponential = -tf.math.log1p(-tf.minimum(tf.abs(signed), 1.0 - 1e-7))
    point = epsilon * tf.sign(signed) * exponential / tf.reduce_sum(exponential, -1, keepdims=True)
    return tf.reshape(point[:, :size], tf.shape(like))


def proximal(difference: tf.Tensor, kind: str, strength) -> tf.Tensor:
    """Compute prox_{T |.|}(s) = argmin over v of |v - s|_2^2 / 2 + T |v|, for each example.

        L2:   s max(0, 1 - T / |s|_2)
        L1:   sign(s_j) max(0, |s_j| - T)
        Linf: s - T P(s / T), P the projection onto the L1 ball of radius 1 (Moreau); 0 where |s|_1 <= T
        L0:   s_j where |s_j| > sqrt(2 T), else 0

    Args:
        difference: float [b, ...], s.
        kind: 'linf', 'l2', 'l1' or 'l0'.
        strength: T > 0: a number, or float [b].

    Raises:
        ValueError: unknown kind.

    Source:
        Parikh & Boyd 2014, Proximal algorithms, sections 6.5 and 7.1. The code of Pooladian et al. 2020
        (https://arxiv.org/abs/1908.01667) differs in three cases: its L1 keeps sign(s_j) instead of shrinking, its L0
        cuts at sqrt(2) T, and its Linf pushes s with |s|_1 < T out to a sphere instead of returning 0.
    """
    check_kind(kind, ALL_KINDS)
    strength = tf.cast(strength, difference.dtype)
    if strength.shape.rank:
        strength = by_example(strength, difference)
    magnitude = tf.abs(difference)
    if kind == "l0":
        return tf.where(tf.square(magnitude) > 2.0 * strength, difference, tf.zeros_like(difference))
    if kind == "l1":
        return tf.sign(difference) * tf.maximum(magnitude - strength, 0.0)
    if kind == "linf":
        return difference - strength * project_ball(difference / strength, "l1", 1.0)
    length = by_example(norm(difference, "l2"), difference)
    return difference * tf.maximum(1.0 - tf.math.divide_no_nan(strength, length), 0.0)


def _unit(gradient: tf.Tensor) -> tf.Tensor:
    """Return g / |g|_2, 0 where g is 0; rows whose squares could over- or underflow are scaled by their largest first.

    Both are computed: a branch would make the host wait for a GPU in every step of an attack.
    """
    squares = tf.reduce_sum(tf.square(gradient), _axes(gradient), keepdims=True)
    scaled = _unit_largest(gradient)
    length = tf.sqrt(tf.reduce_sum(tf.square(scaled), _axes(scaled), keepdims=True))
    careful = scaled / tf.where(length > 0, length, tf.ones_like(length))
    return tf.where((squares > 1e-24) & (squares < 1e24), gradient / tf.sqrt(squares), careful)


def _unit_largest(gradient: tf.Tensor) -> tf.Tensor:
    """Divide each example by its largest entry; 0 where all entries are."""
    largest = tf.reduce_max(tf.abs(gradient), _axes(gradient), keepdims=True)
    return gradient / tf.where(largest > 0, largest, tf.ones_like(largest))


def _scale(difference: tf.Tensor, room: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return sign(d) min(s |d|, room) with the largest s <= 1 for which its L2 norm is <= epsilon.

    Given the coordinates held at the box, s^2 = (epsilon^2 - sum over held room^2) / sum over free d^2. If none is held
    at first, this s is too small, so coordinates held at it stay held, and s increases to the exact value.
    """
    axes = _axes(difference)
    magnitude = tf.abs(difference)
    room = tf.minimum(room, magnitude)
    squares, limits = tf.square(magnitude), tf.square(room)
    inside = tf.reduce_sum(limits, axes, keepdims=True) <= epsilon**2
    length = by_example(norm(difference, "l2"), difference)
    start = tf.where(inside, tf.ones_like(length), epsilon / tf.maximum(length, epsilon))

    def passes(_, rising):
        return tf.reduce_any(rising)

    def improve(scale, _):
        held = tf.cast(scale * magnitude >= room, scale.dtype)
        fixed = tf.reduce_sum(held * limits, axes, keepdims=True)
        free = tf.reduce_sum((1.0 - held) * squares, axes, keepdims=True)
        budget = tf.maximum(epsilon**2 - fixed, 0.0)
        better = tf.minimum(tf.sqrt(tf.math.divide_no_nan(budget, free)), 1.0)
        # Relative changes below 1e-6 are rounding, not a change of the set of held coordinates.
        rising = ~inside & (better > scale * (1.0 + 1e-6))
        return tf.where(rising, better, scale), rising

    scale, _ = tf.while_loop(
        passes, improve, (start, ~inside), parallel_iterations=1, maximum_iterations=_MAX_SCALING_PASSES
    )
    return tf.sign(difference) * tf.minimum(scale * magnitude, room)


def _shrink(difference: tf.Tensor, room: tf.Tensor, epsilon) -> tf.Tensor:
    """Return sign(d) min(max(|d| - t, 0), room) with the smallest t >= 0 for which its L1 norm is <= epsilon.

    The norm decreases piecewise linearly in t, so that Newton's method ends exactly. It is kept inside a bracket, which
    every third pass halves, since the norm is neither convex nor concave. This is several times as fast as sorting all
    breakpoints. t is measured downwards from the largest |d|, so that it does not round away where epsilon is small.
    """
    axes = _axes(difference)
    magnitude = tf.abs(difference)
    room = tf.minimum(room, magnitude)
    top = tf.reduce_max(magnitude, axes, keepdims=True)
    below = magnitude - top
    by_row = tf.is_tensor(epsilon) and epsilon.shape.rank
    epsilon = tf.zeros_like(top) + (by_example(epsilon, top) if by_row else epsilon)

    def improve(number, level, low, high, searching):
        before = level, low, high
        raised = below + level
        excess = tf.reduce_sum(tf.clip_by_value(raised, 0.0, room), axes, keepdims=True) - epsilon
        moving = tf.reduce_sum(tf.cast((raised > 0) & (raised <= room), raised.dtype), axes, keepdims=True)
        low, high = tf.where(excess > 0, low, level), tf.where(excess > 0, level, high)
        newton = level - excess / tf.maximum(moving, 1.0)
        usable = (newton > low) & (newton < high) & (moving > 0) & (number % 3 != 2)
        better = tf.where(usable, newton, 0.5 * (low + high))
        close = tf.abs(excess) <= _CLOSE * epsilon
        # Where rounding prevents a closer value, the lower end of the bracket is feasible.
        better = tf.where(close, level, tf.where((better > low) & (better < high), better, low))
        moved = (tf.where(searching, *pair) for pair in zip((better, low, high), before, strict=True))
        return number + 1, *moved, searching & ~close & (better > low)

    outside = tf.reduce_sum(room, axes, keepdims=True) > epsilon
    _, level, low, _, searching = tf.while_loop(
        lambda number, level, low, high, searching: tf.reduce_any(searching),
        improve,
        (tf.constant(0), top, tf.zeros_like(top), top, outside),
        parallel_iterations=1,
        maximum_iterations=_MAX_SHRINKING_PASSES,
    )
    # Points inside the ball are returned unchanged: this level is below all of their coordinates.
    level = tf.where(outside, tf.where(searching, low, level), 2.0 * top)
    return tf.sign(difference) * tf.clip_by_value(below + level, 0.0, room)


def _axes(x: tf.Tensor) -> list[int]:
    return list(range(1, x.shape.rank))


def _size(x: tf.Tensor) -> int:
    size = x.shape[1:].num_elements()
    if size is None:
        raise InputError(f"The shape after the batch axis must be static, found {x.shape}.")
    return size


def _flat(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [-1, _size(x)])

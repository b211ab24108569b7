"""Shortest move onto a hyperplane within a box, in Linf, L2 and L1.

Everything is per example: the first axis counts examples, all others together are one vector of length d.
"""

import tensorflow as tf

from tfrobust.ops import norms

# Each pass fills at least one more coordinate; in practice a few passes are enough. Stopping early is safe: every
# intermediate scale is a lower bound of the exact one.
_MAX_PASSES = 60


def move(points, normals, excess, kind: str, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
    """Compute the smallest move from each point onto its hyperplane {z : <w, z> = b}, inside the box.

    It minimizes |m| subject to <w, t + m> = b, low <= t + m <= high. The plane is given by the excess of <w, t> over b,
    so that the result is exact also next to it. Coordinate j moves in the direction -sign(excess) w_j and has room_j up
    to the border of the box. With c = |excess|:

        Linf: |m_j| = min(s, room_j)         and sum_j |w_j| |m_j| = c, s >= 0
        L2:   |m_j| = min(s |w_j|, room_j)   and sum_j |w_j| |m_j| = c, s >= 0
        L1:   room_j in the order of |w_j|, largest first, until sum_j |w_j| |m_j| = c; the last coordinates,
              where several tie, use equal shares of their room.

    Coordinates with w_j = 0 do not move. If c is out of reach, the others use all their room.

    Args:
        points: float32 [b, ...], t, inside the box; all dimensions but b are static.
        normals: float32 [b, ...], w, of any length.
        excess: float32 [b], <w, t> - b.
        kind: norm of the move: 'linf', 'l2' or 'l1'.
        low: lower bound of the box.
        high: upper bound of the box.

    Returns:
        float32 [b, ...], the moves m. Where the box does not reach the plane, the move ends as near to it as possible.

    Raises:
        ValueError: unknown kind.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/1907.02044, section 3.1 and appendix A. Their code does not
        move coordinates with |w_j| < 1e-8 in L2 and L1; here the length of w does not matter.
    """
    norms.check_kind(kind)
    shape, size = tf.shape(points), points.shape[1:].num_elements()
    points, normals = tf.reshape(points, [-1, size]), tf.reshape(normals, [-1, size])
    excess = excess[:, None]
    way = tf.where(excess >= 0, -normals, normals)
    weight = tf.abs(way)
    # Scales w to a largest entry of 1, so that squares of tiny gradients do not underflow.
    largest = tf.reduce_max(weight, 1, keepdims=True)
    weight, needed = (tf.math.divide_no_nan(term, largest) for term in (weight, tf.abs(excess)))
    room = tf.maximum(tf.where(way > 0, high - points, points - low), 0.0)
    room = tf.where(weight > 0, room, 0.0)
    fill = _by_weight if kind == "l1" else _by_scale
    length = fill(weight, room, needed, weight if kind == "l2" else tf.ones_like(needed))
    return tf.reshape(tf.sign(way) * length, shape)


def _by_scale(weight, room, needed, speed):
    """Return min(s speed, room) with the s for which <weight, .> = needed; all of room where that is too little.

    The sum is concave and piecewise linear in s, so Newton's method from 0 increases to the exact s: given the
    coordinates that have used up their room, s = (needed - sum over them of weight room) / sum over the others of
    weight speed.
    """
    filled, slope = weight * room, weight * speed
    short = tf.reduce_sum(filled, 1, keepdims=True) <= needed

    def improve(scale, _):
        used = scale * speed >= room
        fixed = tf.reduce_sum(tf.where(used, filled, 0.0), 1, keepdims=True)
        free = tf.reduce_sum(tf.where(used, 0.0, slope), 1, keepdims=True)
        better = tf.math.divide_no_nan(needed - fixed, free)
        # Relative changes below 1e-6 are rounding, not a change of the set of coordinates without room.
        rising = ~short & (better > scale * (1.0 + 1e-6))
        return tf.where(rising, better, scale), rising

    scale, _ = tf.while_loop(
        lambda _, rising: tf.reduce_any(rising),
        improve,
        (tf.zeros_like(needed), ~short),
        parallel_iterations=1,
        maximum_iterations=_MAX_PASSES,
    )
    return tf.where(short, room, tf.minimum(scale * speed, room))


def _by_weight(weight, room, needed, _):
    """Use up room in the order of weight until <weight, .> = needed.

    One sort finds the weight at which the sum is reached. Comparisons then give the coordinates above it, on it and
    below it, without sorting back.
    """
    filled, size = weight * room, weight.shape[1]
    ordered, order = tf.math.top_k(weight, size)
    reached = tf.cumsum(tf.gather(filled, order, batch_dims=1), 1)
    last = tf.reduce_sum(tf.cast(reached < needed, tf.int32), 1, keepdims=True)
    threshold = tf.gather(ordered, tf.minimum(last, size - 1), batch_dims=1)
    above, tied = weight > threshold, weight == threshold
    missing = needed - tf.reduce_sum(tf.where(above, filled, 0.0), 1, keepdims=True)
    share = tf.math.divide_no_nan(missing, tf.reduce_sum(tf.where(tied, filled, 0.0), 1, keepdims=True))
    partly = tf.where(tied, tf.clip_by_value(share, 0.0, 1.0) * room, 0.0)
    return tf.where(last < size, tf.where(above, room, partly), room)

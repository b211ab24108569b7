"""Minimum energy of three levels on square grids, by message passing on many grids at once.

    E(m) = sum_i U_i(m_i) + sum_{i,j neighbors} w_ij (m_i - m_j)^2,  m_i in {0, 1/2, 1}, w_ij >= 0

The pairwise terms are convex, so that a minimum cut would find the minimum exactly. Tree-reweighted messages reach the
same optimum where they converge. They are only minima of sums, so they run wherever TensorFlow does. The number of
rounds is fixed for every instance, so that the levels of a grid never depend on the other grids of its batch.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
# A round is black to white and back, so it crosses two cells. About three crossings settle nearly every grid.
_ROUNDS_PER_SIDE = 3
# Without damping, strong pairwise terms would keep some messages oscillating between two values.
_DAMPING = 0.1
_DESCENTS = 2


class _Color(NamedTuple):
    """One color of the chessboard. A slot is (cell of this color, direction); both indices count within a color.

    Attributes:
        cells: int [c], row-major positions in the grid.
        senders: int [4 c], by slot: the neighbor, a cell of the other color; any cell where there is none.
        returns: int [4 c], by slot: the neighbor's slot in the opposite direction.
    """

    cells: np.ndarray
    senders: np.ndarray
    returns: np.ndarray


def lowest_levels(costs: tf.Tensor, down: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the levels of (nearly) the lowest energy of each grid.

    Tree-reweighted min-sum messages with the edge weight of uniform spanning trees are sent from the black cells to the
    white cells and back. Then each cell takes its best level, and twice its best level given its neighbors.

    Args:
        costs: U, float32 [b, n, n, 3], of the levels 0, 1/2 and 1; n >= 2.
        down: w >= 0 between a cell and the one below it, float32 [b, n - 1, n].
        right: w >= 0 between a cell and the one to its right, float32 [b, n, n - 1].

    Returns:
        float32 [b, n, n] in {0, 1/2, 1}. The tests require energies that are on average within 1e-4 of the lowest.

    Source:
        Wainwright, Jaakkola and Willsky 2005, IEEE Trans. Information Theory 51(11). For the equality with the minimum
        cut: Kolmogorov and Wainwright 2005, https://arxiv.org/abs/1207.1395.
    """
    side = costs.shape[1]
    colors = _chessboard(side)
    # Batch last, so that a gather of cells or slots copies whole rows. Costs are relative to level 0, which drops out.
    excess = tf.transpose(tf.reshape(costs[..., 1:] - costs[..., :1], [-1, side * side, 2]), [2, 1, 0])
    excess = [[tf.gather(level, color.cells) for level in tf.unstack(excess)] for color in colors]
    pairs = _by_slot(down, right)
    pairs = [tf.reshape(tf.gather(pairs, color.cells), [color.senders.size, -1]) / 4 for color in colors]
    pairs = [(pair, 4 * pair) for pair in pairs]
    trees = (side + 1) / (2 * side)  # share of the spanning trees that contain a given edge

    def send(number, sent, previous):
        """Return the messages that a color receives, from the messages it has sent and its previous ones."""
        color = colors[number]
        beliefs = [trees * (cost + _over_slots(got)) for cost, got in zip(excess[1 - number], sent, strict=True)]
        levels = [
            tf.gather(belief, color.senders) - tf.gather(got, color.returns)
            for belief, got in zip(beliefs, sent, strict=True)
        ]
        fresh = _spread(*levels, *pairs[number])
        return tuple(_DAMPING * old + (1 - _DAMPING) * new for old, new in zip(previous, fresh, strict=True))

    def exchange(black, white):
        black = send(0, white, black)
        return black, send(1, black, white)

    start = tuple((tf.zeros_like(pair),) * 2 for pair, _ in pairs)
    final = tf.while_loop(lambda *_: True, exchange, start, maximum_iterations=_ROUNDS_PER_SIDE * side)
    steps = [
        _best(*(cost + _over_slots(got) for cost, got in zip(excess[number], messages, strict=True)))
        for number, messages in enumerate(final)
    ]
    for _ in range(_DESCENTS):
        for number, color in enumerate(colors):
            neighbors = tf.gather(steps[1 - number], color.senders)
            first, second = excess[number]
            steps[number] = _best(*_conditioned(neighbors, first, second, pairs[number][0]))
    order = np.argsort(np.concatenate([color.cells for color in colors]))
    levels = tf.transpose(tf.gather(tf.concat(steps, axis=0), order)) / 2
    return tf.reshape(levels, [-1, side, side])


def _chessboard(side: int) -> tuple[_Color, _Color]:
    row, column = np.divmod(np.arange(side * side), side)
    cells = [np.flatnonzero((row + column) % 2 == color) for color in (0, 1)]
    index_in_color = np.zeros(side * side, np.int32)
    for members in cells:
        index_in_color[members] = np.arange(len(members))
    colors = []
    for members in cells:
        senders, returns = (np.zeros([len(members), 4], np.int32) for _ in range(2))
        for direction, (below, beside) in enumerate(_DIRECTIONS):
            there = row[members] + below, column[members] + beside
            exists = np.all([(0 <= axis) & (axis < side) for axis in there], axis=0)
            senders[exists, direction] = index_in_color[there[0][exists] * side + there[1][exists]]
            returns[:, direction] = 4 * senders[:, direction] + (direction ^ 1)
        colors.append(_Color(members, senders.ravel(), returns.ravel()))
    black, white = colors
    return black, white


def _by_slot(down: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the pairwise weights of each cell in the order of `_DIRECTIONS`, 0 beyond the border; [n * n, 4, b]."""
    side = down.shape[2]
    pads = [(down, [1, 0], [0, 0]), (down, [0, 1], [0, 0]), (right, [0, 0], [1, 0]), (right, [0, 0], [0, 1])]
    around = tf.stack([tf.pad(weights, [[0, 0], *pad]) for weights, *pad in pads], axis=-1)
    return tf.transpose(tf.reshape(around, [-1, side * side, 4]), [1, 2, 0])


def _over_slots(slots: tf.Tensor) -> tf.Tensor:
    """Sum over the four slots of each cell: [4 c, b] -> [c, b]."""
    return tf.reduce_sum(tf.reshape(slots, [slots.shape[0] // 4, 4, -1]), axis=1)


def _spread(first: tf.Tensor, second: tf.Tensor, pair: tf.Tensor, far: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute min_j level_j + pair (k - j)^2 for k = 1, 2, minus that of k = 0; level_0 = 0, far = 4 pair.

    A weight of 0 gives messages of 0, so the values in slots beyond the border do not matter.
    """
    zero = tf.minimum(tf.minimum(first + pair, second + far), 0.0)
    middle = tf.minimum(tf.minimum(first, second + pair), pair)
    return middle - zero, tf.minimum(tf.minimum(first + pair, second), far) - zero


def _conditioned(
    neighbors: tf.Tensor, first: tf.Tensor, second: tf.Tensor, pair: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the costs of k = 1, 2, minus that of k = 0, given the steps [4 c, b] of the neighbors."""
    return first + _over_slots(pair * (1 - 2 * neighbors)), second + _over_slots(pair * (4 - 4 * neighbors))


def _best(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Return the cheapest of 0, 1, 2 as float32, from the costs of 1 and 2 relative to 0."""
    return tf.where(tf.minimum(first, second) < 0, tf.where(second < first, 2.0, 1.0), 0.0)

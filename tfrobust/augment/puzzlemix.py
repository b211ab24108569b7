"""Puzzle Mix of a batch: the choice of blocks from two images, and the transport of their salient pieces.

All tensors have static shapes. `ops.grid_energy` finds the levels of the mask, and pieces are assigned in rounds of
claims. The result for an image depends on its own pair and the step's random numbers alone.
"""

import dataclasses
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfrobust.augment.mixing import Mix
from tfrobust.common.configured import Configured
from tfrobust.common.kinds import IMAGES
from tfrobust.common.settings import is_whole
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.grid_energy import lowest_levels

# Bits of a word: a sum of 24 powers of two is exact in float32.
_WORD = 24
# Pieces along a side. The table of neighbors has grid^6 / 24 entries of 4 bytes.
_LARGEST_GRID = 24


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Puzzle(Configured):
    """Parameters of Puzzle Mix: the division of two images into blocks, their selection, and the transport of pieces.

    The mask m in {0, 1/2, 1} of n x n blocks has the lowest energy

        sum_i m_i s'_i + (1 - m_i) s_i - prior / n^2 log P(m_i) + sum_{i, j neighbors} pair_ij(m_i, m_j)

    s and s' are the saliencies of the image and of its partner, each with sum 1, so that the first two terms are the
    saliency that is discarded. P(1), P(1/2), P(0) = l^2, 2 l (1 - l), (1 - l)^2 for the sampled weight l. Let d_ab be
    the mean absolute difference between the pixels on both sides of the border of i and j if i shows image a and j
    image b (1 the image, 0 the partner), and b = smoothness / (16 n). Then

        pair(a, b) = b ((a - b)^2 + contrast d_ab) for a and b in {0, 1},

    up to a constant, extended to 1/2 by a term linear in m_i, one linear in m_j and a multiple of (m_i - m_j)^2.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> key = tf.constant([0, 1])
        >>> images = tf.random.stateless_uniform([4, 8, 8, 1], key)
        >>> mix = robust.methods.Mixing().draw(key, 4)
        >>> mixed, weight = robust.methods.Puzzle(blocks=(4,))(images, tf.ones([4, 8, 8]), mix, key)
        >>> mixed.shape, weight.shape  # the weights of the image's own label
        (TensorShape([4, 8, 8, 1]), TensorShape([4]))

    Attributes:
        blocks: blocks along a side, one number sampled for each step from those that divide the side of the images.
        prior: eta, >= 0: weight of the sampled l against the saliency.
        smoothness: beta, >= 0: cost of neighbors with different levels.
        contrast: gamma, in [0, 1]: how much this cost depends on the pixels at the border.
        neighbourhood: side of the squares that are averaged before pixels are compared; where it does not divide a
            block (or is larger), the block.
        transport: whether salient pieces are moved into the mask.
        transport_side: side of a piece in pixels; where it does not divide a block (or is larger), a block. An image
            can have at most 24 x 24 pieces.
        transport_cost: epsilon, >= 0: cost of moving a piece by the whole width, as a share of the saliency.

    Raises:
        ValueError: an argument out of its range.

    Source:
        Kim, Choo and Song 2020, https://arxiv.org/abs/2009.06962; the defaults are those of the released code.
    """

    blocks: tuple[int, ...] = (2, 4, 8, 16)
    prior: float = 0.2
    smoothness: float = 1.2
    contrast: float = 0.5
    neighbourhood: int = 4
    transport: bool = True
    transport_side: int = 4
    transport_cost: float = 0.8

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def __post_init__(self):
        blocks = self.blocks if isinstance(self.blocks, (tuple, list)) else ()
        sides = (self.neighbourhood, self.transport_side)
        least = (*((size, 2) for size in blocks), *((size, 1) for size in sides))
        if not blocks or not all(is_whole(size, lowest) for size, lowest in least):
            sizes = f"{self.blocks!r}, {self.neighbourhood!r} and {self.transport_side!r}"
            raise InputError(
                f"Puzzle has blocks, neighbourhood and transport_side {sizes}; blocks are a tuple of whole numbers >= "
                "2, such as (4,), the others whole numbers >= 1."
            )
        object.__setattr__(self, "blocks", tuple(map(int, blocks)))
        for name in ("neighbourhood", "transport_side"):
            object.__setattr__(self, name, int(getattr(self, name)))
        if not (min(self.prior, self.smoothness, self.transport_cost) >= 0 and 0 <= self.contrast <= 1):
            weights = f"{self.prior}, {self.smoothness}, {self.contrast} and {self.transport_cost}"
            raise InputError(
                f"Puzzle has prior, smoothness, contrast and transport_cost {weights}; none may be negative, and "
                "contrast not above 1."
            )

    def __call__(self, images: tf.Tensor, saliency: tf.Tensor, mix: Mix, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mix each image with its partner, with a number of blocks sampled for the step.

        Args:
            images: float32 [b, side, side, c] in [0, 1].
            saliency: float [b, side, side], >= 0; of any scale.
            mix: weights and partners, the output of `Mixing.draw`.
            key: int32 [2], one key for the global batch.

        Returns:
            The mixed images, float32 [b, side, side, c], and the share of the image itself in each, float32 [b].

        Raises:
            ValueError: images that are not square, that none of `blocks` divides, or with too many pieces.
        """
        height, width = images.shape[1:3]
        fitting = [number for number in self.blocks if height % number == 0]
        if height != width or not fitting:
            raise InputError(
                f"Puzzle Mix takes square images that one of Puzzle.blocks {self.blocks} divides; these are "
                f"{height} x {width}."
            )
        choice = tf.random.stateless_uniform([], randomness.fold(key, "blocks"), 0, len(fitting), tf.int32)
        parts = [lambda number=number: self.mix_at(images, saliency, mix, number) for number in fitting]
        return tf.switch_case(choice, parts)

    def mix_at(self, images, saliency, mix: Mix, blocks: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Mix as `__call__`, for a given number of blocks along a side."""
        partners = tf.gather(images, mix.partner)
        mask = lowest_levels(*self.terms(images, saliency, mix, blocks))
        if self.transport:
            grid = images.shape[1] // _part(images.shape[1] // blocks, self.transport_side)
            if grid > _LARGEST_GRID:
                cut = f"{self.transport_side} cuts images of {images.shape[1]} x {images.shape[1]}"
                raise InputError(
                    f"Puzzle.transport_side {cut} into {grid} x {grid} pieces; at most {_LARGEST_GRID} x "
                    f"{_LARGEST_GRID} are supported: use larger pieces."
                )
            salient = shares(saliency, grid)
            salient = tf.concat([salient, tf.gather(salient, mix.partner)], axis=0)
            visible = _enlarge(tf.concat([mask > 0, mask < 1], axis=0), grid)
            moved = transport(tf.concat([images, partners], axis=0), visible, salient, self.transport_cost)
            images, partners = tf.split(moved, 2)
        weight = _enlarge(mask, images.shape[1])[..., None]
        return weight * images + (1 - weight) * partners, tf.reduce_mean(mask, axis=[1, 2])

    def terms(self, images, saliency, mix: Mix, blocks: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Compute the energy of the mask, in the format of `ops.grid_energy.lowest_levels`.

        Returns:
            Costs of the levels 0, 1/2, 1, float32 [b, n, n, 3]; weights of the pairs, [b, n - 1, n] and [b, n, n - 1].
        """
        neighbourhood = _part(images.shape[1] // blocks, self.neighbourhood)
        pooled = pool(images, images.shape[1] // neighbourhood)
        other = tf.gather(pooled, mix.partner)
        scale = self.smoothness / (16 * blocks)
        salience = shares(saliency, blocks)
        linear = tf.stack([salience, tf.gather(salience, mix.partner)], axis=-1)  # at level 0, at level 1
        weights = []
        for turn in ([0, 1, 2, 3], [0, 2, 1, 3]):  # vertical pairs, then horizontal ones by transposing the images
            unary, pair = _border_terms(tf.transpose(pooled, turn), tf.transpose(other, turn), blocks)
            linear += scale * self.contrast * tf.transpose(unary, turn)
            weights.append(tf.transpose(scale * (1 + self.contrast * pair), turn[:3]))
        none, all_of_it = tf.unstack(linear, axis=-1)
        costs = tf.stack([none, (none + all_of_it) / 2, all_of_it], axis=-1)
        return costs + self.prior / blocks**2 * _surprise(mix.weight), *weights


def input_saliency(gradient: tf.Tensor) -> tf.Tensor:
    """Compute the saliency sqrt(mean over channels of gradient^2), relative to the image's largest entry.

    Args:
        gradient: float [b, h, w, c].

    Returns:
        float32 [b, h, w]; 0 where the gradient is 0. Dividing by the largest entry, which the scale-free saliency
        allows, prevents squares of tiny gradients from underflowing.
    """
    gradient = tf.cast(gradient, tf.float32)
    largest = tf.reduce_max(tf.abs(gradient), axis=[1, 2, 3], keepdims=True)
    return tf.sqrt(tf.reduce_mean(tf.square(tf.math.divide_no_nan(gradient, largest)), axis=-1))


def pool(maps: tf.Tensor, grid: int) -> tf.Tensor:
    """Average over the squares of a grid: [b, side, side, ...] -> [b, grid, grid, ...]."""
    size = maps.shape[1] // grid
    return tf.reduce_mean(tf.reshape(maps, [-1, grid, size, grid, size, *maps.shape[3:]]), axis=[2, 4])


def shares(saliency: tf.Tensor, grid: int) -> tf.Tensor:
    """Compute each square's share of the image's saliency, float32 [b, grid, grid]; 0 if there is none."""
    pooled = pool(tf.cast(saliency, tf.float32), grid)
    return tf.math.divide_no_nan(pooled, tf.reduce_sum(pooled, axis=[1, 2], keepdims=True))


def _part(block: int, size: int) -> int:
    return size if block % size == 0 else block


def _enlarge(maps: tf.Tensor, side: int) -> tf.Tensor:
    """Repeat each square of [b, n, n] to [b, side, side]."""
    factor = side // maps.shape[1]
    return tf.repeat(tf.repeat(maps, factor, axis=1), factor, axis=2)


def _surprise(weight: tf.Tensor) -> tf.Tensor:
    """Compute -log P of the levels 0, 1/2, 1 for a weight [] or [b]: [1 or b, 1, 1, 3]."""
    weight = tf.reshape(weight, [-1, 1, 1])
    chances = tf.stack([(1 - weight) ** 2, 2 * weight * (1 - weight), weight**2], axis=-1)
    return -tf.math.log(chances + 1e-8)


def _border_terms(pooled: tf.Tensor, other: tf.Tensor, blocks: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert d of all four combinations at the borders between a block and the one below to linear and squared terms.

    Args:
        pooled: pooled images, [b, n k, n k, c].
        other: pooled partners, of the same shape.
        blocks: n.

    Returns:
        The linear costs of the levels 0 and 1 of a block, [b, n, n, 2]; the factor of (m - m')^2, [b, n - 1, n].
    """
    size = pooled.shape[1] // blocks

    def difference(above, below):
        gap = tf.reduce_mean(tf.abs(above[:, size - 1 : -1 : size] - below[:, size::size]), axis=-1)
        return tf.reduce_mean(tf.reshape(gap, [-1, blocks - 1, blocks, size]), axis=-1)

    native, foreign = difference(pooled, pooled), difference(other, other)
    leaving, entering = difference(pooled, other), difference(other, pooled)
    above = tf.stack([entering + foreign, leaving + native], axis=-1) / 2
    below = tf.stack([leaving + foreign, entering + native], axis=-1) / 2
    linear = tf.pad(above, [[0, 0], [0, 1], [0, 0], [0, 0]]) + tf.pad(below, [[0, 0], [1, 0], [0, 0], [0, 0]])
    return linear, (leaving + entering - native - foreign) / 2


# ---------------------------------------------------------------------------------------------------- transport


def transport(images: tf.Tensor, visible: tf.Tensor, saliency: tf.Tensor, cost: float) -> tf.Tensor:
    """Move the salient pieces of images to visible squares.

    Args:
        images: float32 [b, side, side, c].
        visible: visible squares of a grid, bool [b, g, g].
        saliency: share of each square, float32 [b, g, g].
        cost: cost of moving by g - 1 squares.

    Returns:
        float32 [b, side, side, c]. A piece may be omitted or occur twice: squares that are not visible keep their own
        piece (the released code has holes there, which its mask hides).
    """
    side, channels, grid = images.shape[1], images.shape[3], visible.shape[1]
    size = side // grid
    pieces = tf.transpose(tf.reshape(images, [-1, grid, size, grid, size, channels]), [0, 1, 3, 2, 4, 5])
    pieces = tf.reshape(pieces, [-1, grid**2, size * size * channels])
    plan = transport_plan(visible, saliency, cost)
    moved = tf.reshape(tf.gather(pieces, plan, batch_dims=1), [-1, grid, grid, size, size, channels])
    return tf.reshape(tf.transpose(moved, [0, 1, 3, 2, 4, 5]), [-1, side, side, channels])


def transport_plan(visible: tf.Tensor, saliency: tf.Tensor, cost: float) -> tf.Tensor:
    """Assign a piece to each square.

    A piece i gains saliency_i - cost distance^2 / (g - 1)^2 from a visible square. In each of g rounds every piece
    claims the nearest square that has not rejected it, if the gain is positive. A square keeps the claimant with the
    largest gain and rejects the others.

    Args:
        visible: visible squares, bool [b, g, g].
        saliency: float32 [b, g, g].
        cost: >= 0.

    Returns:
        int32 [b, g * g], row-major; the square's own piece if it was not claimed.
    """
    grid = visible.shape[1]
    nearest, distance, packing = _neighbours(grid)
    count, word_count = packing.shape[0], packing.shape[2]
    visible, saliency = (tf.cast(tf.reshape(maps, [-1, count]), tf.float32) for maps in (visible, saliency))
    price = tf.constant(cost / (grid - 1) ** 2 * distance.ravel(), tf.float32)
    # The wanted ones among its nearest squares, as bits: a sum of distinct powers of two below 2^24 is exact.
    open_to = tf.cast(tf.einsum("bj,jiw->wbi", visible, packing), tf.int32)
    first_bits = _WORD * tf.range(word_count)[:, None, None]
    piece = tf.range(count)[None]
    offset = count * tf.range(tf.shape(visible)[0])[:, None]

    def body(open_to, _):
        lowest = open_to & -open_to
        ranks = first_bits + tf.cast(tf.raw_ops.PopulationCount(x=lowest - 1), tf.int32)
        ranks = tf.where(open_to > 0, ranks, count)
        rank = tf.reduce_min(ranks, axis=0)
        entry = count * piece + tf.minimum(rank, count - 1)
        offer, square = tf.gather(price, entry) - saliency, tf.gather(nearest.ravel(), entry)
        serious = (rank < count) & (offer < 0)
        # Negative segments are dropped.
        segments = tf.where(serious, offset + square, -1)

        def least(values):
            minima = tf.math.unsorted_segment_min(values, segments, tf.size(segments))
            return tf.ensure_shape(tf.reshape(minima, tf.shape(segments)), segments.shape)

        best = serious & (offer <= tf.gather(least(offer), square, batch_dims=1))
        claimant = least(tf.where(best, piece, count))  # the first of several claimants with equal gain
        turned_down = serious & (tf.gather(claimant, square, batch_dims=1) != piece)
        return tf.where(turned_down & (ranks == rank), open_to - lowest, open_to), claimant

    start = open_to, tf.zeros_like(visible, tf.int32)
    _, claimant = tf.while_loop(lambda *_: True, body, start, maximum_iterations=grid)
    return tf.where(claimant < count, claimant, piece)


def _neighbours(grid: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort all squares of a grid by their distance from each square.

    Returns:
        The squares from the nearest to the farthest, int32 [n, n]; their squared distances, [n, n]; and float32 [n, n,
        words], for (square, piece) the bit of the square's rank among the piece's neighbors.
    """
    count = grid * grid
    row, column = np.divmod(np.arange(count), grid)
    squared = (row[:, None] - row) ** 2 + (column[:, None] - column) ** 2
    nearest = np.argsort(squared, axis=1, kind="stable").astype(np.int32)
    word, bit = np.divmod(np.argsort(nearest, axis=1), _WORD)
    packing = np.where(word[..., None] == np.arange(-(-count // _WORD)), 2.0 ** bit[..., None], 0.0)
    return nearest, np.take_along_axis(squared, nearest, axis=1), packing.transpose(1, 0, 2).astype(np.float32)

"""Puzzle Mix by loops over one pair of images; the lowest energy by a minimum cut, or by trying everything."""

import itertools

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter
from scipy.sparse import csgraph

LEVELS = (0.0, 0.5, 1.0)
# Largest capacity in a cut: all of a grid's add up to less than what int32 holds.
SCALE = 1e8


def pairs_of(count, side, seed=0, channels=3):
    """Images, saliencies, weights and partners like those of training: smooth images, uneven saliency."""
    generator = np.random.default_rng(seed)

    def smooth(shape, width):
        field = gaussian_filter(generator.normal(size=shape), [width, width, 0][: len(shape)])
        return field / field.std()

    images = [
        np.clip(0.5 + 0.25 * smooth((side, side, channels), width), 0, 1)
        for width in generator.uniform(0.4, side / 5, count)
    ]
    saliency = [
        np.abs(generator.normal(size=(side, side))) * np.exp(1.5 * smooth((side, side), width))
        for width in generator.uniform(0.4, side / 6, count)
    ]
    partner = np.roll(np.arange(count), 1).astype(np.int32)
    return *(np.stack(maps).astype(np.float32) for maps in (images, saliency)), generator.uniform(size=count), partner


# --------------------------------------------------------------------------------------------------- the energy


def shares(saliency, grid):
    """Sums over squares, then over all of them."""
    size = len(saliency) // grid
    sums = np.zeros((grid, grid))
    for row, column in itertools.product(range(len(saliency)), repeat=2):
        sums[row // size, column // size] += saliency[row, column]
    return sums / sums.sum()


def averaged(image, size):
    """Each pixel replaced by the mean of its square."""
    means = np.array(image, np.float64)
    for row, column in itertools.product(range(0, len(image), size), repeat=2):
        square = slice(row, row + size), slice(column, column + size)
        means[square] = means[square].mean(axis=(0, 1))
    return means


def pair_cost(m, n, gaps, contrast):
    """The cost of neighbouring levels m and n, in units of b; gaps[a][b] is d_ab. Bilinear between 0 and 1, and the
    part that makes its mixed term a square."""
    between = sum((m if a else 1 - m) * (n if b else 1 - n) * gaps[a][b] for a in (0, 1) for b in (0, 1))
    bend = (gaps[1][0] + gaps[0][1] - gaps[1][1] - gaps[0][0]) / 2
    return (m - n) ** 2 + contrast * (between + bend * (m * m - m + n * n - n))


def energy(mask, images, saliencies, weight, *, prior, smoothness, contrast, neighbourhood):
    """The energy of a mask [n, n] of an image and its partner, by its definition, up to a constant."""
    blocks, side = len(mask), len(images[0])
    size = side // blocks
    near = neighbourhood if size % neighbourhood == 0 else size
    first, other = (shares(saliency, blocks) for saliency in saliencies)
    chance = {1.0: weight**2, 0.5: 2 * weight * (1 - weight), 0.0: (1 - weight) ** 2}
    smoothed = [averaged(image, near) for image in images][::-1]  # 0: the partner, 1: the image
    total = 0.0
    for i, j in itertools.product(range(blocks), repeat=2):
        m = mask[i, j]
        total += m * other[i, j] + (1 - m) * first[i, j] - prior / blocks**2 * np.log(chance[m] + 1e-8)
        for down, right in ((1, 0), (0, 1)):
            if max(i + down, j + right) == blocks:
                continue
            gaps = np.zeros((2, 2))
            for step in range(size):
                # The last pixel of the block, and the one behind the border.
                pixel = (i * size + size - 1, j * size + step) if down else (i * size + step, j * size + size - 1)
                behind = pixel[0] + down, pixel[1] + right
                for a, b in itertools.product((0, 1), repeat=2):
                    gaps[a, b] += np.abs(smoothed[a][pixel] - smoothed[b][behind]).mean() / size
            total += smoothness / (16 * blocks) * pair_cost(m, mask[i + down, j + right], gaps, contrast)
    return total


def value(costs, down, right, mask):
    """The energy of a mask [n, n] under costs [n, n, 3] and weights."""
    levels = np.asarray(mask, np.float64)
    unary = np.take_along_axis(np.asarray(costs, np.float64), (2 * levels).astype(int)[..., None], axis=-1).sum()
    return unary + (down * np.diff(levels, axis=0) ** 2).sum() + (right * np.diff(levels, axis=1) ** 2).sum()


# -------------------------------------------------------------------------------------------------- its minimum


def best_of_all(costs, down, right):
    """The lowest energy, by trying every mask."""
    side = len(costs)
    masks = (np.reshape(levels, (side, side)) for levels in itertools.product(LEVELS, repeat=side * side))
    return min(value(costs, down, right, mask) for mask in masks)


def minimum_cut(costs, down, right):
    """The mask of the lowest energy, exact up to the rounding of capacities (1e-8 each).

    Two nodes a cell, "above 0" and "above 1/2": with x, y the nodes of two neighbours, (m - m')^2 is a quarter of
    sum_ab |x_a - y_b| + (x_2 - x_1) + (y_2 - y_1). What is on the side of the source is true.
    """
    side = len(costs)
    cell = np.arange(side * side).reshape(side, side)
    alone = np.diff(np.asarray(costs, np.float64), axis=-1).reshape(-1, 2)  # cost of either node being true
    edges = []
    for weights, first, second in ((down, cell[:-1], cell[1:]), (right, cell[:, :-1], cell[:, 1:])):
        for weight, i, j in zip(np.ravel(weights) / 4, first.ravel(), second.ravel(), strict=True):
            for node in (i, j):
                alone[node] += [-weight, weight]
            for a, b in itertools.product((0, 1), repeat=2):
                edges += [(2 * i + a, 2 * j + b, weight), (2 * j + b, 2 * i + a, weight)]
    source, sink = 2 * cell.size, 2 * cell.size + 1
    edges += [(2 * i + 1, 2 * i, 10.0) for i in cell.ravel()]  # above 1/2 but not above 0 is forbidden
    edges += [(node, sink, cost) if cost > 0 else (source, node, -cost) for node, cost in enumerate(alone.ravel())]
    start, end, capacity = zip(*edges, strict=True)
    capacity = np.rint(np.array(capacity) * SCALE).astype(np.int32)
    nodes = np.int32(start), np.int32(end)  # SciPy before 1.15 computes no flow with 64-bit indices
    network = sparse.csr_array((capacity, nodes), shape=(sink + 1, sink + 1))
    rest = network - csgraph.maximum_flow(network, source, sink).flow
    rest.data[rest.data < 0] = 0
    rest.eliminate_zeros()
    reached = np.zeros(sink + 1)
    reached[csgraph.breadth_first_order(rest, source, return_predecessors=False)] = 1
    return reached[: 2 * cell.size].reshape(side, side, 2).sum(axis=-1) / 2


# --------------------------------------------------------------------------------------------------- transport


def moved(image, visible, saliency, cost):
    """An image with its pieces moved, as the released code does it: by a matrix of costs; holes stay 0."""
    grid = len(visible)
    size, count = len(image) // grid, grid * grid
    square = [divmod(index, grid) for index in range(count)]
    costs = np.zeros((count, count))
    for i, j in itertools.product(range(count), repeat=2):
        distance = sum((a - b) ** 2 for a, b in zip(square[i], square[j], strict=True)) / (grid - 1) ** 2
        costs[i, j] = cost * distance - saliency[square[i]] * visible[square[j]]
    for _ in range(grid):
        plan = np.zeros((count, count))
        plan[np.arange(count), costs.argmin(axis=1)] = 1
        won = np.zeros((count, count))
        won[(plan * costs).argmin(axis=0), np.arange(count)] = 1
        costs += plan * (1 - won)
        plan *= won
    result = np.zeros_like(image)
    for i, j in zip(*np.nonzero(plan), strict=True):
        (a, b), (c, d) = ([slice(size * at, size * at + size) for at in square[index]] for index in (i, j))
        result[c, d] = image[a, b]
    return result


def mixed(images, saliencies, mask, *, cost, transport_side):
    """The mixture of an image and its partner under a mask [n, n]."""
    side = len(images[0])
    block = side // len(mask)
    piece = transport_side if block % transport_side == 0 else block
    weights = np.kron(mask, np.ones((block, block)))
    seen = weights[::piece, ::piece]
    first, second = (
        moved(image, visible, shares(saliency, side // piece), cost)
        for image, saliency, visible in zip(images, saliencies, (seen > 0, seen < 1), strict=True)
    )
    return weights[..., None] * first + (1 - weights[..., None]) * second

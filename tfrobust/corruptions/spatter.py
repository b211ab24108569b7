"""Spatter: drops of water or mud on the lens; edges, distances and histograms equal OpenCV's.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws, resampling
from tfrobust.corruptions.registry import Scale, corruption

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
_FARTHEST = 20
_SHARPEN = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
_BOX = np.full([3, 3], 1 / 9, np.float32)
_TAN_22 = 13573  # tan(22.5 degrees) x 2^15
# OpenCV's lengths of a straight, a diagonal, and a two-by-one step.
_STEPS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}


def draw_spatter(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `drops`, standard normal [b, h, w, 1]."""
    return {"drops": draws.normal(keys, [*images.shape[1:3], 1], "drops")}


def _scaled_spatter(values: tuple, size: Scale) -> tuple:
    location, deviation, sigma, threshold, weight, mud = values
    # For mud the weight is the width of a blur.
    return location, deviation, sigma * size.length, threshold, weight * (size.length if mud else 1), mud


@corruption(
    draw=draw_spatter,
    small=(
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    large=(
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    scaled=_scaled_spatter,
)
def spatter(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Apply a smooth random layer above a threshold, as water (bright, with rims) or mud (dark, opaque).

    Water: x + m color, m the layer times a relief of its edges, divided by its maximum, times `weight`. Mud: x (1 - m)
    + m color, m the area of the layer blurred by `weight` pixels, 0 below 0.8.
    """
    location, deviation, sigma, threshold, weight, mud = constants
    layer = resampling.gaussian(location + deviation * draw["drops"], sigma)
    layer = tf.where(layer < threshold, 0.0, layer)
    if mud:
        mask = resampling.gaussian(tf.cast(layer > threshold, tf.float32), weight)
        mask = tf.where(mask < 0.8, 0.0, mask)
        return images * (1.0 - mask) + mask * _colour(_MUD, images)
    return water(images, layer, weight)


def water(images: tf.Tensor, layer: tf.Tensor, weight: float) -> tf.Tensor:
    """Apply drops of water, shaded along their edges, where the layer [b, h, w, 1] is not 0."""
    layer = resampling.to_bytes(layer) * 255.0
    mask = layer * relief(layer)
    mask = tf.math.divide_no_nan(mask, tf.reduce_max(mask, axis=[1, 2], keepdims=True))
    return images + weight * mask * _colour(_WATER, images)


def relief(layer: tf.Tensor) -> tf.Tensor:
    """Shade the edges of drops: whole gray levels 0 .. 255, float32 [b, h, w, 1], in input and output."""
    distance = tf.minimum(distances(canny(layer, 50, 150)), float(_FARTHEST))
    distance = tf.floor(resampling.filter_2d(distance, _BOX) + 1e-4)
    sharp = tf.clip_by_value(resampling.filter_2d(equalised(distance), _SHARPEN), 0.0, 255.0)
    return tf.round(resampling.filter_2d(sharp, _BOX))


def canny(layer: tf.Tensor, low: int, high: int) -> tf.Tensor:
    """Detect edges as cv2.Canny with its 3 x 3 Sobel filter and L1 gradient.

    Args:
        layer: float32 [b, h, w, 1], whole gray levels.
        low: lower threshold of the gradient, which all edges exceed.
        high: upper threshold; every edge is connected to a gradient above it.

    Returns:
        bool [b, h, w, 1].
    """
    slope = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
    across = tf.cast(resampling.filter_2d(layer, slope, "nearest"), tf.int32)
    down = tf.cast(resampling.filter_2d(layer, slope.T, "nearest"), tf.int32)
    size = tf.abs(across) + tf.abs(down)
    near = lambda rows, columns: _shifted(size, rows, columns, 0)  # noqa: E731
    flat, steep = tf.abs(across) * _TAN_22, tf.abs(down) * 2**15
    sideways = (size > near(0, -1)) & (size >= near(0, 1))
    upright = (size > near(-1, 0)) & (size >= near(1, 0))
    falling = (size > near(-1, -1)) & (size > near(1, 1))
    rising = (size > near(-1, 1)) & (size > near(1, -1))
    aslant = tf.where((across < 0) == (down < 0), falling, rising)
    peak = tf.where(steep < flat, sideways, tf.where(steep > flat + tf.abs(across) * 2**16, upright, aslant))
    weak = peak & (size > low)
    strong = weak & (size > high)

    def grow(edges, _):
        return weak & (tf.nn.max_pool2d(tf.cast(edges, tf.float32), 3, 1, "SAME") > 0), edges

    changed = lambda edges, before: tf.reduce_any(edges != before)  # noqa: E731
    edges, _ = tf.while_loop(changed, grow, [strong, tf.zeros_like(strong)])
    return edges


def distances(edges: tf.Tensor) -> tf.Tensor:
    """Compute the distance of each pixel from the nearest edge, valid up to 20: OpenCV's chamfer distance, 5 x 5 mask.

    Args:
        edges: bool [b, h, w, 1].

    Returns:
        float32 [b, h, w, 1], in pixels; large if there is no edge within reach.
    """
    far = 1e4
    steps = {
        (rows * row_sign, columns * column_sign): length
        for (rows, columns), length in _STEPS.items()
        for row_sign in (-1, 1)
        for column_sign in (-1, 1)
    }
    steps |= {(columns, rows): length for (rows, columns), length in steps.items()}

    def nearer(number, nearest):
        around = [_shifted(nearest, rows, columns, far) + length for (rows, columns), length in steps.items()]
        return number + 1, tf.reduce_min(tf.stack([nearest, *around]), axis=0)

    start = tf.where(edges, 0.0, far)
    # No step is shorter than 1, so that _FARTHEST steps reach every distance that is used.
    return tf.while_loop(lambda number, _: number < _FARTHEST, nearer, [0, start])[1]


def equalised(levels: tf.Tensor) -> tf.Tensor:
    """Equalize as cv2.equalizeHist: float32 [b, h, w, 1] with integer levels 0 .. 20, to levels 0 .. 255."""
    values = tf.range(_FARTHEST + 1, dtype=tf.float32)
    counts = tf.reduce_sum(tf.cast(levels == values, tf.float32), axis=[1, 2])
    total = tf.cumsum(counts, axis=1)
    first = tf.argmax(counts > 0, axis=1)
    lowest = tf.gather(counts, first, batch_dims=1)[:, None]
    scale = tf.math.divide_no_nan(255.0, total[:, -1:] - lowest)
    table = tf.round((total - lowest) * scale)
    # An image with a single level is unchanged.
    table = tf.where(lowest == total[:, -1:], values, table)
    return tf.gather(table, tf.cast(levels, tf.int32), batch_dims=1)


def _shifted(values: tf.Tensor, rows: int, columns: int, outside) -> tf.Tensor:
    """Return the values [b, h, w, 1] of the neighbor `rows` and `columns` further."""
    height, width = values.shape[1:3]
    wide = tf.pad(values, [[0, 0], [2, 2], [2, 2], [0, 0]], constant_values=outside)
    return wide[:, 2 + rows : 2 + rows + height, 2 + columns : 2 + columns + width]


def _colour(colour: tuple, images: tf.Tensor) -> tf.Tensor:
    """Return a color, or its brightness for gray images, float32 [1, 1, 1, c]."""
    colour = tf.constant(colour, shape=[1, 1, 1, 3])
    return colour if images.shape[-1] == 3 else resampling.grey(colour)

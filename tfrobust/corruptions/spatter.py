"""Spatter: drops of water or mud on the lens; edges, distances and histograms as OpenCV has them.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws, resampling

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
_FARTHEST = 20
_SHARPEN = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
_BOX = np.full([3, 3], 1 / 9, np.float32)
_TAN_22 = 13573  # tan(22.5 degrees) x 2^15
# OpenCV's lengths of a step straight, diagonal, and two by one.
_STEPS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}


def draw_spatter(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """`drops` standard normal [b, h, w, 1]."""
    return {"drops": draws.normal(keys, [*images.shape[1:3], 1], "drops")}


def spatter(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """A smooth random layer above a threshold, as water (bright, with rims) or mud (dark, opaque).

    Water: x + m colour, m the layer times a relief of its edges, over its maximum, times `weight`. Mud:
    x (1 - m) + m colour, m the layer's place blurred by `weight` pixels, 0 below 0.8.
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
    """Drops of water where the layer [b, h, w, 1] is not 0, shaded along their edges."""
    layer = resampling.to_bytes(layer) * 255.0
    mask = layer * relief(layer)
    mask = tf.math.divide_no_nan(mask, tf.reduce_max(mask, axis=[1, 2], keepdims=True))
    return images + weight * mask * _colour(_WATER, images)


def relief(layer: tf.Tensor) -> tf.Tensor:
    """Light and shade along the edges of drops: whole grey levels 0 .. 255, float32 [b, h, w, 1], in and out."""
    distance = tf.minimum(distances(canny(layer, 50, 150)), float(_FARTHEST))
    distance = tf.floor(resampling.filter_2d(distance, _BOX) + 1e-4)
    sharp = tf.clip_by_value(resampling.filter_2d(equalised(distance), _SHARPEN), 0.0, 255.0)
    return tf.round(resampling.filter_2d(sharp, _BOX))


def canny(layer: tf.Tensor, low: int, high: int) -> tf.Tensor:
    """Canny's edges as cv2.Canny with its 3 x 3 Sobel filter and L1 gradient.

    Args:
        layer: float32 [b, h, w, 1], whole grey levels.
        low, high: thresholds of the gradient: an edge exceeds `low` and is connected to one above `high`.

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
    """How far each pixel is from the nearest edge, right up to 20: OpenCV's chamfer distance with a 5 x 5 mask.

    Args:
        edges: bool [b, h, w, 1].

    Returns:
        float32 [b, h, w, 1], in pixels; large where there is no edge within reach.
    """
    far = 1e4
    steps = {
        (rows * one, columns * two): length
        for (rows, columns), length in _STEPS.items()
        for one in (-1, 1)
        for two in (-1, 1)
    }
    steps |= {(columns, rows): length for (rows, columns), length in steps.items()}

    def nearer(number, found):
        around = [_shifted(found, rows, columns, far) + length for (rows, columns), length in steps.items()]
        return number + 1, tf.reduce_min(tf.stack([found, *around]), axis=0)

    start = tf.where(edges, 0.0, far)
    # No step is shorter than 1, so that so many reach as far as anyone asks.
    return tf.while_loop(lambda number, _: number < _FARTHEST, nearer, [0, start])[1]


def equalised(levels: tf.Tensor) -> tf.Tensor:
    """cv2.equalizeHist of float32 [b, h, w, 1] with whole levels 0 .. 20; levels 0 .. 255 come back."""
    each = tf.range(_FARTHEST + 1, dtype=tf.float32)
    counts = tf.reduce_sum(tf.cast(levels == each, tf.float32), axis=[1, 2])
    total = tf.cumsum(counts, axis=1)
    first = tf.argmax(counts > 0, axis=1)
    lowest = tf.gather(counts, first, batch_dims=1)[:, None]
    scale = tf.math.divide_no_nan(255.0, total[:, -1:] - lowest)
    table = tf.round((total - lowest) * scale)
    # One level alone stays as it is.
    table = tf.where(lowest == total[:, -1:], each, table)
    return tf.gather(table, tf.cast(levels, tf.int32), batch_dims=1)


def _shifted(values: tf.Tensor, rows: int, columns: int, outside) -> tf.Tensor:
    """The values [b, h, w, 1] of the neighbour so many rows and columns on."""
    height, width = values.shape[1:3]
    wide = tf.pad(values, [[0, 0], [2, 2], [2, 2], [0, 0]], constant_values=outside)
    return wide[:, 2 + rows : 2 + rows + height, 2 + columns : 2 + columns + width]


def _colour(colour: tuple, images: tf.Tensor) -> tf.Tensor:
    """A colour, or its brightness for grey images, float32 [1, 1, 1, c]."""
    colour = tf.constant(colour, shape=[1, 1, 1, 3])
    return colour if images.shape[-1] == 3 else resampling.grey(colour)

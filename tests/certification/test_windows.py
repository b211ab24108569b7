"""Bounds on windows against bounds of whole maps, network by network."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.certification import intervals, linear_bounds, operations, tightening, windows
from tfrobust.certification.network import walk
from tfrobust.certification.nonlinear import ReLU

EXACT = operations.Arithmetic(tf.float64, 0.0)
LAYERS = keras.layers


def conv(channels=3, size=3, strides=1, padding="same", **options):
    return LAYERS.Conv2D(channels, size, strides, padding, bias_initializer="random_normal", **options)


def normalization():
    kinds = {name: keras.initializers.RandomNormal(1.0, 1.0) for name in ("gamma", "beta", "moving_mean")}
    return LAYERS.BatchNormalization(**{f"{name}_initializer": kind for name, kind in kinds.items()})


def residual(image, strides=2):
    """Return a residual block whose two ways read windows of different sizes."""
    hidden = LAYERS.ReLU()(conv()(image))
    main = conv(4, 3, strides)(LAYERS.ReLU()(normalization()(conv()(hidden))))
    return LAYERS.ReLU()(LAYERS.Add()([main, conv(4, 1, strides, use_bias=False)(hidden)]))


def concatenated(image):
    """Return two maps side by side whose windows differ."""
    return LAYERS.Concatenate()(
        [conv()(image), LAYERS.DepthwiseConv2D(2)(LAYERS.ZeroPadding2D(((1, 0), (0, 1)))(image))]
    )


NETWORKS = stored.table(globals(), "networks")


def network_of(parts):
    keras.utils.set_random_seed(7)
    hidden = image = keras.Input((7, 6, 2))
    for part in parts:
        if isinstance(part, LAYERS.Layer):
            part = type(part).from_config(part.get_config())
        hidden = part(hidden)
    return walk(keras.Model(image, LAYERS.ReLU()(hidden)))


@pytest.mark.parametrize("parts", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("arithmetic", [EXACT, operations.SOUND], ids=["exact", "float32"])
def test_windows_give_the_bounds_of_whole_maps(parts, arithmetic):
    network = network_of(parts)
    images = np.random.default_rng(0).uniform(size=(2, 7, 6, 2))
    boxes = intervals.propagate(network, intervals.input_box(tf.constant(images), 0.05), arithmetic)
    check_windows(network, boxes, arithmetic)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("parts", ["same padding", "residual"])
def test_windows_in_a_ball_give_the_bounds_of_whole_maps(parts, norm):
    network = network_of(NETWORKS[parts]).in_ball(norm, 0.4, (0.0, 1.0))
    image = tf.constant(np.random.default_rng(0).uniform(size=(2, 7, 6, 2)))
    boxes = intervals.propagate(network, operations.Box(image, image), operations.SOUND)
    check_windows(network, tightening.tightened(network, boxes, first_only=True), operations.SOUND)


@pytest.mark.parametrize(("shape", "uniform"), [((7, 6, 2), False), ((2,), True)])
def test_constants_that_differ_from_place_to_place_have_no_windows(shape, uniform):
    scale = np.linspace(0.5, 2.0, np.prod(shape)).reshape(shape).tolist()
    network = network_of([LAYERS.Rescaling(scale), conv(), LAYERS.ReLU(), conv()])
    point = tf.zeros([1, 7, 6, 2], tf.float64)
    boxes = intervals.propagate(network, operations.Box(point, point))
    assert (windows.regions(network, boxes, len(network.nodes) - 1) is not None) == uniform


def test_a_map_that_is_read_with_two_strides_has_no_windows():
    image = keras.Input((7, 7, 2))
    both = LAYERS.Add()([conv(strides=2)(image), conv(size=4, padding="valid")(image)])
    network = walk(keras.Model(image, LAYERS.ReLU()(both)))
    point = tf.zeros([1, 7, 7, 2], tf.float64)
    boxes = intervals.propagate(network, operations.Box(point, point))
    assert windows.regions(network, boxes, len(network.nodes) - 1) is None


def check_windows(network, boxes, arithmetic):
    """Compare the bounds of the inputs of ReLUs with those of rows over the whole image."""
    positions = {inputs[0] for operation, inputs in network.nodes if isinstance(operation, ReLU)}
    for position in positions:
        shape = boxes[position].lower.shape
        areas = windows.regions(network, boxes, position)
        by_window = tightening._bounds_by_window(network, boxes, areas, tightening._Way(arithmetic, "adaptive", 0))
        rows = tf.reshape(tf.eye(np.prod(shape[1:]), dtype=tf.float64), [1, -1, *shape[1:]])
        for sign, end in ((1.0, by_window.lower), (-1.0, by_window.upper)):
            repeated = tf.repeat(sign * rows, 2, 0)
            whole = sign * linear_bounds.lower_bounds(network, boxes, repeated, arithmetic, position=position)
            np.testing.assert_allclose(end, tf.reshape(whole, shape), rtol=1e-9, atol=1e-9)

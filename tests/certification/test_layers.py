"""Bounds of single layers: against their matrices, their values on a grid, and points of the box."""

import pathlib
import re

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

import tfrobust
from tfrobust.certification import certify, handlers, intervals, linear_bounds
from tfrobust.certification.network import NoBoundsError, walk
from tfrobust.certification.nonlinear import Curve, ReLU
from tfrobust.certification.operations import Box
from tfrobust.models.shared.group_sort import GroupSort

LAYERS = keras.layers
MAP, ROW, CUBE, COLOR = (5, 4, 2), (6, 2), (3, 4, 2, 2), (2, 2, 3)
RANDOM = {"bias_initializer": "random_normal"}
# (layer, arguments, shape of its input) of layers that are affine.
MATRIX = stored.table(globals(), "matrix")
# Of one value alone.
_OF_KERAS = {function.__name__ for function in handlers.ACTIVATIONS if function.__module__.startswith("keras")}
GRID = [("Activation", {"activation": name}) for name in sorted(_OF_KERAS - {"softmax"})]
GRID += stored.table(globals(), "grid")
# Of several values.
POINTS = stored.table(globals(), "points")
# Whose boxes may be wider than the range: some pass two layers, or forget that two inputs are of one image.
INTERVAL = {"SeparableConv1D", "SeparableConv2D", "LayerNormalization", *(kind.__name__ for kind in handlers.MERGERS)}
UNTESTED_HERE = {"Softmax", "InputLayer"}
OFTEN = dict.fromkeys(("Conv2D", "ReLU", "LayerNormalization", "Concatenate"), pytest.mark.first)


def cases(table):
    """Return the rows as parameters, the most used layers in the first tier."""
    return [
        pytest.param(*row, marks=OFTEN.get(row[0], ()), id=f"{row[0]}-{number}") for number, row in enumerate(table)
    ]


def built(name, options, shape):
    """Return a model of one layer with random variables, and its network."""
    keras.utils.set_random_seed(3)
    image, layer = keras.Input(shape), getattr(LAYERS, name, GroupSort)(**options)
    several = type(layer) in handlers.MERGERS
    inputs = [image, *(LAYERS.Dense(shape[-1])(image) for _ in range(1 if name == "Subtract" else 2))]
    # The last layer keeps the values; a sigmoid may not be the last.
    model = keras.Model(image, LAYERS.Rescaling(1.0)(layer(inputs if several else image)))
    generator = np.random.default_rng(5)
    for variable in layer.weights:
        if variable.path.endswith(("gamma", "beta", "moving_mean")):
            variable.assign(generator.normal(size=variable.shape))
        if variable.path.endswith("variance"):
            variable.assign(generator.uniform(0.1, 3.0, size=variable.shape))
    return model, walk(model)


def box_of(shape, generator, examples=1, low=-1.0, high=1.0, width=1.0):
    """Return a box with ends in float32."""
    lower = generator.uniform(low, high, size=(examples, *shape))
    ends = lower, lower + generator.uniform(0.0, width, lower.shape)
    return Box(*(tf.constant(end.astype(np.float32).astype(float)) for end in ends))


def outputs_of(model, points):
    return model(np.asarray(points, np.float32), training=False).numpy().astype(float)


@pytest.mark.parametrize(("name", "options", "shape"), cases(MATRIX))
def test_affine_layers_have_the_bounds_of_their_matrices(name, options, shape):
    model, network = built(name, options, shape)
    box = box_of(shape, np.random.default_rng(1))
    count = int(np.prod(shape))
    origin = outputs_of(model, np.zeros((1, *shape)))
    matrix = (outputs_of(model, np.eye(count).reshape(count, *shape)) - origin).reshape(count, -1)
    center, radius = (np.ravel(value) for value in ((box.upper + box.lower) / 2, (box.upper - box.lower) / 2))
    middle, spread = center @ matrix + origin.ravel(), radius @ np.abs(matrix)
    boxes = intervals.propagate(network, box)
    for end, exact, side in zip(boxes[-1], (middle - spread, middle + spread), (1, -1), strict=True):
        excess = side * (exact - np.ravel(end))
        assert np.all(excess >= -1e-6) and (name in INTERVAL or np.all(excess < 1e-4))
    rows = np.random.default_rng(2).normal(size=(2, matrix.shape[1]))
    exact = rows @ middle - np.abs(rows @ matrix.T) @ radius
    coefficients = tf.constant(rows.reshape(1, 2, *origin.shape[1:]))
    np.testing.assert_allclose(linear_bounds.lower_bounds(network, boxes, coefficients)[0], exact, atol=2e-3)


@pytest.mark.parametrize(("name", "options"), cases(GRID))
def test_activations_have_bounds_of_their_values_on_a_grid(name, options):
    generator, count = np.random.default_rng(4), 40
    box = box_of((count,), generator, low=-5.0, high=3.0, width=4.0)
    lower, upper = (np.array(end)[0] for end in box)
    upper[::4] = np.nextafter(lower[::4].astype(np.float32), np.float32(9))
    box = Box(box.lower, tf.constant(upper[None]))
    model, network = built(name, options, (count,))
    boxes = intervals.propagate(network, box)
    inner = np.clip(np.linspace(lower, upper, 1001).astype(np.float32), lower, upper)
    values = outputs_of(model, inner)
    slack = 2e-3 * (upper - lower) * np.maximum(1, np.abs(values).max(0)) + 1e-4 * np.maximum(1, np.abs(values).max(0))
    for end, exact, side in zip(boxes[-1], (values.min(0), values.max(0)), (1, -1), strict=True):
        excess = side * (exact - np.ravel(end))
        assert np.all(excess >= 0) and np.all(excess < slack)
    # f(x) + slope x, whose bounds need lines that follow the function.
    image = keras.Input((count,))
    gaps = []
    for slope in (-1.0, -0.5, 0.0, 0.5):
        both = walk(keras.Model(image, LAYERS.Add()([model(image), LAYERS.Rescaling(slope)(image)])))
        boxes, rows = intervals.propagate(both, box), tf.eye(count, dtype=tf.float64)
        total = values + slope * inner
        for side, exact in ((1.0, total.min(0)), (-1.0, -total.max(0))):
            bounds = linear_bounds.lower_bounds(both, boxes, side * rows[None])[0].numpy()
            by_box = np.ravel(side * (boxes[-1].lower if side > 0 else boxes[-1].upper))
            assert np.all(bounds <= exact + 1e-12)
            gaps.append((np.mean(exact - bounds), np.mean(exact - by_box)))
    linear, by_box = np.mean(gaps, 0)
    assert linear < by_box if crown_of(network) == "lines" else linear < by_box + 1e-3


@pytest.mark.parametrize(("name", "options", "shape"), cases(POINTS))
def test_points_stay_inside_the_bounds_of_layers_of_several_values(name, options, shape):
    generator = np.random.default_rng(6)
    model, network = built(name, options, shape)
    for scale in (1e-6, 0.1, 3.0):
        box = box_of(shape, generator, width=scale)
        shares = np.concatenate([generator.integers(0, 2, (300, *shape)), generator.uniform(size=(100, *shape))])
        points = np.clip((box.lower + shares * (box.upper - box.lower)).numpy().astype(np.float32), *box)
        values, bounds = outputs_of(model, points), intervals.propagate(network, box)[-1]
        assert np.all(bounds.lower <= values) and np.all(values <= bounds.upper)
        if name not in INTERVAL:
            np.testing.assert_allclose(tf.concat(bounds, 0), outputs_of(model, tf.concat(box, 0)), atol=1e-4)
        if scale == 1e-6 and options.get("epsilon") is None:
            np.testing.assert_allclose(bounds.lower, bounds.upper, atol=1e-3)


def crown_of(network):
    """Return how linear bounds pass a network, in the words of the guide."""
    operations = [operation for operation, _ in network.nodes]
    if any(operation.stops for operation in operations):
        return "box"
    return "lines" if any(isinstance(operation, (Curve, ReLU)) for operation in operations) else "exact"


def test_the_table_of_the_guide_has_all_layers_and_how_they_are_bounded_and_tested():
    guide = (pathlib.Path(tfrobust.__file__).parent / "guides" / "bounds_and_sets.md").read_text(encoding="utf-8")
    rows = re.findall(r"^ *\| (`[A-Za-z_0-9`, ]+`[^|]*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", guide, re.MULTILINE)
    named = {name: row[1:] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    expected = {}
    for table, kind in ((MATRIX, "matrix"), (GRID, "grid"), (POINTS, "points")):
        for name, options, *shape in table:
            label = options.get("activation", name)
            network = built(name, options, shape[0] if shape else (3,))[1]
            expected.setdefault(label, ("interval" if name in INTERVAL else "exact", crown_of(network), kind))
    del expected["linear"]
    assert {name: cells for name, cells in named.items() if cells[0] != "last"} == expected
    layers = {kind.__name__ for kind in (*handlers.HANDLERS, *handlers.MERGERS) if hasattr(LAYERS, kind.__name__)}
    tested = {name for table in (MATRIX, GRID, POINTS) for name, *_ in table}
    assert tested == layers - UNTESTED_HERE | {GroupSort.__name__}


@pytest.mark.parametrize("name", ["MaxPooling2D", "AveragePooling3D"])
def test_pooling_of_maps_whose_channels_are_last_does_not_depend_on_the_default_of_keras(name):
    shape = MAP if name == "MaxPooling2D" else CUBE
    model, network = built(name, {"pool_size": 2}, shape)
    point = np.random.default_rng(1).uniform(size=(1, *shape))
    expected = outputs_of(model, point)
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        values = intervals.logits(network, tf.constant(point))
    finally:
        keras.config.set_image_data_format(before)
    np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("layer, shape, reason", stored.rows(globals(), "layers_that_bounds_cannot_pass_are_refused"))
def test_layers_that_bounds_cannot_pass_are_refused_with_the_reason(layer, shape, reason):
    with pytest.raises(NoBoundsError, match=reason):
        certify.certified_margins(
            keras.Sequential([keras.Input(shape), layer()]), np.zeros((1, *shape)), [0], epsilon=0.1
        )


def test_slopes_that_leave_their_range_after_the_walk_certify_nothing():
    model = keras.Sequential([keras.Input((2,)), LAYERS.PReLU(), LAYERS.Dense(2)])
    model.layers[1].set_weights([np.eye(2), np.zeros(2)])
    network, arguments = walk(model), (np.array([[0.9, 0.1]]), np.array([0]))
    assert certify.certified_margins(network, *arguments, epsilon=0.1)[0] > 0
    model.layers[0].set_weights([np.array([0.5, 1.5])])
    assert certify.certified_margins(network, *arguments, epsilon=0.1)[0] == -np.inf

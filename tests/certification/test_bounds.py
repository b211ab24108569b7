"""Bounds against published numbers, loops in float64, the exact range by enumeration, and sampled points."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import bounds as oracle
from tfrobust.certification import certify, intervals, linear_bounds, tightening
from tfrobust.certification.network import walk
from tfrobust.certification.operations import SOUND, Arithmetic, Box
from tfrobust.errors import InputError

EXACT = Arithmetic(tf.float64, 0.0)
# Two and three layers, whose bounds were computed by hand and by linear programs.
NET = (
    (np.array([[1.0, -1.0], [1.0, 1.0], [-2.0, 1.0]]), np.array([0.0, -0.5, 0.5])),
    (np.array([[1.0, 1.0, -1.0], [-1.0, 2.0, 1.0], [0.5, -1.0, 1.0]]), np.array([0.2, -0.5, 0.0])),
)
DEEP = (
    (np.array([[1.0, -1.0], [1.0, 1.0]]), np.zeros(2)),
    (np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([0.5, -0.25])),
    (np.array([[1.0, -2.0]]), np.zeros(1)),
)
POINT = np.array([0.6, 0.5])


def as_network(layers):
    model = keras.Sequential([keras.Input((layers[0][0].shape[1],))])
    for number, (matrix, offset) in enumerate(layers):
        model.add(keras.layers.Dense(len(offset), activation="relu" if number < len(layers) - 1 else None))
        model.layers[-1].set_weights([matrix.T, offset])
    return walk(model)


def boxes_of(network, lower, upper, arithmetic=EXACT):
    return intervals.propagate(network, Box(*(tf.constant([end], tf.float64) for end in (lower, upper))), arithmetic)


def rows(*functions):
    return tf.constant([functions], tf.float64)


@pytest.mark.parametrize(("epsilon", "high"), [(0.0, 1.0), (0.1, 1.0), (0.1, 255.0)])
def test_the_ball_holds_what_attacks_round_to_and_only_finite_margins_certify(epsilon, high, monkeypatch):
    margins, network = np.array([1.0, np.nan, np.inf, -np.inf]), as_network(NET)
    monkeypatch.setattr(certify._Ball, "_of_batch", lambda ball, images, *_: np.resize(margins, len(images)))
    bounds = certify.certified_margins(network, np.zeros((4, 2)), np.zeros(4, int), epsilon=epsilon)
    np.testing.assert_array_equal(bounds, [1.0, -np.inf, -np.inf, -np.inf])
    boxes, _ = certify._Ball.checked(network, (2,), epsilon, bounds=(0.0, high)).boxes(np.full((1, 2), high / 2))
    assert np.spacing(np.float32(high)) < float(boxes[0].upper[0, 0]) - high / 2 - epsilon < 1e-6 * high


@pytest.mark.parametrize("epsilon, logits, elided, adaptive, zero", stored.rows(globals(), "a_network_of_two_layers"))
def test_a_network_of_two_layers_has_the_known_bounds(epsilon, logits, elided, adaptive, zero):
    network = as_network(NET)
    boxes = boxes_of(network, POINT - epsilon, POINT + epsilon)
    for end, expected in zip(boxes[-1], logits, strict=True):
        np.testing.assert_allclose(end[0], expected, atol=1e-6)
    margins = intervals.margins(network, boxes, tf.constant([0]), EXACT)
    np.testing.assert_allclose(margins[0], (0.0, *elided), atol=1e-6)
    coefficients = linear_bounds.margin_coefficients(tf.constant([0]), 3, tf.float64)
    for slope, expected in (("adaptive", adaptive), ("zero", zero)):
        bounds = linear_bounds.lower_bounds(network, boxes, coefficients, EXACT, slope=slope)
        np.testing.assert_allclose(bounds[0], (0.0, *expected), atol=1e-6)


def test_full_linear_bounds_of_three_layers_are_the_known_ones():
    network = as_network(DEEP)
    boxes = boxes_of(network, np.array([0.0, -0.2]), np.array([0.6, 0.4]))
    np.testing.assert_allclose(np.ravel(boxes[-1]), (-3.1, 1.3), atol=1e-6)
    for slope, crown_ibp, crown in (
        ("adaptive", (-2.511111, 1.511111), (-2.4, 1.453333)),
        ("zero", (-2.411111, 1.3), (-2.3, 1.3)),
    ):
        for inner_boxes, expected in (
            (boxes, crown_ibp),
            (tightening.tightened(network, boxes, EXACT, slope=slope), crown),
        ):
            ends = [
                sign * float(linear_bounds.lower_bounds(network, inner_boxes, rows([sign]), EXACT, slope=slope)[0, 0])
                for sign in (1.0, -1.0)
            ]
            np.testing.assert_allclose(ends, expected, atol=1e-6)


@pytest.mark.parametrize("slope", linear_bounds.SLOPES)
def test_random_networks_agree_with_loops_and_enclose_the_exact_minimum(slope):
    generator = np.random.default_rng(3)
    for sizes in ((3, 5, 4), (2, 4, 3), (3, 4, 4, 2)):
        layers = [
            (
                generator.normal(size=(b, a)).astype(np.float32).astype(float),
                generator.normal(size=b).astype(np.float32),
            )
            for a, b in zip(sizes, sizes[1:], strict=False)
        ]
        network = as_network(layers)
        center = generator.uniform(size=sizes[0])
        lower, upper = np.maximum(center - 0.15, 0.0), np.minimum(center + 0.15, 1.0)
        boxes, expected = boxes_of(network, lower, upper), oracle.hidden_boxes(layers, lower, upper)
        for ours, theirs in zip((*boxes[1::2],), expected, strict=True):
            np.testing.assert_allclose(ours.lower[0], theirs[0], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(ours.upper[0], theirs[1], rtol=1e-9, atol=1e-9)
        function = generator.normal(size=sizes[-1])
        bound = float(linear_bounds.lower_bounds(network, boxes, rows(function), EXACT, slope=slope)[0, 0])
        by_hand = oracle.linear_lower_bound(layers, expected, lower, upper, function, slope)
        assert bound == pytest.approx(by_hand, rel=1e-9)
        if len(layers) == 2:
            exact = oracle.exact_minimum(layers, lower, upper, function)
            assert bound <= exact + 1e-9
            tight = tightening.tightened(network, boxes, EXACT, slope=slope)
            assert (
                float(linear_bounds.lower_bounds(network, tight, rows(function), EXACT, slope=slope)[0, 0])
                <= exact + 1e-9
            )


@pytest.mark.rest
def test_a_million_points_lie_inside():
    network, epsilon = as_network(NET), 0.2
    box = boxes_of(network, POINT - epsilon, POINT + epsilon, SOUND)[-1]
    points = np.random.default_rng(0).uniform(-epsilon, epsilon, size=(10**6, 2)) + POINT
    outputs = intervals.logits(network, points, Arithmetic(tf.float32, 0.0)).numpy()
    assert np.all((box.lower.numpy() <= outputs) & (outputs <= box.upper.numpy()))
    assert np.all(outputs.max(0) > box.upper[0].numpy() - 0.61)  # some come as near as the exact range allows


def test_negative_scales_of_batch_normalization_swap_the_ends():
    norm = keras.layers.BatchNormalization(epsilon=0.001)
    model = keras.Sequential([keras.Input((2,)), norm])
    norm.set_weights(np.array([[2.0, -3.0], [0.5, 1.0], [0.1, 2.0], [4.0, 0.25]]))
    box = boxes_of(walk(model), [-1.0, 2.0], [1.0, 3.0])[-1]
    np.testing.assert_allclose(box.lower[0], (-0.599863, -4.988036), atol=1e-6)
    np.testing.assert_allclose(box.upper[0], (1.399888, 1.0), atol=1e-6)


def test_the_margin_for_rounding_grows_with_the_number_of_summands():
    arithmetic = SOUND
    unit = 2.0**-24
    assert arithmetic.growth(968) == pytest.approx(1000 * unit / (1 - 1000 * unit), rel=1e-12)
    network = as_network(NET)
    exact, wide = (boxes_of(network, POINT, POINT, rounding) for rounding in (EXACT, arithmetic))
    # Of the first layer: gamma (|W| |x| + |b|), gamma of 2 summands and 32 further roundings.
    gamma = 34 * unit / (1 - 34 * unit)
    expected = gamma * (np.abs(NET[0][0]) @ POINT + np.abs(NET[0][1]))
    np.testing.assert_allclose((exact[1].lower - wide[1].lower)[0], expected, rtol=1e-6)
    # The backward pass loses at least as much, so that its bound holds for float32, too.
    below = [
        float(linear_bounds.lower_bounds(network, bounds, rows([1.0, 0, 0]), how)[0, 0])
        for bounds, how in ((exact, EXACT), (wide, arithmetic))
    ]
    assert 0 < below[0] - below[1] < 1e-4
    logits = oracle.forward(NET, POINT)
    assert below[1] <= logits[0]


def test_a_tie_is_not_certified_and_epsilon_is_larger_by_its_rounding():
    assert certify.certified(np.array([0.0, 1e-12, -1.0])).tolist() == [False, True, False]
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.layers[0].set_weights([np.eye(2), np.zeros(2)])
    images, labels = np.array([[0.75, 0.25]]), np.array([0])
    # The margin is x_0 - x_1, which falls by 2 epsilon.
    margin = certify.certified_margins(model, images, labels, epsilon=0.125)[0]
    assert 0.25 - 2e-5 < margin < 0.25 - 2 * 2.0**-22
    assert certify.certified_margins(model, images, labels, epsilon=0.25)[0] < 0
    clipped = certify.certified_margins(model, np.array([[1.0, 0.9]]), labels, epsilon=0.3)[0]
    assert clipped == pytest.approx(0.7 - 1.0, abs=1e-4)  # pixels stay in [0, 1]


@pytest.mark.parametrize("method", ["ibp", "complete"])
@pytest.mark.parametrize("changes, message", stored.rows(globals(), "what_is_no_image_or_class_is_refused"))
def test_what_is_no_image_or_class_is_refused(changes, message, method):
    changes = dict(changes)  # the table's, for both methods
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(changes.pop("classes", 2))])
    model.layers[0].set_weights([np.eye(*model.layers[0].kernel.shape), np.full(model.output_shape[1:], -5.0)])
    arguments = {"network": model, "images": np.array([[0.75, 0.25]]), "labels": np.array([0]), "epsilon": 0.1}
    with pytest.raises(InputError, match=message):
        certify.certified_margins(**arguments | changes, method=method)


def test_a_network_of_probabilities_needs_a_margin_that_its_rounding_keeps():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, activation="softmax")])
    model.layers[0].set_weights([np.eye(2), np.zeros(2)])
    network = walk(model)
    assert network.probabilities and len(network.nodes) == 1
    margin = certify.certified_margins(network, np.array([[0.75, 0.25]]), np.array([0]), epsilon=0.125)[0]
    assert margin == pytest.approx(0.25 - 2.0**-16, abs=1e-5)


def test_a_sigmoid_at_the_end_is_refused():
    """In float32 it maps 18 and 25 to 1, so that the first class wins the tie, whatever the margin of the logits."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, activation="sigmoid")])
    model.layers[0].set_weights([np.diag([18.0, 25.0]), np.zeros(2)])
    assert float(model(np.ones((1, 2)))[0, 0]) == float(model(np.ones((1, 2)))[0, 1])
    with pytest.raises(ValueError, match="as the last layer"):
        walk(model)

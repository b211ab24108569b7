"""Utility and sensitivity against closed forms and finite differences; the estimate's error; SciPy's ranks."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from oracles import tiny_network
from tfrobust.attacks.shared import objectives
from tfrobust.methods.supervised import Supervised
from tfrobust.ops import randomness
from tfrobust.ops import sensitivity_maps as maps

GENERATOR = np.random.default_rng(0)
KEY = randomness.make_key(0, "test")


def sensitivity(embed, images, *, projections=None, key=None):
    """Return the map in one call: exact (projections None, or >= d), or by projections drawn by `key`."""
    width = maps.embedding_width(embed, images)
    exact = projections is None or projections >= width
    directions = tf.eye(width) if exact else maps.random_directions(key, width, projections)
    return tf.sqrt(maps.add_squared_derivatives(embed, images, directions, tf.zeros_like(images)))


@pytest.fixture(scope="module")
def network():
    """(predict, embed, images, labels, the arrays of the network)."""
    method, (batch, _) = tiny_network.build(Supervised), tiny_network.batch(6)
    embed = lambda images: method.encoder(images, training=False)  # noqa: E731
    return lambda images: method(images, training=False), embed, batch.images, batch.labels, tiny_network.arrays(method)


def _jacobian(images, arrays):
    """d z / d x of z = tanh(x W + c), float64 [b, d, D]."""
    kernel, bias, _, _ = arrays
    z = np.tanh(np.asarray(images, np.float64).reshape(len(images), -1) @ kernel + bias)
    return (1 - z**2)[:, :, None] * kernel.T, z


def test_utility_is_the_written_out_gradient(network):
    predict, _, images, labels, arrays = network
    jacobian, z = _jacobian(images, arrays)
    logits = z @ arrays[2] + arrays[3]
    residual = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)) - np.eye(3)[labels]
    expected = np.abs(np.einsum("bk,dk,bdj->bj", residual, arrays[2], jacobian)).reshape(images.shape)
    utility = maps.utility(objectives.cross_entropy(predict, labels), images)
    np.testing.assert_allclose(utility, expected, rtol=1e-4, atol=2e-6)


def test_sensitivity_is_the_norm_of_the_jacobian_s_columns(network):
    _, embed, images, _, arrays = network
    expected = np.linalg.norm(_jacobian(images, arrays)[0], axis=1).reshape(images.shape)
    np.testing.assert_allclose(sensitivity(embed, images), expected, rtol=1e-4, atol=2e-6)
    compiled = tf.function(lambda x: sensitivity(embed, x), input_signature=[tf.TensorSpec([None, 2, 3, 1])])
    np.testing.assert_allclose(compiled(images), expected, rtol=1e-4, atol=2e-6)


def test_a_linear_model_has_one_sensitivity_everywhere():
    kernel = GENERATOR.normal(size=(12, 7)).astype(np.float32)
    images = tf.constant(GENERATOR.random((4, 2, 2, 3)), tf.float32)
    norms = sensitivity(lambda x: tf.reshape(x, [-1, 12]) @ kernel, images)
    np.testing.assert_allclose(tf.reshape(norms, [4, 12]), [np.linalg.norm(kernel, axis=1)] * 4, rtol=1e-5)


def test_permuted_pixels_have_permuted_maps(network):
    predict, embed, images, labels, _ = network
    order = GENERATOR.permutation(6)
    back = np.argsort(order)
    shuffle = lambda x, to: tf.reshape(tf.gather(tf.reshape(x, [-1, 6]), to, axis=1), tf.shape(x))  # noqa: E731
    shuffled = shuffle(images, order)
    map_of_shuffled = sensitivity(lambda x: embed(shuffle(x, back)), shuffled)
    np.testing.assert_allclose(map_of_shuffled, shuffle(sensitivity(embed, images), order), rtol=1e-5)
    # The order of the features makes no difference, nor does a rotation of them.
    rotation, _ = np.linalg.qr(GENERATOR.normal(size=(5, 5)))
    map_of_shuffled = sensitivity(lambda x: embed(x) @ rotation.astype(np.float32), images)
    np.testing.assert_allclose(map_of_shuffled, sensitivity(embed, images), rtol=1e-4)


@pytest.mark.parametrize(("width", "count"), [(40, 8), (40, 30), (6, 1)])
def test_projections_are_unbiased_with_the_stated_error(width, count):
    kernel = GENERATOR.normal(size=(width,)).astype(np.float32)
    keys = randomness.example_keys(KEY, tf.range(4000))

    @tf.function(autograph=False)  # eager, the draws take seven times as long
    def squares():
        def draw(key):
            return tf.reduce_sum(tf.linalg.matvec(maps.random_directions(key, width, count), kernel, True) ** 2)

        return tf.map_fn(draw, keys, fn_output_signature=tf.float32)

    ratios, error = squares().numpy() / np.sum(kernel**2), maps.projection_error(width, count)
    assert abs(ratios.mean() - 1) < 4 * error / np.sqrt(4000)
    assert ratios.std() == pytest.approx(error, rel=0.06)


def test_projected_sensitivities_lie_within_their_error(network):
    kernel = GENERATOR.normal(size=(12, 200)).astype(np.float32)
    images = tf.constant(GENERATOR.random((3, 2, 2, 3)), tf.float32)
    embed = lambda x: tf.tanh(tf.reshape(x, [-1, 12]) @ kernel)  # noqa: E731
    exact = sensitivity(embed, images).numpy()
    estimate = sensitivity(embed, images, projections=50, key=KEY).numpy()
    ratio, error = estimate**2 / exact**2, maps.projection_error(200, 50)
    assert 0.1 * error < np.abs(ratio - 1).mean() < 1.6 * error and np.abs(ratio - 1).max() < 5 * error
    # As many directions as features span everything: exact, whatever was drawn.
    np.testing.assert_allclose(sensitivity(embed, images, projections=200, key=KEY), exact, rtol=1e-5)
    everything = maps.random_directions(KEY, 200, 200)
    squares = maps.add_squared_derivatives(embed, images, everything, tf.zeros_like(images))
    np.testing.assert_allclose(squares, exact**2, rtol=1e-4)
    assert maps.projection_error(200, 200) == maps.projection_error(200, 300) == 0


def test_squares_add_up_whatever_the_chunks(network):
    _, embed, images, _, _ = network
    directions, total = maps.random_directions(KEY, 5, 4), tf.zeros_like(images)
    at_once = maps.add_squared_derivatives(embed, images, directions, total)
    for start, end in ((0, 1), (1, 4)):
        total = maps.add_squared_derivatives(embed, images, directions[:, start:end], total)
    np.testing.assert_array_equal(total, at_once)


def test_an_example_s_map_does_not_depend_on_its_batch(network):
    _, embed, images, _, _ = network
    for more in ({}, {"projections": 3, "key": KEY}):
        alone = sensitivity(embed, images[2:3], **more)
        np.testing.assert_allclose(sensitivity(embed, images, **more)[2:3], alone, rtol=1e-5)


def test_what_is_refused(network):
    _, embed, images, _, _ = network
    with pytest.raises(ValueError, match=r"\[b, d\]"):
        sensitivity(lambda x: x, images)
    with pytest.raises(ValueError, match="differentiable"):
        sensitivity(lambda x: tf.stop_gradient(embed(x)), images)
    with pytest.raises(ValueError, match="differentiable"):
        maps.utility(lambda x: tf.round(tf.reduce_sum(x, axis=(1, 2, 3))), images)


def test_no_gradient_is_attached(network):
    predict, embed, images, labels, _ = network
    with tf.GradientTape() as tape:
        tape.watch(images)
        value = tf.reduce_sum(maps.utility(objectives.cross_entropy(predict, labels), images))
        value += tf.reduce_sum(sensitivity(embed, images))
    assert tape.gradient(value, images) is None


# ------------------------------------------------------------------------------------ of one map, and of two


def test_concentration_closed_forms():
    single, equal, half = np.zeros(10), np.ones(10), np.repeat([0.0, 1.0], 5)
    values = maps.concentration(tf.constant([single + np.eye(10)[3], equal, half, single]))
    np.testing.assert_allclose(values, [0.9, 0.0, 0.5, np.nan], atol=1e-12)


def test_concentration_is_the_mean_difference_of_pairs():
    values = GENERATOR.gamma(0.5, size=(3, 4, 5)).astype(np.float32)
    rows = values.reshape(3, -1).astype(np.float64)
    pairs = np.abs(rows[:, :, None] - rows[:, None, :]).mean(axis=(1, 2))
    concentrations = maps.concentration(values)
    np.testing.assert_allclose(concentrations, pairs / (2 * rows.mean(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(maps.concentration(1000 * values[:, ::-1]), concentrations, rtol=1e-6)


@pytest.mark.parametrize("levels", [2, 5, None])
def test_rank_correlation_is_scipy_s(levels):
    first, second = GENERATOR.random((2, 4, 6, 6))
    second = first + second
    if levels:
        first, second = np.round(first * levels), np.round(second * levels)
    expected = [scipy.stats.spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(maps.rank_correlation(first, second), expected, rtol=1e-10)
    np.testing.assert_allclose(maps.rank_correlation(first**3, -second), -np.array(expected), rtol=1e-10)
    ranks = maps.average_ranks(first.reshape(4, -1))
    np.testing.assert_array_equal(ranks, scipy.stats.rankdata(first.reshape(4, -1), axis=1))


def test_rank_correlation_of_constants():
    ramp = np.arange(6.0)[None]
    assert maps.rank_correlation(ramp, 7 * ramp).numpy() == 1.0
    assert np.isnan(maps.rank_correlation(ramp, np.ones((1, 6))))

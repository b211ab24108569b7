"""Spectral norms against singular values of matrices, and margins against closed forms and descent."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.certification import affine, certify, handlers, lipschitz, operations
from tfrobust.certification.network import walk
from tfrobust.errors import InputError
from tfrobust.models.shared.group_sort import GroupSort

EXACT = operations.Arithmetic(tf.float64, 0.0)
LAYERS = keras.layers
# Layers, inputs, and by which factor the bound may exceed the norm of the matrix, which grows with the size of the map.
CASES = stored.table(globals(), "cases")


@pytest.mark.parametrize(("layer", "shape", "factor"), CASES.values(), ids=CASES)
def test_a_spectral_norm_is_at_least_that_of_the_matrix(layer, shape, factor):
    keras.utils.set_random_seed(0)
    network = walk(keras.Sequential([keras.Input(shape), layer]))
    for operation, _ in network.nodes:
        assert isinstance(operation, affine.Affine)
        unit = tf.reshape(tf.eye(int(np.prod(shape)), dtype=tf.float64), [-1, *shape])
        matrix = operation.linear(unit, EXACT).numpy().reshape(len(unit), -1)
        exact = np.linalg.norm(matrix, 2)
        bound = lipschitz.spectral_norm(operation, shape)
        assert exact * (1 - 1e-12) <= bound <= factor * exact


def test_the_norm_of_a_convolution_between_the_points_of_the_grid_counts():
    """|1 + e^iw + e^2iw| is 3 at w = 0, and a shifted kernel of complex phase has its maximum off the grid."""
    angle = np.pi / 16 / 2 + 0.01  # half way between two frequencies of the grid of 16 x 2 points
    rotation = [
        np.array([[np.cos(k * angle), -np.sin(k * angle)], [np.sin(k * angle), np.cos(k * angle)]]) for k in range(3)
    ]
    bound = lipschitz._of_kernel(np.stack(rotation), (1,))
    assert 3.0 <= bound < 3.05


def test_the_margin_of_a_linear_network_falls_by_the_distance_of_its_rows():
    model = keras.Sequential([keras.Input((4,)), LAYERS.Dense(4), LAYERS.Dense(3)])
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    model.layers[0].set_weights([rotation, np.zeros(4)])
    kernel = model.layers[1].kernel.numpy().astype(float)
    images, labels = np.random.default_rng(1).uniform(size=(5, 4)), np.arange(5) % 3
    logits = images @ rotation @ kernel
    rows = np.arange(5)
    distances = np.linalg.norm(kernel.T[labels][:, None] - kernel.T[None], axis=-1)
    exact = logits[rows, labels][:, None] - logits - 0.2 * distances
    exact[rows, labels] = np.inf
    options = {"epsilon": 0.2, "norm": "l2", "method": "lipschitz"}
    margins = certify.certified_margins(model, images, labels, **options)
    assert np.all(margins <= exact.min(1)) and np.all(margins > exact.min(1) - 1e-4)
    with pytest.raises(InputError, match="'l2'"):
        certify.certified_margins(model, images, labels, epsilon=0.2, method="lipschitz")


def residual(size=7):
    """Return a residual network of normalized layers."""
    image = keras.Input((size, size, 2))
    hidden = LAYERS.SpectralNormalization(LAYERS.Conv2D(4, 3, padding="same"))(image)
    hidden = LAYERS.MaxPooling2D(2, 1)(GroupSort()(LAYERS.Activation("softplus")(hidden)))
    main = LAYERS.LeakyReLU(0.1)(LAYERS.SpectralNormalization(LAYERS.Conv2D(4, 2, padding="same"))(hidden))
    hidden = LAYERS.Concatenate()([LAYERS.Add()([hidden, main]), hidden])
    return keras.Model(image, LAYERS.Dense(3)(LAYERS.Flatten()(hidden)))


def length_of(values):
    """Return the L2 norm of each example, [b, 1, 1, 1]."""
    return tf.sqrt(tf.reduce_sum(values**2, (1, 2, 3), keepdims=True))


def test_no_point_of_the_ball_has_a_smaller_margin_by_gradient_descent():
    keras.utils.set_random_seed(5)
    model, generator = residual(), np.random.default_rng(0)
    model(np.zeros((1, 7, 7, 2)), training=True)  # divides the kernels
    images = generator.uniform(size=(4, 7, 7, 2)).astype(np.float32)
    labels = model(images).numpy().argmax(1)
    margins = certify.certified_margins(model, images, labels, epsilon=0.5, norm="l2", method="lipschitz")
    variable = tf.Variable(images)
    for _ in range(40):
        with tf.GradientTape() as tape:
            logits = model(variable)
            others = tf.reduce_max(logits - 1e9 * tf.one_hot(labels, 3), -1)
            least = tf.gather(logits, labels, batch_dims=1) - others
        assert np.all(margins < least)
        gradient = tape.gradient(least, variable)
        move = variable - 0.2 * gradient / length_of(gradient) - images
        variable.assign(images + move * tf.minimum(1.0, 0.5 / length_of(move)))
    assert np.all(np.isfinite(margins))


@pytest.mark.parametrize("layer, norm", stored.rows(globals(), "a_value_counts_in_each_window_that_it_lies_in"))
def test_a_value_counts_in_each_window_that_it_lies_in(layer, norm):
    assert lipschitz.norms(walk(keras.Sequential([keras.Input((4, 4, 1)), layer])), (4, 4, 1)) == [[norm]]


def test_a_layer_without_a_constant_is_named():
    model = keras.Sequential([keras.Input((4,)), LAYERS.Dense(4, "gelu", name="bent"), LAYERS.Dense(2)])
    with pytest.raises(handlers.NoBoundsError, match="bent has no Lipschitz constant"):
        certify.certified_margins(model, np.zeros((1, 4)), [0], epsilon=0.1, norm="l2", method="lipschitz")

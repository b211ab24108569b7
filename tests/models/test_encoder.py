"""Check the encoders' base class on a network small enough to compute by hand."""

import keras
import numpy as np
import tensorflow as tf

from tfrobust.keras.models import CNN, DigitsCNN, Encoder, LinearHead
from tfrobust.ops import keras_private


def convolve(images, kernel, bias=None):
    """3x3 'same' convolution in plain loops."""
    count, height, width, _ = images.shape
    out = np.zeros((count, height, width, kernel.shape[-1]))
    for n in range(count):
        for row in range(height):
            for column in range(width):
                for i in range(3):
                    for j in range(3):
                        r, c = row + i - 1, column + j - 1
                        if 0 <= r < height and 0 <= c < width:
                            out[n, row, column] += images[n, r, c] @ kernel[i, j]
    return out if bias is None else out + bias


def test_forward_equals_a_numpy_oracle():
    """Pixels, one stage (convolution, batch norm, ReLU, max pool), dense with ReLU, linear head."""
    draw = np.random.default_rng(0)
    encoder = CNN(((2,),), dense=(3,), final_pool=True, pixel_mean=(0.5, 0.2), pixel_std=(0.25, 2.0))
    encoder.build((None, 4, 4, 2))
    head = LinearHead(3)
    head.build((None, 3))
    for variable in encoder.variables + head.variables:
        variable.assign(draw.uniform(0.2, 1.5, variable.shape))
    kernel, gamma, beta, dense_kernel, dense_bias = (v.numpy().astype(float) for v in encoder.trainable_variables)
    encoder.trainable_variables[0].assign(kernel := draw.normal(size=kernel.shape))
    encoder.trainable_variables[3].assign(dense_kernel := draw.normal(size=dense_kernel.shape))
    mean, variance = (v.numpy().astype(float) for v in encoder.non_trainable_variables)
    images = draw.random((2, 4, 4, 2)).astype(np.float32)

    hidden = convolve((images - [0.5, 0.2]) / [0.25, 2.0], kernel)
    hidden = np.maximum(gamma * (hidden - mean) / np.sqrt(variance + 1e-5) + beta, 0)
    pooled = hidden.reshape(2, 2, 2, 2, 2, 2).max(axis=(2, 4))
    embedding = np.maximum(pooled.reshape(2, 8) @ dense_kernel + dense_bias, 0)
    head_kernel, head_bias = (v.numpy() for v in head.variables)

    assert (embedding > 0).any() and (embedding == 0).any(), "the case exercises both sides of the ReLU"
    np.testing.assert_allclose(encoder(images), embedding, rtol=1e-4, atol=1e-5)
    logits = embedding @ head_kernel + head_bias
    np.testing.assert_allclose(head(encoder(images)), logits, rtol=1e-4, atol=1e-5)


def test_first_hook_sees_normalised_images_and_its_answer_is_used():
    encoder = DigitsCNN(pixel_mean=0.5, pixel_std=0.5)
    images = np.random.default_rng(0).random((2, 8, 8, 1)).astype(np.float32)
    seen = {}

    def hook(index, hidden):
        seen[index] = hidden.numpy()
        return tf.zeros_like(hidden) if index == 3 else hidden

    embedding = encoder(images, at_stage=hook)
    np.testing.assert_allclose(seen[0], (images - 0.5) / 0.5, atol=1e-6)
    # Zero into the dense layer leaves its (initial) bias 0.
    assert not embedding.numpy().any()


def test_branch_may_be_a_numpy_integer_also_in_a_graph_and_in_the_first_call():
    encoder = DigitsCNN(branches=2)
    images = np.random.default_rng(0).random((4, 8, 8, 1)).astype(np.float32)
    encoder(images, training=True, branch=np.int64(1))
    branch_1 = encoder(images, branch=1)
    assert np.abs(branch_1 - encoder(images, branch=0)).max() > 0
    graph = tf.function(lambda x: encoder(x, branch=np.int64(1)))(images)
    np.testing.assert_allclose(graph, branch_1, rtol=1e-5, atol=1e-5)


def test_settings_reach_every_norm():
    encoder = DigitsCNN(normalization_momentum=0.7, normalization_epsilon=0.01, synchronized=True, branches=3)
    norms = [
        layer
        for layer in keras_private.all_layers(encoder, include_self=False)
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) == 9
    assert {(norm.momentum, norm.epsilon, norm.synchronized) for norm in norms} == {(0.7, 0.01, True)}


def test_image_size_may_be_left_open_where_the_network_allows_it():
    open_size = CNN(((2,),), dense=())
    open_size.build((None, None, None, 1))
    assert open_size(np.zeros((1, 5, 5, 1), np.float32)).shape == (1, 2)
    assert open_size(np.zeros((1, 8, 6, 1), np.float32)).shape == (1, 2)


def test_float64_images_are_taken_as_they_come_and_a_float64_policy_computes_in_it():
    images = np.random.default_rng(0).random((2, 8, 8, 1))
    encoder = DigitsCNN()
    np.testing.assert_array_equal(encoder(images), encoder(images.astype(np.float32)))
    double = DigitsCNN(dtype="float64")
    assert double(images).dtype == tf.float64


def test_normalisation_happens_before_the_cast_to_16_bits():
    """Pixels that differ by less than bfloat16 resolves stay apart: 0.5 + 1e-4 over a deviation of 1e-4."""
    encoder = DigitsCNN(pixel_mean=0.5, pixel_std=1e-4, dtype="mixed_bfloat16")
    seen = []
    images = np.full((1, 8, 8, 1), 0.5001, np.float32)
    encoder(images, at_stage=lambda index, hidden: seen.append(hidden) or hidden)
    value = seen[0]
    assert value.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(value, tf.float32), np.ones((1, 8, 8, 1)), rtol=1e-2)


@keras.saving.register_keras_serializable(package="tests")
class Doubling(Encoder):
    """An encoder of somebody else: plain Keras layers only."""

    def __init__(self, units: int = 2, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        stages = [[keras.layers.Rescaling(2.0)], [keras.layers.Rescaling(2.0)]]
        self.compose(stages, [keras.layers.Flatten(), keras.layers.Dense(units)], dim=units)


def test_own_encoder_needs_no_more_than_a_constructor(tmp_path):
    encoder = Doubling(units=3)
    images = np.ones((1, 2, 2, 1), np.float32)
    sums = []
    encoder(images, at_stage=lambda index, hidden: sums.append(float(tf.reduce_sum(hidden))) or hidden)
    assert sums == [4.0, 8.0, 16.0]
    assert encoder.get_config()["units"] == 3
    encoder.save(tmp_path / "own.keras")
    loaded = keras.saving.load_model(tmp_path / "own.keras")
    np.testing.assert_array_equal(loaded(images), encoder(images))


def test_small_images_are_stretched_before_the_first_stage():
    encoder = CNN(((2,),), dense=(), pixel_mean=0.5, pixel_std=0.5, resize_to=8)
    images = np.random.default_rng(0).random((2, 3, 4, 3), np.float32)
    seen = []
    stretched = encoder(images, at_stage=lambda index, hidden: seen.append(hidden) or hidden)
    plain = CNN(((2,),), dense=(), pixel_mean=0.5, pixel_std=0.5)
    plain.build((None, 8, 8, 3))
    plain.set_weights(encoder.get_weights())
    large = tf.image.resize(images, (8, 8))
    np.testing.assert_allclose(stretched, plain(large), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen[0], (large - 0.5) / 0.5, atol=1e-5)
    assert type(encoder).from_config(encoder.get_config()).resize_to == 8

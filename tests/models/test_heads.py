"""Heads against matrix products."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.heads import LinearHead, LinearProjection, MLPHead, MLPProjection

HEADS = [
    LinearHead(4, kernel_regularization=0.1),
    LinearHead(4, kernel_initializer=keras.initializers.RandomNormal(stddev=0.1)),
    LinearHead(4, batch_normalized=True),
    LinearProjection(4),
    LinearProjection(4, use_bias=True),
    MLPProjection(7, dim=4),
    MLPProjection(7, dim=4, use_bias=True),
]


@pytest.fixture
def embedding():
    return np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def randomise(layer):
    draw = np.random.default_rng(1)
    for variable in layer.variables:
        variable.assign(draw.normal(size=variable.shape))
    return [variable.numpy() for variable in layer.variables]


def test_linear_head(embedding):
    head = LinearHead(4, kernel_regularization=0.5)
    head.build((None, 5))
    kernel, bias = randomise(head)
    np.testing.assert_allclose(head(embedding), embedding @ kernel + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sum(head.losses), 0.5 * (kernel**2).sum(), rtol=1e-5)


def test_batch_normalised_logits_have_an_offset_and_no_scale(embedding):
    head = LinearHead(4, batch_normalized=True)
    head.build((None, 5))
    assert [variable.name for variable in head.trainable_variables] == ["kernel", "beta"]
    kernel, offset = (variable.numpy() for variable in head.trainable_variables)
    head.trainable_variables[1].assign(offset + [1.0, -2.0, 0.0, 0.5])
    products = (embedding @ kernel).astype(np.float64)
    mean, variance = products.mean(axis=0), products.var(axis=0)
    expected = (products - mean) / np.sqrt(variance + 1e-5) + [1.0, -2.0, 0.0, 0.5]
    np.testing.assert_allclose(head(embedding, training=True), expected, rtol=1e-3, atol=1e-4)
    moved = (products - 0.1 * mean) / np.sqrt(0.9 + 0.1 * variance + 1e-5) + [1.0, -2.0, 0.0, 0.5]
    np.testing.assert_allclose(head(embedding), moved, rtol=1e-4, atol=1e-5)


def test_linear_projection_has_no_bias(embedding):
    projection = LinearProjection()
    projection.build((None, 2048))
    assert [tuple(v.shape) for v in projection.variables] == [(2048, 128)]
    small = LinearProjection(2)
    small.build((None, 5))
    (kernel,) = randomise(small)
    np.testing.assert_allclose(small(embedding), embedding @ kernel, rtol=1e-5, atol=1e-5)


def test_mlp_projection_has_relu_between_and_none_behind(embedding):
    projection = MLPProjection()
    projection.build((None, 2048))
    assert [tuple(v.shape) for v in projection.variables] == [(2048, 200), (200, 128)]
    small = MLPProjection(6, dim=3)
    small.build((None, 5))
    first, second = randomise(small)
    expected = np.maximum(embedding @ first, 0) @ second
    assert expected.min() < 0
    np.testing.assert_allclose(small(embedding), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{head.name}")
def test_round_trip_build_shape_and_dtype(head, embedding, tmp_path):
    inputs = keras.Input((5,))
    model = keras.Model(inputs, head(inputs))
    assert model.output_shape == (None, 4) and head.compute_output_shape((None, 5)) == (None, 4)
    model.save(tmp_path / "head.keras")
    loaded = keras.saving.load_model(tmp_path / "head.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(embedding), model(embedding))
    again = type(head).from_config(head.get_config())
    assert again.get_config() == head.get_config()


def test_float32_under_a_mixed_policy(embedding):
    keras.config.set_dtype_policy("mixed_float16")
    for head in (LinearHead(2), LinearProjection(2), MLPProjection(3, dim=2)):
        assert head(tf.cast(embedding, tf.float16)).dtype == tf.float32


def test_initialisers():
    head = LinearHead(2, kernel_initializer="zeros")
    head.build((None, 5))
    assert not any(v.numpy().any() for v in head.variables)
    wide = LinearHead(100)
    wide.build((None, 1000))
    np.testing.assert_allclose(np.std(wide.variables[0]), np.sqrt(2 / 1000), rtol=0.05)


@pytest.mark.parametrize("make", [lambda **k: MLPHead(5, hidden=5, **k), lambda **k: MLPProjection(5, dim=5, **k)])
def test_layers_of_one_initializer_draw_apart_and_a_name_draws_as_keras_does(make):
    apart, named = make(kernel_initializer=keras.initializers.HeNormal()), make()
    apart.build((None, 5))
    assert not np.any(apart.chain[0].kernel.numpy() == apart.chain[1].kernel.numpy())
    keras.utils.set_random_seed(3)
    named = make()
    named.build((None, 5))
    keras.utils.set_random_seed(3)
    dense = [keras.layers.Dense(5, kernel_initializer="he_normal") for _ in range(2)]
    for layer, own in zip(dense, named.chain, strict=True):
        layer.build((None, 5))
        np.testing.assert_array_equal(own.kernel, layer.kernel)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearHead(1), "LinearHead.class_count must be an integer >= 2"),
        (lambda: LinearHead(2.0), "LinearHead.class_count"),
        (lambda: LinearProjection(0), "LinearProjection.dim"),
        (lambda: MLPProjection(0), "MLPProjection.hidden"),
        (lambda: MLPProjection(dim=-1), "MLPProjection.dim"),
        (lambda: LinearHead(2, clases=3), "clases"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Heads and projections against matrix products."""

import math

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.keras import models
from tfrobust.models.heads.prototypes import LENGTHS

EMBEDDING = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
NORMAL = keras.initializers.RandomNormal(stddev=0.1)
HEADS = stored.cases(__file__, "heads", globals(), "tables.toml")


def drawn(layer):
    """Build a head and give it weights that are nothing special; the kernel and offset of each product."""
    layer.build((None, 5))
    draw = np.random.default_rng(1)
    for variable in layer.trainable_variables:
        variable.assign(draw.normal(size=variable.shape))
    return [
        (dense_layer.kernel.numpy(), 0.0 if dense_layer.bias is None else dense_layer.bias.numpy())
        for dense_layer in dense(layer)
    ]


def dense(layer):
    return [member for member in layer.chain if isinstance(member, keras.layers.Dense)]


def standardized(hidden):
    return (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_round_trip_build_shape_and_dtype(name, tmp_path):
    head, inputs = HEADS[name], keras.Input((5,))
    model = keras.Model(inputs, head(inputs))
    assert model.output_shape == (None, 4) == head.compute_output_shape((None, 5))
    model.save(tmp_path / "head.keras")
    loaded = keras.saving.load_model(tmp_path / "head.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(EMBEDDING), model(EMBEDDING))
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    assert type(head).from_config(head.get_config()).get_config() == head.get_config()


def test_float32_under_a_mixed_policy():
    keras.config.set_dtype_policy("mixed_float16")
    for head in (
        models.LinearHead(2),
        models.LinearProjection(2),
        models.MLPProjection(3, dim=2),
        models.ProjectionHead(normalization="all"),
    ):
        assert head(tf.cast(EMBEDDING, tf.float16)).dtype == tf.float32


@pytest.mark.parametrize(
    "make", [models.LinearHead, models.LinearProjection, lambda dim, **k: models.ProjectionHead((3,), dim=dim, **k)]
)
def test_a_frozen_head_freezes_its_layers(make):
    head = make(2, trainable=False)
    head.build((None, 5))
    assert head.variables and not any(layer.trainable_variables for layer in head.chain)


def test_linear_head():
    head = models.LinearHead(4, kernel_regularization=0.5)
    [(kernel, bias)] = drawn(head)
    np.testing.assert_allclose(head(EMBEDDING), EMBEDDING @ kernel + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sum(head.losses), 0.5 * (kernel**2).sum(), rtol=1e-5)


def test_batch_normalized_logits_have_an_offset_and_no_scale():
    head = models.LinearHead(4, batch_normalized=True)
    head.build((None, 5))
    assert [variable.name for variable in head.trainable_variables] == ["kernel", "beta"]
    kernel, offset = (variable.numpy() for variable in head.trainable_variables)
    head.trainable_variables[1].assign(offset + [1.0, -2.0, 0.0, 0.5])
    products = (EMBEDDING @ kernel).astype(np.float64)
    mean, variance = products.mean(axis=0), products.var(axis=0)
    expected = standardized(products) + [1.0, -2.0, 0.0, 0.5]
    np.testing.assert_allclose(head(EMBEDDING, training=True), expected, rtol=1e-3, atol=1e-4)
    moved = (products - 0.1 * mean) / np.sqrt(0.9 + 0.1 * variance + 1e-5) + [1.0, -2.0, 0.0, 0.5]
    np.testing.assert_allclose(head(EMBEDDING), moved, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "projection, shapes",
    [(models.LinearProjection(), [(2048, 128)]), (models.MLPProjection(), [(2048, 200), (200, 128)])],
)
def test_projections_of_the_paper_have_no_bias(projection, shapes):
    projection.build((None, 2048))
    assert [tuple(v.shape) for v in projection.variables] == shapes


@pytest.mark.parametrize(
    "head",
    [models.LinearProjection(3), models.MLPProjection(6, dim=3), models.ProjectionHead((7, None), dim=3)],
    ids=["1", "2", "3"],
)
def test_relu_stands_between_products_and_none_behind(head):
    *hidden, (last, offset) = drawn(head)
    expected = EMBEDDING
    for kernel, bias in hidden:
        expected = np.maximum(expected @ kernel + bias, 0)
    expected = expected @ last + offset
    assert expected.min() < 0
    np.testing.assert_allclose(head(EMBEDDING), expected, rtol=1e-5, atol=1e-5)
    assert [layer.units for layer in dense(head)] == {1: [3], 2: [6, 3], 3: [7, 5, 3]}[1 + len(hidden)]


@pytest.mark.parametrize("normalization", ["hidden", "all"])
def test_normalization_stands_before_each_relu_and_the_last_has_no_offset(normalization):
    head = models.ProjectionHead((7,), dim=3, normalization=normalization, use_bias=False, output_bias=False)
    (first, _), (second, _) = drawn(head)
    norms = [layer.norms[0] for layer in head.chain if isinstance(layer, models.BranchedBatchNormalization)]
    hidden = standardized(EMBEDDING @ first) * norms[0].gamma.numpy() + norms[0].beta.numpy()
    expected = np.maximum(hidden, 0) @ second
    if normalization == "all":
        expected = standardized(expected) * norms[1].gamma.numpy()
        assert norms[1].beta is None
    assert len(norms) == 1 + (normalization == "all")
    np.testing.assert_allclose(head(EMBEDDING, training=True), expected, rtol=1e-4, atol=1e-5)
    scale, offset = head.chain[1].moments()
    np.testing.assert_allclose(offset, norms[0].beta - norms[0].moving_mean * scale, rtol=1e-6)


def test_the_last_normalization_folds_without_an_offset():
    layer = models.BranchedBatchNormalization(center=False)
    layer(EMBEDDING, training=True)
    scale, offset = layer.moments()
    np.testing.assert_allclose(layer(EMBEDDING), EMBEDDING * scale + offset, rtol=1e-5, atol=1e-6)


def test_each_branch_has_its_own_statistics():
    head = models.ProjectionHead((7,), dim=3, normalization="hidden", branches=2)
    head(EMBEDDING, training=True, branch=1)
    still, moved = (norm.moving_mean.numpy() for norm in head.chain[1].norms)
    assert not still.any() and moved.any()
    assert not np.allclose(head(EMBEDDING, branch=0), head(EMBEDDING, branch=1))


def test_initializers():
    head = models.LinearHead(2, kernel_initializer="zeros")
    head.build((None, 5))
    assert not any(v.numpy().any() for v in head.variables)
    wide = models.LinearHead(100)
    wide.build((None, 1000))
    np.testing.assert_allclose(np.std(wide.variables[0]), np.sqrt(2 / 1000), rtol=0.05)


MAKERS = stored.table(globals(), "makers")


@pytest.mark.parametrize("name", MAKERS)
def test_layers_of_one_initializer_draw_apart(name):
    apart = MAKERS[name](kernel_initializer=keras.initializers.HeNormal())
    apart.build((None, 5))
    first, second = (layer.kernel.numpy() for layer in dense(apart))
    assert not np.any(first == second)


def test_gelu_is_exact():
    head = models.ProjectionHead((8,), dim=4, activation="gelu")
    (inner, offset), (outer, bias) = drawn(head)
    hidden = EMBEDDING @ inner + offset
    erf = np.array([math.erf(value / math.sqrt(2)) for value in hidden.ravel()]).reshape(hidden.shape)
    np.testing.assert_allclose(head(EMBEDDING), (hidden * (1 + erf) / 2) @ outer + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "bfloat16", "float64"])
def test_scores_of_prototypes_are_float32_under_any_policy(policy, lengths):
    layer, plain = (models.Prototypes(4, lengths=lengths, dtype=dtype) for dtype in (policy, "float32"))
    scores = layer(EMBEDDING)
    plain.build((None, EMBEDDING.shape[1]))
    plain.set_weights([np.asarray(weight, np.float32) for weight in layer.get_weights()])
    assert scores.dtype == tf.float32
    np.testing.assert_allclose(scores, plain(EMBEDDING), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_prototypes_are_directions(lengths):
    layer = models.Prototypes(4, lengths=lengths)
    layer.build((None, 5))
    kernel = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    layer.kernel.assign(kernel)
    unit = EMBEDDING / np.linalg.norm(EMBEDDING, axis=1, keepdims=True)
    columns = kernel / np.linalg.norm(kernel, axis=0)
    scale = 1.0
    if lengths == "trained":
        scale = np.array([[1.0, 2.0, -1.0, 0.5]])
        layer.scale.assign(scale)
    expected = unit @ (kernel if lengths == "projected" else columns) * scale
    with tf.GradientTape() as tape:
        scores = layer(EMBEDDING)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    # Through the normalization no gradient has a component along the prototype.
    along = tf.reduce_sum(tape.gradient(scores, layer.kernel.value) * columns, axis=0)
    assert (np.abs(along).max() < 1e-5) == (lengths != "projected")
    if lengths == "projected":
        layer.project()
        np.testing.assert_allclose(layer.kernel, columns, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_prototypes_that_fit_builds_have_length_one(dtype):
    layer = models.Prototypes(5, dtype=dtype)
    model = keras.Sequential([keras.layers.Dense(6), layer])
    model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(EMBEDDING, np.zeros(len(EMBEDDING), int), verbose=0)
    np.testing.assert_allclose(np.linalg.norm(layer.kernel.numpy(), axis=0), 1, rtol=1e-5)

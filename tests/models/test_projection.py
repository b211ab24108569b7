"""The projection head against matrix products, with each of its normalisations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.normalization import BranchedBatchNormalization
from tfrobust.models.projection import ProjectionHead

EMBEDDING = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def normal(head):
    """Builds the head and gives it weights that are nothing special; by kind, in their order."""
    head.build((None, 5))
    draw = np.random.default_rng(1)
    for variable in head.trainable_variables:
        variable.assign(draw.normal(size=variable.shape))
    return [(layer.kernel.numpy(), 0.0 if layer.bias is None else layer.bias.numpy()) for layer in head.dense]


def standardised(hidden):
    return (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)


def test_without_normalisation_it_is_relu_between_products():
    head = ProjectionHead((7, None), dim=3)
    (first, a), (second, b), (third, c) = normal(head)
    assert [layer.units for layer in head.dense] == [7, 5, 3]
    hidden = np.maximum(EMBEDDING @ first + a, 0)
    expected = np.maximum(hidden @ second + b, 0) @ third + c
    assert expected.min() < 0
    np.testing.assert_allclose(head(EMBEDDING), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalization", ["hidden", "all"])
def test_normalisation_stands_before_each_relu_and_the_last_has_no_offset(normalization):
    head = ProjectionHead((7,), dim=3, normalization=normalization, use_bias=False, output_bias=False)
    (first, _), (second, _) = normal(head)
    norms = [layer.norms[0] for layer in head.chain if isinstance(layer, BranchedBatchNormalization)]
    hidden = standardised(EMBEDDING @ first) * norms[0].gamma.numpy() + norms[0].beta.numpy()
    expected = np.maximum(hidden, 0) @ second
    if normalization == "all":
        expected = standardised(expected) * norms[1].gamma.numpy()
        assert norms[1].beta is None
    assert len(norms) == 1 + (normalization == "all")
    np.testing.assert_allclose(head(EMBEDDING, training=True), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        head.chain[1].moments()[1], norms[0].beta - norms[0].moving_mean * head.chain[1].moments()[0], rtol=1e-6
    )


def test_the_last_normalisation_folds_without_an_offset():
    layer = BranchedBatchNormalization(center=False)
    layer(EMBEDDING, training=True)
    scale, offset = layer.moments()
    np.testing.assert_allclose(layer(EMBEDDING), EMBEDDING * scale + offset, rtol=1e-5, atol=1e-6)


def test_each_branch_has_its_own_statistics():
    head = ProjectionHead((7,), dim=3, normalization="hidden", branches=2)
    head(EMBEDDING, training=True, branch=1)
    still, moved = (norm.moving_mean.numpy() for norm in head.chain[1].norms)
    assert not still.any() and moved.any()
    assert not np.allclose(head(EMBEDDING, branch=0), head(EMBEDDING, branch=1))


@pytest.mark.parametrize(
    "head",
    [
        ProjectionHead(),
        ProjectionHead((), dim=4),
        ProjectionHead((None, None), dim=4, normalization="all", kernel_initializer=keras.initializers.RandomNormal()),
        ProjectionHead((8,), dim=4, normalization="hidden", branches=2, trainable=False),
    ],
    ids=["simclr", "linear", "simclr2", "frozen"],
)
def test_round_trip_build_shape_and_dtype(head, tmp_path):
    inputs = keras.Input((5,))
    model = keras.Model(inputs, head(inputs))
    assert head.compute_output_shape((None, 5)) == (None, head.dim) == model.output_shape
    model.save(tmp_path / "head.keras")
    loaded = keras.saving.load_model(tmp_path / "head.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(EMBEDDING), model(EMBEDDING))
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    again = type(head).from_config(head.get_config())
    assert again.get_config() == head.get_config()


def test_layers_of_one_initializer_draw_apart():
    head = ProjectionHead((5,), dim=5, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01))
    head.build((None, 5))
    first, second = (layer.kernel.numpy() for layer in head.dense)
    assert not np.allclose(first, second)


def test_float32_under_a_mixed_policy():
    keras.config.set_dtype_policy("mixed_float16")
    assert ProjectionHead(normalization="all")(tf.cast(EMBEDDING, tf.float16)).dtype == tf.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProjectionHead((0,)), "each entry of ProjectionHead.hidden"),
        (lambda: ProjectionHead(dim=0), "ProjectionHead.dim"),
        (lambda: ProjectionHead(normalization="last"), "ProjectionHead.normalization must be one of"),
        (lambda: ProjectionHead(branches=2), "without a normalization all would be the same"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

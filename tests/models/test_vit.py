"""The vision transformer against its formula in NumPy; resized positions; drop path; what it refuses."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.models.shared import dropout, positions
from tfrobust.models.vit import POOLINGS, ViT

SHAPE = (4, 6, 3)


def make(shape=SHAPE, **keywords) -> ViT:
    encoder = ViT(**{"patch_size": 2, "width": 8, "depth": 5, "heads": 2, **keywords})
    encoder.build((None, *shape))
    draw = np.random.default_rng(1)
    for variable in encoder.trainable_variables:
        variable.assign(draw.normal(size=variable.shape) * 0.5)
    return encoder


def images(count=3, shape=SHAPE, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, *shape), np.float32)


# ------------------------------------------------------------------------------------------------- the formula


def normalized(x, gamma, beta):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta


def attention(x, kernel, bias, heads):
    """One head and one token after the other; the kernel holds those of queries, keys and values side by side."""
    count, width = x.shape
    head_width, out = width // heads, np.zeros_like(x)
    for head in range(heads):
        part = slice(head * head_width, (head + 1) * head_width)
        query, key, value = (
            (x @ kernel[:, third * width : (third + 1) * width] + bias[third * width : (third + 1) * width])[:, part]
            for third in range(3)
        )
        for token in range(count):
            share = np.array([math.exp(query[token] @ key[other] / math.sqrt(head_width)) for other in range(count)])
            out[token, part] = share @ value / share.sum()
    return out


def by_hand(encoder, image) -> np.ndarray:
    """The embedding of an image in float64."""
    kernel, bias, token, table, *rest = (v.numpy().astype(np.float64) for v in encoder.trainable_variables)
    side, image = encoder.patch_size, image.astype(np.float64)
    patches = [
        image[row : row + side, column : column + side].reshape(-1) @ kernel.reshape(-1, encoder.width) + bias
        for row in range(0, image.shape[0], side)
        for column in range(0, image.shape[1], side)
    ]
    hidden = np.stack([token[0, 0], *patches]) + table[0]
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    *blocks, gamma, beta = rest
    outputs = []
    for start in range(0, len(blocks), 12):
        first, second, qkv, out, inner, outer = zip(*[iter(blocks[start : start + 12])] * 2, strict=True)
        hidden = hidden + attention(normalized(hidden, *first), *qkv, encoder.heads) @ out[0] + out[1]
        hidden = hidden + gelu(normalized(hidden, *second) @ inner[0] + inner[1]) @ outer[0] + outer[1]
        outputs.append(normalized(hidden, gamma, beta))
    if encoder.pooling == "last_four_classes":
        return np.concatenate([output[0] for output in outputs[-4:]])
    if encoder.pooling == "class":
        return outputs[-1][0]
    average = outputs[-1][1:].mean(0)
    return np.array([value for pair in zip(outputs[-1][0], average, strict=True) for value in pair])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_it_is_the_formula(pooling):
    encoder = make(pooling=pooling)
    expected = np.stack([by_hand(encoder, image) for image in images()])
    np.testing.assert_allclose(encoder(images()), expected, rtol=1e-4, atol=1e-5)


def test_class_tokens_of_earlier_blocks_are_those_after_the_hook():
    """A hidden state that a method replaces is read by the following blocks and by the embedding."""
    encoder = make(pooling="last_four_classes")
    plain = encoder(images()).numpy()
    for stage in range(encoder.depth + 1):
        changed = encoder(images(), at_stage=lambda k, hidden, stage=stage: hidden * (1.5 if k == stage else 1.0))
        parts = np.abs(changed.numpy() - plain).reshape(3, 4, 8).max(axis=(0, 2))
        # A normalized token does not see its own length.
        assert np.all(parts[max(stage - 1, 0) :] > 1e-3) and np.all(parts[: max(stage - 2, 0)] == 0), stage
    with pytest.raises(InputError, match="returned nothing"):
        encoder(images(), at_stage=lambda k, hidden: None if k == 3 else hidden)


def test_heads_change_outputs_and_no_shape():
    two_heads, other = make(heads=2), make(heads=4)
    assert [v.shape for v in two_heads.variables] == [v.shape for v in other.variables]
    assert np.abs(two_heads(images()) - other(images())).max() > 0.01


def test_patches_see_their_own_pixels_and_only_attention_joins_them():
    encoder = make()
    before = encoder.tokens(tf.constant(images(1))).numpy()
    changed = images(1)
    changed[0, 2, 5] += 1.0  # row 1, column 2 of 2 x 3 patches
    moved = np.any(encoder.tokens(tf.constant(changed)).numpy() != before, axis=-1)[0]
    assert np.flatnonzero(moved).tolist() == [1 + 3 + 2]


# --------------------------------------------------------------------------------------------------- positions


def test_sinusoids_are_those_of_moco_v3():
    table_of_patches = positions.patch_sinusoids(2, 3, 8)
    for row in range(2):
        for column in range(3):
            angles = [[coordinate / 10000 ** (i / 2) for i in range(2)] for coordinate in (row, column)]
            expected = [f(angle) for group in angles for f in (math.sin, math.cos) for angle in group]
            assert table_of_patches[3 * row + column] == pytest.approx(expected, abs=1e-6)
    table = make(positions="sinusoidal").tokens.table.numpy()
    assert np.all(table[0, 0] == 0)
    np.testing.assert_array_equal(table[0, 1:], table_of_patches)


def interpolated(table, target) -> list[float]:
    """Catmull-Rom's relative with a = -0.75 at the places of DINO, one value of a column of numbers after the other."""
    size, a, values = len(table), -0.75, []
    for index in range(target):
        position = (index + 0.5) / ((target + 0.1) / size) - 0.5
        first, t = math.floor(position), position - math.floor(position)
        weights = (
            a * (t**3 - 2 * t**2 + t),
            (a + 2) * t**3 - (a + 3) * t**2 + 1,
            -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t,
            a * (t**2 - t**3),
        )
        values.append(sum(w * table[min(max(first + k - 1, 0), size - 1)] for k, w in enumerate(weights)))
    return values


@pytest.mark.parametrize(("size", "target"), [(14, 6), (14, 24), (3, 3), (1, 4), (4, 1)])
def test_positions_are_resized_by_the_rule_of_dino(size, target):
    matrix = positions.resizing_matrix(size, target)
    assert matrix.shape == (target, size)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
    table = np.random.default_rng(0).normal(size=size)
    np.testing.assert_allclose(matrix @ table, interpolated(table, target), rtol=1e-9, atol=1e-12)


def test_images_of_another_size_get_resized_positions():
    """Rows and columns are resized separately; the class token keeps its position; the own size resizes nothing."""
    encoder, exact = make((None, None, 3), grid=3), make((4, 10, 3))
    for ours, theirs in zip(exact.variables, encoder.variables, strict=True):
        if ours is not exact.tokens.table:
            ours.assign(theirs)
    table = encoder.tokens.table.numpy()[0]
    patches = table[1:].reshape(3, 3, -1)
    resized = np.apply_along_axis(interpolated, 0, patches, 2)
    resized = np.apply_along_axis(interpolated, 1, resized, 5)
    exact.tokens.table.assign(np.concatenate([table[:1], resized.reshape(10, -1)])[None])
    np.testing.assert_allclose(encoder(images(shape=(4, 10, 3))), exact(images(shape=(4, 10, 3))), rtol=1e-4, atol=1e-5)
    square = images(shape=(6, 6, 3))
    expected = np.stack([by_hand(encoder, image) for image in square])
    np.testing.assert_allclose(encoder(square), expected, rtol=1e-4, atol=1e-5)


def test_a_size_unknown_while_tracing_must_be_that_of_the_table():
    encoder = make((None, None, 3), grid=3)
    traced = tf.function(encoder, input_signature=[tf.TensorSpec([None, None, None, 3])])
    np.testing.assert_allclose(traced(images(shape=(6, 6, 3))), encoder(images(shape=(6, 6, 3))), rtol=1e-5, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        traced(images(shape=(4, 6, 3)))


# ---------------------------------------------------------------------------------------------------- training


def test_drop_path_drops_whole_examples_and_rescales_the_others():
    layer, ones = dropout.DropPath(0.3), tf.ones([4000, 2, 3])
    dropped = layer(ones, training=True).numpy()
    assert np.all(dropped == dropped[:, :1, :1])
    assert np.mean(dropped == 0) == pytest.approx(0.3, abs=0.04)
    np.testing.assert_allclose(dropped[dropped > 0], 1 / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(layer(ones), ones)


def test_drop_path_drops_more_often_in_later_blocks():
    encoder = make(drop_path=0.4)
    rates = [block.drop_path for *_, block in encoder.stage_layers]
    np.testing.assert_allclose(rates, [0.0, 0.1, 0.2, 0.3, 0.4])
    plain = encoder(images(20)).numpy()
    assert np.abs(encoder(images(20), training=True) - plain).max() > 0.01
    np.testing.assert_array_equal(encoder(images(20)), plain)


def test_blocks_that_fit_builds_drop_different_examples():
    """The clocks start apart also while Keras traces, at numbers that follow from the global seed."""

    def clocks(seed) -> list[int]:
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([ViT(2, width=8, depth=4, heads=2, drop_path=0.5), keras.layers.Dense(2)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(images(4), np.array([0, 1, 0, 1]), verbose=0)
        return [int(variable) for variable in model.variables if variable.path.endswith("clock")]

    first = clocks(3)
    assert len(set(first)) == len(first) > 2
    assert clocks(3) == first and not set(clocks(4)) & set(first)


def test_a_dropped_block_is_the_identity():
    encoder = make(depth=1, drop_path=0.999)
    encoder(images(), training=True)  # builds
    tokens = encoder.tokens(tf.constant(images()))
    np.testing.assert_array_equal(encoder.stage_layers[0][1](tokens, training=True), tokens)


def test_frozen_patches_stay_frozen():
    encoder = make(frozen_patches=True, positions="sinusoidal")
    encoder.trainable = False
    encoder.trainable = True
    frozen = {id(v) for v in (encoder.tokens.kernel, encoder.tokens.bias, encoder.tokens.table)}
    assert not frozen & {id(v) for v in encoder.trainable_variables}
    assert frozen <= {id(v) for v in encoder.non_trainable_variables}


def test_kernels_start_as_in_moco_v3():
    keras.utils.set_random_seed(0)
    encoder = ViT(4, width=48, depth=1, heads=2)
    encoder.build((None, 8, 8, 3))
    block = encoder.stage_layers[0][1]
    for kernel, limit in (
        (encoder.tokens.kernel, math.sqrt(6 / (3 * 4 * 4 + 48))),
        (block.qkv.kernel, math.sqrt(6 / (48 + 48))),
        (block.out.kernel, math.sqrt(6 / (48 + 48))),
        (block.mlp[0].kernel, math.sqrt(6 / (48 + 192))),
    ):
        assert 0.97 * limit < np.abs(kernel.numpy()).max() <= limit

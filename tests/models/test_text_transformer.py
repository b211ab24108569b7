"""The transformer against its formula in NumPy; padding does not exist; its dropout; what it refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.text_transformer import POOLINGS, TextTransformer, TransformerStyle, sinusoids

WORDS, LENGTH = 30, 9
STYLES = {
    "before": TransformerStyle(dropout=0.0),
    "behind": TransformerStyle(dropout=0.0, positions="sinusoidal", normalization="behind", activation="tanh"),
    "nowhere": TransformerStyle(dropout=0.0, positions="none"),
}


def make(pooling="average", style="before", **keywords):
    keras.utils.set_random_seed(0)
    sizes = {"width": 8, "depth": 2, "heads": 2, "inner": 5}
    encoder = TextTransformer(WORDS, LENGTH, pooling=pooling, style=STYLES[style], **{**sizes, **keywords})
    encoder.build((None, LENGTH))
    draw = np.random.default_rng(1)
    for variable in encoder.trainable_variables:  # biases and places that are not near 0
        variable.assign(draw.normal(size=variable.shape))
    return encoder


def tokens(*lengths):
    drawn = np.random.default_rng(2).integers(1, WORDS, (len(lengths), LENGTH))
    return np.where(np.arange(LENGTH) < np.array(lengths)[:, None], drawn, 0).astype(np.int32)


def by_hand(encoder, sentence) -> np.ndarray:
    """One sentence without its padding, float64, one head after the other."""
    variables = encoder.trainable_variables
    weights = {variable.path.split("/", 1)[1]: variable.numpy().astype(np.float64) for variable in variables}

    def weights_of(part):
        return [value for path, value in weights.items() if part in path]

    def normalized(x, gamma, beta):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta

    words, *further = weights_of("token_embedding")
    hidden = words[sentence] * np.sqrt(8)
    if encoder.style.positions == "learned":
        hidden = hidden + further[0][: len(sentence)]
    elif encoder.style.positions == "sinusoidal":
        hidden = hidden + sinusoids(LENGTH, 8)[: len(sentence)]
    if encoder.pooling == "class":
        hidden = np.concatenate([further[-1] * np.sqrt(8), hidden])
    activation = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[encoder.style.activation]
    blocks = list(dict.fromkeys(path.split("/")[0] for path in weights if path.startswith("transformer_block")))
    assert len(blocks) == 2
    for block in blocks:
        query, key, value, out, inner, inner_bias, outer, outer_bias, *norms = weights_of(block + "/")

        def attend(x, query=query, key=key, value=value, out=out):
            total = 0
            for head in range(2):
                scores = (x @ query[:, head]) @ (x @ key[:, head]).T / np.sqrt(4)
                share = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
                total = total + share @ (x @ value[:, head]) @ out[head]
            return total

        def feed_forward(x, first=(inner, inner_bias), second=(outer, outer_bias)):
            return activation(x @ first[0] + first[1]) @ second[0] + second[1]

        for sublayer, norm in ((attend, norms[:2]), (feed_forward, norms[2:])):
            if encoder.style.normalization == "before":
                hidden = hidden + sublayer(normalized(hidden, *norm))
            else:
                hidden = normalized(hidden + sublayer(hidden), *norm)
    if encoder.style.normalization == "before":
        hidden = normalized(hidden, *weights_of("layer_normalization")[-2:])
    return hidden[0] if encoder.pooling == "class" else hidden.mean(0)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_it_is_the_formula(pooling, style):
    encoder, sentences = make(pooling, style), tokens(9, 4, 1)
    expected = [by_hand(encoder, sentence[sentence > 0]) for sentence in sentences]
    np.testing.assert_allclose(encoder(sentences), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_does_not_exist(pooling, style):
    encoder, sentences = make(pooling, style), tokens(5, 2, 0)
    before = encoder(sentences).numpy()
    assert np.all(np.isfinite(before)) and (pooling == "class") == bool(np.any(before[2]))
    np.testing.assert_allclose(encoder(sentences[:, :5]), before, rtol=1e-5, atol=1e-6)  # fewer of it
    # Whatever its vector and those of its places are, to the bit; and no gradient reaches them.
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder(sentences) ** 3)
    words, *further = encoder.embedding.trainable_variables
    gradients = tape.gradient(total, [words, *further])
    assert np.all(gradients[0][0] == 0) and np.any(gradients[0][1:] != 0)
    words.assign(tf.concat([words[:1] + 7.0, words[1:]], axis=0))
    if encoder.style.positions == "learned":
        assert np.all(gradients[1][5:] == 0) and np.all(np.any(gradients[1][:5] != 0, axis=1))
        further[0].assign(tf.concat([further[0][:5], further[0][5:] + 7.0], axis=0))
    np.testing.assert_array_equal(encoder(sentences), before)


def test_sinusoids_are_those_of_the_paper():
    table = sinusoids(50, 6)
    for position in (0, 1, 49):
        for feature in (0, 1, 2):
            angle = position / 10000 ** (2 * feature / 6)
            assert table[position, 2 * feature : 2 * feature + 2] == pytest.approx(
                [np.sin(angle), np.cos(angle)], abs=1e-6
            )


def test_dropout_is_for_training_alone():
    keras.utils.set_random_seed(0)
    encoder = TextTransformer(WORDS, LENGTH, width=8, heads=2, style=TransformerStyle(dropout=0.5))
    sentences = tokens(9, 4)
    still = encoder(sentences)
    np.testing.assert_array_equal(encoder(sentences), still)
    first, second = (encoder(sentences, training=True).numpy() for _ in range(2))
    assert not np.allclose(first, second) and not np.allclose(first, still)
    clocks = [variable for variable in encoder.non_trainable_variables if variable.path.endswith("clock")]
    assert len(clocks) == 1 + 2 * 3, "the words, and two sublayers of three layers"


def test_frozen_by_its_config():
    encoder = make()
    encoder.trainable = False
    again = TextTransformer.from_config(encoder.get_config())
    again.build((None, LENGTH))
    assert not again.trainable_variables and len(again.variables) == len(encoder.variables)

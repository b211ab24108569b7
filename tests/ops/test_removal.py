"""Tokens taken out: which ones go, and discrete utility and sensitivity against one removal after the other."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.ops import removal

WORDS, LENGTH, FEATURES = 12, 7, 3
TABLE = np.random.default_rng(0).normal(size=(WORDS, LENGTH, FEATURES))
LENGTHS = (7, 3, 1, 5)


def sentences(seed=1):
    generator = np.random.default_rng(seed)
    return [generator.integers(1, WORDS, count).tolist() for count in LENGTHS]


def padded(rows):
    return np.array([[*row, *[0] * (LENGTH - len(row))] for row in rows], np.int32)


def phi(sentence):
    """An embedding that knows the order of words: tanh of the sum of a vector by word and place."""
    return np.tanh(sum((TABLE[word, position] for position, word in enumerate(sentence)), np.zeros(FEATURES)))


def embed(tokens):
    vectors = tf.gather_nd(
        tf.constant(TABLE, tf.float32), tf.stack([tokens, tf.zeros_like(tokens) + range(LENGTH)], -1)
    )
    return tf.tanh(tf.reduce_sum(tf.where(tokens[..., None] != 0, vectors, 0.0), axis=1))


def test_one_token_or_several_less():
    tokens = padded([[5, 6, 7], [8]])
    assert removal.without(tokens, tf.constant([1, 0])).numpy().tolist() == padded([[5, 7], []]).tolist()
    assert removal.without(tokens, tf.constant([0, 3])).numpy().tolist() == padded([[6, 7], [8]]).tolist()
    full = padded([[2, 3, 4, 5, 6, 7, 8]])
    assert removal.without(full, tf.constant([6])).numpy().tolist() == padded([[2, 3, 4, 5, 6, 7]]).tolist()
    tokens = padded([[5, 6, 5, 7], [8, 9], [3]])
    chosen = np.zeros((3, LENGTH), bool)
    chosen[0, [0, 3, 6]] = chosen[2, 0] = True  # place 6 is padding
    assert removal.remove(tokens, chosen).numpy().tolist() == padded([[6, 5], [8, 9], []]).tolist()


@pytest.mark.parametrize("block_size", [None, 1, 5, 28, 100])
@pytest.mark.parametrize("static", [True, False])
def test_utility_and_sensitivity_are_those_of_one_removal_after_the_other(block_size, static):
    rows, labels = sentences(), np.array([0, 2, 1, 1], np.int32)
    shape = [4 if static else None, LENGTH]
    signature = [tf.TensorSpec(shape, tf.int32), tf.TensorSpec(shape[:1], tf.int32)]
    loss = lambda tokens, ids: tf.nn.sparse_softmax_cross_entropy_with_logits(ids, embed(tokens))  # noqa: E731
    utilities = tf.function(lambda x, y: removal.utility(loss, x, y, block_size=block_size), signature)
    sensitivities = tf.function(lambda x: removal.sensitivity(embed, x, block_size=block_size), signature[:1])
    utility = utilities(padded(rows), labels).numpy()
    sensitivity = sensitivities(padded(rows)).numpy()
    for row, (sentence, label) in enumerate(zip(rows, labels, strict=True)):

        def cross_entropy(words, label=label):
            logits = phi(words)
            return np.log(np.exp(logits).sum()) - logits[label]

        for position in range(LENGTH):
            if position >= len(sentence):
                assert utility[row, position] == sensitivity[row, position] == 0.0
                continue
            shorter = sentence[:position] + sentence[position + 1 :]
            assert utility[row, position] == pytest.approx(
                abs(cross_entropy(sentence) - cross_entropy(shorter)), abs=2e-6
            )
            assert sensitivity[row, position] == pytest.approx(np.linalg.norm(phi(sentence) - phi(shorter)), abs=2e-6)


def test_no_pass_is_larger_than_its_block():
    seen = []

    def counted(tokens):
        seen.append(tokens.shape)
        return embed(tokens)

    tokens = tf.constant(padded(sentences()))
    removal.sensitivity(counted, tokens, block_size=10)
    assert seen[0] == (4, LENGTH) and set(map(tuple, seen[1:])) == {(10, LENGTH)}
    seen.clear()
    removal.sensitivity(counted, tokens)
    assert [tuple(shape) for shape in seen] == [(4, LENGTH), (4 * LENGTH, LENGTH)], "all removals in one pass"

"""Which tokens are removed: the least and the most useful ones, as many as the sentence's own length says."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.ops import removal

KEY = tf.constant([3, 4])
LENGTHS = (20, 15, 14, 9, 4, 2, 1)


def inputs(seed=0):
    generator = np.random.default_rng(seed)
    present = np.arange(20) < np.array(LENGTHS)[:, None]
    tokens = np.where(present, generator.integers(1, 50, present.shape), 0).astype(np.int32)
    # Utilities of other sentences' padding must not count, and equal ones occur.
    return tokens, generator.integers(1, 8, present.shape).astype(np.float32)


@pytest.mark.parametrize(
    "fraction, counts", [(0.1, (2, 2, 1, 1, 1, 1, 0)), (0.3, (6, 4, 4, 3, 1, 1, 0)), (0.5, (10, 7, 7, 4, 2, 1, 0))]
)
def test_exactly_the_least_and_the_most_useful_tokens_go(fraction, counts):
    tokens, utility = inputs()
    perturbation = TokenRemoval(fraction=fraction)
    copies = perturbation(tokens, utility, KEY)
    chosen = perturbation.choose(tokens, tf.constant(utility), KEY)
    for copy, mask, sign in ((copies.least, chosen[0].numpy(), 1), (copies.most, chosen[1].numpy(), -1)):
        assert copy.dtype == tf.int32
        for row, (length, count) in enumerate(zip(LENGTHS, counts, strict=True)):
            scores = sign * utility[row, :length]
            assert mask[row].sum() == count and not mask[row, length:].any()
            assert np.array_equal(np.sort(scores[mask[row, :length]]), np.sort(scores)[:count])
            remaining = tokens[row, :length][~mask[row, :length]]
            assert copy[row].numpy().tolist() == [*remaining, *[0] * (20 - len(remaining))]
    assert copies.usable.numpy().tolist() == [True] * 6 + [False]


def test_equals_are_taken_at_random():
    """Four of ten tokens of utility 0 are removed, each about equally often, wherever it is."""
    tokens = tf.constant([[*range(1, 13), 0, 0]])
    utility = tf.constant([[0.0] * 5 + [1.0, 1.0] + [0.0] * 7])
    perturbation = TokenRemoval(fraction=0.33)
    keys = tf.stack([tf.range(400), tf.zeros(400, tf.int32)], axis=1)
    choose = tf.function(lambda key: perturbation.choose(tokens, utility, key)[0], autograph=False)
    often = sum(choose(key).numpy()[0].astype(int) for key in keys)
    assert not often[[5, 6, 12, 13]].any()
    equals = np.delete(often, [5, 6, 12, 13])
    assert equals.sum() == 1600
    assert np.sum((equals - 160) ** 2 / (160 * 0.6)) < 27.9  # chi-squared, 9 degrees of freedom, 0.1 %


def test_sentences_without_utility_are_not_usable():
    tokens, utility = inputs()
    utility[2] = 0.0
    utility[3, :9] = 0.0  # what stands at padding says nothing
    assert TokenRemoval()(tokens, utility, KEY).usable.numpy().tolist() == [True, True, False, False, True, True, False]


def test_the_utility_is_that_of_removal():
    tokens, _ = inputs()

    def objective(tokens, labels):
        return tf.cast(labels, tf.float32) * tf.reduce_sum(tf.sqrt(tf.cast(tokens, tf.float32)), axis=1)

    labels = tf.range(1, 8)
    values = TokenRemoval().utility(objective, tf.constant(tokens), labels)
    np.testing.assert_array_equal(values, removal.utility(objective, tf.constant(tokens), labels))
    expected = labels[:, None].numpy() * np.sqrt(tokens)
    np.testing.assert_allclose(values, expected, rtol=1e-3)

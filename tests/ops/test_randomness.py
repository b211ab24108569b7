"""Keys and draws: equal paths give equal numbers, and nothing else matters."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.ops import randomness


def test_a_key_follows_from_its_path_alone():
    key = randomness.make_key(3, "attack", 5)
    np.testing.assert_array_equal(key, randomness.make_key(3, "attack", tf.constant(5, tf.int64)))
    np.testing.assert_array_equal(key, randomness.fold(randomness.make_key(3, "attack"), 5))
    np.testing.assert_array_equal(key, randomness.fold(randomness.make_key(3, "attack").numpy(), 5))
    paths = [(3, "attack", 6), (4, "attack", 5), (3, "views", 5), (3, 5, "attack")]
    assert all(np.any(key.numpy() != randomness.make_key(*other).numpy()) for other in paths)


def test_keys_of_examples_and_of_stacks_are_folds():
    key = randomness.make_key(1, "pipeline", 2)
    index = tf.constant([7, 0, 7, 123456], tf.int64)
    expected = [tf.random.experimental.stateless_fold_in(key, int(i)) for i in index]
    np.testing.assert_array_equal(randomness.example_keys(key, index), tf.stack(expected))
    keys = randomness.example_keys(randomness.make_key(0), tf.range(4))
    expected = [randomness.fold(key, "start", 3) for key in tf.unstack(keys)]
    np.testing.assert_array_equal(randomness.fold(keys, "start", 3), tf.stack(expected))


@pytest.mark.parametrize("sampler", [randomness.uniform(-1.0, 2.0), randomness.normal(0.5)])
def test_a_draw_by_example_does_not_know_its_batch(sampler):
    key = randomness.make_key(0, "x")
    full = randomness.draw(sampler, randomness.example_keys(key, tf.range(6)), [6, 3, 2])
    part = randomness.draw(sampler, randomness.example_keys(key, tf.constant([4, 1])), [2, 3, 2])
    np.testing.assert_array_equal(part, tf.gather(full, [4, 1]))


def test_draws_have_their_distribution():
    uniform = randomness.draw(randomness.uniform(-1.0, 3.0), randomness.make_key(0), [20000])
    assert float(tf.reduce_min(uniform)) >= -1.0 and float(tf.reduce_max(uniform)) < 3.0
    assert float(tf.reduce_mean(uniform)) == pytest.approx(1.0, abs=0.03)
    normal = randomness.draw(randomness.normal(2.0), randomness.make_key(1), [20000])
    assert float(tf.math.reduce_std(normal)) == pytest.approx(2.0, rel=0.03)

"""Draws as a hash of (key, step): the formula in plain integers, and what chance should look like."""

import zlib

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.ops import hashing

MODULO = 2**32


def mix(word):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word ^= word >> shift
        word = word * factor % MODULO
    return word ^ word >> 16


def test_bits_follow_the_formula():
    keys, steps = tf.constant([[5, -7], [-(2**31), 3]]), tf.constant([[0, 4], [1, 2**20]])
    bits = hashing.random_bits(keys, steps, 3, "windows").numpy()
    assert bits.shape == (2, 2, 3) and bits.dtype == np.uint32
    salt = zlib.crc32(b"windows")
    for (n, b, j), value in np.ndenumerate(bits):
        first, second = (int(key) % MODULO for key in keys[b])
        counter = (int(steps[n, b]) * 3 + j + first) % MODULO
        assert value == mix(mix(counter) ^ second ^ salt)


def test_bits_look_random_over_steps_words_examples_and_purposes():
    keys = tf.stack([tf.fill([64], 12345), tf.range(64)], axis=1)  # as bad as keys of one run can be
    steps = tf.tile(tf.range(256)[:, None], [1, 64])
    bits = hashing.random_bits(keys, steps, 4, "a").numpy()
    assert len(np.unique(bits)) > 0.9999 * bits.size
    unpacked = np.unpackbits(bits.view(np.uint8).reshape(256, 64, 4, 4), axis=-1).astype(np.float64) * 2 - 1
    assert np.all(np.abs(unpacked.mean(axis=(0, 1))) < 5 / np.sqrt(256 * 64))
    # Neighbours in each direction, and the same place for another purpose, agree in half of the bits.
    other = np.unpackbits(
        hashing.random_bits(keys, steps, 4, "b").numpy().view(np.uint8).reshape(256, 64, 4, 4), axis=-1
    )
    pairs = [unpacked[1:] * unpacked[:-1], unpacked[:, 1:] * unpacked[:, :-1], unpacked[:, :, 1:] * unpacked[:, :, :-1]]
    for product in (*pairs, unpacked * (other * 2.0 - 1)):
        assert abs(product.mean()) < 5 / np.sqrt(product.size)


@pytest.mark.parametrize("limit", [1, 7, 27, 1000])
def test_whole_numbers_are_drawn_evenly(limit):
    bits = hashing.random_bits(tf.constant([[1, 2]]), tf.range(50_000)[:, None], 1, "a")
    numbers = hashing.below(bits, limit).numpy().ravel()
    assert numbers.min() == 0 and numbers.max() == limit - 1
    expected = 50_000 / limit
    assert np.sum((np.bincount(numbers, minlength=limit) - expected) ** 2 / expected) < limit + 6 * np.sqrt(2 * limit)


def test_whole_numbers_below_their_own_limit():
    bits = tf.constant([0, 2**32 - 1, 2**32 - 1, 2**31], tf.uint32)
    np.testing.assert_array_equal(hashing.below(bits, tf.constant([9, 9, 0, 8])), [0, 8, 0, 4])
    np.testing.assert_array_equal(hashing.coins(bits), [False, True, True, True])

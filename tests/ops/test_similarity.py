import numpy as np
import pytest
import tensorflow as tf

from oracles import contrastive as oracle
from tfrobust.ops import similarity

GENERATOR = np.random.default_rng(17)


@pytest.mark.parametrize("features", [3, 14])
@pytest.mark.parametrize("kind", similarity.SIMILARITIES)
def test_pairs_match_the_definition(kind, features):
    anchors, keys = (GENERATOR.normal(size=(n, features)).astype(np.float32) for n in (4, 6))
    keys[0] = anchors[0]
    similarities = similarity.pairwise(anchors, keys, kind)
    expected = [[oracle.similarity(a, k, kind) for k in keys] for a in anchors]
    np.testing.assert_allclose(similarities, expected, rtol=3e-6, atol=1e-6)


def test_near_pairs_keep_their_distance_and_zero_vectors_are_similar_to_nothing():
    """The expanded square |a|^2 + |k|^2 - 2 a.k would lose this gap."""
    anchor = np.full([1, 8], 100.0, np.float32)
    key = anchor.copy()
    key[0, 3] += 2.0**-10
    np.testing.assert_allclose(similarity.pairwise(anchor, key, "l2"), [[-(2.0**-10)]], rtol=1e-6)
    z = tf.constant([[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(similarity.pairwise(z, z, "cosine"), [[0, 0], [0, 1]], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e18, 1e30])
def test_cosine_ignores_the_scale(scale):
    anchors, keys = (GENERATOR.normal(size=(3, 5)).astype(np.float32) for _ in range(2))
    plain = similarity.pairwise(anchors, keys, "cosine")
    np.testing.assert_allclose(similarity.pairwise(scale * anchors, keys, "cosine"), plain, rtol=1e-5, atol=1e-6)
    lengths = tf.norm(similarity.normalize(np.float32(scale) * anchors), axis=-1)
    np.testing.assert_allclose(lengths, np.ones(3), rtol=1e-6)


def test_normalize_has_the_gradient_of_the_direction():
    """d/dx (w . x / |x|) = (w - (w.u) u) / |x| with u = x / |x|."""
    x, w = (tf.constant(GENERATOR.normal(size=(4, 3)).astype(np.float32)) for _ in range(2))
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(w * similarity.normalize(x))
    length = tf.norm(x, axis=-1, keepdims=True)
    unit = x / length
    expected = (w - tf.reduce_sum(w * unit, -1, keepdims=True) * unit) / length
    np.testing.assert_allclose(tape.gradient(value, x), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", similarity.SIMILARITIES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-15, 1e4])
def test_hostile_vectors_have_finite_gradients(kind, scale):
    """Zero, denormal and equal vectors: the gradient of a distance there is 0, never NaN."""
    z = tf.constant(np.full([3, 4], scale, np.float32))
    with tf.GradientTape() as tape:
        tape.watch(z)
        values = similarity.pairwise(z, z, kind)
    gradient = tape.gradient(values, z)
    assert np.isfinite(values).all() and np.isfinite(gradient).all()
    if kind != "dot":
        np.testing.assert_allclose(gradient, np.zeros([3, 4]), atol=1e-6)


def test_coinciding_vectors_have_finite_gradients_under_xla():
    """TensorFlow's own square root forgives a zero upstream gradient; compiled, it is 0 / 0."""

    @tf.function(jit_compile=True)
    def gradient(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            values = similarity.pairwise(z, z, "l2")
        return tape.gradient(values, z)

    np.testing.assert_array_equal(gradient(tf.ones([2, 3])), np.zeros([2, 3]))

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.losses.feature_margin import feature_margin


def _oracle(z, least, most, margin, form, mask):
    """Eq. 9, one by one."""
    values = []
    for here, near, far, counts in zip(z, least, most, mask, strict=True):
        distance = np.linalg.norm(here - far)
        hinge = max(0.0, margin - distance) ** 2 if form == "paper" else max(0.0, margin - distance**2)
        values.append(np.linalg.norm(here - near) ** 2 + (hinge if counts else 0.0))
    return np.array(values)


@pytest.mark.parametrize("form", ["paper", "inside"])
def test_equals_the_printed_formula(form):
    generator = np.random.default_rng(0)
    z, least, most = generator.normal(size=(3, 9, 4)) * 0.5
    mask = generator.uniform(size=9) < 0.6
    expected = _oracle(z, least, most, 1.2, form, mask)
    values = feature_margin(z, least, most, margin=1.2, form=form, mask=mask)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    assert 0 < np.count_nonzero(expected - np.sum((z - least) ** 2, -1)) < 9  # both sides of the hinge


def test_coinciding_embeddings_have_a_finite_gradient():
    z = tf.Variable(tf.ones([2, 3]))
    with tf.GradientTape() as tape:
        values = feature_margin(z, tf.ones([2, 3]), tf.ones([2, 3]), margin=0.7)
    np.testing.assert_allclose(values, 0.49, rtol=1e-6)
    assert np.all(np.isfinite(tape.gradient(values, z)))

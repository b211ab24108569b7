"""The Jensen-Shannon term: the released formula by loops in float64, closed forms, gradients by differences."""

import numpy as np
import pytest
import tensorflow as tf

from oracles.consistency import jensen_shannon
from tfrobust.losses import consistency

VIEWS = np.random.default_rng(4).normal(size=(3, 5, 4)) * np.array([0.1, 1, 3, 10, 30])[None, :, None]


@pytest.mark.parametrize(("count", "clip"), [(2, 1e-7), (3, 1e-7), (3, 0.05)])
def test_it_is_the_released_formula(count, clip):
    values = consistency.jensen_shannon(list(VIEWS[:count].astype(np.float32)), clip=clip)
    np.testing.assert_allclose(values, jensen_shannon(VIEWS[:count], clip), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [2, 3])
def test_equal_views_are_0_apart_and_views_without_a_common_class_log_v(count):
    equal = consistency.jensen_shannon([VIEWS[0].astype(np.float32)] * count)
    np.testing.assert_allclose(equal, 0.0, atol=1e-6)
    disjoint = [np.eye(4, dtype=np.float32)[None, view] * 200 for view in range(count)]
    np.testing.assert_allclose(consistency.jensen_shannon(disjoint), [np.log(count)], rtol=1e-6)


@pytest.mark.parametrize("clip", [1e-7, 0.05])
def test_every_view_has_the_gradient_of_the_literal_formula(clip):
    """Through its own term and through the mixture; none through an entry of the mixture that is clipped."""
    views = [tf.constant(view[:4].astype(np.float32)) for view in VIEWS]
    with tf.GradientTape() as tape:
        tape.watch(views)
        total = tf.reduce_sum(consistency.jensen_shannon(views, clip=clip))
    for number, gradient in enumerate(tape.gradient(total, views)):
        for entry in np.ndindex(4, 4):
            ends = []
            for sign in (1, -1):
                moved = VIEWS[:, :4].copy()
                moved[(number, *entry)] += sign * 1e-5
                ends.append(jensen_shannon(moved, clip).sum())
            assert gradient.numpy()[entry] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-5)

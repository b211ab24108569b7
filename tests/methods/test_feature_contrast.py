"""The two objectives of feature contrastive learning on embeddings given by hand."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import feature_contrast
from tfrobust.methods.feature_contrast import FeatureContrast, FeatureMargin


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_it_is_eq_6_and_the_sum_is_that_of_the_batch(scale):
    clean, least, most = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    usable = np.arange(7) % 3 > 0
    found = FeatureContrast(temperature=0.4, scale=scale)(tf.range(7), clean, least, most, tf.constant(usable))
    expected = feature_contrast.contrast(clean, least, most, usable, 0.4)
    np.testing.assert_allclose(found, expected * (7 if scale == "sum" else 1), rtol=1e-5)


def test_equal_embeddings_give_the_logarithm_of_their_number():
    """n images: z+ and z- of its own and n - 1 others, all as near: log(n + 1); without z- log n."""
    z = tf.ones([5, 3])
    objective = FeatureContrast(temperature=0.1, scale="mean")
    np.testing.assert_allclose(objective(tf.range(5), z, z, z), np.log(6), rtol=1e-6)
    np.testing.assert_allclose(objective(tf.range(5), z, z), np.log(5), rtol=1e-6)


def test_without_a_far_copy_the_margin_objective_keeps_its_first_term():
    clean, least = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    found = FeatureMargin(margin=2.0, scale="sum")(tf.range(4), clean, least)
    np.testing.assert_allclose(found, 4 * np.sum((clean - least) ** 2, -1), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FeatureContrast(temperature=0.0), "temperature is 0.0"),
        (lambda: FeatureContrast(scale="total"), "scale is 'total'"),
        (lambda: FeatureMargin(margin=-1.0), "margin > 0"),
        (lambda: FeatureMargin(form="printed"), "margin > 0"),
    ],
)
def test_wrong_arguments_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()

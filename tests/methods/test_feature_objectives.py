"""The two objectives of feature contrastive learning on embeddings given by hand."""

import numpy as np
import tensorflow as tf

from tfrobust.methods.shared.feature_objectives import FeatureContrast, FeatureMargin


def test_equal_embeddings_give_the_logarithm_of_their_number():
    """n images: z+ and z- of its own and n - 1 others, all as near: log(n + 1); without z- log n."""
    z = tf.ones([5, 3])
    objective = FeatureContrast(temperature=0.1, scale="mean")
    np.testing.assert_allclose(objective(tf.range(5), z, z, z), np.log(6), rtol=1e-6)
    np.testing.assert_allclose(objective(tf.range(5), z, z), np.log(5), rtol=1e-6)


def test_without_a_far_copy_the_margin_objective_keeps_its_first_term():
    clean, least = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    values = FeatureMargin(margin=2.0, scale="sum")(tf.range(4), clean, least)
    np.testing.assert_allclose(values, 4 * np.sum((clean - least) ** 2, -1), rtol=1e-5)

"""The contrastive part that methods share; its values are checked where it is used (test_ascl)."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.methods.contrast import Contrast
from tfrobust.pairs import masks


def test_the_global_selection_has_the_paper_s_26_4_positives_and_228_6_negatives():
    """Section 4.3, batches of 128 from ten balanced classes: 1 + 2 x 127 / 10 and 2 x 127 x 9 / 10."""
    generator = np.random.default_rng(0)
    positives, negatives = [], []
    z = tf.constant(generator.normal(size=(128, 2)), tf.float32)
    rows = tf.range(128)
    for _ in range(60):
        labels = tf.constant(generator.permutation(np.arange(50_000) % 10)[:128], tf.int32)
        tags = [masks.tag(rows, view=view, label=labels, prediction=labels) for view in (0, 1)]
        _, counts = Contrast()([z, z], tags, clean_views=1)
        means = {name: float(tf.reduce_mean(column)) for name, column in counts.items()}
        positives.append(means["positives_clean"] + means["positives_adversarial"])
        negatives.append(means["negatives_clean"] + means["negatives_adversarial"])
        assert positives[-1] + negatives[-1] == pytest.approx(255)
    assert np.mean(positives) == pytest.approx(26.4, abs=0.3)
    assert np.mean(negatives) == pytest.approx(228.6, abs=0.3)


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"similarity": "cosin"}])
def test_a_contrast_that_cannot_work_is_refused_when_it_is_made(wrong):
    with pytest.raises(ValueError, match="temperature > 0 and similarity one of"):
        Contrast(**wrong)

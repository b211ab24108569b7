"""Losses on mixtures: closed forms and loops in float64."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, softmax

from tfrobust.losses import classification, mixed

LOGITS = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32) * 3
LABELS, PARTNERS = np.array([0, 3, 1, 1, 2]), np.array([2, 3, 0, 1, 1])


SHARES = np.array([0.1, 0.2, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, SHARES, SHARES[:, None]])
def test_mixed_cross_entropy_is_that_of_the_mixed_label(weight):
    share = np.broadcast_to(np.ravel(weight), 5)[:, None]
    target = share * np.eye(4)[LABELS] + (1 - share) * np.eye(4)[PARTNERS]
    expected = -(target * log_softmax(LOGITS.astype(np.float64), axis=-1)).sum(-1)
    values = mixed.mixed_cross_entropy(LOGITS, LABELS, PARTNERS, weight)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(values, classification.cross_entropy(LOGITS, target), rtol=1e-5)


def literal_binary(logits, targets):
    """Class by class, as torch.nn.BCELoss on a softmax: the mean over classes of one example."""
    values = []
    for row, target in zip(np.asarray(logits, np.float64), targets, strict=True):
        p = softmax(row)
        rest = [sum(p[j] for j in range(len(p)) if j != k) for k in range(len(p))]
        terms = [-(t * np.log(p[k]) + (1 - t) * np.log(rest[k])) for k, t in enumerate(target)]
        values.append(sum(terms) / len(terms))
    return np.array(values)


def test_binary_cross_entropy_is_that_of_each_class():
    targets = 0.3 * np.eye(4)[LABELS] + 0.7 * np.eye(4)[PARTNERS]
    np.testing.assert_allclose(
        mixed.softmax_binary_cross_entropy(LOGITS, targets), literal_binary(LOGITS, targets), rtol=1e-5
    )


def test_binary_cross_entropy_of_a_certain_prediction_is_exact():
    """p = 1 in float32, and 1 - p = 3 e^-60 is still right."""
    logits, targets = np.array([[60.0, 0.0, 0.0, 0.0]], np.float32), np.array([[0.0, 1.0, 0.0, 0.0]])
    expected = literal_binary(logits, targets)
    assert expected > 29
    np.testing.assert_allclose(mixed.softmax_binary_cross_entropy(logits, targets), expected, rtol=1e-5)
    tied = mixed.softmax_binary_cross_entropy(tf.zeros([1, 2]), [[1.0, 0.0]])
    np.testing.assert_allclose(tied, [np.log(2)], rtol=1e-6)

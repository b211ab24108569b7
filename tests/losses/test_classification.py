import numpy as np
import pytest
import recordings
import tensorflow as tf
from scipy.special import log_softmax

from tfrobust.losses import classification, consistency, mixed, robust

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 4.0, 1.0]], np.float32)


def by_hand(logits, targets):
    return -(targets * log_softmax(logits.astype(np.float64), axis=-1)).sum(-1)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64"])
def test_ids_one_hot_and_soft_labels(dtype):
    ids = np.array([2, 0, 1], dtype)
    expected = by_hand(LOGITS, np.eye(3)[ids])
    np.testing.assert_array_equal(classification.margin(LOGITS, ids), classification.margin(LOGITS, [2, 0, 1]))
    np.testing.assert_allclose(classification.cross_entropy(LOGITS, ids), expected, rtol=2e-6)
    for one_hot in (np.eye(3)[ids], np.eye(3, dtype=np.int32)[ids], np.eye(3, dtype=np.float16)[ids]):
        np.testing.assert_allclose(classification.cross_entropy(LOGITS, one_hot), expected, rtol=2e-6)
    soft = np.array([[0.2, 0.3, 0.5], [1 / 3] * 3, [0.0, 0.9, 0.1]])
    np.testing.assert_allclose(classification.cross_entropy(LOGITS, soft), by_hand(LOGITS, soft), rtol=2e-6)


@pytest.mark.parametrize(
    "loss",
    [
        classification.cross_entropy,
        classification.margin,
        robust.boosted_cross_entropy,
        lambda logits, labels: robust.misclassification_aware_kl(logits, -logits, labels),
        lambda logits, labels: consistency.mixture_cross_entropy([logits, -logits], labels),
        lambda logits, labels: mixed.mixed_cross_entropy(logits, labels, 2 - labels, 0.3),
    ],
)
def test_a_column_of_ids_is_a_vector(loss):
    ids = np.array([2, 0, 1], np.int64)
    expected = loss(LOGITS, ids)
    assert expected.shape == (3,)
    np.testing.assert_array_equal(loss(LOGITS, ids[:, None]), expected)
    traced = tf.function(loss, input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1], tf.int64)])
    np.testing.assert_allclose(traced(LOGITS, ids[:, None]), expected, rtol=1e-6)


def test_smoothed_labels_share_a_part_among_all_classes():
    np.testing.assert_allclose(classification.smoothed([1, 3], 4, 0.2), [[0.05, 0.85, 0.05, 0.05], [0.05] * 3 + [0.85]])
    np.testing.assert_array_equal(classification.smoothed([1], 3, 0.0), [[0.0, 1.0, 0.0]])


def test_the_mean_is_the_released_clean_term_and_uniform_logits_give_log_k():
    golden = recordings.arrays("ascl_losses")
    values = classification.cross_entropy(golden["input/clean_logits"], golden["input/labels"])
    np.testing.assert_allclose(np.mean(values), golden["robust/trades_natural"], rtol=2e-6)
    np.testing.assert_allclose(classification.cross_entropy(tf.zeros([1, 7]), [3]), [np.log(7)], rtol=1e-6)


def test_margin_is_positive_exactly_where_wrong():
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(50, 4)).astype(np.float32), generator.integers(0, 4, 50)
    values = classification.margin(logits, labels).numpy()
    np.testing.assert_array_equal(values > 0, logits.argmax(-1) != labels)
    best_other = [max(row[k] for k in range(4) if k != y) for row, y in zip(logits, labels, strict=True)]
    np.testing.assert_allclose(values, best_other - logits[np.arange(50), labels], rtol=1e-6)


def test_margin_of_huge_logits_is_not_masked_away():
    np.testing.assert_array_equal(classification.margin([[-1e12, -2e12]], [1]), np.float32([1e12]))

import numpy as np
import tensorflow as tf

from tfrobust.attacks import objectives

LOGITS = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
LABELS = np.array([1, 0])


def _log_softmax(logits):
    return logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))


def _predict(images):
    return tf.cast(images, tf.float16)  # half precision comes back as float32


def test_cross_entropy_with_ids_and_distributions():
    images = tf.constant(LOGITS, tf.float32)
    expected = -_log_softmax(LOGITS)[np.arange(2), LABELS]
    values = objectives.cross_entropy(_predict, tf.constant(LABELS))(images)
    assert values.dtype == tf.float32
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    soft = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    values = objectives.cross_entropy(_predict, tf.constant(soft))(images)
    np.testing.assert_allclose(values, -np.sum(soft * _log_softmax(LOGITS), axis=1), rtol=1e-5)


def test_targeted_cross_entropy_rises_towards_the_target():
    values = objectives.targeted_cross_entropy(_predict, tf.constant([2, 2]))(tf.constant(LOGITS, tf.float32))
    np.testing.assert_allclose(values, _log_softmax(LOGITS)[:, 2], rtol=1e-5)


def test_margin_is_positive_exactly_where_the_model_is_wrong():
    values = objectives.margin(_predict, tf.constant(LABELS))(tf.constant(LOGITS, tf.float32))
    np.testing.assert_allclose(values, [-1.0, 2.5])


def test_kl_is_from_the_clean_prediction_and_stops_its_gradient():
    clean, images = tf.constant(LOGITS[::-1].copy(), tf.float32), tf.constant(LOGITS, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([clean, images])
        values = objectives.kl(_predict, clean)(images)
    p, q = np.exp(_log_softmax(LOGITS[::-1])), _log_softmax(LOGITS)
    np.testing.assert_allclose(values, np.sum(p * (np.log(p) - q), axis=1), rtol=1e-5)
    from_clean, from_images = tape.gradient(values, [clean, images])
    assert from_clean is None
    np.testing.assert_allclose(from_images, np.exp(q) - p, atol=1e-3)  # the cast to float16 rounds it

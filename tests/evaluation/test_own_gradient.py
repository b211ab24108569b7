"""Functions outside TensorFlow: with their own gradient they are attacked as the same model in TensorFlow is."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.evaluation import own_gradient, summary
from tfrobust.keras.attacks import PGD, Square, ThreatModel, run_attack

WEIGHTS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
IMAGES = np.random.default_rng(1).random((12, 3, 3, 1), np.float32)
LABELS = (IMAGES.reshape(12, 9) @ WEIGHTS).argmax(axis=1)
THREAT = ThreatModel(epsilon=0.05)


def in_numpy(images):
    return np.tanh(np.asarray(images).reshape(-1, 9) @ WEIGHTS)


def in_tensorflow(images):
    return tf.tanh(tf.reshape(images, [-1, 9]) @ WEIGHTS)


def gradient(images, upstream):
    return (upstream * (1 - in_numpy(images) ** 2) @ WEIGHTS.T).reshape(images.shape)


FUNCTION = own_gradient.with_gradient(in_numpy, gradient)


def test_gradients_are_those_of_tensorflow():
    gradients = []
    for function in (FUNCTION, in_tensorflow, tf.function(FUNCTION)):
        with tf.GradientTape() as tape:
            images = tf.constant(IMAGES)
            tape.watch(images)
            loss = tf.reduce_sum(tf.square(function(images)))
        gradients.append(tape.gradient(loss, images))
    for other in gradients[1:]:
        np.testing.assert_allclose(gradients[0], other, rtol=1e-4, atol=1e-5)


def test_it_is_attacked_and_evaluated_as_the_same_model():
    results = [run_attack(PGD(THREAT, steps=5), function, IMAGES, LABELS) for function in (FUNCTION, in_tensorflow)]
    np.testing.assert_array_equal(results[0].success, results[1].success)
    assert 0 < results[0].success.mean() < 1
    outcome = summary.evaluate(FUNCTION, IMAGES, LABELS, threat=THREAT, steps=5)
    assert {finding.check: finding.verdict for finding in outcome.findings}["gradients"] == "pass"
    assert outcome["pgd"].value == summary.evaluate(in_tensorflow, IMAGES, LABELS, threat=THREAT, steps=5)["pgd"].value


@pytest.mark.parametrize("logits, of_images, message", stored.rows(globals(), "other_shapes_are_refused"))
def test_other_shapes_are_refused(logits, of_images, message):
    with pytest.raises((InputError, tf.errors.InvalidArgumentError, tf.errors.UnknownError), match=message):
        run_attack(PGD(THREAT, steps=2), own_gradient.with_gradient(logits, of_images), IMAGES, LABELS)


@pytest.mark.parametrize("function", [in_numpy, lambda images: in_numpy(images.numpy())])
def test_a_function_of_numpy_is_a_black_box(function, caplog):
    square = Square(THREAT, steps=20)
    results = [run_attack(square, variant, IMAGES, LABELS) for variant in (function, in_tensorflow)]
    np.testing.assert_array_equal(results[0].success, results[1].success)
    outcome = summary.evaluate(function, IMAGES, LABELS, threat=THREAT, steps=1)
    attacks = {measurement.id for measurement in outcome.measurements if measurement.id.startswith("attack")}
    assert attacks == {"attack.square_linf_0.05.accuracy", "attack.square_linf_0.05.drop"}
    assert "black box, without gradients" in caplog.text
    with pytest.raises(InputError, match="differentiable operations"):
        run_attack(PGD(THREAT, steps=2), function, IMAGES, LABELS)


def test_a_function_that_fails_in_any_case_says_why():
    with pytest.raises(ZeroDivisionError):
        run_attack(Square(THREAT, steps=2), lambda images: 1 / 0, IMAGES, LABELS)

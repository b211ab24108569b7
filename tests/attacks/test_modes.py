import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import examples, smooth_model
from tfrobust.attacks import gradient
from tfrobust.attacks.shared import modes, objectives, threat


def _attack_in(mode, model):
    images = tf.constant(examples(8))
    labels = tf.zeros([8], tf.int32)
    attack = gradient.PGD(threat.ThreatModel(epsilon=0.1), steps=3)

    @tf.function(autograph=False)
    def perturb():
        predict = modes.forward_in_mode(lambda x, training: model(x, training=training), mode)
        return attack.perturb(objectives.cross_entropy(predict, labels), images, tf.constant([1, 1]))

    before = [v.numpy() for v in model.variables]
    points = perturb().numpy()
    moved = max(np.abs(old - v.numpy()).max() for old, v in zip(before, model.variables, strict=True))
    return points, moved


def test_what_moves_and_what_batch_norm_sees():
    (inference, still), (batch, frozen), (train, moved) = (
        _attack_in(mode, smooth_model()) for mode in ("inference", "batch", "train")
    )
    assert still == 0 and frozen == 0 and moved > 0
    np.testing.assert_array_equal(batch, train)
    assert np.any(batch != inference)


def test_modes_that_are_unknown_or_of_one_replica_are_refused():
    with pytest.raises(ValueError, match="inference.*batch.*train"):
        modes.forward_in_mode(lambda x, training: x, "eval")
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.BatchNormalization(synchronized=True)])
    with pytest.raises(ValueError, match="synchronized=False"):
        modes.forward_in_mode(model, "train")
    modes.forward_in_mode(model, "batch")  # one replica


def test_a_model_becomes_a_function_of_float32_logits():
    model = smooth_model()
    images = examples(3)
    logits = modes.as_predict(model)(images)
    np.testing.assert_array_equal(logits, model(images, training=False))
    for name in ("logits", "output_0"):  # the second of a signature or a TFSMLayer
        assert (
            modes.as_predict(lambda x, name=name: {name: tf.cast(x, tf.float16)})(tf.ones([2, 3])).dtype == tf.float32
        )

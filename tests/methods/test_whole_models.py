"""Whole classifiers in place of encoder and head, softmaxes, and weights before the first batch."""

import keras
import numpy as np
import pytest

from tfrobust.methods.supervised import Supervised

IMAGES, LABELS = np.random.default_rng(0).random((8, 4, 4, 1), np.float32), np.arange(8) % 3


def classifier(activation=None, functional=False):
    layers = [keras.layers.Flatten(), keras.layers.Dense(5, "relu"), keras.layers.Dense(3, activation, name="logits")]
    if not functional:
        return keras.Sequential([keras.Input((4, 4, 1)), *layers], name="whole")
    outputs = inputs = keras.Input((4, 4, 1))
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs, name="whole")


def test_a_classifier_of_the_layers_of_another_is_split():
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Rescaling(0.5), *classifier().layers])
    method = Supervised(model)
    assert method.head is model.layers[-1]
    np.testing.assert_allclose(method.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0), rtol=1e-5)


def test_a_classifier_that_repeats_its_last_layer_is_not_split():
    inputs, last = keras.Input((4,)), keras.layers.Dense(4)
    with pytest.raises(ValueError, match="ends with Dense"):
        Supervised(keras.Model(inputs, last(last(inputs))))


@pytest.mark.parametrize("functional", [True, False])
def test_a_classifier_is_split_before_its_last_layer_and_trained(functional, capsys, tmp_path):
    model = classifier(functional=functional)
    method = Supervised(model)
    method.summary()
    assert "whole_without_logits" in capsys.readouterr().out and method.head is model.layers[-1]
    before = model.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(method.predict(IMAGES, verbose=0), before, rtol=1e-5)
    method.compile(keras.optimizers.SGD(1.0))
    method.fit(IMAGES, LABELS, verbose=0)
    after = method.predict(IMAGES, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), after, rtol=1e-5)
    method.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded.predict(IMAGES, verbose=0), after, rtol=1e-5)
    assert loaded.optimizer.iterations == 1 and loaded.optimizer.learning_rate == 1
    method.save_weights(tmp_path / "m.weights.h5")
    fresh = Supervised(encoder=classifier(functional=functional))
    fresh.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_allclose(fresh.predict(IMAGES, verbose=0), after, rtol=1e-5)

"""The callbacks in a plain `model.fit`, on Keras models that know nothing of tfrobust."""

import keras
import numpy as np
import pytest

from conformance import facade
from tfrobust import keras as robust

IMAGES, LABELS = facade.data()
WITH_STATISTICS = "BranchedBatchNormalization"


def compiled(model, from_logits=True):
    return facade.compiled(model, keras.losses.SparseCategoricalCrossentropy(from_logits), metrics=["accuracy"])


class Recorder(keras.callbacks.Callback):
    """The model's weights after every step, and after every epoch."""

    def __init__(self):
        super().__init__()
        self.steps, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append([weight.numpy() for weight in self.model.weights])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append([weight.numpy() for weight in self.model.weights])


def test_the_exponential_average_by_hand():
    model, recorder = compiled(facade.Subclassed(WITH_STATISTICS)), Recorder()
    average = robust.callbacks.AveragedWeights(kind="ema", decay=0.75)
    model.fit(IMAGES, LABELS, batch_size=4, epochs=2, verbose=0, callbacks=[average, recorder])
    expected = recorder.steps[0]  # `fit` builds: there were no weights before the first step
    for step in recorder.steps:
        expected = [0.75 * old + 0.25 * new for old, new in zip(expected, step, strict=True)]
    assert average.restore() == {"kind": "ema"}
    for weight, value in zip(model.weights, expected, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-4, atol=1e-6)


def test_robust_accuracy_of_probabilities_is_that_of_their_logits():
    attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.05), steps=3)
    histories = []
    for activation in (None, "softmax"):
        keras.utils.set_random_seed(3)
        model = compiled(facade.plain(activation=activation), from_logits=activation is None)
        watch = robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=attack, from_logits=activation is None)
        histories.append(model.fit(IMAGES, LABELS, epochs=3, verbose=0, callbacks=[watch]).history)
    np.testing.assert_allclose(histories[0]["val_robust_accuracy"], histories[1]["val_robust_accuracy"])
    weights = [variable.numpy() for variable in model.variables]
    careless = robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=attack)
    with pytest.raises(ValueError, match="probabilities.*pass from_logits=False"):
        model.fit(IMAGES, LABELS, verbose=0, callbacks=[careless])
    # Said before the first step, not at the end of an epoch.
    for before, now in zip(weights, model.variables, strict=True):
        np.testing.assert_array_equal(before, now)
    with pytest.raises(ValueError, match="returns logits"):
        watch = robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=attack, from_logits=False)
        compiled(facade.plain()).fit(IMAGES, LABELS, verbose=0, callbacks=[watch])


def test_the_best_weights_by_robust_accuracy_come_back(tmp_path):
    model, recorder = compiled(facade.functional(WITH_STATISTICS)), Recorder()
    watch = robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=robust.attacks.FGSM(facade.THREAT))
    best = robust.callbacks.BestWeights(tmp_path)
    history = model.fit(IMAGES, LABELS, epochs=4, verbose=0, callbacks=[watch, best, recorder]).history
    values, restored = history["val_robust_accuracy"], best.restore()
    assert restored["step"] == 1 + int(np.argmax(values)) and restored["value"] == max(values)
    for weight, value in zip(model.weights, recorder.epochs[restored["step"] - 1], strict=True):
        np.testing.assert_array_equal(weight, value)

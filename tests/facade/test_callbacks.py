"""The callbacks in a plain `model.fit`, on Keras models that know nothing of tfrobust."""

import keras
import numpy as np
import pytest

from tfrobust import keras as robust

SHAPE, CLASSES = (4, 4, 1), 3


def data():
    images = np.random.default_rng(1).uniform(size=(12, *SHAPE)).astype("float32")
    return images, np.arange(12) % CLASSES


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten, self.norm = keras.layers.Flatten(), keras.layers.BatchNormalization()
        self.dense = keras.layers.Dense(CLASSES)

    def call(self, pictures, training=None):
        return self.dense(self.norm(self.flatten(pictures), training=training))


def functional(activation=None):
    chain = [keras.layers.Flatten(), keras.layers.BatchNormalization(), keras.layers.Dense(CLASSES, activation)]
    return keras.Sequential([keras.Input(SHAPE), *chain])


def compiled(model, from_logits=True, **keywords):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], jit_compile=False, **keywords)
    return model


class Recorder(keras.callbacks.Callback):
    """The model's weights after every step, and after every epoch."""

    def __init__(self):
        super().__init__()
        self.steps, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append([weight.numpy() for weight in self.model.weights])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append([weight.numpy() for weight in self.model.weights])


@pytest.mark.parametrize("model", [functional, Subclassed])
def test_the_exponential_average_by_hand(model):
    images, labels = data()
    model, recorder = compiled(model()), Recorder()
    start = [weight.numpy() for weight in model.weights]  # none yet, where `fit` builds: then the first step's
    average = robust.callbacks.AveragedWeights(kind="ema", decay=0.75)
    model.fit(images, labels, batch_size=4, epochs=2, verbose=0, callbacks=[average, recorder])
    expected = start or recorder.steps[0]
    for step in recorder.steps:
        expected = [0.75 * old + 0.25 * new for old, new in zip(expected, step, strict=True)]
    assert average.restore() == {"kind": "ema"}
    for weight, value in zip(model.weights, expected, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [functional, Subclassed])
def test_the_stochastic_average_by_hand(model):
    images, labels = data()
    model, recorder = compiled(model()), Recorder()
    average = robust.callbacks.AveragedWeights(kind="swa", start_epoch=2)
    model.fit(images, labels, batch_size=4, epochs=4, verbose=0, callbacks=[average, recorder])
    average.restore()
    for weight, *values in zip(model.weights, *recorder.epochs[1:], strict=True):
        np.testing.assert_allclose(weight, np.mean(values, axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [functional, Subclassed])
def test_robust_accuracy_is_that_of_the_attack_on_the_trained_model(model):
    images, labels = data()
    attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.05), steps=3)
    model = compiled(model())
    watch = robust.callbacks.RobustAccuracy(images, labels, attack=attack, every=2, seed=5, batch_size=5)
    history = model.fit(images, labels, epochs=4, verbose=0, callbacks=[watch]).history
    assert len(history["val_robust_accuracy"]) == 2 and len(history["loss"]) == 4
    result = robust.attacks.run_attack(attack, model, images, labels, seed=5, batch_size=5)
    assert history["val_robust_accuracy"][-1] == pytest.approx(np.mean(~result.success))
    clean = np.mean(model.predict(images, verbose=0).argmax(-1) == labels)
    assert history["val_clean_accuracy"][-1] == pytest.approx(clean)
    assert 0 < history["val_robust_accuracy"][-1] < clean or clean == 0


def test_robust_accuracy_of_probabilities_is_that_of_their_logits():
    images, labels = data()
    attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.05), steps=3)
    found = []
    for activation in (None, "softmax"):
        keras.utils.set_random_seed(3)
        model = compiled(functional(activation), from_logits=activation is None)
        watch = robust.callbacks.RobustAccuracy(images, labels, attack=attack, from_logits=activation is None)
        found.append(model.fit(images, labels, epochs=3, verbose=0, callbacks=[watch]).history)
    np.testing.assert_allclose(found[0]["val_robust_accuracy"], found[1]["val_robust_accuracy"])
    weights = [variable.numpy() for variable in model.variables]
    careless = robust.callbacks.RobustAccuracy(images, labels, attack=attack)
    with pytest.raises(ValueError, match="probabilities.*pass from_logits=False"):
        model.fit(images, labels, verbose=0, callbacks=[careless])
    # Said before the first step, not at the end of an epoch.
    for before, now in zip(weights, model.variables, strict=True):
        np.testing.assert_array_equal(before, now)
    with pytest.raises(ValueError, match="answers with logits"):
        watch = robust.callbacks.RobustAccuracy(images, labels, attack=attack, from_logits=False)
        compiled(functional()).fit(images, labels, verbose=0, callbacks=[watch])


@pytest.mark.parametrize("model", [functional, Subclassed])
def test_the_best_weights_by_robust_accuracy_come_back(model, tmp_path):
    images, labels = data()
    model, recorder = compiled(model()), Recorder()
    attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.05))
    watch = robust.callbacks.RobustAccuracy(images, labels, attack=attack)
    best = robust.callbacks.BestWeights(tmp_path)
    history = model.fit(images, labels, epochs=4, verbose=0, callbacks=[watch, best, recorder]).history
    values = history["val_robust_accuracy"]
    restored = best.restore()
    assert restored["step"] == 1 + int(np.argmax(values)) and restored["value"] == max(values)
    for weight, value in zip(model.weights, recorder.epochs[restored["step"] - 1], strict=True):
        np.testing.assert_array_equal(weight, value)

"""MixedPrecisionPGD: which steps compute in 16 bits, on a model whose sign tells them apart; and what is restored."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.attacks.shared import modes, objectives
from tfrobust.attacks.shared.goal import Goal
from tfrobust.evaluation.summary import evaluate
from tfrobust.keras.attacks import MixedPrecisionPGD, ThreatModel, run_attack
from tfrobust.keras.evaluators import AttackAccuracy
from tfrobust.keras.methods import TRADES, AdversarialTraining, Adversary
from tfrobust.keras.models import CNN, DigitsCNN, LinearHead, ResNet, ViT
from tfrobust.ops import keras_private
from tfrobust.structs import Batch

THREAT = ThreatModel(epsilon=0.4)
IMAGES = np.full((5, 2, 1, 1), 0.5, np.float32)
LABELS = np.zeros(5, np.int32)


@keras.saving.register_keras_serializable(package="tests")
class Turned(keras.layers.Layer):
    """The negative of its input in 16 bits, and the input itself in float32."""

    def call(self, inputs):
        return inputs if self.compute_dtype == "float32" else -inputs


def turned() -> keras.Model:
    """The two pixels are the logits, in 16 bits with the wrong sign."""
    layers = [keras.layers.Flatten(), Turned(), keras.layers.Dense(2, use_bias=False)]
    model = keras.Sequential([keras.Input((2, 1, 1)), *layers])
    model.layers[-1].set_weights([np.eye(2)])
    return model


def pgd(steps=10, **keywords):
    return MixedPrecisionPGD(THREAT, steps=steps, step_size=0.01, random_start="none", **keywords)


@pytest.mark.parametrize(("steps", "reduced"), [(1, 0), (2, 1), (4, 3), (5, 4), (6, 4), (10, 8), (40, 32)])
def test_the_last_fifth_of_the_steps_is_in_float32(steps, reduced):
    attack, model = pgd(steps), turned()
    assert attack.reduced_steps == reduced
    predict = modes.as_predict(model)

    @tf.function(autograph=False)
    def perturb(images):
        return attack.perturb(objectives.cross_entropy(predict, LABELS), images, tf.constant([0, 1]))

    # Attacks lower the first pixel and raise the second; with the wrong sign they do the opposite.
    way = 0.01 * (steps - reduced - reduced)
    expected = np.tile(np.reshape([0.5 - way, 0.5 + way], (2, 1, 1)), (5, 1, 1, 1))
    np.testing.assert_allclose(perturb(tf.constant(IMAGES)), expected, atol=1e-6)


def test_in_evaluation_the_last_example_decides_for_its_batch():
    attack, predict, goal = pgd(), modes.as_predict(turned()), Goal(tf.constant(LABELS))
    rounds = tf.zeros([5], tf.int32)
    state = attack.start(predict, tf.constant(IMAGES), goal, tf.zeros([5, 2], tf.int32), rounds)
    for count, total in ((3, -3), (5, -8), (2, -6)):
        state = attack.advance(predict, tf.constant(IMAGES), goal, rounds, state, tf.constant(count))
        np.testing.assert_allclose(state["point"][:, 1, 0, 0], np.full(5, 0.5 + 0.01 * total), atol=1e-6)
    state["step"] = tf.constant([0, 1, 2, 3, 8])
    state = attack.advance(predict, tf.constant(IMAGES), goal, rounds, state, tf.constant(1))
    np.testing.assert_allclose(state["point"][:, 1, 0, 0], np.full(5, 0.45), atol=1e-6)


@pytest.mark.parametrize(
    "encoder", [DigitsCNN, lambda **k: ResNet(8, **k), lambda **k: ViT(4, width=8, depth=1, heads=2, **k)]
)
def test_a_reduced_network_is_one_built_in_16_bits(encoder):
    def built(dtype):
        keras.utils.set_random_seed(3)
        images = keras.Input((8, 8, 1))
        return keras.Model(images, LinearHead(4)(encoder(dtype=dtype)(images)))

    exact, coarse = built("float32"), built("mixed_bfloat16")
    images = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype(np.float32)
    plain = exact(images, training=False).numpy()
    with modes.reduced_precision("mixed_bfloat16") as layers:
        reduced = modes.as_predict(exact)(images)
    encoded = coarse.layers[-2](images, training=False)
    with modes.reduced_precision("mixed_bfloat16"), modes.following_precision(exact.layers[-2]):
        np.testing.assert_array_equal(tf.cast(exact.layers[-2](images, training=False), tf.float32), encoded)
    assert len(layers) > 5 and 0 < np.abs(reduced - plain).max() < 0.2 * np.abs(plain).max()
    np.testing.assert_array_equal(exact(images, training=False), plain)
    assert {layer.dtype_policy.name for layer in keras_private.all_layers(exact)} == {"float32"}


def test_policies_come_back_after_an_error_and_other_policies_stay():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="float64"), keras.layers.Dense(2)])
    with pytest.raises(RuntimeError), modes.reduced_precision("mixed_float16"), modes.following_precision(model):
        assert [layer.dtype_policy.name for layer in model.layers] == ["float64", "mixed_float16"]
        raise RuntimeError
    assert [layer.dtype_policy.name for layer in model.layers] == ["float64", "float32"]
    with modes.following_precision(model):  # nothing is asked for
        assert model.layers[1].dtype_policy.name == "float32"


@pytest.mark.parametrize("method", [AdversarialTraining, TRADES])
def test_a_training_step_generates_in_16_bits_and_learns_in_float32(method):
    keras.utils.set_random_seed(0)
    attack = MixedPrecisionPGD(THREAT, steps=5, step_size=0.01)
    adversary = Adversary(attack=attack, objective="kl" if method is TRADES else "cross_entropy")
    model = method(CNN(((4,),), dense=(8,)), LinearHead(3), adversary=adversary)
    model.build((None, 8, 8, 1))
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    images = tf.constant(np.random.default_rng(0).uniform(size=(6, 8, 8, 1)), tf.float32)
    before = [variable.numpy() for variable in model.encoder.variables]
    step = tf.function(model.train_step, autograph=False)
    logs = step(Batch(images, tf.range(6) % 3, tf.range(6, dtype=tf.int64), {}))
    assert np.isfinite(float(logs["loss"]))
    assert any(np.any(old != new.numpy()) for old, new in zip(before, model.encoder.variables, strict=True))
    assert {layer.dtype_policy.name for layer in keras_private.all_layers(model.encoder)} == {"float32"}


def test_evaluation_verifies_in_float32():
    # All steps in 16 bits go the wrong way: success is what float32 says of the last points.
    images = np.array([[0.6, 0.4], [0.47, 0.53]], np.float32).reshape(2, 2, 1, 1)
    attack = AttackAccuracy(attack=pgd(10))
    measurements = evaluate(turned(), images, np.array([0, 1]), epsilon=0.4, evaluators=(attack,))
    assert measurements["mixed_precision_pgd"].value == 1.0
    assert measurements["mixed_precision_pgd"].settings["precision"] == "mixed_bfloat16"
    result = run_attack(pgd(10, precision="mixed_float16"), turned(), images, np.array([1, 0]))
    assert result.success.all()  # misclassified without an attack


def test_functions_and_unknown_precisions_are_refused():
    with pytest.raises(ValueError, match="needs a Keras model with layers in float32"):
        run_attack(pgd(), lambda images: images[:, :, 0, 0], IMAGES, LABELS)
    with pytest.raises(ValueError, match="precision is 'float32'"):
        MixedPrecisionPGD(THREAT, precision="float32")
    again = MixedPrecisionPGD.from_config(pgd().get_config())
    assert again.get_config() == pgd().get_config() and again.with_epsilon(0.1).reduced_steps == 8

"""Accumulated gradients are one update, losses of all passes count, and ignored settings of Keras are refused."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import methods as battery
from oracles import tiny_network as tiny
from tfrobust.keras import methods
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.models import DigitsCNN, LinearHead, LinearProjection, Prototypes

ATTACK = PGD(ThreatModel(epsilon=0.1), steps=1)
RAMP = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 4.0)
VIEWS = {"views": battery.SHIFT, "projection": LinearProjection(4)}


def optimizer(count: int, rate: float = 0.1, **keywords):
    return keras.optimizers.SGD(rate, gradient_accumulation_steps=None if count == 1 else count, **keywords)


def trained(kind, count: int, **keywords) -> np.ndarray:
    """The weights after 16 examples, passed `count` times as many batches."""
    method = tiny.build(kind, **keywords)
    method.compile(optimizer(count), jit_compile=False)
    images, labels = tiny.batch(16)[0][:2]
    for start in range(0, 16, 16 // count):
        method.train_step((images[start : start + 16 // count], labels[start : start + 16 // count]))
    return np.concatenate([np.ravel(variable) for variable in method.trainable_variables])


@pytest.mark.parametrize("clips", [{}, {"clip_norm": 0.05}, {"clip_norm": 0.05, "clip_each": True}])
def test_accumulated_batches_are_one_batch(clips):
    together, apart = trained(methods.Supervised, 1, **clips), trained(methods.Supervised, 4, **clips)
    np.testing.assert_allclose(together, apart, atol=1e-6)
    if clips:
        assert np.abs(together - trained(methods.Supervised, 1)).max() > 1e-3


@pytest.mark.parametrize("kind", [methods.BYOL, methods.MoCoV3])
def test_a_momentum_network_moves_once_per_update(kind):
    method = kind(*tiny.parts(), target_rate=0.1, views=lambda images, key: images, projection=LinearProjection(4))
    method.build((None, *tiny.SHAPE))
    method.trainable = False
    method.trainable = True
    assert not method.target_encoder.trainable_variables
    method.compile(optimizer(2, rate=0.0), jit_compile=False)
    online, target = method._weights()[0]
    target.assign(online.value + 1.0)
    images, labels = tiny.batch(4)[0][:2]
    for step, distance in enumerate((1.0, 0.9, 0.9, 0.81)):
        method.train_step((images, labels))
        assert float(np.mean(target.numpy() - online.numpy())) == pytest.approx(distance, abs=1e-5), step


def test_schedules_follow_the_updates():
    method = tiny.build(methods.TRADES, term_weights={"kl": RAMP})
    method.compile(optimizer(2), jit_compile=False)
    images, labels = tiny.batch(4)[0][:2]
    weights = []
    for _ in range(5):
        weights.append(float(method._weight("kl")))
        method.train_step((images, labels))
    assert weights == [0.0, 0.0, 1.0, 1.0, 2.0]


class UnitLoss(keras.layers.Layer):
    """Adds 1 to the loss in each of its passes."""

    def call(self, images):
        self.add_loss(tf.reduce_sum(tf.zeros_like(images)) + 1.0)
        return images


@pytest.mark.parametrize("kind, keywords, passes", stored.rows(globals(), "losses_of_layers_count_for_every_pass"))
def test_losses_of_layers_count_for_every_pass(kind, keywords, passes):
    layers = [keras.Input(battery.IMAGE_SHAPE), UnitLoss(), keras.layers.Flatten(), keras.layers.Dense(4)]
    method = kind(keras.Sequential(layers), LinearHead(3), **keywords)
    method.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    images, labels = battery.data(4)
    logs = method.train_step((tf.constant(images), tf.constant(labels)))
    terms = sum(float(method._weight(name)) * float(logs[name]) for name in method.all_terms)
    assert float(logs["loss"]) - terms == pytest.approx(passes, abs=1e-4)


@pytest.mark.parametrize("kind", [methods.DINO, methods.SwAV, methods.FreeAdversarialTraining])
def test_the_state_of_a_loss_or_an_attack_is_float32_in_pure_16_bits(kind):
    keras.config.set_dtype_policy("bfloat16")
    settings = {"prototypes": Prototypes(3), **({"queue_length": 4} if kind is methods.SwAV else {}), **VIEWS}
    settings["projection"] = LinearProjection(4)
    method = kind(
        battery.encoder(), LinearHead(3), **({"threat": ATTACK.threat} if kind.__name__[0] == "F" else settings)
    )
    method.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    images, labels = battery.data(4)
    assert np.isfinite(float(method.train_step((tf.constant(images), tf.constant(labels)))["loss"]))


def test_channels_first_is_refused():
    keras.config.set_image_data_format("channels_first")
    try:
        with pytest.raises(ValueError, match="DigitsCNN takes images .*set_image_data_format"):
            DigitsCNN()
    finally:
        keras.config.set_image_data_format("channels_last")

"""AWP, MART, HAT, FGSM-RS, N-FGSM, GradAlign and Free AT beside PyTorch (tests/golden/modern_training.md)."""

import keras
import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from tfrobust.keras import methods
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel  # noqa: F401
from tfrobust.keras.losses import GradAlign  # noqa: F401
from tfrobust.keras.models import LinearHead
from tfrobust.ops import norms
from tfrobust.structs import Batch

GOLDEN = recordings.arrays("modern_training")
STEPS, SHAPE, RATE, DECAY, EPSILON = 3, (4, 4, 3), 0.3, 0.02, 0.1
THREAT = ThreatModel(epsilon=EPSILON)
MOVED = {"weight_perturbation": methods.WeightPerturbation(gamma=0.05)}
# Their losses have no clean cross-entropy.
ADVERSARIAL = {"term_weights": {"ce": 0.0}}


def parts():
    inputs = keras.Input((None, None, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Dense(5, "tanh")(inputs))
    return keras.Model(inputs, pooled), LinearHead(3)


def helper(images):
    kernel, offset, head, bias = (GOLDEN[f"helper/{number}"].astype(np.float32) for number in range(4))
    return tf.reduce_mean(tf.tanh(images @ kernel + offset), axis=(1, 2)) @ head + bias


def fast(*parts, noise, step, projected=True, **keywords):
    settings = {"attack": FGSM(THREAT), "noise": noise, "step": step, "projected": projected}
    return methods.AdversarialTraining(
        *parts, adversary=methods.FastAdversary(**settings, mode="train"), **ADVERSARIAL, **keywords
    )


METHODS = stored.table(globals(), "modern_training")
WITH_ADVERSARIAL = ("awp", "trades_awp", "mart", "hat")  # these get the adversarial examples, too


FIRST = ("awp", "grad_align", "free")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FIRST else pytest.mark.rest) for n in METHODS])
def test_three_steps_are_those_of_pytorch(name, monkeypatch):
    method = METHODS[name](*parts())
    method.build((None, *SHAPE))
    method.compile(keras.optimizers.SGD(RATE, weight_decay=DECAY), jit_compile=False)
    weights = [*method.encoder.weights, *method.head.weights]
    for index, weight in enumerate(weights):
        weight.assign(GOLDEN[f"{name}/0/{index}"])
    for number in range(STEPS):
        inputs = {key: GOLDEN[f"batch/{number}/{key}"] for key in ("images", "adversarial", "noise")}
        inputs = {key: tf.constant(value, tf.float32) for key, value in inputs.items()}
        labels = tf.constant(GOLDEN[f"batch/{number}/labels"], tf.int32)
        if name in WITH_ADVERSARIAL:
            monkeypatch.setattr(method, "make_views", lambda *_, inputs=inputs: inputs)
        drawn = inputs["noise"]
        monkeypatch.setattr(norms, "random_in_ball", lambda key, like, kind, radius, drawn=drawn: radius * drawn)
        method.train_step(Batch(inputs["images"], labels, tf.range(6, dtype=tf.int64), {}))
        for index, weight in enumerate(weights):
            expected = GOLDEN[f"{name}/{number + 1}/{index}"]
            np.testing.assert_allclose(weight.numpy(), expected, atol=2e-5, err_msg=f"{index} after step {number}")
        if name == "free":
            expected = GOLDEN[f"free/{number + 1}/perturbation"]
            np.testing.assert_allclose(method.perturbation.numpy(), expected, atol=1e-6)


def test_each_recorded_method_goes_its_own_way():
    ends = [GOLDEN[f"{name}/3/0"] for name in METHODS]
    gaps = [np.abs(end - other).max() for number, end in enumerate(ends) for other in ends[:number]]
    assert min(gaps) > 1e-3

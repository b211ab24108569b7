"""The benchmark: that its bound is the work it says, and that it runs."""

import keras
import pytest
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.trades import TRADES


@pytest.fixture
def tool(load):
    return load("bench_step").bench_step


class Counted(keras.layers.Layer):
    """A dense encoder that counts how many images really pass through it, by mode."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.dense = keras.layers.Dense(4)
        self.passes = {mode: tf.Variable(0, trainable=False) for mode in (False, True)}

    def build(self, shape):
        self.dense.build((None, 16))

    def compute_output_shape(self, shape):
        return (shape[0], 4)

    def call(self, images, training=None):
        self.passes[bool(training)].assign_add(tf.shape(images)[0])
        return self.dense(tf.reshape(images, [-1, 16]))

    def count(self):
        return {mode: int(variable) for mode, variable in self.passes.items()}


def trained_against(make, objective):
    return lambda *parts: make(
        *parts, adversary=Adversary(attack=PGD(ThreatModel(epsilon=0.2), steps=2), objective=objective)
    )


def against_instances(*parts):
    return RoCL(*parts, adversary=InstanceAdversary(attack=PGD(ThreatModel(epsilon=0.2), steps=2)))


@pytest.mark.parametrize(
    ("make", "maker", "expected"),
    [
        (trained_against(AdversarialTraining, "cross_entropy"), "make_bound", {False: 6 * 2, True: 12}),
        (trained_against(ASCL, "cross_entropy"), "make_bound", {False: 6 * 2, True: 12}),
        (trained_against(TRADES, "kl"), "make_bound", {False: 6 * (2 + 1), True: 12}),
        (against_instances, "make_instance_bound", {False: 6 * (2 + 2), True: 6 * 3}),
        (AugMixTraining, "make_stacked_bound", {False: 0, True: 6 * 3}),
    ],
    ids=["AdversarialTraining", "ASCL", "TRADES", "RoCL", "AugMix"],
)
def test_the_step_makes_the_passes_of_the_bound_and_no_more(tool, make, maker, expected):
    method = make(Counted(), keras.layers.Dense(3))
    method.build((None, 4, 4, 1))
    method.compile(optimizer=keras.optimizers.SGD(0.1))
    images, labels = tf.random.stateless_uniform([6, 4, 4, 1], (0, 0)), tf.constant([0, 1, 2, 0, 1, 2])
    before = method.encoder.count()
    weights = [weight.numpy() for weight in method.trainable_variables]
    getattr(tool, maker)(method, images, labels)()
    first = method.encoder.count()
    assert {mode: count - before[mode] for mode, count in first.items()} == expected
    if make is not against_instances:
        changed = zip(method.trainable_variables, weights, strict=True)
        assert all((weight.numpy() != old).any() for weight, old in changed)
    assert tool.train_some(method, images, labels, 2) == 1
    assert {mode: (count - first[mode]) / 2 for mode, count in method.encoder.count().items()} == expected

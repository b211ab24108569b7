"""The benchmark: that its bound is the work it says, and that it runs."""

import time

import keras
import pytest
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.augment.standard import RandomFlip
from tfrobust.data.sources.corner_digits import CornerDigits
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.byol import BYOL
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.swav import SwAV
from tfrobust.methods.trades import TRADES
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes


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


SMALL = {"forward": "joint", "views": RandomFlip()}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("make", "followed"),
    [
        (lambda *parts: BYOL(*parts, projection=ProjectionHead((), dim=4), **SMALL), 12),
        (lambda *parts: SwAV(*parts, projection=ProjectionHead((), dim=4), prototypes=Prototypes(5), **SMALL), 0),
    ],
    ids=["BYOL", "SwAV"],
)
def test_views_pass_the_bound_once_and_two_the_momentum_network(tool, make, followed):
    method = make(Counted(), keras.layers.Dense(3))
    method.build((None, 4, 4, 1))
    method.compile(optimizer=keras.optimizers.SGD(0.1))
    images, labels = tf.random.stateless_uniform([6, 4, 4, 1], (0, 0)), tf.constant([0, 1, 2, 0, 1, 2])
    target = getattr(method, "target_encoder", Counted())

    def counts():
        return [encoder.count()[mode] for encoder in (method.encoder, target) for mode in (True, False)]

    before = counts()
    assert tool.has_targets(method)
    tool.make_target_bound(method, tool.stand_ins(method, images), labels)()
    first = counts()
    assert [new - old for new, old in zip(first, before, strict=True)] == [12, 0, followed, 0]
    assert tool.train_some(method, images, labels, 2) == 1
    assert [new - old for new, old in zip(counts(), first, strict=True)] == [24, 0, 2 * followed, 0]


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        *((name, "resnet20") for name in ("adversarial_training", "noisymix", "simclr", "rocl")),
        pytest.param("dino", "resnet20", marks=pytest.mark.rest),
        *((name, "digits") for name in ("trades", "ascl", "fcl", "simclr", "rocl")),
    ],
)
def test_a_method_of_the_printed_command_is_built_on_an_encoder(tool, monkeypatch, name, encoder):
    few = CornerDigits(per_class=30, rare_share=0.1, balanced=8)
    monkeypatch.setattr(CornerDigits, "load", lambda self, load=CornerDigits.load: load(few))
    assert name in tool.METHODS and {encoder} <= set(tool.parser().get_default("encoder"))
    method, images, labels = tool.make_method(name, encoder, attack_steps=2, batch=3)
    shape = (28, 28, 1) if name == "fcl" else (8, 8, 1)
    assert method.built and tuple(images.shape) == (3, *(shape if encoder == "digits" else (32, 32, 3)))
    if name == "dino":
        assert {view.shape[1] for view in tool.stand_ins(method, images).values()} == {32, 16}
    if name in ("simclr", "rocl"):
        assert method.views.crop == ((0.5, 1.0) if encoder == "digits" else (0.08, 1.0))
    assert labels.shape == (3,)


def test_waiting_is_the_time_until_a_batch_is_there(tool, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Slow:
        element_spec = tf.TensorSpec([], tf.int64)

        def __iter__(self):
            for number in range(3):
                clock[0] += 2.0 + number
                yield number

    waited = tool.Waited(Slow())
    for expected, batch in zip(range(3), waited, strict=False):
        assert batch == expected
        clock[0] += 100.0  # a step, which is not waited for
    assert waited.seconds == [2.0, 3.0, 4.0] and waited.element_spec == Slow.element_spec


def test_ratio_is_that_of_medians(tool):
    step, bound = [(1.0, 1.0), (3.0, 1.0), (100.0, 8.0)], [(2.0, 4.0), (2.0, 4.0), (1.0, 0.5)]
    timing = tool.Timing("ascl", step, bound, traces=1)
    assert timing.ratios == (1.5, 0.25) and not timing.within_limit
    assert (
        timing.row()[0] == "ascl"
        and timing.row()[2:5] == ("3000.0", "2000.0", "1.500")
        and timing.row()[-1] == "above 1.05"
    )
    assert tool.table([("a", "b"), ("long", "1"), ("c", "22")]) == "a      b\nlong   1\nc     22"

"""The benchmark: that its bound is the work it says, and that it runs."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

import keras
import pytest
import tensorflow as tf

from tfrobust.attacks.adversary import Adversary
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.instance_adversary import InstanceAdversary
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.trades import TRADES

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("bench_step", ROOT / "tools" / "bench_step.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_step", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Counted(keras.layers.Layer):
    """A dense encoder that counts how many images really pass through it, by mode."""

    def __init__(self):
        super().__init__()
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


@pytest.mark.parametrize(
    ("make", "objective", "inference"),
    [(AdversarialTraining, "cross_entropy", 3), (ASCL, "cross_entropy", 3), (TRADES, "kl", 4)],
)
def test_the_step_makes_the_passes_of_the_bound_and_no_more(tool, make, objective, inference):
    adversary = Adversary(attack=PGD(steps=3), objective=objective)
    method = make(Counted(), keras.layers.Dense(3), adversary=adversary)
    method.build((None, 4, 4, 1))
    method.compile(optimizer=keras.optimizers.SGD(0.1))
    images, labels = tf.random.stateless_uniform([6, 4, 4, 1], (0, 0)), tf.constant([0, 1, 2, 0, 1, 2])
    before = method.encoder.count()
    weights = [weight.numpy() for weight in method.trainable_variables]
    tool.make_bound(method, images, labels)()
    bound = {mode: count - before[mode] for mode, count in method.encoder.count().items()}
    assert bound == {False: 6 * inference, True: 12}
    assert all((weight.numpy() != old).any() for weight, old in zip(method.trainable_variables, weights, strict=True))

    assert tool.train_some(method, images, labels, 1) == 1
    first = method.encoder.count()
    assert tool.train_some(method, images, labels, 2) == 1
    step = {mode: (count - first[mode]) / 2 for mode, count in method.encoder.count().items()}
    assert step == bound


def test_the_step_of_rocl_makes_the_passes_of_its_bound(tool):
    method = RoCL(Counted(), keras.layers.Dense(3), adversary=InstanceAdversary(attack=PGD(steps=3)))
    method.build((None, 4, 4, 1))
    method.compile(optimizer=keras.optimizers.SGD(0.1))
    images, labels = tf.random.stateless_uniform([6, 4, 4, 1], (0, 0)), tf.constant([0, 1, 2, 0, 1, 2])
    before = method.encoder.count()
    tool.make_instance_bound(method, images, labels)()
    bound = {mode: count - before[mode] for mode, count in method.encoder.count().items()}
    assert bound == {False: 6 * (3 + 2), True: 6 * 3}
    first = method.encoder.count()
    assert tool.train_some(method, images, labels, 1) == 1
    assert {mode: count - first[mode] for mode, count in method.encoder.count().items()} == bound


def test_the_stacked_step_makes_one_pass_of_all_views(tool):
    method = AugMixTraining(Counted(), keras.layers.Dense(3))
    method.build((None, 4, 4, 1))
    method.compile(optimizer=keras.optimizers.SGD(0.1))
    images, labels = tf.random.stateless_uniform([6, 4, 4, 1], (0, 0)), tf.constant([0, 1, 2, 0, 1, 2])
    before = method.encoder.count()
    weights = [weight.numpy() for weight in method.trainable_variables]
    tool.make_stacked_bound(method, images, labels)()
    bound = {mode: count - before[mode] for mode, count in method.encoder.count().items()}
    assert bound == {False: 0, True: 18}
    assert all((weight.numpy() != old).any() for weight, old in zip(method.trainable_variables, weights, strict=True))
    first = method.encoder.count()
    assert tool.train_some(method, images, labels, 2) == 1
    step = {mode: (count - first[mode]) / 2 for mode, count in method.encoder.count().items()}
    assert step == bound


@pytest.mark.parametrize("encoder", ["resnet20", "digits"])
@pytest.mark.parametrize("name", ["adversarial_training", "trades", "ascl", "noisymix", "fcl", "simclr", "rocl"])
def test_every_method_of_the_printed_command_is_built_on_both_encoders(tool, name, encoder):
    assert name in tool.METHODS and {encoder} <= set(tool.parser().get_default("encoder"))
    method, images, labels = tool.make_method(name, encoder, attack_steps=2, batch=3)
    own = (28, 28, 1) if name == "fcl" else (8, 8, 1)
    assert method.built and tuple(images.shape) == (3, *(own if encoder == "digits" else (32, 32, 3)))
    views = getattr(method, "views", None)
    if name in ("simclr", "rocl"):
        assert views.crop == ((0.5, 1.0) if encoder == "digits" else (0.08, 1.0))
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
        clock[0] += 100.0  # a step, for which nobody waits
    assert waited.seconds == [2.0, 3.0, 4.0] and waited.element_spec == Slow.element_spec


def test_ratio_is_that_of_medians(tool):
    step, bound = [(1.0, 1.0), (3.0, 1.0), (100.0, 8.0)], [(2.0, 4.0), (2.0, 4.0), (1.0, 0.5)]
    timing = tool.Timing("ascl", step, bound, traces=1)
    assert timing.ratios == (1.5, 0.25) and not timing.kept
    assert (
        timing.row()[0] == "ascl"
        and timing.row()[2:5] == ("3000.0", "2000.0", "1.500")
        and timing.row()[-1] == "above 1.05"
    )
    assert tool.table([("a", "b"), ("long", "1"), ("c", "22")]) == "a      b\nlong   1\nc     22"


def test_it_runs(tmp_path):
    flags = ["--parts=step,pipeline,memory", "--encoder=digits", "--batch=8", "--rounds=3", "--attack_steps=2"]
    flags.append("--methods=trades,simclr")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_step.py"), *flags, "--memory_steps", "1", "3"],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("trades", "simclr"):
        assert re.search(rf"{name} +8x8x1 +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ - [\d.]+ +[\d.]+ +3 +1 ", done.stdout)
    assert re.search(r"simclr +8x8x1 +[\d.]+ +[\d.]+ +[\d.]+% +[\d.]+ +3 ", done.stdout)
    share = r"\d+\.\d%"
    assert re.search(rf"^Of a step .* simclr {share}; aim: under 15%", done.stdout, re.M)
    assert re.search(r"attack steps +MB\n1 +\d+\n3 +\d+\n", done.stdout)
    assert list(tmp_path.iterdir()) == []

"""The plan of a training on many accelerators: values by hand, literal all-reduces, published throughput."""

import math
import re

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.commands import train
from tfrobust.errors import InputError
from tfrobust.models.resnets.resnet18 import ResNet18
from tfrobust.runs import plan_lines, plan_step, plan_work
from tfrobust.runs.plan import Plan
from tfrobust.runs.plan_work import Work

WORK = Work(
    batch_size=1024,
    steps=10,
    operations=1e9,
    gradient_bytes=100_000_000,
    example_bytes=602_112,
    sums=530,
    images_per_core=100.0,
)
PLAN = Plan(
    operations_per_second=1e12, half_batch=16, per_machine=8, inside=200e9, between=20e9, latency=1e-5, cores=10
)


@pytest.mark.parametrize("replicas, computing, reading, gradients, normalization, limit", stored.rows(globals(), "a"))
def test_a_step_by_hand(replicas, computing, reading, gradients, normalization, limit):
    step = plan_step.step_of(WORK, PLAN, replicas)
    parts = (step.computing, step.reading, step.gradients, step.normalization)
    assert parts == pytest.approx((computing, reading, gradients, normalization))
    assert step.seconds == pytest.approx(computing + gradients + normalization) and step.limit == limit


def test_the_speedup_by_hand():
    assert plan_step.speedup(WORK, PLAN, 8) == pytest.approx(1.04 / 0.176675)
    assert plan_step.speedup(WORK, PLAN, 512) == pytest.approx(1.04 / 0.12338046875)
    # 16 replicas: 0.08 + 2 x 15/16 x 0.005 + 530 x 8 x 1e-5 = 0.131775 s, 7.9 times as fast, that is less than half.
    assert (
        plan_lines._end(WORK, PLAN)
        == "            beyond 8 replicas, less than half of each is used, for batch norm's sums"
    )


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_a_ring_sends_what_the_plan_counts(replicas):
    """All replicas pass blocks on: N - 1 times adding them, N - 1 times copying the sums."""
    blocks = np.random.default_rng(0).normal(size=(replicas, replicas, 5))
    total, sent = blocks.sum(axis=0), np.zeros(replicas)
    for add in (True, False):
        for time in range(replicas - 1):
            before = blocks.copy()
            for replica in range(replicas):
                block, after = (replica - time + (not add)) % replicas, (replica + 1) % replicas
                blocks[after, block] = before[replica, block] + (before[after, block] if add else 0)
                sent[replica] += before[replica, block].nbytes
    np.testing.assert_allclose(blocks, np.broadcast_to(total, blocks.shape))
    work = Work(1, 1, 1.0, blocks[0].nbytes, 1, 0, 1.0)
    counted = plan_step.step_of(work, Plan(inside=1.0), replicas).gradients
    np.testing.assert_allclose(sent, counted)


@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 9, 512])
def test_a_tree_takes_the_hops_that_the_plan_counts(replicas):
    waiting, hops = replicas, 0
    while waiting > 1:  # pairs add
        waiting, hops = math.ceil(waiting / 2), hops + 1
    work = Work(replicas, 1, 1.0, 0, 1, 1, 1.0)
    assert plan_step.step_of(work, Plan(latency=1.0), replicas).normalization == 2 * hops


def test_the_defaults_reproduce_the_published_throughput():
    """NVIDIA's ResNet-50 on one A100: 4.1e9 multiply-adds forward, so 24.65e9 operations in a training step."""
    plain = Plan()
    assert plain.rate(256) / 24.65e9 == pytest.approx(909, rel=0.01)
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        assert plain.rate(256) / 24.65e9 == pytest.approx(2375, rel=0.01)
    finally:
        keras.config.set_dtype_policy(policy)
    # Inference in TF32 with XLA, relative to 256 images.
    for images, throughput in {2: 310, 4: 574, 8: 1021, 16: 1516, 32: 1945, 64: 2313, 128: 2450}.items():
        assert plain.rate(images) / plain.rate(256) == pytest.approx(throughput / 2549, rel=0.25), images


def test_operations_and_unknown_products_of_a_model():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, padding="same", use_bias=False),
            keras.layers.Flatten(),
            keras.layers.Dense(10, use_bias=False),
        ]
    )
    # 64 pixels x 4 filters x 27 weights, 256 x 10, each a multiplication and an addition.
    assert plan_work.forward_operations(model, (8, 8, 3)) == (2 * 64 * 4 * 27 + 2 * 256 * 10, ())


def test_products_that_are_not_counted_are_named():
    def gram(examples, training):
        return tf.einsum("bij,bkj->bik", examples, examples)

    assert plan_work.forward_operations(gram, (4, 3))[1] == ("Einsum",)


def test_the_sums_of_batch_norm_are_those_that_keras_makes(monkeypatch):
    """One training pass, forward and backward, of a network whose 20 batch norms are synchronized."""
    sums = []
    reduce = tf.distribute.ReplicaContext.all_reduce

    def counted(self, *arguments, **keywords):
        sums.append(arguments)
        return reduce(self, *arguments, **keywords)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", counted)
    encoder = ResNet18(width=2, synchronized=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(tf.ones([2, 8, 8, 3]), training=True))
    tape.gradient(loss, encoder.trainable_variables)
    assert plan_work.norms(encoder) == 20 and len(sums) == 20 * plan_work._SUMS_PER_NORM
    branched = ResNet18(width=2, branches=2)
    branched.build((None, 8, 8, 3))
    assert plan_work.norms(branched) == 20  # a pass uses one branch


@pytest.mark.parametrize("settings, message", stored.rows(globals(), "assumptions_that_cannot_be"))
def test_assumptions_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        Plan(**settings)


DRY = ["--gin_file=gin/trades.gin", "--gin_file=gin/eval/quick.gin", "--dry_run"]


def test_the_plan_of_a_command(capsys):
    flags = ["--gin_param=Plan.images_per_core=1000", "--gin_param=Plan.examples=6400", "--gin_param=EPOCHS=10"]
    assert train.main([*DRY, "--replicas=1,8,64", *flags]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "plan        500 steps of 128 examples, 12 passes each" in out
    assert "input       1e+03 examples/s per core (Plan.images_per_core), 16 cores per replica" in out
    rows = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", out, re.MULTILINE))
    columns = {name: re.split(r"  +", cells) for name, cells in rows.items()}
    assert columns["replicas"] == ["1", "8", "64"] and columns["examples each"] == ["128", "16", "2"]
    assert columns["reading"] == ["8 ms", "1 ms", "0.12 ms"]  # 128 examples by 16 cores
    assert columns["times as fast as one"][0] == "1.0"
    assert len(columns["attacks on 360"]) == 3
    # 111,146 parameters; three batch norms, two passes outside of the attack.
    assert "gradients, 0.445 MB" in columns or "gradients, 0.443 MB" in columns
    assert "batch norm, 36 sums" in columns
    assert "replica" in out.split("of each is used")[0].splitlines()[-1]


def test_a_plan_measures_the_input_pipeline_here(capsys):
    assert train.main([*DRY, "--replicas=2"]) == 0
    (rate,) = re.findall(r"input +(\S+) examples/s per core \(measured here\)", capsys.readouterr().out)
    assert float(rate.replace(",", "")) > 1


@pytest.mark.parametrize("flags, message", stored.rows(globals(), "a_plan_that_cannot_be_made_is_one_line"))
def test_a_plan_that_cannot_be_made_is_one_line(flags, message, capsys):
    assert train.main(["--gin_file=gin/trades.gin", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

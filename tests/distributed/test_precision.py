"""Mixed precision: 16 bit layers, float32 losses and attack gradients, and a clock that skipped steps do not stop."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from faults import processes, small_run, whole_run

from conformance import methods as battery
from tfrobust.attacks.shared import objectives
from tfrobust.attacks.shared.goal import Goal
from tfrobust.data.sources.digits import Digits
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, Adversary, SmoothAdv
from tfrobust.keras.models import DigitsCNN, LinearHead
from tfrobust.losses import classification
from tfrobust.ops.gradients import input_gradient
from tfrobust.training.loop import Loop

POLICIES = ("mixed_bfloat16", "mixed_float16")


# Rows by turns in one and the other.
@pytest.mark.parametrize(("row", "policy"), [*zip(battery.ROWS, itertools.cycle(POLICIES), strict=False)])
def test_a_row_trains_finitely_with_losses_and_adversaries_in_float32(row, policy):
    keras.config.set_dtype_policy(policy)
    method = battery.build(row)
    images, labels = (tf.constant(part) for part in battery.data(row=row))
    assert method.encoder(images).dtype == policy.removeprefix("mixed_")
    seen = {}
    plain_terms, plain_views = method.loss_terms, method.make_views

    def terms(*arguments):
        values, logits = plain_terms(*arguments)
        seen.update(values, logits=logits)
        return values, logits

    def views(*arguments):
        result = plain_views(*arguments)
        # Token ids stay whole numbers.
        seen.update({f"view {name}": view for name, view in result.items() if view.dtype != tf.int32})
        return result

    method.loss_terms, method.make_views = terms, views
    before = [variable.numpy() for variable in method.trainable_variables]
    for _ in range(steps := 6 if policy == "mixed_float16" else 1):  # the loss scale may begin too high
        logs = method.train_step((images, labels))
    assert {name: value.dtype.name for name, value in seen.items() if value.dtype != tf.float32} == {}
    assert all(np.isfinite(float(value)) for value in logs.values()), logs
    assert all(np.all(np.isfinite(variable)) for variable in battery.weights(method))
    assert any(np.any(old != new.numpy()) for old, new in zip(before, method.trainable_variables, strict=True))
    assert int(method.step) == steps


def confident_digits(policy: str):
    """The digits CNN with logits as far apart as after long training, and its images."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(1)
    method = AdversarialTraining(DigitsCNN(), LinearHead(10), attack=PGD(ThreatModel(epsilon=0.2), steps=10))
    method.build((None, 8, 8, 1))
    kernel, _ = method.head.trainable_variables
    kernel.assign(60.0 * kernel)
    images, _ = Digits().load().test.arrays(limit=100)
    images = tf.constant(images)
    return method, images, tf.argmax(method(images), axis=-1, output_type=tf.int32)


def lost(gradient) -> float:
    """The share of entries that are exactly zero."""
    assert gradient.dtype == tf.float32
    assert np.all(np.isfinite(gradient.numpy()))
    return float(np.mean(gradient.numpy() == 0))


@pytest.mark.parametrize("policy", POLICIES)
def test_attack_gradients_of_a_confident_model_are_lost_no_more_often_than_in_float32(policy):
    shares = {}
    for name in ("float32", policy):
        method, images, labels = confident_digits(name)
        sure = tf.reduce_min(objectives.cross_entropy(method, labels)(images))
        assert float(sure) < 1e-9  # far below the smallest float16

        def ranged(x, method=method):
            return objectives.in_range(method(x))

        for kind, predict in {"plain": method, "ranged": ranged}.items():
            _, gradient = input_gradient(objectives.cross_entropy(predict, labels), images)
            shares[name, kind] = lost(gradient)
    print(shares)
    assert shares[policy, "ranged"] <= shares["float32", "plain"] + 0.01
    if policy == "mixed_float16":  # or there would be nothing to guard against
        assert shares[policy, "plain"] > shares["float32", "plain"] + 0.1


def test_training_adversaries_of_a_confident_float16_model_move_everywhere():
    method, images, labels = confident_digits("mixed_float16")
    attack = PGD(ThreatModel(epsilon=0.1), steps=1, random_start="none")

    def predict(images, training):
        return method.propagate(images, training=training)[1]

    for mode in ("inference", "batch"):
        moved = Adversary(attack=attack, mode=mode).perturb(predict, images, labels, tf.constant([0, 1])) - images
        assert np.mean(np.any(moved.numpy() != 0, axis=(1, 2, 3))) > 0.98, mode
    # The same in evaluation.
    keys = tf.tile([[0, 1]], [len(images), 1])
    goal = Goal(labels)
    state = attack.start(method, images, goal, keys, labels)
    point = attack.advance(lambda x: method(x), images, goal, labels, state, 1)["point"]
    assert np.mean(np.any(point.numpy() != images.numpy(), axis=(1, 2, 3))) > 0.98


def test_the_attack_of_smooth_adv_moves_the_images_of_a_confident_float16_model():
    model, images, labels = confident_digits("mixed_float16")
    attack = PGD(ThreatModel(norm="l2", epsilon=0.5), steps=1, random_start="none")
    for mode in ("inference", "batch"):
        adversary = Adversary(attack=attack, mode=mode)
        method = SmoothAdv(model.encoder, model.head, sigma=1e-3, adversary=adversary)
        batch = method.as_batch((images, labels))
        context = method.context(batch)
        noise = method.draw_noises(batch, context)[0]
        moved = method.make_views(batch, context)["copy_0"] - noise - images
        assert np.mean(np.any(np.abs(moved) > 1e-5, axis=(1, 2, 3))) > 0.98, mode


def test_gradients_in_range_keep_their_direction_to_the_bit():
    logits = tf.constant([[3.0, 1.0, 0.5], [50.0, 0.0, -1.0], [200.0, 0.0, 0.0]])
    kernel = tf.random.stateless_normal([3, 3], [1, 2])
    gradients = {}
    for name, wrap in {
        "plain": tf.identity,
        "per_example": objectives.in_range,
        "together": lambda z: objectives.in_range(z, per_example=False),
    }.items():
        objective = objectives.cross_entropy(lambda x, wrap=wrap: wrap(x @ kernel), tf.constant([0, 0, 0]))
        x = logits @ tf.linalg.inv(kernel)
        gradients[name] = input_gradient(objective, x)[1].numpy()
    plain, per_example, together = gradients.values()
    for row in range(2):
        factor = per_example[row] / plain[row]
        assert np.all(factor == factor[0]) and np.log2(factor[0]) % 1 == 0 and factor[0] >= 2
    assert np.all(plain[2] == 0) and np.all(per_example[2] == 0)  # nothing is made of nothing
    factors = (together[:2] / plain[:2]).ravel()
    assert np.all(factors == factors[0]) and np.log2(factors[0]) % 1 == 0


def overflowing_loop(directory, epochs: int) -> Loop:
    """A float16 loop whose loss scale overflows at every step: each update is skipped."""
    keras.config.set_dtype_policy("mixed_float16")
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**120)
    starts = []
    loop = small_run.make_loop(
        directory,
        "supervised",
        optimizer=optimizer,
        epochs=epochs,
        batches=lambda step: starts.append(step) or small_run.batches(step),
    )
    loop.starts = starts
    return loop


def test_skipped_steps_advance_the_clock_and_leave_the_order_of_the_data_alone(tmp_path):
    steps = small_run.STEPS_PER_EPOCH
    overflowing_loop(tmp_path, epochs=1).run()
    loop = overflowing_loop(tmp_path, epochs=2)
    untouched = [variable.numpy() for variable in loop.method.trainable_variables]
    history = loop.run()
    method = loop.method
    assert int(method.step) == 2 * steps and steps in loop.starts
    assert int(method.optimizer.iterations) == int(method.optimizer.inner_optimizer.iterations) == 0
    assert float(method.optimizer.dynamic_scale) == 2.0 ** (120 - 2 * steps)
    for old, new in zip(untouched, method.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new.numpy())
    # The weights stood still: the loss of the second epoch says which batches it has seen.
    losses = []
    for batch in small_run.batches(steps).take(steps):
        _, logits = method.propagate(batch.images)
        losses.append(classification.cross_entropy(logits, batch.labels).numpy().mean())
    assert history["loss"][1] == pytest.approx(np.mean(losses), rel=1e-3)
    assert history["loss"][1] != pytest.approx(history["loss"][0], rel=1e-3)


def test_the_command_trains_judges_and_publishes_in_float16(tmp_path):
    flags = [*whole_run.TINY, "--gin_param=EPOCHS=1", "--gin_param=train.precision='mixed_float16'"]
    ended = processes.run("tfrobust.train:main", [flags], cwd=tmp_path)
    assert ended.code == 0, ended
    assert (tmp_path / "exported" / "tiny").is_dir()

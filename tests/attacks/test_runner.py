import types

import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance.attacks import Linear, examples, smooth_model
from tfrobust.attacks import fab, gradient, square  # noqa: F401
from tfrobust.attacks.shared import engine, runner
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops import randomness


class Liar(Attack):
    """Claims success for every example, with points of its own choice."""

    name = "liar"
    steps = 1

    def __init__(self, point):
        self.threat = ThreatModel(epsilon=0.01)
        self.point = point

    def rounds(self, class_count):
        return 1

    def start(self, predict, images, goal, keys, rounds):
        point = images if self.point is None else tf.fill(tf.shape(images), self.point)
        return {"point": point, "found": tf.ones_like(goal.labels, tf.bool)}

    def advance(self, predict, images, goal, rounds, state, count):
        return state

    def candidate(self, state):
        return state["point"]


@pytest.mark.parametrize("point", [0.0, 1.0, 50.0, float("nan"), float("inf")])
def test_a_lying_attack_is_caught(point):
    model, images = Linear(), examples(10)
    labels = model.labels(images)
    robust = model.worst(images, labels, ThreatModel(epsilon=0.01)) > 1e-4
    assert robust.sum() > 5
    result = runner.run_attack(Liar(point), model, images, labels)
    assert not np.any(result.success[robust])
    assert np.all(result.distance <= 0.01 + 1e-6)
    assert np.all(np.isfinite(result.adversarial))


@pytest.mark.parametrize("point,wrong_from", [(None, 2), (0.9, 3)], ids=["clean_image", "same_point"])
def test_no_point_is_verified_again_until_it_fails(point, wrong_from):
    """The clean image is predicted first, a claimed point second; neither is predicted again."""
    calls = tf.Variable(0)

    def predict(x):
        wrong = tf.cast(calls.assign_add(1) >= wrong_from, tf.float32)
        return tf.fill([tf.shape(x)[0], 1], 5.0 * (1.0 - 2.0 * wrong)) * tf.constant([[1.0, -1.0]])

    assert not np.any(runner.run_attack(Liar(point), predict, examples(4), np.zeros(4, int)).success)


@pytest.mark.parametrize("make", stored.rows(globals(), "no_success_on_a_deterministic_model_is_refused"))
def test_no_success_on_a_deterministic_model_is_refused(make, monkeypatch):
    attack, model, images = make(ThreatModel(epsilon=0.03)), Linear(), examples(24)
    labels = model.labels(images)

    def refuse(state, refused):
        raise AssertionError("a true claim was refused")

    monkeypatch.setattr(attack, "refuse", refuse)
    success = runner.run_attack(attack, model, images, labels, batch_size=16).success
    assert 0 < success.sum() < 24


@pytest.mark.parametrize("steps", [5, 50])
def test_one_wrong_sample_does_not_end_the_search(steps):
    """Noisy outputs: where a point was misclassified once, but not in its verification, the search continues."""
    generator = np.random.default_rng(0)
    images = generator.uniform(0.2, 0.8, (100, 4, 4, 1)).astype(np.float32)
    kernel = generator.normal(size=(16, 3)).astype(np.float32)
    exact = lambda x: (tf.reshape(x, [-1, 16]) - 0.5) @ kernel  # noqa: E731
    drawing = lambda x: exact(x) + tf.random.normal([tf.shape(x)[0], 3], stddev=0.5, seed=1)  # noqa: E731
    labels = exact(images).numpy().argmax(axis=1)
    attack = gradient.PGD(ThreatModel(epsilon=0.15), steps=steps)
    # Without noise every attack succeeds; with it nine of ten last points are misclassified in each prediction.
    assert runner.run_attack(attack, drawing, images, labels).success.mean() > 0.9


def test_clean_errors_count_as_success_at_distance_zero():
    model, images = Linear(), examples(10)
    labels = 1 - model.labels(images)
    result = runner.run_attack(gradient.PGD(ThreatModel(epsilon=0.2), steps=2), model, images, labels)
    assert result.success.all() and not result.distance.any()
    np.testing.assert_array_equal(result.adversarial, images)


def test_the_cost_follows_the_remaining_examples():
    model, images, rows = Linear(), examples(64), []

    def counted(x):
        with tf.control_dependencies([tf.py_function(lambda: rows.append(1), [], [])]):
            return model(tf.identity(x))

    attack = gradient.PGD(ThreatModel(epsilon=0.45), steps=50)  # succeeds everywhere after a few steps
    result = runner.run_attack(attack, counted, images, model.labels(images), batch_size=16)
    assert result.success.all()
    assert len(rows) < 60  # four batches searched to the end would take 200 steps and 8 verifications


def test_restarts_run_from_new_starts_for_the_remaining_examples():
    class Lucky(Attack):
        """Finds a point only in the second of three rounds."""

        name, steps, threat = "lucky", 1, ThreatModel(epsilon=0.5)

        def rounds(self, class_count):
            return 3

        def start(self, predict, images, goal, keys, rounds):
            starts.append(1)
            return {"point": images, "keys": keys, "found": tf.zeros_like(goal.labels, tf.bool)}

        def advance(self, predict, images, goal, rounds, state, count):
            moved = tf.where(rounds[:, None, None, None] == 1, 1.0 - images, images)
            return state | {"point": moved}

        def candidate(self, state):
            return state["point"]

    starts, model, images = [], Linear(), examples(9)
    labels = model.labels(images)
    result = runner.run_attack(Lucky(), model, images, labels, batch_size=4)
    assert result.success.all() and len(starts) == 1
    keys = randomness.example_keys(tf.constant([1, 2]), tf.range(3))
    folded = [engine.round_keys(keys, tf.fill([3], number)).numpy() for number in (0, 1)]
    assert np.all(np.any(folded[0] != folded[1], axis=1))


def test_progress_is_monotone_and_ends_at_the_total():
    model, images, seen = Linear(), examples(20), []
    attack = gradient.PGD(ThreatModel(epsilon=0.05), steps=12, restarts=2)
    runner.run_attack(
        attack, model, images, model.labels(images), batch_size=8, progress=lambda *values: seen.append(values)
    )
    done, total, remaining = zip(*seen, strict=True)
    assert set(total) == {20 * 12 * 2} and done[-1] == total[-1]
    assert all(np.diff(done) >= 0) and all(np.diff(remaining) <= 0)


def test_an_exhausted_budget_is_reported():
    model, images = Linear(), examples(8)
    labels = model.labels(images)
    attack = gradient.PGD(ThreatModel(epsilon=1e-3), steps=50)
    result = runner.run_attack(attack, model, images, labels, seconds=0.0)
    assert not result.complete and not result.success.any()
    assert runner.run_attack(attack, model, images, labels, seconds=600.0).complete


def test_no_call_outgrows_its_time(monkeypatch):
    """The clock moves by 2 in every step and stays unchanged otherwise; a call may take 5."""
    model, images, counts = Linear(), examples(4), []
    monkeypatch.setattr(engine, "_CALL_SECONDS", 5.0)
    monkeypatch.setattr(engine, "time", types.SimpleNamespace(monotonic=lambda: 2.0 * sum(counts)))

    class Slow(gradient.PGD):
        def advance(self, predict, images, goal, rounds, state, count):
            def wait(steps):
                counts.append(int(steps))

            with tf.control_dependencies([tf.py_function(wait, [count], [])]):
                return tf.nest.map_structure(tf.identity, state)

    runner.run_attack(Slow(ThreatModel(epsilon=1e-3), steps=20), model, images, model.labels(images))
    assert sum(counts) == 20 and counts[0] == 1 and max(counts) == 2


def test_targeted_runs_succeed_where_the_target_is_reached():
    model, images = smooth_model(classes=4), examples(24)
    logits = model(images).numpy()
    labels, targets = logits.argmax(axis=1), logits.argsort(axis=1)[:, 1]
    attack = gradient.PGD(ThreatModel(epsilon=0.25), steps=20)
    result = runner.run_attack(attack, model, images, labels, targets=targets, batch_size=10)
    predicted = model(result.adversarial).numpy().argmax(axis=1)
    assert 3 < result.success.sum() < 24  # the case tells both apart
    np.testing.assert_array_equal(result.success, predicted == targets)
    np.testing.assert_array_equal(result.adversarial[~result.success], images[~result.success])
    first = attack.attack(model, images, labels, randomness.make_key(0, "attack", "pgd"), targets=targets)
    np.testing.assert_array_equal(first.success, result.success)
    np.testing.assert_allclose(first.adversarial, result.adversarial, atol=1e-5)
    other = attack.attack(model, images, labels, tf.constant([5, 5]), targets=targets)
    assert np.any(other.adversarial != first.adversarial)
    # A wrong class that is not the target is no success, and a clean image that is taken for it is one.
    other = runner.run_attack(attack, model, images, targets, targets=labels)
    assert other.success.all() and not other.distance.any()


def test_the_batch_shrinks_with_the_remaining_examples(monkeypatch):
    sizes = []

    class Recorded(gradient.PGD):
        def advance(self, predict, images, goal, rounds, state, count):
            with tf.control_dependencies([tf.py_function(lambda x: sizes.append(len(x)), [images], [])]):
                return super().advance(predict, images, goal, rounds, state, count)

    model, images = Linear(), examples(64)
    labels = model.labels(images)
    attack = Recorded(ThreatModel(epsilon=0.018), steps=20)
    result = runner.run_attack(attack, model, images, labels, batch_size=64)
    remaining = int(np.sum(~result.success))
    assert sizes[0] == 64 and sizes[-1] < 64 and remaining <= sizes[-1] < remaining + 16
    assert all(size % 8 == 0 for size in sizes)

"""Tests that every attack must pass. A new attack adds rows to ATTACKS; `test_battery` imports the tests below.

The model of most tests is a linear one with two classes, on which the best attack is known in closed form.
"""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import projections
from tfrobust.attacks import (
    apgd,
    ddn,
    fab,
    fmn,
    gradient,
    hop_skip_jump,
    malt,
    msd,
    noise,
    pma,
    prox_log_barrier,
    square,
    transfer,
)
from tfrobust.attacks.shared import objectives, runner
from tfrobust.attacks.shared.engine import round_keys
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops import randomness

SHAPE = (4, 4, 1)
SIZE = int(np.prod(SHAPE))
EPSILONS = {"linf": 0.018, "l2": 0.06, "l1": 0.09}


@dataclasses.dataclass(frozen=True)
class Row:
    """label: the test id. make: threat -> attack. random: does it start at random? kinds: norms to try.

    trains: does its training face raise the objective? passes: predictions that its graphs and that of the verification
    contain. optimal: does it come near the best attack on a linear model?
    """

    label: str
    make: object
    random: bool = True
    kinds: tuple[str, ...] = ("linf",)
    trains: bool = True
    passes: int = 2
    optimal: bool = True


ATTACKS = [
    Row("fgsm", gradient.FGSM, random=False, kinds=("linf", "l2", "l1")),
    Row("pgd", lambda threat: gradient.PGD(threat, steps=20), kinds=("linf", "l2", "l1")),
    Row("pgd_plain_start", lambda threat: gradient.PGD(threat, steps=20, random_start="none"), random=False),
    Row("pgd_gaussian_start", lambda threat: gradient.PGD(threat, steps=20, random_start="gaussian")),
    Row("pgd_restarts", lambda threat: gradient.PGD(threat, steps=10, restarts=2), kinds=("l2",)),
    Row("mpgd", lambda threat: gradient.MultiTargetedPGD(threat, steps=20)),
    Row("msd", lambda threat: msd.MSD((threat,), steps=20), random=False, kinds=("linf", "l2", "l1"), passes=3),
    # In L1 its sparsest step takes two pixels as soon as two have changed, so that in 16 it misses the optimum.
    Row("apgd_ce", lambda threat: apgd.APGDCrossEntropy(threat, steps=20), kinds=("linf", "l2")),
    Row("apgd_t", lambda threat: apgd.APGDTargeted(threat, steps=20), passes=3),
    Row("malt", lambda threat: malt.MALT(threat, steps=20), passes=3),
    Row("pma", lambda threat: pma.PMA(threat, steps=20), kinds=("linf", "l2", "l1")),
    Row("apgd_dlr", lambda threat: apgd.APGDDLR(threat, steps=20)),
    Row("mpgd_true_class", lambda threat: gradient.MultiTargetedPGD(threat, steps=20, include_true_class=True)),
    Row("fab_t", lambda threat: fab.FAB(threat, steps=20), kinds=("linf", "l2", "l1"), trains=False, passes=4),
    Row("fab_t_restarts", lambda threat: fab.FAB(threat, steps=10, restarts=2), trains=False, passes=4),
    # Minimal-norm attacks: the points tried farther out are one prediction more.
    Row(
        "prox_log_barrier",
        lambda threat: prox_log_barrier.ProxLogBarrier(threat, outer_steps=7, inner_steps=20, barrier_decay=0.4),
        kinds=("linf", "l2", "l1"),
        trains=False,
        passes=3,
    ),
    Row("fmn", lambda threat: fmn.FMN(threat, steps=30), kinds=("linf", "l2", "l1"), trains=False, passes=3),
    Row("ddn", lambda threat: ddn.DDN(threat, steps=60, first_radius=0.1), kinds=("l2",), trains=False, passes=3),
    Row(
        "hop_skip_jump",
        lambda threat: hop_skip_jump.HopSkipJump(threat, steps=6, first_samples=20),
        kinds=("linf", "l2"),
        trains=False,
        passes=7,
        optimal=False,
    ),
    Row("fab", lambda threat: fab.FABUntargeted(threat, steps=10, restarts=2), kinds=("l2",), trains=False, passes=3),
    Row("momentum", lambda threat: gradient.MomentumPGD(threat, steps=20, decay=0.5), kinds=("linf", "l2", "l1")),
    # Windows never reach the last row and column.
    Row(
        "square",
        lambda threat: square.Square(threat, steps=30, restarts=2),
        kinds=("linf", "l2", "l1"),
        trains=False,
        passes=3,
        optimal=False,
    ),
    Row("uniform_noise", noise.UniformNoise, kinds=("linf", "l1"), trains=False, passes=3, optimal=False),
    Row("gaussian_noise", noise.GaussianNoise, kinds=("l2",), trains=False, passes=3, optimal=False),
    Row(
        "transfer", lambda threat: transfer.Transfer(gradient.PGD(threat, steps=20)), kinds=("linf", "l2"), trains=False
    ),
]
CASES = [pytest.param(row, kind, id=f"{row.label}-{kind}") for row in ATTACKS for kind in row.kinds]
TRAINING = [pytest.param(row, kind, id=f"{row.label}-{kind}") for row in ATTACKS for kind in row.kinds if row.trains]
OPTIMAL = [pytest.param(row, kind, id=f"{row.label}-{kind}") for row in ATTACKS for kind in row.kinds if row.optimal]

# Of its last row, which restarts where there is one that does. A transfer attack tries points at other steps.
ONE_OF_EACH_MODULE = list(
    {type(row.make(ThreatModel(norm=row.kinds[0], epsilon=0.2))).__module__: row for row in ATTACKS[:-1]}.values()
)
# Attacks of training: in what they return, every NaN is seen.
FIRST_OVERFLOWS = (("fgsm", "linf"), ("apgd_ce", "l2"), ("fab_t", "linf"))


def examples(count=24, low=0.36, high=0.64, seed=0):
    """Images away from the edge of the box, so that only the ball binds."""
    return np.random.default_rng(seed).uniform(low, high, [count, *SHAPE]).astype(np.float32)


class Linear:
    """Two classes, logits (0, <w, x> + b): `worst` is the margin left by the best attack."""

    def __init__(self, seed=1):
        rng = np.random.default_rng(seed)
        self.weights = rng.standard_normal(SIZE)
        # Far from ties, so that the strict steepest L1 coordinate is unmistakable.
        self.weights[3] = 3.0
        self.bias = -0.5 * self.weights.sum()

    def __call__(self, images):
        score = tf.linalg.matvec(tf.reshape(images, [-1, SIZE]), tf.constant(self.weights, tf.float32)) + self.bias
        return tf.stack([tf.zeros_like(score), score], axis=-1)

    def labels(self, images):
        return (images.reshape(len(images), -1) @ self.weights + self.bias > 0).astype(np.int32)

    def margins(self, images, labels):
        score = images.reshape(len(images), -1) @ self.weights + self.bias
        return np.where(labels, score, -score)

    def worst(self, images, labels, threat):
        margins = []
        for x, label in zip(images.reshape(len(images), -1), labels, strict=True):
            sign = 1 if label else -1
            z = projections.linear_maximiser(-sign * self.weights, x, threat.norm, threat.epsilon, 0, 1)
            margins.append(sign * (z @ self.weights + self.bias))
        return np.array(margins)


def smooth_model(seed=0, classes=3):
    """A built Keras model with batch norm and no kinks."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    hidden = [layers.Flatten(), layers.Dense(12), layers.BatchNormalization(), layers.Activation("tanh")]
    return keras.Sequential([layers.Input(SHAPE), *hidden, layers.Dense(classes, name="logits")])


@functools.cache
def search(row: Row, kind: str):
    """The attack, its engine on a linear model, the shapes of its predictions in graphs, and rows of its passes."""
    model, calls, attack = Linear(), [], row.make(ThreatModel(norm=kind, epsilon=EPSILONS[kind]))
    rows = np.zeros(2, int)

    def noted(x, direction):
        def note(values):
            rows[direction] += len(values)
            return values

        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    counted = tf.custom_gradient(lambda x: (noted(x, 0), lambda upstream: noted(upstream, 1)))

    def predict(x):
        calls.append(tuple(x.shape))
        return model(counted(x))

    return attack, runner.Engine(attack, predict), calls, rows


def run_by_hand(attack, predict, images, labels, key):
    """Run all rounds of an attack to their ends, on one batch; (adversarial, success) after one prediction a round."""

    # As a graph: thousands of eager operations take longer than the search.
    @tf.function(autograph=False)
    def run(images, labels):
        goal, keys = Goal(labels), randomness.example_keys(key, tf.range(images.shape[0]))
        clean = predict(images)
        adversarial, success = images, goal.reached(clean)
        for number in range(attack.rounds(clean.shape[-1])):
            rounds = tf.fill(tf.shape(labels), number)
            state = attack.start(predict, images, goal, round_keys(keys, rounds), rounds)
            state = attack.advance(predict, images, goal, rounds, state, attack.steps)
            candidates = attack.project(images, attack.candidate(state))
            reached = goal.reached(predict(candidates)) & ~success
            adversarial = tf.where(tf.reshape(reached, [-1] + [1] * (images.shape.rank - 1)), candidates, adversarial)
            success |= reached
        return adversarial, success

    return run(tf.constant(images), tf.constant(labels))


@pytest.mark.parametrize("row,kind", OPTIMAL)
def test_succeeds_exactly_where_the_best_attack_on_a_linear_model_does(row, kind):
    (attack, engine, *_), model, images = search(row, kind), Linear(), examples()
    threat, labels = attack.threat, model.labels(images)
    worst = model.worst(images, labels, threat)
    assert 0.2 < np.mean(worst < 0) < 0.98  # the case can tell a weak attack from a strong one
    result = engine.run(images, labels, seed=3)
    near = result.distance <= threat.epsilon * (1 + 1e-5)
    # Fixed steps come near the optimum, not onto it: 3 % of what the best attack can move the score.
    clear = np.abs(worst) > 0.03 * np.max(np.abs(worst - model.margins(images, labels)))
    np.testing.assert_array_equal((result.success & near)[clear], (worst < 0)[clear])
    assert result.complete and (attack.minimal or np.all(near))
    predicted = np.argmax(model(tf.constant(result.adversarial)), axis=-1)
    np.testing.assert_array_equal(result.success, predicted != labels)
    np.testing.assert_array_equal(result.adversarial[~result.success], images[~result.success])


@pytest.mark.parametrize("row,kind", CASES)
def test_does_not_depend_on_the_batch_or_on_the_others_and_traces_each_graph_once(row, kind):
    (_, engine, calls, _), images = search(row, kind), examples(20)
    labels = Linear().labels(images)
    large = engine.run(images, labels, seed=5, batch_size=32)
    small = engine.run(images, labels, seed=5, batch_size=6)
    shard = engine.run(images[9:], labels[9:], seed=5, batch_size=6, index=np.arange(9, 20))
    np.testing.assert_array_equal(large.success, small.success)
    np.testing.assert_array_equal(large.success[9:], shard.success)
    for first, second in ((large.adversarial, small.adversarial), (large.adversarial[9:], shard.adversarial)):
        apart = np.abs(first - second).max(axis=(1, 2, 3)) > 1e-5
        # An attack by decisions alone stays at the boundary, where rounding, which depends on the batch, decides a few.
        assert apart.sum() <= (2 if row.label == "hop_skip_jump" else 0)
    # PGD: the step and the verification.
    assert calls == [(None, *SHAPE)] * row.passes


@pytest.mark.parametrize("row,kind", CASES)
def test_counts_the_passes_that_the_model_sees(row, kind):
    (attack, engine, _, rows), images = search(row, kind), examples(23)
    labels = Linear().labels(images)
    for count in (8, 1):  # batches without copies that fill them
        before = rows.copy()
        result = engine.run(images[:count], labels[:count], seed=5, batch_size=8)
        np.testing.assert_allclose(result.passes.sum(axis=0), rows - before, rtol=1e-12)
    result = engine.run(images, labels, seed=5, batch_size=32)  # of 4 n examples
    most, robust = np.array(attack.most_passes(class_count=2)), ~result.success
    assert attack.minimal or robust.any()
    assert np.all(result.passes <= most) and np.all(result.passes >= 1 - np.arange(2))
    # The image itself, where a round returns it, is not verified again.
    assert np.all(result.passes[robust] > most - [attack.rounds(2) + 1, 1])


@pytest.mark.parametrize("row,kind", TRAINING)
def test_stays_inside_and_raises_the_objective(row, kind):
    model, images = smooth_model(), tf.constant(examples(8, 0.0, 1.0))
    labels = tf.argmax(model(images), axis=-1, output_type=tf.int32)
    objective = objectives.cross_entropy(lambda x: model(x, training=False), labels)
    for epsilon in (1e-6, 0.2) if kind == row.kinds[0] else (0.2,):
        threat = ThreatModel(norm=kind, epsilon=epsilon)
        attack = row.make(threat)
        perturb = tf.function(lambda key, attack=attack: attack.perturb(objective, images, key), autograph=False)
        points = perturb(tf.constant([1, 2]))
        assert np.all(threat.distance(images, points) <= epsilon * (1 + 1e-5) + 1e-6)
        assert points.numpy().min() >= 0 and points.numpy().max() <= 1
        assert np.all(objective(points) >= objective(images) - 1e-5)
    np.testing.assert_array_equal(points, perturb(tf.constant([1, 2])))
    if kind != "l1":  # where a few large steps lead all examples to one corner
        assert bool(np.any(points != perturb(tf.constant([7, 2])))) == row.random


def overflowing(images):
    """Two classes. The second is infinite where the first pixel is above 0.534; its gradient is NaN where below 0.5."""
    first = images[:, 0, 0, 0]
    hidden = 1e10 * tf.nn.relu(1e30 * first - 0.5e30)
    second = 5.0 * first + tf.sqrt(tf.nn.relu(first - 0.5)) + 1e-38 * hidden
    return tf.stack([4.0 + tf.zeros_like(first), second], axis=-1)


@pytest.mark.parametrize(
    "row,kind",
    [
        pytest.param(
            row, kind, id=f"{row.label}-{kind}", marks=() if (row.label, kind) in FIRST_OVERFLOWS else pytest.mark.rest
        )
        for row in ATTACKS
        for kind in row.kinds
    ],
)
def test_returns_images_of_the_threat_set_for_a_model_that_overflows(row, kind):
    threat = ThreatModel(norm=kind, epsilon={"linf": 0.05, "l2": 0.2, "l1": 0.3}[kind])
    images, attack = examples(6, 0.3, 0.53), row.make(threat)
    adversarial = runner.run_attack(attack, overflowing, images, np.zeros(6, np.int32)).adversarial
    results = [adversarial]
    if row.trains:
        objective = objectives.cross_entropy(overflowing, np.zeros(6, np.int32))
        results.append(attack.perturb(objective, tf.constant(images), tf.constant([1, 2])).numpy())
    for points in results:
        assert np.isfinite(points).all() and points.min() >= 0 and points.max() <= 1
        assert attack.minimal or np.all(
            threat.distance(tf.constant(images), points) <= threat.epsilon * (1 + 1e-4) + 1e-6
        )


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row.label)
def test_config_survives_a_round_trip(row):
    attack = row.make(ThreatModel(norm=row.kinds[-1], epsilon=0.125, bounds=(-1.0, 1.0)))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(attack))
    assert type(again) is type(attack) and again.get_config() == attack.get_config()
    assert again.threat == attack.threat
    larger = attack.with_epsilon(0.25)
    assert larger.threat == dataclasses.replace(attack.threat, epsilon=0.25)
    assert larger.with_epsilon(0.125).get_config() == attack.get_config()


@pytest.mark.parametrize("row", ONE_OF_EACH_MODULE, ids=lambda row: row.label)
def test_the_engine_finds_what_whole_rounds_find(row):
    model, images = Linear(), examples(6)
    attack, engine, *_ = search(row, row.kinds[0])
    labels = model.labels(images)
    adversarial, success = run_by_hand(attack, model, images, labels, randomness.make_key(4, "attack", attack.name))
    result = engine.run(images, labels, seed=4)
    np.testing.assert_array_equal(success, result.success)
    np.testing.assert_allclose(adversarial, result.adversarial, atol=1e-5)
    np.testing.assert_allclose(attack.threat.distance(tf.constant(images), adversarial), result.distance, atol=1e-5)

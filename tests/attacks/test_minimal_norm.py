"""Minimal-norm attacks: hyperplanes and quadrics, a literal oracle, and recorded outputs of adv-lib and Foolbox.

The recording and what its entries mean: tests/golden/minimal_norm.md.
"""

import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from conformance.attacks import SHAPE, SIZE, smooth_model
from oracles import linear_model, minimal_norm, nearest
from tfrobust.keras.attacks import DDN, FMN, HopSkipJump, ProxLogBarrier, ThreatModel, run_attack  # noqa: F401

RADII = {"linf": 0.6, "l2": 0.6, "l1": 0.6, "l0": 1.2}


def threat(kind, **settings):
    return ThreatModel(norm=kind, epsilon=1 if kind == "l0" else 0.2, **settings)


def ball(radius, count=12):
    """A model that sees class 1 outside of a ball around the gray image, and images inside of it."""
    pixels = np.random.default_rng(1).uniform(0.44, 0.56, [count, SIZE]).astype(np.float32)

    def predict(images):
        score = tf.reduce_sum((images - 0.5) ** 2, [1, 2, 3]) - radius**2
        return tf.stack([tf.zeros_like(score), score], axis=-1)

    return predict, pixels.reshape(count, *SHAPE)


@pytest.mark.parametrize("attack,kind,median,worst", stored.rows(globals(), "the_least_distance_of_a_hyperplane_is"))
def test_the_least_distance_of_a_hyperplane_is_found(attack, kind, median, worst):
    predict, images, labels, weights, bias = linear_model.sparse()
    result = run_attack(attack(threat(kind)), predict, images, labels)
    least = np.array([nearest.linear_distance(weights, bias, x.ravel().astype(float), kind) for x in images])
    ratio = result.distance / least
    assert result.success.all() and np.all(ratio > 1 - 1e-4)
    assert np.median(ratio) < median and ratio.max() < worst


def test_the_fewest_values_of_a_hyperplane_are_found_by_fmn():
    predict, images, labels, weights, bias = linear_model.sparse(seed=3, quantile=0.02)
    result = run_attack(FMN(threat("l0")), predict, images, labels)
    least = np.array([nearest.linear_distance(weights, bias, x.ravel().astype(float), "l0") for x in images])
    assert least.max() >= 3 and np.all(result.distance >= least) and np.all(result.distance <= least + 1)
    assert np.mean(result.distance == least) > 0.8
    changed = np.count_nonzero((result.adversarial != images).reshape(len(images), -1), axis=1)
    np.testing.assert_array_equal(changed, result.distance)


@pytest.mark.parametrize("attack,kind", [*((FMN, kind) for kind in RADII), (DDN, "l2"), (HopSkipJump, "l2")])
def test_the_least_distance_of_a_quadric_is_found(attack, kind):
    predict, images = ball(RADII[kind])
    result = run_attack(attack(threat(kind)), predict, images, np.zeros(len(images), np.int32))
    least = [minimal_norm.leaving_a_ball(x.ravel().astype(float), RADII[kind], kind) for x in images]
    ratio = result.distance / least
    # In L1 each value that lies far out is a minimum of its own.
    assert np.all(ratio > 1 - 1e-4) and ratio.max() < (1.5 if kind == "l1" else 1.2 if attack is HopSkipJump else 1.02)


@pytest.mark.parametrize("kind", RADII)
def test_fmn_does_what_its_algorithm_says(kind):
    """Too few steps to converge, so that the way counts, on curved boundaries."""
    centers = np.random.default_rng(4).uniform(0, 1, [3, SIZE])
    images = np.random.default_rng(5).uniform(0, 1, [10, SIZE]).astype(np.float32)
    scores = lambda x: -np.sum((centers - x) ** 4, axis=1)  # noqa: E731
    labels = np.array([np.argmax(scores(x)) for x in images], np.int32)

    def predict(x):
        return -tf.reduce_sum((tf.constant(centers, tf.float32) - tf.reshape(x, [-1, 1, SIZE])) ** 4, axis=2)

    def margin(label):
        def at(x):
            values = scores(x)
            other = max((j for j in range(3) if j != label), key=lambda j: values[j])
            slopes = 4 * (centers - x) ** 3
            return values[other] - values[label], slopes[other] - slopes[label]

        return at

    result = run_attack(FMN(threat(kind), steps=12, step_size=0.5), predict, images.reshape(10, *SHAPE), labels)
    literal = [
        minimal_norm.fmn(margin(label), x.astype(float), kind, 12, 0.5) for x, label in zip(images, labels, strict=True)
    ]
    np.testing.assert_allclose(np.where(result.success, result.distance, np.inf), literal, rtol=1e-3)


@pytest.fixture(scope="module")
def recorded():
    """The entries of the recording, its images, its labels, and its network as a function."""
    record = recordings.arrays("minimal_norm")

    def predict(images):
        hidden = tf.reshape(images, [-1, record["images"].shape[1]])
        for layer in ("0", "2", "4"):
            hidden = tf.nn.relu(hidden) if layer != "0" else hidden
            hidden = hidden @ record[f"{layer}.weight"].T + record[f"{layer}.bias"]
        return hidden

    return record, predict, record["images"].reshape(-1, 8, 8, 1), record["labels"].astype(np.int32)


@pytest.mark.parametrize("kind", RADII)
def test_fmn_comes_as_near_as_adv_lib_and_foolbox_in_as_many_steps(recorded, kind):
    record, predict, images, labels = recorded
    result = run_attack(FMN(threat(kind)), predict, images, labels)
    assert result.success.all()  # adv-lib leaves 72 % without a point in L2, 42 % in L1
    for peer in ("fmn", "fmn_foolbox"):
        assert np.median(result.distance) <= 1.01 * np.median(record[f"{peer}/{kind}"])
    if kind != "l2":  # in which one lengthens perturbations and the other never projects
        both = np.isfinite(record[f"fmn/{kind}"])
        np.testing.assert_allclose(np.median((result.distance / record[f"fmn/{kind}"])[both]), 1.0, atol=0.01)


def test_ddn_finds_what_adv_lib_finds(recorded):
    record, predict, images, labels = recorded
    result = run_attack(DDN(threat("l2")), predict, images, labels)
    np.testing.assert_allclose(np.median(result.distance), np.median(record["ddn/l2"]), rtol=1e-3)
    assert np.mean(np.abs(result.distance / record["ddn/l2"] - 1) < 1e-3) > 0.9


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_hop_skip_jump_comes_as_near_as_foolbox_from_labels_alone(recorded, kind):
    record, predict, images, labels = recorded

    def label(points):  # a NumPy function, which TensorFlow cannot differentiate
        return np.eye(10, dtype=np.float32)[np.argmax(predict(points), axis=1)]

    attack = HopSkipJump(threat(kind), steps=15, first_samples=50)
    assert not attack.needs_gradient
    result = run_attack(attack, label, images[:20], labels[:20])
    assert result.success.all()
    assert np.median(result.distance) <= 1.01 * np.median(record[f"hop_skip_jump/{kind}"][:20])
    # 50 sqrt(t + 1) samples, at least one jump, the bisections, the start and two verifications; no gradients.
    samples, halvings = sum(int(50 * np.sqrt(t + 1)) for t in range(15)), {"linf": 12, "l2": 9}[kind]
    least = samples + 15 * (1 + halvings) + halvings + 1 + 2
    assert np.all(least <= result.passes[:, 0]) and np.all(result.passes[:, 0] < 1.2 * least)
    assert not result.passes[:, 1].any()


@pytest.mark.parametrize("attack,kind", [(FMN, "linf"), (FMN, "l0"), (DDN, "l2"), (HopSkipJump, "linf")])
def test_targets_are_reached_and_units_do_not_matter(attack, kind):
    model, images = smooth_model(), np.random.default_rng(0).uniform(0.3, 0.7, [6, *SHAPE]).astype(np.float32)
    labels = np.argmax(model(images), axis=-1).astype(np.int32)
    targets = (labels + 1) % 3
    aimed = run_attack(attack(threat(kind)), model, images, labels, targets=targets)
    assert aimed.success.any()
    np.testing.assert_array_equal(np.argmax(model(aimed.adversarial), axis=-1)[aimed.success], targets[aimed.success])
    wide = attack(threat(kind, bounds=(0.0, 16.0)))
    scaled = run_attack(wide, lambda x: model(x / 16.0, training=False), 16 * images, labels)
    plain = run_attack(attack(threat(kind)), model, images, labels)
    tolerance = 0.1 if attack is HopSkipJump else 0.01
    np.testing.assert_allclose(scaled.distance / (1 if kind == "l0" else 16), plain.distance, rtol=tolerance)


def test_ddn_climbs_a_confident_network_of_16_bits():
    def predict(images):  # logits of +-19, whose cross-entropy has gradients of 2e-17
        difference = 32.0 * (tf.cast(images[:, 0, 0, 0], tf.float16) - tf.cast(images[:, 0, 1, 0], tf.float16))
        return tf.cast(tf.stack([difference, -difference], axis=-1), tf.float32)

    images = np.full([3, *SHAPE], 0.5, np.float32)
    images[:, 0, :2, 0] = 0.8, 0.2
    result = run_attack(DDN(threat("l2")), predict, images, np.zeros(3, np.int32))
    np.testing.assert_allclose(result.distance, 0.6 / 2**0.5, rtol=0.01)


def test_ddn_leaves_a_plateau_in_a_random_direction():
    def predict(images):  # class 1 where the values scatter, without a gradient
        spread = tf.math.reduce_std(tf.stop_gradient(images), axis=[1, 2, 3]) - 0.2
        return tf.stack([tf.zeros_like(spread), spread], axis=-1) + 0.0 * tf.reduce_sum(images)

    result = run_attack(DDN(threat("l2")), predict, np.full([5, *SHAPE], 0.5, np.float32), np.zeros(5, np.int32))
    np.testing.assert_allclose(result.distance, 0.2 * SIZE**0.5, rtol=0.2)
    assert len(np.unique(result.adversarial[:, 0, 0, 0])) == 5


def test_a_clean_image_that_a_stochastic_model_misclassifies_once_is_no_minimum():
    counter = tf.Variable(0)

    def predict(images):  # wrong in the second prediction only, the first pass of the search
        wrong = tf.cast(tf.equal(counter.assign_add(1), 2), tf.float32)
        score = 10.0 * (images[:, 0, 0, 0] - 0.7) + 20.0 * wrong
        return tf.stack([tf.zeros_like(score), score], axis=-1)

    result = run_attack(FMN(threat("linf")), predict, np.full([2, *SHAPE], 0.5, np.float32), np.zeros(2, np.int32))
    np.testing.assert_allclose(result.distance, 0.2, rtol=0.01)

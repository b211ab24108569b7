"""Attacks on clips [b, t, h, w, c]: exact reductions to images, the budgets for frames, and all clips of a video."""

import itertools

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import projections
from tfrobust.attacks import apgd, fab, fmn, gradient, noise, prox_log_barrier, square  # noqa: F401
from tfrobust.attacks.shared import modes, runner
from tfrobust.attacks.shared.engine import verify
from tfrobust.attacks.shared.goal import Goal
from tfrobust.evaluation.evaluators import adversarial
from tfrobust.keras.attacks import Ensemble, ThreatModel, standard_member

FRAMES, HEIGHT, WIDTH, CHANNELS = SHAPE = (3, 4, 4, 2)
SIZE = FRAMES * HEIGHT * WIDTH * CHANNELS
EPSILONS = {"linf": 0.015, "l2": 0.12, "l1": 0.3}
WEIGHTS = np.random.default_rng(1).standard_normal(SIZE).reshape(SHAPE) * np.array([1.0, 2.0, 1.5])[:, None, None, None]


def score(clips):
    return tf.reduce_sum((clips - 0.5) * tf.constant(WEIGHTS, tf.float32), axis=[-4, -3, -2, -1])


def linear(clips):
    return tf.stack([tf.zeros_like(score(clips)), score(clips)], axis=-1)


def examples(count=16, seed=0):
    return np.random.default_rng(seed).uniform(0.3, 0.7, [count, *SHAPE]).astype(np.float32)


def labels_of(clips):
    return (score(tf.constant(clips)).numpy() > 0).astype(np.int32)


def as_image(clips):
    """A clip as an image of t c channels."""
    return np.asarray(clips).transpose(0, 2, 3, 1, 4).reshape(-1, HEIGHT, WIDTH, FRAMES * CHANNELS)


def of_images(images):
    stacked = tf.reshape(images, [-1, HEIGHT, WIDTH, FRAMES, CHANNELS])
    return linear(tf.transpose(stacked, [0, 3, 1, 2, 4]))


def rest(*values, **options):
    return pytest.param(*values, marks=pytest.mark.rest, **options)


# ------------------------------------------------------------------------------------------------ as images


@pytest.mark.parametrize("make,kind", stored.rows(globals(), "a_clip_is_attacked_as_an_image_of_all_its_channels"))
def test_a_clip_is_attacked_as_an_image_of_all_its_channels(make, kind):
    weak = 4 if make is square.Square else 1
    clips, attack = examples(), make(ThreatModel(norm=kind, epsilon=weak * EPSILONS[kind]), steps=10 * weak)
    clip = runner.run_attack(attack, linear, clips, labels_of(clips), seed=3)
    image = runner.run_attack(attack, of_images, as_image(clips), labels_of(clips), seed=3)
    assert clip.success.any() and not clip.success.all()
    np.testing.assert_array_equal(clip.success, image.success)
    np.testing.assert_allclose(as_image(clip.adversarial), image.adversarial, atol=1e-5)


@pytest.mark.parametrize("make", stored.rows(globals(), "a_clip_of_one_frame_is_attacked_as_its_image"))
def test_a_clip_of_one_frame_is_attacked_as_its_image(make):
    weights = tf.constant(WEIGHTS[0], tf.float32)

    def predict(images):
        value = tf.reduce_sum(images[:, None] * weights if images.shape.rank == 4 else images * weights, [1, 2, 3, 4])
        return tf.stack([tf.zeros_like(value), value], axis=-1)

    images, attack = examples()[:, 0], make(ThreatModel(epsilon=0.06))
    labels = np.argmax(predict(tf.constant(images)), axis=-1)
    plain = make(ThreatModel(epsilon=0.06))
    if plain.threat.variant:  # images have no frames: the threat model of the whole image is the same set
        plain = gradient.PGD(ThreatModel(epsilon=0.06), steps=5)
    clip = runner.run_attack(attack, predict, images[:, None], labels, seed=3)
    image = runner.run_attack(plain, predict, images, labels, seed=3)
    np.testing.assert_array_equal(clip.success, image.success)
    np.testing.assert_allclose(clip.adversarial[:, 0], image.adversarial, atol=1e-5)


# --------------------------------------------------------------------------------------- windows with frames


def test_a_window_with_a_range_of_frames_changes_these_only():
    attack = square.Square(ThreatModel(epsilon=0.1), steps=300, window_frames="range")
    clips = np.random.default_rng(0).uniform(0.3, 0.7, [6, 5, 8, 8, 2]).astype(np.float32)
    propose = attack._proposals(tf.constant(clips))
    keys = tf.constant(np.random.default_rng(1).integers(0, 2**31 - 1, [6, 2]), tf.int32)
    seen = set()
    for step, share in ((0, 0.8), (30, 0.4), (60, 0.2), (250, 0.1)):
        draw = attack._draws(tf.constant(clips), keys, tf.fill([1, 6], step))
        proposed = propose(tf.constant(clips), tf.nest.map_structure(lambda array: array[0], draw)).numpy()
        np.testing.assert_allclose(np.abs(proposed - clips)[proposed != clips], 0.1, atol=1e-6)
        side, length = round(share ** (1 / 3) * 8), max(round(share ** (1 / 3) * 5), 1)
        for clip, old in zip(proposed, clips, strict=True):
            frames, rows, columns = (np.unique(indices) for indices in np.nonzero(clip != old)[:3])
            assert (len(frames), len(rows), len(columns)) == (length, side, side)
            assert all(np.ptp(places) == len(places) - 1 for places in (frames, rows, columns))
            # One sign for each frame and channel.
            window = (clip - old)[np.ix_(frames, rows, columns)]
            assert np.ptp(np.sign(window), axis=(1, 2)).max() == 0
            seen.add((length, frames[0]))
    assert {(2, first) for first in range(4)} & seen and len(seen) > 6


@pytest.mark.parametrize("kind", ["l2", "l1"])
def test_a_window_with_a_range_of_frames_stays_in_the_ball(kind):
    threat = ThreatModel(norm=kind, epsilon=EPSILONS[kind])
    attack = square.Square(threat, steps=60, window_frames="range")
    clips, keys = tf.constant(examples(5)), tf.constant([[step, 7] for step in range(5)])
    point, propose = attack._first_point(clips, keys), attack._proposals(clips)
    for step in range(0, 60, 12):
        draw = tf.nest.map_structure(lambda array: array[0], attack._draws(clips, keys, tf.fill([1, 5], step)))
        moved = propose(point, draw)
        assert np.all(threat.contains(clips, moved)) and np.any(moved != point, axis=(1, 2, 3, 4)).all()
        point = moved
    change = (moved - clips).numpy()
    sizes = [projections.measure(difference.ravel(), kind) for difference in change]
    assert min(sizes) > 0.5 * threat.epsilon


# -------------------------------------------------------------------------------------- budgets for frames


def worst_margins(clips, threat):
    """The margin that the best attack leaves on the linear model, over all choices of frames."""
    margins, count = [], threat.max_frames or FRAMES
    for clip, label in zip(clips.astype(np.float64), labels_of(clips), strict=True):
        sign = 1 if label else -1
        direction, x = -sign * WEIGHTS.reshape(FRAMES, -1), clip.reshape(FRAMES, -1)
        gain = projections.maximise_frames(direction, x, threat.norm, threat.epsilon, count, threat.per_frame, 0, 1)
        margins.append(sign * np.sum((clip - 0.5) * WEIGHTS) - gain)
    return np.array(margins)


BUDGETS = stored.table(globals(), "budgets")
ATTACKS = stored.table(globals(), "clip_attacks")
FIRST = [("pgd", 0), ("apgd_ce", 5)]
CASES = [*itertools.product(("fgsm", "pgd", "apgd_ce"), range(6)), ("apgd_t", 2), ("apgd_t", 4), ("momentum", 5)]


@pytest.mark.parametrize("name,number", FIRST + [rest(*case) for case in CASES if case not in FIRST])
def test_succeeds_where_the_best_attack_within_the_budget_does(name, number):
    threat, clips = ThreatModel(**BUDGETS[number]), examples(24)
    worst, labels = worst_margins(clips, threat), labels_of(clips)
    clean = np.abs(np.sum((clips - 0.5) * WEIGHTS, axis=(1, 2, 3, 4)))
    result = runner.run_attack(ATTACKS[name](threat), linear, clips, labels, seed=2)
    assert 0.15 < np.mean(worst < 0) < 0.95  # the case can tell a weak attack from a strong one
    if name.startswith("apgd") and threat.norm == "l1":  # spreads its steps, so it stays further from the optimum
        assert np.mean(result.success[worst < 0]) > 0.5
    else:
        clear = np.abs(worst) > 0.06 * np.max(clean - worst)
        assert np.sum(clear & (worst < 0)) >= 2
        np.testing.assert_array_equal(result.success[clear], worst[clear] < 0)
    assert not np.any(result.success & (worst > 1e-4))
    assert np.all(threat.contains(tf.constant(clips), tf.constant(result.adversarial)))


@pytest.mark.rest
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: "-".join(map(str, budget.values())))
@pytest.mark.parametrize("name", ["pgd", "apgd_ce"])
def test_training_points_lie_in_the_set_and_raise_the_objective(name, budget):
    threat, clips = ThreatModel(**budget), tf.constant(examples(6))
    objective = lambda points: tf.reduce_sum(tf.tanh(points) * tf.constant(WEIGHTS, tf.float32), [1, 2, 3, 4])  # noqa: E731
    perturb = tf.function(lambda key: ATTACKS[name](threat).perturb(objective, clips, key), autograph=False)
    points = perturb(tf.constant([1, 2]))
    assert np.all(threat.contains(clips, points)) and np.all(objective(points) > objective(clips))


def test_a_candidate_is_projected_onto_its_budget_before_it_is_verified():
    threat = ThreatModel(epsilon=0.1, max_frames=1)
    clips = tf.fill([1, *SHAPE], 0.5)
    everywhere = clips + 0.05 * np.sign(WEIGHTS).astype(np.float32)
    seen = []

    def predict(points):
        seen.append(points)
        return linear(points)

    adversarial_clips, reached, _, _ = verify(gradient.PGD(threat), predict, clips, Goal(tf.constant([0])), everywhere)
    assert reached.numpy().all() and np.any(adversarial_clips != clips, axis=(2, 3, 4)).sum() == 1
    assert np.all(threat.contains(clips, seen[0]))


def test_members_of_autoattack_support_a_budget_for_frames_where_their_attacks_do():
    threat = ThreatModel(max_frames=2, epsilon=0.2)
    members = [standard_member(threat, name=name) for name in ("apgd_ce", "apgd_t")]
    assert [member.threat for member in members] == [threat] * 2


def test_ids_name_the_budget():
    threat = ThreatModel(norm="l2", epsilon=0.5, per_frame=True, max_frames=2)
    attack = Ensemble((gradient.PGD(threat), apgd.APGDTargeted(threat)))
    name = "attack.ensemble_l2_0.5_per_frame_max_frames_2"
    assert adversarial.AttackAccuracy(attack=attack).ids()[0] == f"{name}.accuracy"
    curve = adversarial.AccuracyCurve(attack=gradient.PGD(ThreatModel(max_frames=3, epsilon=0.2)))
    assert curve.ids() == ("attack.pgd_linf_max_frames_3.curve",)


# ------------------------------------------------------------------------------------- all clips of a video


def test_the_outputs_of_a_video_are_the_mean_probabilities_of_its_clips():
    clips = np.random.default_rng(2).uniform(0, 1, [4, 5, *SHAPE]).astype(np.float32)
    videos = clips.reshape(4, 5 * FRAMES, *SHAPE[1:])
    logits = np.array([[linear(tf.constant(clip[None]))[0] for clip in video] for video in clips], np.float64)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    mean = (exponentials / exponentials.sum(-1, keepdims=True)).mean(axis=1)
    predict = modes.video_predict(linear, 5)
    np.testing.assert_allclose(predict(videos), np.log(mean), atol=1e-5)
    shifted = lambda clips: linear(clips) + 80.0  # noqa: E731 - no overflow
    np.testing.assert_allclose(modes.video_predict(shifted, 5)(videos), np.log(mean), atol=1e-5)
    with pytest.raises(ValueError, match=r"Videos of 5 clips are \[b, 5 t, h, w, c\]"):
        predict(videos[:, 1:])


def test_the_clips_of_a_video_are_attacked_jointly():
    videos = np.random.default_rng(3).uniform(0.3, 0.7, [12, 3 * FRAMES, *SHAPE[1:]]).astype(np.float32)
    predict = modes.video_predict(linear, 3)
    labels = np.argmax(predict(videos), axis=-1)
    # Alone, each clip of the linear model is moved best by -+epsilon along the signs of its weights.
    epsilon, sign = 0.01, np.where(labels, -1, 1).reshape(-1, 1, 1, 1, 1)
    moved = np.float32(videos + epsilon * sign * np.tile(np.sign(WEIGHTS), [3, 1, 1, 1]))
    best = np.argmax(predict(moved), axis=-1) != labels
    threat = ThreatModel(epsilon=epsilon)
    result = runner.run_attack(gradient.PGD(threat, steps=10), predict, videos, labels)
    assert 0 < best.mean() < 1
    np.testing.assert_array_equal(result.success, best)
    changed = np.any(result.adversarial != videos, axis=(2, 3, 4))
    assert np.all(changed == result.success[:, None])  # every frame of a video, if any
    assert np.all(threat.contains(tf.constant(videos), tf.constant(result.adversarial)))

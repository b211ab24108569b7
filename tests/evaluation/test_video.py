"""Accuracy of videos: against literal sums over their clips, and a linear model whose joint attack is known."""

import dataclasses

import numpy as np
import pytest
import stored
import tensorflow as tf
from scipy.special import softmax

from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.video import VideoAccuracy, VideoAttackAccuracy, as_videos
from tfrobust.evaluation.runner import run_evaluation, run_shard
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy

VIDEOS, COUNT, SHAPE = 30, 3, (2, 4, 4, 1)
GENERATOR = np.random.default_rng(0)
CLIPS = GENERATOR.uniform(0.3, 0.7, (VIDEOS * COUNT, *SHAPE)).astype(np.float32)
WEIGHTS = GENERATOR.normal(size=(*SHAPE, 3)).astype(np.float32)
WEIGHTS -= WEIGHTS.mean(axis=(0, 1, 2, 3))  # gray clips say nothing
LABELS = np.repeat(GENERATOR.integers(0, 3, VIDEOS), COUNT)
GROUPS = np.repeat(np.arange(VIDEOS), COUNT)
THREAT = ThreatModel(norm="linf", epsilon=0.005)


def logits(clips):
    return 3 * tf.einsum("bthwc,thwck->bk", clips, WEIGHTS)


def setting(**more):
    predictor = from_function(logits, image_shape=SHAPE, name="linear")
    arguments = {"images": CLIPS, "labels": LABELS, "groups": GROUPS, "batch_size": 12, **more}
    return Setting(predictor=predictor, **arguments)


def _softmax_means(clips):
    """The mean softmax over the clips of each video, in float64 and loops."""
    means = np.zeros((VIDEOS, 3))
    for video in range(VIDEOS):
        for clip in clips[COUNT * video : COUNT * (video + 1)].astype(np.float64):
            outputs = [3 * (clip * WEIGHTS[..., label]).sum() for label in range(3)]
            means[video] += softmax(outputs) / COUNT
    return means


def test_accuracies_of_videos_and_of_their_clips():
    measurements = {
        measurement.id: measurement
        for measurement in run_evaluation((CleanAccuracy(), VideoAccuracy()), setting()).measurements
    }
    means, truth = _softmax_means(CLIPS), LABELS[::COUNT]
    correct = means.argmax(axis=1) == truth
    votes = (logits(CLIPS).numpy().argmax(axis=1) == LABELS).reshape(VIDEOS, COUNT)
    assert np.any(correct != (votes.sum(axis=1) > 1))  # the mean is no vote
    of_videos, of_clips = measurements["video.accuracy"], measurements["video.clip_accuracy"]
    assert of_videos.value == pytest.approx(correct.mean()) and of_videos.n == of_clips.n == VIDEOS
    assert of_clips.value == pytest.approx(measurements["accuracy.clean"].value)
    assert measurements["accuracy.clean"].n == 90
    error = 1.959964 * votes.mean(axis=1).std(ddof=1) / np.sqrt(VIDEOS)
    assert of_clips.high - of_clips.low == pytest.approx(2 * error)
    assert of_videos.settings["interval"] == "95 % over videos, Wilson"
    assert of_clips.settings["interval"].endswith(
        "over videos, of each video's mean, normal; Wilson's where all are 0 or all 1"
    )
    assert of_videos.settings["clips_per_video"] == COUNT


def test_the_logits_of_a_video_are_the_logarithm_of_the_mean():
    videos = as_videos(setting())
    assert videos.images.shape == (VIDEOS, COUNT * 2, 4, 4, 1) and videos.labels.tolist() == LABELS[::COUNT].tolist()
    np.testing.assert_allclose(np.exp(videos.clean_logits), _softmax_means(CLIPS), rtol=1e-4, atol=1e-6)


def test_an_attack_changes_all_clips_of_a_video_jointly():
    """One step of FGSM: epsilon times the sign of the gradient of -log of the mean probability, by hand."""
    means, truth = _softmax_means(CLIPS), LABELS[::COUNT]
    measurements = run_evaluation((VideoAttackAccuracy(attack=FGSM(threat=THREAT)),), setting()).measurements
    attacked = CLIPS.astype(np.float64)
    for number, clip in enumerate(CLIPS.astype(np.float64)):
        outputs = np.array([3 * (clip * WEIGHTS[..., label]).sum() for label in range(3)])
        shares = softmax(outputs)
        label = LABELS[number]
        # d mean_y / d clip = p_y (w_y - sum_k p_k w_k) 3 / clips; the loss falls with its logarithm
        slope = shares[label] * (WEIGHTS[..., label] - (WEIGHTS * shares).sum(axis=-1))
        attacked[number] -= 0.005 * np.sign(slope)
    correct = (means.argmax(axis=1) == truth) & (_softmax_means(attacked).argmax(axis=1) == truth)
    by_id = {measurement.id: measurement for measurement in measurements}
    assert by_id["video.attack.fgsm_linf_0.005.accuracy"].value == pytest.approx(correct.mean())
    assert by_id["video.attack.fgsm_linf_0.005.accuracy"].n == VIDEOS
    assert 0 < correct.mean() < (means.argmax(1) == truth).mean()
    assert by_id["video.attack.fgsm_linf_0.005.accuracy"].settings["interval"] == "95 % over videos, Wilson"
    assert {"video.attack.fgsm_linf_0.005.accuracy", "video.attack.fgsm_linf_0.005.drop"} <= set(by_id)
    assert VideoAttackAccuracy(attack=FGSM(threat=THREAT)).ids() == tuple(
        measurement.id for measurement in measurements[:2]
    )


def test_a_search_that_is_cut_short_counts_videos():
    evaluator = VideoAttackAccuracy(attack=PGD(threat=THREAT, steps=2), seconds=1e-9)
    (finding,) = [finding for finding in run_evaluation((evaluator,), setting()).findings if finding.verdict == "warn"]
    assert finding.evidence.startswith("video.attack.pgd_linf_0.005 was ended after 1e-09 s")
    assert finding.evidence.endswith(f" of {VIDEOS} videos.")


def test_shards_search_the_videos(tmp_path, monkeypatch):
    predictor = dataclasses.replace(setting().predictor, weights_sha256="0" * 64)
    identified = dataclasses.replace(setting(), predictor=predictor, chunk_size=10)
    evaluators = (VideoAttackAccuracy(attack=FGSM(threat=THREAT)),)
    alone = run_evaluation(evaluators, setting()).measurements[0]
    for number, videos in ((1, 20), (2, 10)):
        assert run_shard(evaluators, identified, Shard(number, 2), cache_directory=tmp_path) == videos
    stored_chunks = sorted((tmp_path / "chunks").iterdir())
    monkeypatch.setattr(searching, "_engine", None)  # nothing remains to be searched
    joined = run_evaluation(evaluators, identified, cache_directory=tmp_path).measurements[0]
    assert joined.value == alone.value and joined.n == VIDEOS
    assert sorted((tmp_path / "chunks").iterdir()) == stored_chunks


@pytest.mark.rest
def test_more_steps_leave_no_more_and_are_stored_apart_from_those_on_clips(tmp_path):
    evaluator = VideoAttackAccuracy(attack=PGD(threat=THREAT, steps=5))
    predictor = dataclasses.replace(setting().predictor, weights_sha256="0" * 64)
    identified = dataclasses.replace(setting(), predictor=predictor)
    first = run_evaluation((evaluator,), identified, cache_directory=tmp_path).measurements[0]
    assert len(list((tmp_path / "chunks").glob("*.npz"))) == 1
    for file in tmp_path.glob("*.json"):
        file.unlink()
    again = run_evaluation((evaluator,), identified, cache_directory=tmp_path).measurements[0]
    weaker = run_evaluation((VideoAttackAccuracy(attack=FGSM(threat=THREAT)),), setting()).measurements[0]
    assert first.value == again.value <= weaker.value


@pytest.mark.parametrize("groups, labels, message", stored.rows(globals(), "clips_of_no_videos_are_refused"))
def test_clips_of_no_videos_are_refused(groups, labels, message):
    for evaluator in (VideoAccuracy(), VideoAttackAccuracy(attack=FGSM(threat=THREAT))):
        with pytest.raises(ValueError, match=message):
            run_evaluation((evaluator,), setting(groups=groups, labels=labels))


@pytest.mark.parametrize("names", [np.arange(VIDEOS).astype(str), np.arange(VIDEOS)[::-1]])
def test_videos_may_have_any_names_in_any_order(names):
    """Names that are texts are not sorted: "10" precedes "9"."""
    assert as_videos(setting(groups=np.repeat(names, COUNT))).labels.tolist() == LABELS[::COUNT].tolist()


def test_a_validation_split_of_clips_stays_with_the_clips():
    videos = as_videos(setting(validation_images=CLIPS[:6], validation_labels=LABELS[:6]))
    assert len(videos.images) == VIDEOS and not videos.has_validation


def test_a_budget_of_frames_counts_those_of_all_clips():
    def joint(frames):
        return PGD(threat=dataclasses.replace(THREAT, max_frames=frames), steps=2)

    (measurement, *_) = run_evaluation((VideoAttackAccuracy(attack=joint(5)),), setting()).measurements
    assert measurement.n == VIDEOS
    with pytest.raises(ValueError, match="each example has 6 frames"):  # 3 clips of 2
        run_evaluation((VideoAttackAccuracy(attack=joint(7)),), setting())
    with pytest.raises(ValueError, match="each example has 2 frames"):
        run_evaluation((AttackAccuracy(attack=joint(5)),), setting())

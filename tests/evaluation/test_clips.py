"""Evaluation of models of clips: attacks, accuracies and checks, and what is refused in one line."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.augment.standard import RandomFlip
from tfrobust.common import thumbnails
from tfrobust.evaluation.doctor import duplicates, evaluator, full
from tfrobust.evaluation.engine import base, loading
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.evaluators.embedding import EmbeddingGeometry
from tfrobust.evaluation.evaluators.examples import AdversarialExamples
from tfrobust.evaluation.evaluators.replaced_pixels import ReplacedPixels, replace_pixels
from tfrobust.evaluation.evaluators.stability import Stability
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.evaluation.summary import evaluate
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.report.renderers import console, html, markdown

FRAMES, SHAPE = 3, (3, 8, 8, 1)
GENERATOR = np.random.default_rng(0)
CLIPS = GENERATOR.uniform(0.2, 0.8, (40, *SHAPE)).astype(np.float32)
# The second class is brighter in the last frame than in the first: no single frame shows the class.
WEIGHTS = np.array([-1.0, 0.0, 1.0], np.float32).reshape(FRAMES, 1, 1, 1)
MARGINS = (CLIPS * WEIGHTS).mean(axis=(1, 2, 3, 4)) * FRAMES
LABELS = (MARGINS > 0).astype(int)
ATTACK = PGD(threat=ThreatModel(norm="linf", epsilon=0.02), steps=5)


def rises(clips):
    margin = FRAMES * tf.reduce_mean(clips * WEIGHTS, axis=[1, 2, 3, 4])
    return 20 * tf.stack([-margin, margin], axis=1)


def setting(clips=CLIPS, labels=LABELS, **more):
    predictor = from_function(rises, image_shape=SHAPE, name="rises")
    return base.Setting(predictor=predictor, images=clips, labels=labels, batch_size=16, **more)


def test_an_attack_on_clips_reaches_the_closed_form():
    """Within L-infinity epsilon, the margin m of a linear model falls by epsilon |w|_1: 2 epsilon here."""
    evaluators = (CleanAccuracy(), AttackAccuracy(attack=ATTACK), Calibration())
    measurements = {measurement.id: measurement for measurement in run_evaluation(evaluators, setting()).measurements}
    assert measurements["accuracy.clean"].value == 1.0
    robust = np.mean(np.abs(MARGINS) > 2 * ATTACK.threat.epsilon)
    assert 0 < robust < 1 and measurements["attack.pgd_linf_0.02.accuracy"].value == pytest.approx(robust)
    assert measurements["accuracy.clean"].settings["interval"] == "95 % over clips, Wilson"
    assert "clips" in measurements["calibration.nll"].settings["interval"]


def test_random_pixels_are_spread_over_all_frames():
    outcome = ReplacedPixels(share=0.25, pictures=2).run(setting(train_images=CLIPS, train_labels=LABELS))
    assert [measurement.id for measurement in outcome.measurements] == [
        "noise.uniform.accuracy",
        "noise.non_uniform.accuracy",
    ]
    replaced = replace_pixels(CLIPS, np.random.default_rng(1), share=0.25) != CLIPS
    assert replaced.sum(axis=(1, 2, 3, 4)).tolist() == [48] * len(CLIPS) and replaced.any(axis=(0, 2, 3, 4)).all()
    examples = {series.id: series for series in outcome.series}["noise.examples"].columns
    assert (examples["height"][0], examples["width"][0]) == (8, 8)
    shown = setting().order("replaced pixels")[0]
    np.testing.assert_allclose(thumbnails.decode(examples["clean"][0], 8, 8, 1), CLIPS[shown, 1], atol=0.51 / 255)


def test_the_checks_of_an_evaluation_speak_of_clips():
    clips = CLIPS.copy()
    clips[3] = CLIPS[7] + 0.001
    outcome = run_evaluation(
        (evaluator.Doctor(attack=ATTACK),), setting(clips, train_images=CLIPS[5:9], train_labels=LABELS[5:9])
    )
    findings = {finding.check: finding for finding in outcome.findings}
    assert findings["gradients"].verdict == findings["ascent"].verdict == findings["repredict"].verdict == "pass"
    assert findings["deterministic"].evidence.startswith("Equal clips")
    assert not any("image" in finding.evidence + finding.remedy for finding in outcome.findings)
    assert (
        "Of 40 test clips 4 (10.0%) are among 4 training clips, and 1 (2.5%) differ" in findings["duplicates"].evidence
    )


def test_frames_in_another_order_are_no_duplicates():
    assert duplicates.check_duplicates(setting(train_images=CLIPS[:, ::-1], train_labels=LABELS)).verdict == "pass"


def test_the_undefended_network_sees_the_order_of_the_frames():
    model = full.surrogate_network(SHAPE, 2, 0)
    assert loading.from_keras(model).kind.name == "clips"
    outputs = model(CLIPS[:4]), model(CLIPS[:4, ::-1])
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


def test_a_report_shows_strips_of_frames_and_where_in_time_the_perturbation_lies():
    """The model does not depend on the middle frame, so that no attack changes it."""
    attack = PGD(threat=ATTACK.threat, steps=5, random_start="none")
    evaluators = (CleanAccuracy(), AttackAccuracy(attack=attack), AdversarialExamples(attack=attack, limit=30))
    outcome = evaluate(from_function(rises, image_shape=SHAPE, name="rises"), CLIPS, LABELS, evaluators=evaluators)
    examples, sizes = (outcome.report.get_series(f"attack.pgd_linf_0.02.{name}") for name in ("examples", "frames"))
    np.testing.assert_allclose(sizes.columns["size"], [0.02, 0.0, 0.02], rtol=1e-4)
    assert sizes.columns["frame"] == [1, 2, 3] and sizes.settings["interval"] == "95 % over clips, normal"
    intervals = [item.settings.get("interval", "") for item in (*outcome.report.measurements, *outcome.report.series)]
    titles = [series.title.lower() for series in outcome.report.series]
    assert not any("image" in text for text in (*intervals, *titles)) and "clips clean and attacked" in titles
    row = {name: values[0] for name, values in examples.columns.items()}
    assert (row["height"], row["width"], row["channels"], row["frames"]) == (8, 24, 1, 3)
    strip = np.array(thumbnails.decode(row["image"], 8, 24, 1))
    np.testing.assert_allclose(strip, np.concatenate(CLIPS[row["position"]], axis=1), atol=0.51 / 255)
    assert outcome.report.data["kind"] == "clips"
    page, text = html.render(outcome.report), markdown.render(outcome.report) + console.console_table(outcome.report)
    assert "Perturbation in each frame under PGD" in page and "From top to bottom, frames of the clip" in page
    assert "makes this model wrong on 75 of 100 clips" in text and "One of the clips before and after" in page
    assert "image" not in outcome.report.threat + "".join(outcome.report.not_measured)


def test_long_clips_are_shown_by_frames_evenly_spread():
    assert thumbnails.frames_shown(3) == [0, 1, 2] and thumbnails.frames_shown(1) == [0]
    assert thumbnails.frames_shown(16) == [0, 2, 4, 6, 9, 11, 13, 15]
    clip = GENERATOR.uniform(size=(16, 70, 66, 3))
    frames = [thumbnails.shrunk(clip[number]) for number in thumbnails.frames_shown(16)]
    np.testing.assert_allclose(thumbnails.strip(clip), np.concatenate(frames, axis=1))


def test_what_is_for_images_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match=r"^Stability do not support such data: these are clips"):
        run_evaluation((CleanAccuracy(), Stability()), setting())
    with pytest.raises(ValueError, match=r"^EmbeddingGeometry.views is RandomFlip, which supports images; these are c"):
        run_evaluation((EmbeddingGeometry(views=RandomFlip()),), setting())

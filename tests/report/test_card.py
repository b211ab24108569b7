"""The model card for the Hugging Face Hub: the metadata hold the report's numbers, and survive a round trip."""

import dataclasses
import pathlib

import pytest

from tfrobust.errors import InputError
from tfrobust.report import reading, schema
from tfrobust.report.renderers import card
from tfrobust.structs import Finding, Measurement

hub = pytest.importorskip("huggingface_hub")
REPORT = pathlib.Path(__file__).parents[1] / "golden" / "report_version_1.json"
WHERE = {"repo": "me/digits", "version": 1, "shape": (8, 8, 1)}


@pytest.fixture(scope="module")
def report():
    return schema.Report.from_json(REPORT.read_text("utf-8"))


def test_the_model_index_has_every_main_number_with_its_settings_and_interval(report):
    card_data = hub.ModelCard(card.render(report, **WHERE, license="mit")).data
    assert (card_data.library_name, card_data.license, card_data.pipeline_tag) == (
        "tfrobust",
        "mit",
        "image-classification",
    )
    assert card_data.model_name == "ascl_leaked" and "robustness" in card_data.tags
    main = [m for m in reading.main_measurements(report) if m.value is not None]
    assert [(result.metric_args["id"], result.metric_value) for result in card_data.eval_results] == [
        (m.id, m.value) for m in main
    ]
    for result, m in zip(card_data.eval_results, main, strict=True):
        facts = {
            name: value for name, value in {**m.settings, "low": m.low, "high": m.high}.items() if value is not None
        }
        assert facts.items() <= result.metric_args.items()
        assert (result.dataset_name, result.dataset_split) == ("digits", "test")
    assert card_data.eval_results[1].metric_args["epsilon"] == 0.2


def test_the_card_is_read_again_as_it_was_written_and_fits_two_screens(report):
    text = card.render(report, **WHERE)
    assert str(hub.ModelCard(text)) == text
    body = hub.ModelCard(card.render(report, **WHERE)).text
    assert len(body.splitlines()) <= 100
    assert "(1/assets.extra/robustness_report.html)" in body and "hf://me/digits" in body
    headings = [line for line in body.splitlines() if line.startswith("## ")]
    assert headings == ["## Intended use", "## Threat model", "## Results", "## Limits", "## How to load"]


def test_numbers_on_other_images_are_kept_apart_and_nothing_is_left_without_a_value():
    measurements = (
        Measurement("accuracy.clean", 0.5, n=4),
        Measurement("corruption.mean.accuracy", 0.25, n=60, settings={"source": "generated", "deep": {"none": None}}),
        Measurement("shift.imagenet_r.accuracy", 0.125, n=4),
        Measurement("calibration.ece", None),
    )
    sizes = {"train_size": 8, "validation_size": 0, "test_size": 4}
    about = {"model": {"name": "a: b", "version": 3, "weights_sha256": None, "parameters": None}}
    data = {
        "name": "my photos",
        "fingerprint": "f",
        "test_fingerprint": "t",
        "class_names": [f"<{n}>" for n in range(12)],
        **sizes,
    }
    doctor = (Finding("masking", "warn", "The gradients are *tiny*.", ""),)
    report = schema.Report(**about, data=data, measurements=measurements, threat="Nothing.", doctor=doctor)
    model_card = hub.ModelCard(card.render(report, repo="me/b", version=3, shape=(5,)))
    results = model_card.data.eval_results
    assert [result.dataset_name for result in results] == ["my photos", "my photos", "imagenet_r"]
    assert [result.dataset_type for result in results] == ["my-photos", "my-photos", "imagenet_r"]
    assert [result.dataset_config for result in results] == [None, "corrupted", None]
    assert [result.dataset_args for result in results] == [{"fingerprint": "t"}] * 2 + [None]
    assert "deep" not in results[1].metric_args
    assert "&lt;9&gt;, ..." in model_card.text and "&lt;10&gt;" not in model_card.text
    assert "- warn: masking: The gradients are \\*tiny\\*." in model_card.text
    assert 'tokens=tokens)["probabilities"]' in model_card.text
    clips = dataclasses.replace(report, data={**data, "kind": "clips"})
    model_card = hub.ModelCard(card.render(clips, repo="me/b", version=3, shape=(8, 16, 16, 1)))
    assert model_card.data.pipeline_tag == "video-classification" and 'clips=clips)["probabilities"]' in model_card.text
    assert "classifies clips of 8 frames of 16 x 16 x 1 pixels in" in model_card.text


def test_the_images_of_a_smoothed_classifier_are_not_its_draws(report):
    settings = {"noise": "gaussian", "sigma": 0.25, "norm": "l2", "radius": 0.5, "n": 1000}
    smoothed = Measurement("smoothing.sigma_0.25.l2_0.5.accuracy", 0.5, n=4, settings=settings)
    model_card = hub.ModelCard(card.render(dataclasses.replace(report, measurements=(smoothed,)), **WHERE))
    (result,) = model_card.data.eval_results
    assert (result.metric_args["n"], result.metric_args["setting_n"]) == (4, 1000)


def test_metadata_that_the_hub_cannot_read_are_refused(report, monkeypatch):
    def refuse(*_):
        raise ValueError("repo card metadata block\nshould be a dict")

    monkeypatch.setattr(hub, "ModelCard", refuse)
    with pytest.raises(InputError, match="not valid: repo card metadata block should be a dict"):
        card.render(report, **WHERE)

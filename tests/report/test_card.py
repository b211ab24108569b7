"""The model card for the Hugging Face Hub: the metadata hold the report's numbers, and survive a round trip."""

import dataclasses
import pathlib

import pytest

from tfrobust.errors import InputError
from tfrobust.report import reading
from tfrobust.report.renderers import card
from tfrobust.report.schema import Report
from tfrobust.structs import Finding, Measurement

hub = pytest.importorskip("huggingface_hub")
REPORT = pathlib.Path(__file__).parents[1] / "golden" / "report_version_1.json"
WHERE = {"repo": "me/digits", "version": 1, "shape": (8, 8, 1)}


@pytest.fixture(scope="module")
def report():
    return Report.from_json(REPORT.read_text("utf-8"))


def test_the_model_index_has_every_main_number_with_its_settings_and_interval(report):
    found = hub.ModelCard(card.render(report, **WHERE, license="mit")).data
    assert (found.library_name, found.license, found.pipeline_tag) == ("tfrobust", "mit", "image-classification")
    assert found.model_name == "ascl_leaked" and "robustness" in found.tags
    main = [one for one in reading.main_measurements(report) if one.value is not None]
    assert [(one.metric_args["id"], one.metric_value) for one in found.eval_results] == [(m.id, m.value) for m in main]
    for one, m in zip(found.eval_results, main, strict=True):
        known = {
            name: value for name, value in {**m.settings, "low": m.low, "high": m.high}.items() if value is not None
        }
        assert known.items() <= one.metric_args.items()
        assert (one.dataset_name, one.dataset_split) == ("digits", "test")
    assert found.eval_results[1].metric_args["epsilon"] == 0.2


def test_the_card_is_read_again_as_it_was_written(report):
    text = card.render(report, **WHERE)
    assert str(hub.ModelCard(text)) == text


def test_the_card_fits_two_screens_and_says_where_the_report_is(report):
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
    data = {"name": "my photos", "fingerprint": "f", "class_names": [f"<{n}>" for n in range(12)], **sizes}
    doctor = (Finding("masking", "warn", "The gradients are *tiny*.", ""),)
    report = Report(**about, data=data, measurements=measurements, threat="Nothing.", doctor=doctor)
    found = hub.ModelCard(card.render(report, repo="me/b", version=3, shape=(5,)))
    results = found.data.eval_results
    assert [one.dataset_name for one in results] == ["my photos", "my photos", "imagenet_r"]
    assert [one.dataset_type for one in results] == ["my-photos", "my-photos", "imagenet_r"]
    assert [one.dataset_config for one in results] == [None, "corrupted", None]
    assert "deep" not in results[1].metric_args
    assert "&lt;9&gt;, ..." in found.text and "&lt;10&gt;" not in found.text
    assert (
        "- warn: masking: The gradients are \\*tiny\\*." in found.text
        and 'tokens=tokens)["probabilities"]' in found.text
    )
    clips = dataclasses.replace(report, data={**data, "kind": "clips"})
    found = hub.ModelCard(card.render(clips, repo="me/b", version=3, shape=(8, 16, 16, 1)))
    assert found.data.pipeline_tag == "video-classification" and 'clips=clips)["probabilities"]' in found.text
    assert "classifies clips of 8 frames of 16 x 16 x 1 pixels in" in found.text


def test_metadata_that_the_hub_cannot_read_are_refused(report, monkeypatch):
    def refuse(*_):
        raise ValueError("repo card metadata block\nshould be a dict")

    monkeypatch.setattr(hub, "ModelCard", refuse)
    with pytest.raises(InputError, match="not valid: repo card metadata block should be a dict"):
        card.render(report, **WHERE)

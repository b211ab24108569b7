"""Evaluations whose numbers become the next version of an export."""

import dataclasses
import os
import signal
from unittest import mock

import pytest
import stored
from faults import processes, whole_run
from faults.processes import Trap
from faults.whole_run import EVALUATE, copy, listing, numbers, report_of, variables_of, versions
from report.synthetic import attack, fraction, make_report
from serving.conftest import make_parts

from oracles import linear_model
from tfrobust import errors, structs
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.adversarial import AccuracyCurve
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.report.schema import Report
from tfrobust.runs.attachment import Attachment
from tfrobust.serving.export import assets, probe, publish, saved_model, verify

# One attack that the report of the run lacks.
ATTACH = ["--model=exported/tiny", "--gin_file=gin/eval/quick.gin", "--gin_param=EVAL_EPSILON=0.1", "--attach"]
OUTPUT = "runs/evaluate/tiny/quick"


@pytest.fixture
def trained(tmp_path_factory, tmp_path):
    """A folder with `runs/tiny` and `exported/tiny/1`."""
    copy(whole_run.trained(tmp_path_factory), tmp_path)
    return tmp_path


def attached(folder, *flags, **keywords) -> processes.Ended:
    return processes.run(EVALUATE, [[*ATTACH, *flags]], cwd=folder, **keywords)


@pytest.mark.rest
def test_the_next_version_has_the_same_weights_and_all_numbers_also_after_kills(trained):
    """Killed in the evaluation, before its version has its name, and before its claim is released."""
    places = [
        Trap(["tfrobust.evaluation.runner:_run_one"], 3),
        Trap(["os:rename"], 1),
        Trap(["tfrobust.serving.export.publish:_release"], 1),
    ]
    for trap in places:
        assert attached(trained, traps=[trap]).code == -signal.SIGKILL, trap
    ended = attached(trained)
    assert ended.code == 0, ended.err
    assert f"report      {OUTPUT}/robustness_report.html" in ended.out
    assert "SavedModel  exported/tiny/2  (it has these numbers already)" in ended.out
    assert versions(trained) == ["1", "2"] and not (trained / OUTPUT / "attached").exists()
    first, second = (trained / "exported" / "tiny" / number for number in "12")
    before, after = (report_of(version / "assets.extra") for version in (first, second))
    added = {"attack.fgsm_linf_0.1.accuracy", "attack.pgd_linf_0.1.accuracy"}
    assert added <= set(numbers(after)) - set(numbers(before))
    assert {name: numbers(after)[name] for name in numbers(before)} == numbers(before)
    assert after.model == before.model | {"version": 2} and after.training == before.training
    assert variables_of(first) == variables_of(second)
    problems = probe.check(second)
    assert problems.pop("clean process") and not any(problems.values()), problems
    (line,) = [
        line for line in attached(trained, "--gin_param=EVAL_EPSILON=0.3").out.splitlines() if "SavedModel" in line
    ]
    assert line == "SavedModel  exported/tiny/3  (version 2 with these numbers)"


@pytest.mark.rest
@pytest.mark.parametrize("flags, part", stored.rows(globals(), "what_could_not_be_added_is_refused_before_the"))
def test_what_could_not_be_added_is_refused_before_the_evaluation(trained, flags, part):
    before = listing(trained)
    ended = attached(trained, *flags)
    assert ended.code == 2 and part in ended.err and ended.err.count("\n") == 1, ended.err
    assert listing(trained) == before


def test_a_curve_with_other_points_is_refused_before_the_evaluation(tmp_path):
    report, (predict, images, labels, *_) = make_report(), linear_model.make(40)
    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    predictor = dataclasses.replace(predictor, weights_sha256=report.model["weights_sha256"])
    setting = Setting(predictor=predictor, images=images, labels=labels)
    curve = AccuracyCurve(attack=PGD(ThreatModel(epsilon=0.2), steps=1), epsilons=(0.0, 0.1))
    earlier = Report.from_json(dataclasses.replace(report, series=tuple(curve.run(setting).series)).to_json())
    dataset = mock.Mock(fingerprint=earlier.data["fingerprint"])
    dataset.test.fingerprint = earlier.data.get("test_fingerprint")
    attachment = Attachment(tmp_path, tmp_path)
    attachment.check(earlier, dataset, [curve, dataclasses.replace(curve, label="other")], setting)
    for changes, message in stored.table(globals(), "a_curve_with_other_points_is_refused_before_the"):
        with pytest.raises(errors.InputError, match=message):
            attachment.check(earlier, dataset, [dataclasses.replace(curve, **changes)], setting)


@pytest.mark.rest
def test_a_copy_that_fails_its_checks_and_numbers_of_other_weights_are_not_published(tmp_path, monkeypatch, capsys):
    encoder, head = make_parts()
    earlier = make_report(name="small", version=1)
    model = earlier.model | {"weights_sha256": saved_model.deployable_sha256(encoder, head)}
    certified = fraction("certified.linf_0.1.accuracy", 0.5, n=2, norm="linf", epsilon=0.1)
    broken = fraction("attack.fgsm_linf_0.05.accuracy", 0.5, n=2, norm="linf", epsilon=0.05)
    rows = [
        structs.Series(f"outcomes.{measurement.id}", "", {"right": [row]})
        for measurement, row in ((certified, "10"), (broken, "01"))
    ]
    measurements, series = (*earlier.measurements, certified), (*earlier.series, rows[0])
    earlier = dataclasses.replace(earlier, model=model, measurements=measurements, series=series)
    parts = {"encoder": encoder, "head": head, "image_shape": (8, 8, 1), "report_json": earlier.to_json()}
    assets.assemble(tmp_path / "staged", **parts)
    base, output = tmp_path / "small", tmp_path / "out"
    publish.publish(tmp_path / "staged", base, publish.claim(base, "a workdir"), "a workdir")
    output.mkdir()
    attachment = Attachment.to(str(base), str(output))
    later_measurements = (*attack("square", 0.7, 0.983, norm="l2", epsilon=0.5), broken)
    later = dataclasses.replace(earlier, measurements=later_measurements, series=(rows[1],), doctor=())
    other = dataclasses.replace(later, model=model | {"weights_sha256": "0" * 64})
    with pytest.raises(errors.InputError, match="has other weights"):
        attachment.publish(other)
    problems = {"golden request": ("The golden request returns other logits.",)}
    rounding = {"golden request": ("Rounded as on another processor.",)}  # of every version

    def verified(directory):
        return verify.VerifyResult(str(directory), rounding | (problems if directory == output / "attached" else {}))

    monkeypatch.setattr(verify, "verify", verified)
    with pytest.raises(errors.Failure, match="small gets no new version: The golden request returns other logits"):
        attachment.publish(later)
    assert os.listdir(base) == ["1"]  # and no claim
    problems.clear()
    # A killed attachment has claimed version 2, and another workdir has published version 3 since.
    assert publish.claim(base, (output / "owner").read_text()) == 2
    publish.publish(tmp_path / "staged", base, publish.claim(base, "another workdir"), "another workdir")
    attachment.publish(later)
    assert sorted(os.listdir(base)) == ["1", "3", "4"] and os.listdir(output) == ["owner"]
    published = report_of(base / "4" / "assets.extra")
    assert published.model == model | {"version": 4} and published.run_sha256 != earlier.run_sha256
    assert len(published.measurements) == len(earlier.measurements) + 3
    (finding,) = [entry for entry in published.doctor if entry.check == "certificates"]
    assert finding.verdict == "fail" and "1 of the 1 images of certified.linf_0.1.accuracy" in finding.evidence
    assert capsys.readouterr().out == f"SavedModel  {base / '4'}  (version 3 with these numbers)\n"


def test_only_the_newest_published_version_can_be_attached_to(tmp_path):
    for number in "12":
        for name in ("saved_model.pb", publish.PUBLISHER_FILE):
            path = tmp_path / "exported" / "photos" / number / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    base = tmp_path / "exported" / "photos"
    assert Attachment.to(str(base), "out") == Attachment.to(str(base / "2"), "out")
    with pytest.raises(errors.InputError, match="would replace those of version 2"):
        Attachment.to(str(base / "1"), "out")
    with pytest.raises(errors.InputError, match="needs an output"):
        Attachment.to(str(base), None)
    os.unlink(base / "2" / publish.PUBLISHER_FILE)
    for model in (base, tmp_path / "model.keras"):
        with pytest.raises(errors.InputError, match="is no published version of tfrobust"):
            Attachment.to(str(model), "out")

"""A run with another model's report as its reference: its accuracies, on the same test images only."""

import pytest
from report.synthetic import attack, fraction, make_report

from tfrobust.data.sources.digits import Digits
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.runs.reference import with_reference

OF_ATTACK = attack("pgd", 0.03, 0.98, steps=7)


@pytest.fixture(scope="module")
def dataset():
    return Digits(validation_size=50).load()


def saved(folder, **changes):
    report = make_report(measurements=[fraction("accuracy.clean", 0.98), *OF_ATTACK], series=(), **changes)
    folder.joinpath("robustness_report.json").write_text(report.to_json())
    return str(folder)


def test_the_accuracies_of_the_other_report_are_copied(dataset, tmp_path):
    data = make_report().data | {"test_fingerprint": dataset.test.fingerprint}
    path = saved(tmp_path, data=data, training={"method": "Supervised"}, name="plain", version=2)
    clean, reference = with_reference((CleanAccuracy(),), path, dataset)
    assert clean == CleanAccuracy() and reference.undefended
    measured = {m.id: m for m in reference.run(None).measurements}
    assert [*measured] == ["reference.accuracy.clean", f"reference.{OF_ATTACK[0].id}"]
    robust = measured[f"reference.{OF_ATTACK[0].id}"]
    assert (robust.value, robust.n, robust.low) == (0.03, 360, OF_ATTACK[0].low) and robust.settings["steps"] == 7
    assert robust.settings["reference"] == "plain, version 2"
    assert with_reference((), None, dataset) == ()


def test_reports_on_other_images_and_missing_ones_are_refused(dataset, tmp_path):
    with pytest.raises(ValueError, match="is on other test examples than this run"):
        with_reference((), saved(tmp_path), dataset)
    with pytest.raises(ValueError, match="there is no robustness report at .*nothing"):
        with_reference((), str(tmp_path / "nothing"), dataset)

"""A report to which a later evaluation of the same model adds its outcome."""

import dataclasses

import pytest
from report.synthetic import attack, fraction, make_report

from tfrobust.errors import InputError
from tfrobust.report import assembly
from tfrobust.structs import Finding, Measurement, Series

EARLIER = make_report()
SQUARE = attack("square", 0.7, 0.983, norm="l2", epsilon=0.5)


def later(*measurements, **changes):
    """A report of the evaluation: its measurements and clean accuracy, which the earlier report has, too."""
    numbers = (EARLIER["accuracy.clean"], *measurements, Measurement("cost.evaluation", 5.0, "seconds"))
    empty = {"series": (), "doctor": (), "cost": {"evaluation_seconds": 6.0}, "configuration": "EPSILON = 0.5"}
    return dataclasses.replace(EARLIER, measurements=numbers, **empty | changes)


def test_everything_earlier_is_kept_and_statements_are_made_again():
    added, outcome = Series("outcomes.square", "square", {"right": [1]}), EARLIER.series[0]
    other = dataclasses.replace(outcome, title="again")
    extended = assembly.extended(EARLIER, later(*SQUARE, series=(added, other)))
    before = [m for m in EARLIER.measurements if m.id != "cost.evaluation"]
    assert [extended[m.id] for m in before] == before and extended.series == (*EARLIER.series, added)
    assert extended["attack.square_l2_0.5.accuracy"] == SQUARE[0] and "L2" in extended.threat
    assert extended.threat != EARLIER.threat
    assert any(line.startswith("Black-box attacks") for line in EARLIER.not_measured)
    assert not any(line.startswith("Black-box attacks") for line in extended.not_measured)
    spent = EARLIER.get("cost.evaluation")
    assert extended["cost.evaluation"].value == 5.0 + (spent.value if spent else 0.0)
    assert extended.cost["evaluation_seconds"] == EARLIER.cost.get("evaluation_seconds", 0.0) + 6.0
    assert extended.configuration == f"{EARLIER.configuration}\n# Added by evaluate --attach:\nEPSILON = 0.5"
    assert (extended.model, extended.training, extended.data) == (EARLIER.model, EARLIER.training, EARLIER.data)
    assert assembly.extended(extended, later(*SQUARE, series=(added, other))) is None


def test_a_check_that_ran_twice_keeps_the_worse_finding():
    (first, *_) = EARLIER.doctor
    for verdict, expected in (("pass", first), ("fail", Finding(first.check, "fail", "new", ""))):
        first_passes = dataclasses.replace(
            EARLIER, doctor=(dataclasses.replace(first, verdict="warn"), *EARLIER.doctor[1:])
        )
        extended = assembly.extended(first_passes, later(*SQUARE, doctor=(Finding(first.check, verdict, "new", ""),)))
        findings_of_check = [finding for finding in extended.doctor if finding.check == first.check]
        assert [finding.verdict for finding in findings_of_check] == [
            {"pass": "warn", "fail": "fail"}[verdict]
        ] and expected.check == findings_of_check[0].check
        assert len(extended.doctor) == len(EARLIER.doctor)


def test_a_number_that_one_evaluation_could_not_measure_is_that_of_the_other():
    measured, cost = (
        fraction("certified.linf_0.1.accuracy", 0.25, method="ibp"),
        Measurement("cost.evaluation", 5.0, "s"),
    )
    unknown = Measurement(measured.id, None, settings={"method": "ibp", "reason": "its layers are not known"})
    both = [
        dataclasses.replace(EARLIER, measurements=(*EARLIER.measurements, cost, number))
        for number in (measured, unknown)
    ]
    assert assembly.extended(both[0], later(unknown)) is None and assembly.extended(both[1], later(unknown)) is None
    assert assembly.extended(both[0], later(unknown, *SQUARE))[measured.id] == measured
    assert assembly.extended(both[1], later(measured))[measured.id] == measured


def test_an_id_with_another_result_or_other_settings_is_refused():
    curve = EARLIER.get_series("attack.pgd_linf.curve")
    assert assembly.extended(EARLIER, later(series=(curve,))).series == EARLIER.series
    for other in ({"settings": {"steps": 100}}, {"columns": {**curve.columns, "epsilon": [0.0] * 7}}):
        with pytest.raises(InputError, match="attack.pgd_linf.curve is in the report with another result"):
            assembly.extended(EARLIER, later(series=(dataclasses.replace(curve, **other),)))
    clean = EARLIER["accuracy.clean"]
    for other in (fraction("accuracy.clean", 0.5), dataclasses.replace(clean, settings={"seed": 9})):
        with pytest.raises(InputError, match="accuracy.clean is in the report with another result"):
            assembly.extended(EARLIER, dataclasses.replace(later(), measurements=(other,)))

"""Requirements on a report: kept, missed, and never kept by what is not known."""

import dataclasses

import pytest
import stored

from tfrobust.commands import gate as tool
from tfrobust.common import configured
from tfrobust.errors import InputError
from tfrobust.report import Report
from tfrobust.report.gate import Gate
from tfrobust.structs import Finding, Measurement, Series

CLEAN = Measurement("accuracy.clean", 0.9, n=100, low=0.82, high=0.95)
ATTACK, DROP = "attack.pgd_linf_0.2.accuracy", "attack.pgd_linf_0.2.drop"


def clean(value):
    return dataclasses.replace(CLEAN, value=value)


def measured(identity, value, n=100, **settings):
    return Measurement(identity, value, n=n, settings=settings)


def report(*measurements, doctor=(), series=(), fingerprint="a" * 64, name="one"):
    sizes = {"train_size": 1, "validation_size": 1, "test_size": 100}
    return Report(
        model={"name": name, "version": 1, "weights_sha256": None, "parameters": None},
        data={"name": "digits", "fingerprint": fingerprint, **sizes, "class_names": ["T-shirt/top", "bag", "Bag!"]},
        measurements=measurements,
        doctor=doctor,
        series=series,
    )


def faults(line, *measurements, **parts):
    return Gate(require=(line,)).failures(report(*measurements, **parts))


@pytest.mark.parametrize("line, fault", stored.rows(globals(), "a_threshold_is_kept_or_says_what_is_the_case"))
def test_a_threshold_is_kept_or_says_what_is_the_case(line, fault):
    assert faults(line, CLEAN) == ([f"{line}: {fault}"] if fault else [])


@pytest.mark.parametrize("sign", ["<=", ">="])
@pytest.mark.parametrize("measurement, fault", stored.rows(globals(), "what_is_not_known_never_passes"))
def test_what_is_not_known_never_passes(sign, measurement, fault):
    assert faults(f"{ATTACK} {sign} 0.5", measurement) == [f"{ATTACK} {sign} 0.5: {fault}"]


def test_what_has_no_interval_does_not_pass_and_a_percentage_means_what_it_says():
    assert faults("low of calibration.ece <= 1", measured("calibration.ece", 0.1))[0].endswith("it has no interval")
    for share, number in ((0.573, 57.3), (0.287, 28.7), (0.082, 8.2), (0.999, 99.9)):
        assert faults(f"accuracy.clean >= {number} %", measured("accuracy.clean", share)) == []


def test_a_limit_that_no_fraction_can_miss_is_a_slip():
    """A limit of 5 that is meant as 5 % would let every model pass."""
    for line, unit, fault in (
        ("calibration.rms <= 5", "fraction", "it is a fraction, which is never above 1; for per cent, write 5 %"),
        (f"{DROP} < 30", "fraction of clean", "it is a fraction, which is never above 1; for per cent, write 30 %"),
        ("corruption.mce <= 1.2", "fraction of the baseline's error", None),
        ("geometry.r_div <= 3", "ratio", None),
        ("calibration.rms <= 1", "fraction", "it is a fraction, which is never above 1; for per cent, write 1 %"),
        ("calibration.rms < 1", "fraction", None),
        ("calibration.rms <= 100 %", "fraction", None),
        ("calibration.rms >= -0.5", "fraction", "it is a fraction, which is never below 0"),
    ):
        number = dataclasses.replace(measured(line.split()[0], 0.9), unit=unit)
        messages = faults(line, number)
        assert messages == [] if fault is None else messages[0].startswith(f"{line}: {fault}")


def test_a_number_that_contradicts_its_own_images_does_not_pass():
    for value, row, passes in ((0.9, "1" * 9 + "0", True), (0.9, "1" * 5 + "0" * 5, False)):
        edited = dataclasses.replace(
            report(measured("accuracy.clean", value, n=10)),
            series=(Series("outcomes.accuracy.clean", "", {"right": [row]}),),
        )
        messages = Gate(require=("accuracy.clean >= 0.8",)).failures(edited)
        assert messages == [] if passes else "disagrees with the outcomes per image" in messages[0]


@pytest.mark.parametrize("line, measurement, fault", stored.rows(globals(), "what_no_measurement_gives_does_not_pass"))
def test_what_no_measurement_gives_does_not_pass(line, measurement, fault):
    assert faults(line, measurement) == ([f"{line}: {fault}"] if fault else [])


def test_the_doctor():
    findings = [Finding("deterministic", "pass", "fine"), Finding("units", "warn", "large", "look")]
    assert faults("no doctor fail", doctor=findings) == []
    assert faults("no doctor warn", doctor=findings) == ["no doctor warn: units (warn): large"]
    failing = [*findings, Finding("logits", "fail", "probabilities")]
    assert faults("no doctor fail", doctor=failing) == ["no doctor fail: logits (fail): probabilities"]
    assert faults("no doctor fail")[0].startswith("no doctor fail: the doctor did not run: evaluate with gin/eval/")
    # What an evaluation says without a doctor does not stand for one.
    alone = [Finding("complete_search", "warn", "ended after 5 s", "more time")]
    assert "the doctor did not run" in faults("no doctor fail", doctor=alone)[0]
    alone = [Finding("white_box", "fail", "no gradients")]
    assert len(faults("no doctor fail", doctor=alone)) == 2


@pytest.fixture
def earlier(tmp_path):
    numbers = [CLEAN, measured(ATTACK, 0.6, steps=20), measured("calibration.rms", 0.05), measured("geometry.r_div", 1)]
    path = tmp_path / "robustness_report.json"
    path.write_text(report(*numbers).to_json())
    return path


def worse(earlier, *measurements, line="no worse than {} by more than 0.01", **parts):
    line = line.format(earlier.parent)
    return [fault.removeprefix(f"{line}: ") for fault in faults(line, *measurements, **parts)]


def test_no_worse_than_another_report_knows_which_way_is_better(earlier):
    better = [clean(0.891), measured(ATTACK, 0.9, steps=20), measured("calibration.rms", 0)]
    assert worse(earlier, *better) == []
    attacked = measured(ATTACK, 0.59, steps=20)
    assert worse(earlier, clean(0.89), attacked, measured("calibration.rms", 0.06)) == []
    bad = [clean(0.88), measured("calibration.rms", 0.07), measured("geometry.r_div", 9)]
    assert worse(earlier, *bad, attacked) == [
        "accuracy.clean: it is 0.88, there 0.9",
        "calibration.rms: it is 0.07, there 0.05",
    ]
    named = "calibration.rms no worse than {} by more than 3 %"
    assert worse(earlier, *bad, line=named) == []
    assert worse(earlier, *bad, line="geometry.r_div no worse than {} by more than 1") == [
        "its better direction is unknown; write a threshold"
    ]


def test_no_worse_by_a_whole_fraction_is_a_slip(earlier):
    line = "{} no worse than {{}} by more than 1"
    number = measured("calibration.rms", 1.0)
    fault = "it is a fraction, which is never worse by more than 1; for per cent, write 1 %"
    assert worse(earlier, number, line=line.format(number.id)) == [fault]
    assert worse(earlier, number, line=line.format(number.id) + " %") == ["it is 1, there 0.05"]


def test_no_worse_refuses_a_weaker_attack_behind_other_names_too(earlier):
    identity, settings = "calibration.pgd20_linf_0.2.rms", {"attack": "pgd", "steps": 20}
    earlier.write_text(report(measured(identity, 0.1, step_size=0.025, **settings)).to_json())
    weaker = measured(identity, 0.01, step_size=1e-9, **settings)
    line = f"{identity} no worse than {{}} by more than 0.01"
    assert worse(earlier, weaker, line=line) == ["the protocols differ in step_size"]


def test_no_worse_refuses_what_cannot_be_compared(earlier):
    assert worse(earlier, CLEAN, fingerprint="b" * 64) == ["it was evaluated on other data"]
    assert worse(earlier, CLEAN, fingerprint=None) == ["it was evaluated on other data"]
    attacked = f"{ATTACK} no worse than {{}} by more than 0.01"
    for other, fault in stored.table(globals(), "no_worse_refuses_what_cannot_be_compared"):
        assert worse(earlier, measured(ATTACK, 0.9, **other), line=attacked) == ([fault] if fault else [])
    missing = "calibration.ece no worse than {} by more than 1"
    (fault,) = worse(earlier, measured("calibration.ece", 0.1), line=missing)
    assert fault.startswith("in the other report it was not measured; nearest: calibration.rms")


def test_no_worse_asks_for_all_that_the_other_report_has(earlier):
    """A measurement at another epsilon, or none at all, does not meet the requirement."""
    elsewhere = measured("attack.pgd_linf_0.1.accuracy", 0.99, steps=20)
    (fault,) = worse(earlier, CLEAN, elsewhere, measured("calibration.rms", 0))
    assert fault.startswith(f"{ATTACK}: it was not measured; nearest: {elsewhere.id}")
    messages = worse(earlier, CLEAN)
    assert [fault.partition(": ")[0] for fault in messages] == [ATTACK, "calibration.rms"]
    earlier.write_text(report(measured("geometry.r_div", 1)).to_json())
    assert worse(earlier, CLEAN) == ["the other report has no main number with a known better direction"]


LINES = ["accuracy.clean = 0.9", "accuracy.clean >= high", "accuracy >= 0.9", "no doctor", "", 5, "no worse than x"]


@pytest.mark.parametrize(
    "require, message",
    [
        *((requirement, "give lines like 'accuracy.clean >= 0.9'") for requirement in (None, 3, {"a": 1}, lambda: 0)),
        *((("accuracy.clean >= 0", line), "a line is one of") for line in LINES),
    ],
)
def test_what_holds_no_lines_is_refused_when_the_gate_is_made(require, message):
    with pytest.raises(InputError, match=message):
        Gate(require=require)


def test_a_reference_that_is_not_there_is_found_before_training(tmp_path, earlier):
    Gate(require=(f"no worse than {earlier.parent} by more than 0",)).check_references()
    with pytest.raises(InputError, match="does not exist"):
        Gate(require=(f"no worse than {tmp_path / 'none'} by more than 0",)).check_references()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no robustness report"):
        Gate(require=(f"no worse than {tmp_path / 'empty'} by more than 0",)).check_references()


def test_one_line_may_stand_alone_and_the_gate_is_configured():
    gate = Gate(require="accuracy.clean >= 0.5")
    assert gate.require == ("accuracy.clean >= 0.5",)
    assert configured.deserialize(configured.serialize(gate)) == gate


def test_the_tool_says_each_line_and_returns_three(earlier, capsys):
    met, missed = "accuracy.clean >= 0.5", "calibration.rms <= 0.01"
    assert tool.main([str(earlier.parent), "--require", met]) == 0
    assert tool.main([str(earlier.parent), "--require", met, "--require", missed]) == 3
    assert capsys.readouterr().out.splitlines()[1:] == [f"kept    {met}", f"missed  {missed}: it is 0.05"]
    assert tool.main([str(earlier.parent / "none"), "--require", met]) == 2
    assert tool.main([str(earlier.parent), "--require", "nonsense"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize(
    "line", ["accuracy.clean >= 1e999", "accuracy.clean <= 1e999 %", f"accuracy.clean > 1e{'9' * 20}"]
)
def test_a_limit_beyond_64_bits_is_refused_before_the_training(line):
    with pytest.raises(InputError, match="1e9+, which is no number of 64 bits"):
        Gate(require=(line,))


@pytest.mark.parametrize("line, fault", stored.rows(globals(), "what_an_evaluation_does_not_measure_is_refused"))
def test_what_an_evaluation_does_not_measure_is_refused_before_it_begins(line, fault):
    measurable = ["no worse than exported/x.y by more than 0.01", "cost.evaluation <= 60", f"low of {ATTACK} >= 5 %"]
    measurable += [ATTACK.replace("accuracy", "class.shirt") + " >= 0.1", "accuracy.group.night >= 0.1"]
    measurable += [f"low of min over classes of {ATTACK} >= 0.1"]
    for requirement in measurable:
        Gate(require=(requirement,)).check_measured([CLEAN.id, ATTACK], has_doctor=False)
    with pytest.raises(InputError, match=fault):
        Gate(require=(measurable[0], line)).check_measured([CLEAN.id, ATTACK], has_doctor=False)
    Gate(require=("no doctor fail",)).check_measured([], has_doctor=True)


def of_parts(identity, column, names, values):
    low, high = [value - 0.1 for value in values], [value + 0.1 for value in values]
    columns = {column: names, "n": [10] * len(names), "accuracy": values, "low": low, "high": high}
    return Series(identity, "", columns)


PARTS = (
    of_parts("accuracy.classes", "label", [0, 1, 2], [0.9, 0.7, 0.8]),
    of_parts("attack.pgd_linf_0.2.classes", "label", [0, 1, 2], [0.6, 0.2, 0.7]),
    of_parts("attack.pgd_linf_0.2.groups", "group", ["Day light", "night"], [0.5, 0.3]),
)


@pytest.mark.parametrize("line, fault", stored.rows(globals(), "classes_and_groups"))
def test_classes_and_groups(line, fault):
    messages = faults(line, CLEAN, measured(ATTACK, 0.4), series=PARTS)
    assert messages == [] if fault is None else len(messages) == 1 and messages[0].startswith(f"{line}: {fault}"), (
        messages
    )


def test_classes_of_a_bound_never_pass_and_are_compared_with_others():
    ((fault),) = faults(f"min over classes of {ATTACK} >= 0.1", measured(ATTACK, 0.4, bound="upper"), series=PARTS)
    assert "bag: a time budget ended its attack" in fault or "T-shirt/top: a time budget ended" in fault
    assert faults(f"min over classes of {ATTACK} >= 0.1", measured(ATTACK, 0.4)) == [
        f"min over classes of {ATTACK} >= 0.1: its classes were not measured; it has no classes at all"
    ]


def test_a_class_or_group_that_was_not_measured_has_no_least():
    """The images of an attack may lack a class, or a group that the clean images have; a value may be unknown."""
    groups = of_parts("accuracy.groups", "group", ["Day light", "night", "fog"], [0.9] * 3)
    rows = {"label": [0, 1, 2], "n": [10, 10, 0], "accuracy": [0.6, 0.2, None], "low": [0.5, 0.1, None]}
    unknown = Series("attack.pgd_linf_0.2.classes", "", rows | {"high": [0.7, 0.3, None]})
    for kind, series, name in (
        ("classes", of_parts("attack.pgd_linf_0.2.classes", "label", [0, 1], [0.6, 0.2]), "Bag!"),
        ("classes", unknown, "Bag!"),
        ("groups", of_parts("attack.pgd_linf_0.2.groups", "group", ["Day light", "night"], [0.6, 0.2]), "fog"),
    ):
        line = f"min over {kind} of {ATTACK} >= 0.1"
        assert faults(line, CLEAN, measured(ATTACK, 0.4), series=[series, groups]) == [
            f"{line}: {name}: it was not measured"
        ]


def test_a_number_that_is_a_name_and_a_label_is_ambiguous():
    series = of_parts("accuracy.classes", "label", [0, 1, 2], [1.0, 0.0, 1.0])
    per_class = [measured(f"accuracy.class.{label}", value) for label, value in enumerate([1.0, 0.0, 1.0])]
    for numbers in ([], per_class):
        named = report(CLEAN, *numbers, series=[series])
        named.data["class_names"] = ["1", "2", "3"]
        for line, refused in (("accuracy.class.1 >= 0.5", True), ("accuracy.class.3 >= 0.5", False)):
            failures = Gate(require=(line,)).failures(named)
            assert bool(failures) == refused
            assert all("several classes" in fault and "rename them" in fault for fault in failures)


def test_a_class_under_another_protocol_is_not_compared(tmp_path):
    (tmp_path / "strong.json").write_text(report(CLEAN, measured(ATTACK, 0.4, steps=100), series=PARTS).to_json())
    for identity in (ATTACK, ATTACK.replace("accuracy", "class.0")):
        line = f"{identity} no worse than {tmp_path}/strong.json by more than 0.01"
        assert faults(line, CLEAN, measured(ATTACK, 0.4, steps=1), series=PARTS) == [
            f"{line}: the protocols differ in steps"
        ]
        assert faults(line, CLEAN, measured(ATTACK, 0.4, steps=100), series=PARTS) == []


def test_images_drawn_by_another_seed_are_not_compared(tmp_path):
    (tmp_path / "other.json").write_text(report(CLEAN, measured(ATTACK, 0.4, n=50, seed=0), series=PARTS).to_json())
    for identity in (ATTACK, ATTACK.replace("accuracy", "class.0")):
        line = f"{identity} no worse than {tmp_path}/other.json by more than 0"
        for seed, n, same in ((0, 50, True), (7, 50, False)):
            failures = faults(line, CLEAN, measured(ATTACK, 0.4, n=n, seed=seed), series=PARTS)
            assert failures == ([] if same else [f"{line}: the protocols differ in the seed that drew the images"])


def test_a_share_in_another_unit_does_not_pass():
    line = "accuracy.clean >= 0.9"
    per_cent = dataclasses.replace(CLEAN, value=40.0, unit="percent", low=None, high=None)
    assert faults(line, per_cent) == [f"{line}: its unit is 'percent', not a fraction"]


def test_a_class_is_no_worse_than_in_another_report(tmp_path):
    (tmp_path / "other.json").write_text(report(CLEAN, series=PARTS).to_json())
    worse = of_parts("accuracy.classes", "label", [0, 1, 2], [0.9, 0.7, 0.7])
    line = f"accuracy.class.2 no worse than {tmp_path}/other.json by more than 0.05"
    assert faults(line, CLEAN, series=PARTS) == []
    assert faults(line, CLEAN, series=[worse]) == [f"{line}: it is 0.7, there 0.8"]

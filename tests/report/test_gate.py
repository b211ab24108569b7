"""Requirements on a report: kept, missed, and never kept by what is not known."""

import dataclasses
import importlib.util
import pathlib

import pytest

from tfrobust.errors import InputError
from tfrobust.ops import configured
from tfrobust.report import Report
from tfrobust.report.gate import Gate
from tfrobust.structs import Finding, Measurement

CLEAN = Measurement("accuracy.clean", 0.9, n=100, low=0.82, high=0.95)
ATTACK = "attack.pgd_linf_0.2.accuracy"


def measured(identity, value, n=100, **settings):
    return Measurement(identity, value, n=n, settings=settings)


def report(*measurements, doctor=(), fingerprint="a" * 64, name="one"):
    sizes = {"train_size": 1, "validation_size": 1, "test_size": 100}
    return Report(
        model={"name": name, "version": 1, "weights_sha256": None, "parameters": None},
        data={"name": "digits", "fingerprint": fingerprint, **sizes},
        measurements=measurements,
        doctor=doctor,
    )


def faults(line, *measurements, **parts):
    return Gate(require=(line,)).failures(report(*measurements, **parts))


@pytest.mark.parametrize(
    "line",
    [
        "accuracy.clean >= 0.9",
        "accuracy.clean >= 90 %",
        "accuracy.clean > 0.89",
        "accuracy.clean <= 9e-1",
        "low of accuracy.clean >= 0.82",
        "high of accuracy.clean < .951",
    ],
)
def test_a_threshold_that_is_kept(line):
    assert faults(line, CLEAN) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("accuracy.clean > 0.9", "it is 0.9"),
        ("accuracy.clean >= 91 %", "it is 0.9"),
        ("low of accuracy.clean >= 0.9", "it is 0.82"),
        ("high of accuracy.clean < 0.95", "it is 0.95"),
        ("calibration.rms <= 0.05", "it was not measured"),
    ],
)
def test_a_threshold_that_is_missed_says_what_is_the_case(line, fault):
    assert faults(line, CLEAN) == [f"{line}: {fault}"]


@pytest.mark.parametrize("sign", ["<=", ">="])
@pytest.mark.parametrize(
    ("measurement", "fault"),
    [
        (measured(ATTACK, None), "its value is not known"),
        (measured(ATTACK, float("nan")), "its value is not known"),
        (measured(ATTACK, 0.5, bound="upper"), "a time budget ended its attack, so that it is an upper bound"),
    ],
)
def test_what_is_not_known_never_passes(sign, measurement, fault):
    assert faults(f"{ATTACK} {sign} 0.5", measurement) == [f"{ATTACK} {sign} 0.5: {fault}"]


def test_an_interval_that_is_not_there_does_not_pass():
    assert faults("low of calibration.ece <= 1", measured("calibration.ece", 0.1))[0].endswith("it has no interval")


def test_the_doctor():
    findings = [Finding("gradients", "pass", "fine"), Finding("units", "warn", "large", "look")]
    assert faults("no doctor fail", doctor=findings) == []
    assert faults("no doctor warn", doctor=findings) == ["no doctor warn: units says warn: large"]
    failing = [*findings, Finding("logits", "fail", "probabilities")]
    assert faults("no doctor fail", doctor=failing) == ["no doctor fail: logits says fail: probabilities"]
    assert faults("no doctor fail") == ["no doctor fail: the doctor was not asked"]


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
    better = [dataclasses.replace(CLEAN, value=0.891), measured(ATTACK, 0.9, steps=20), measured("calibration.rms", 0)]
    assert worse(earlier, *better) == []
    allowed = [dataclasses.replace(CLEAN, value=0.89), measured("calibration.rms", 0.06)]
    assert worse(earlier, *allowed) == []
    bad = [dataclasses.replace(CLEAN, value=0.88), measured("calibration.rms", 0.07), measured("geometry.r_div", 9)]
    assert worse(earlier, *bad) == [
        "accuracy.clean: it is 0.88, there 0.9",
        "calibration.rms: it is 0.07, there 0.05",
    ]
    named = "calibration.rms no worse than {} by more than 3 %"
    assert worse(earlier, *bad, line=named) == []
    assert worse(earlier, *bad, line="geometry.r_div no worse than {} by more than 1") == [
        "which way is better is not known for it: write a threshold"
    ]


def test_no_worse_refuses_what_cannot_be_compared(earlier):
    assert worse(earlier, CLEAN, fingerprint="b" * 64) == ["it was judged on other data"]
    assert worse(earlier, measured(ATTACK, 0.9, steps=5)) == [f"{ATTACK}: the protocols differ in steps"]
    assert worse(earlier, dataclasses.replace(CLEAN, n=50)) == [
        "accuracy.clean: the protocols differ in the number of images"
    ]
    assert worse(earlier, measured("geometry.r_div", 1)) == ["the two reports have no number in common"]
    missing = "calibration.ece no worse than {} by more than 1"
    assert worse(earlier, measured("calibration.ece", 0.1), line=missing) == ["in the other report it was not measured"]


@pytest.mark.parametrize(
    "line", ["accuracy.clean = 0.9", "accuracy.clean >= high", "accuracy >= 0.9", "no doctor", "", 5, "no worse than x"]
)
def test_a_line_that_is_none_is_refused_when_the_gate_is_made(line):
    with pytest.raises(InputError, match="a line is one of"):
        Gate(require=("accuracy.clean >= 0", line))


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
    path = pathlib.Path(__file__).parents[2] / "tools" / "gate.py"
    specification = importlib.util.spec_from_file_location("gate_tool", path)
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    kept, missed = "accuracy.clean >= 0.5", "calibration.rms <= 0.01"
    assert tool.main([str(earlier.parent), "--require", kept]) == 0
    assert tool.main([str(earlier.parent), "--require", kept, "--require", missed]) == 3
    assert capsys.readouterr().out.splitlines()[1:] == [f"kept    {kept}", f"missed  {missed}: it is 0.05"]
    assert tool.main([str(earlier.parent / "none"), "--require", kept]) == 2
    assert tool.main([str(earlier.parent), "--require", "nonsense"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2

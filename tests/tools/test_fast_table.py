"""The table of the fast ensemble: differences and passes in closed form, from reports and from results."""

import base64
import json
import pathlib

import fast_table as tool
import numpy as np
import pytest

from tfrobust.evaluation.engine.base import Outcome
from tfrobust.structs import Measurement, Series

ROOT = pathlib.Path(__file__).resolve().parents[2]


def report(label, correct, members=(), **settings):
    name, facts = f"attack.{label}_linf_0.1", {"norm": "linf", "epsilon": 0.1}
    measured = [{"id": f"{name}.accuracy", "value": np.mean(correct), "settings": facts | settings}]
    measured += [{"id": f"{name}.{member}.accuracy", "value": value, "settings": facts} for member, value in members]
    rows = {"id": f"outcomes.{name}.accuracy", "columns": {"right": ["".join(map(str, correct))]}}
    return {"measurements": measured, "series": [rows]}


def test_differences_and_passes_of_a_pair(tmp_path, capsys):
    ours, theirs = [1] * 60 + [0] * 40, [1] * 50 + [0] * 50
    counted = {"forward_passes": 300.0, "backward_passes": 200.5, "black_box": "square was left out"}
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "robustness_report.json").write_text(json.dumps(report("fast", ours, **counted)))
    members = [("apgd_ce", 0.8), ("apgd_t", 0.6), ("fab_t", 0.5), ("square", 0.5)]
    reference = report("autoattack", theirs, members)
    result = {
        "measurements": {item["id"]: item for item in reference["measurements"]},
        "outcomes": {"attack.autoattack_linf_0.1.accuracy": {"images": 100, "bits": packed("".join(map(str, theirs)))}},
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    flags = [
        "--pair",
        "a",
        str(tmp_path / "fast"),
        str(tmp_path / "result.json"),
        "--results",
        str(tmp_path / "r.json"),
    ]
    tool.run(tool.parser().parse_args(flags))
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert (row["autoattack"], row["fast"], row["counted"]) == (0.5, 0.6, False)
    # The sample deviation of ten ones among a hundred is 0.3015.
    np.testing.assert_allclose(row["difference"], [0.1, 0.1 - 0.0591, 0.1 + 0.0591], atol=1e-4)
    # Images that remain took all steps: of APGD-CE 100, of APGD-T and FAB 900, and 5,001 queries of Square.
    forward = 0.8 * 101 + 0.6 * (9 * 101 + 1) + 0.5 * (9 * 201 + 1) + 0.5 * 5002
    np.testing.assert_allclose(row["autoattack_passes"], [forward, 0.8 * 100 + 0.6 * 900 + 0.5 * 900], atol=0.05)
    text = capsys.readouterr().out
    assert (
        "| +10.0 [+4.1, +15.9] | at least " in text
        and "on 0 at most 0.3 points above (on 0 of" in text
        and "on 1 in a fifth" in text
    )
    with pytest.raises(ValueError, match="the two accuracies are of 100 and 3 images"):
        rows = [{"correct": np.ones(count), "settings": {}} for count in (100, 3)]
        tool.compared("a", *rows)


def test_rows_of_the_plan_are_measured_once_and_stored_one_by_one(tmp_path, monkeypatch):
    stored, calls = tmp_path / "r.json", []

    def outcomes(row):
        calls.append(row.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {
            attack: Outcome(
                [Measurement(**item) for item in content["measurements"]], [Series(**content["series"][0], title="")]
            )
            for attack in ("fast", "autoattack")
            if (content := report(attack, [1, 1, 0], forward_passes=9.0, backward_passes=1.0))
        }

    monkeypatch.setattr(tool._fast_rows, "measurements", outcomes)
    plan = [row.name for row in tool._fast_rows.read(tool.PLAN)]
    flags = ["--run", "--results", str(stored)]
    with pytest.raises(KeyboardInterrupt):
        tool.run(tool.parser().parse_args(flags))
    tool.run(tool.parser().parse_args([*flags, f"--rows={plan[1]},{plan[2]}"]))
    assert calls == [*plan[:3], plan[2]] and [row["model"] for row in json.loads(stored.read_text())] == plan[:3]
    with pytest.raises(ValueError, match="--rows names 'none', which is no row of"):
        tool.run(tool.parser().parse_args([*flags, "--rows=none"]))


def test_the_plan_names_files_that_exist():
    rows = tool._fast_rows.read(tool.PLAN)
    assert len(rows) >= 25 and {row.fold for row in rows if not row.model} == set(range(5))
    for row in rows:
        assert all((ROOT / name).is_file() for name in (*row.files, *filter(None, [row.reference])))


@pytest.mark.parametrize(
    "text,message",
    [
        ("rows = [{}]", "missing 1 required"),
        ("rows = [1]", "is no plan"),
        ("x", "is no plan"),
        ("[[rows]]\nname = 'a'\n[[rows]]\nname = 'a'", "two rows 'a'"),
    ],
)
def test_no_plan(tmp_path, text, message):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        tool._fast_rows.read(tmp_path / "plan.toml")


def packed(digits):
    return base64.b64encode(np.packbits([int(digit) for digit in digits]).tobytes()).decode()

"""The table of the fast ensemble: differences and passes in closed form, from reports and from results."""

import base64
import json

import numpy as np
import pytest


@pytest.fixture
def tool(load):
    return load("_recipes", "_result_tables", "results_table", "fast_table").fast_table


def report(label, correct, members=(), **settings):
    name, facts = f"attack.{label}_linf_0.1", {"norm": "linf", "epsilon": 0.1}
    measured = [{"id": f"{name}.accuracy", "value": np.mean(correct), "settings": facts | settings}]
    measured += [{"id": f"{name}.{member}.accuracy", "value": value, "settings": facts} for member, value in members]
    rows = {"id": f"outcomes.{name}.accuracy", "columns": {"right": ["".join(map(str, correct))]}}
    return {"measurements": measured, "series": [rows]}


def test_differences_and_passes_of_a_pair(tool, tmp_path, capsys):
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
        "| +10.0 [+4.1, +15.9] | at least " in text and "0 are within 0.3 points" in text and "1 take at most" in text
    )
    with pytest.raises(ValueError, match="the two accuracies are of 100 and 3 images"):
        rows = [{"correct": np.ones(count), "settings": {}} for count in (100, 3)]
        tool.compared("a", *rows)


def packed(digits):
    return base64.b64encode(np.packbits([int(digit) for digit in digits]).tobytes()).decode()

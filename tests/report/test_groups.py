"""Groups of runs that differ by their seed: means, spread, and differences paired over seeds."""

import json

import pytest
from report.synthetic import fraction, make_report
from report.test_compare import compared, publish
from report.test_render import Page

from tfrobust.commands import compare as command
from tfrobust.report.comparison import groups, verdict
from tfrobust.report.comparison import views as compare_views
from tfrobust.structs import Measurement

CLEAN, PGD = "accuracy.clean", "attack.pgd_linf_0.2.accuracy"


def run(name, clean, pgd, **changes):
    numbers = [fraction(CLEAN, clean), fraction(PGD, pgd, attack="pgd")]
    return make_report(name, 1, **{"measurements": numbers, **changes})


def runs(**changes):
    """Two methods with three seeds each. The clean accuracies differ more over seeds than between the methods."""
    mine, other = (0.50, 0.54, 0.58), (0.40, 0.46, 0.46)
    reports = [run(f"mine-seed{seed}", value, 0.3, **changes) for seed, value in enumerate(mine)]
    return reports + [run(f"other-seed{seed}", value, 0.3) for seed, value in enumerate(other)]


def test_spread_by_hand():
    # sd 0.04, t(0.975, 2) = 4.3027, half width 4.3027 x 0.04 / sqrt(3) = 0.09937.
    spread = groups.spread([0.50, 0.54, 0.58])
    assert spread == pytest.approx((0.54, 0.04, 0.44063, 0.63937, 3), abs=1e-5)
    assert groups.spread([0.5]) == (0.5, None, None, None, 1)
    with pytest.raises(ValueError, match="at least one value"):
        groups.spread([])


def test_pairs_share_their_keys():
    # Differences 10, 8 and 12 points: sd 2, half width 4.3027 x 2 / sqrt(3) = 4.968.
    spread = groups.paired_spread({0: 0.50, 1: 0.54, 2: 0.58, 7: 0.0}, {2: 0.46, 1: 0.46, 0: 0.40})
    assert spread == pytest.approx((0.10, 0.02, 0.05032, 0.14968, 3), abs=1e-5)
    assert groups.paired_spread({0: 1.0}, {1: 1.0}) is None


def test_reports_are_grouped_by_their_names():
    by_name = groups.group([run(name, 0.5, 0.3) for name in ("a-seed10", "b", "a-seed2", "a-seed", "x-seed1-seed3")])
    assert {name: list(runs_of_name) for name, runs_of_name in by_name.items()} == {
        "a": [10, 2],
        "b": [None],
        "a-seed": [None],
        "x-seed1": [3],
    }
    for names in (("a", "a-seed0"), ("a-seed0", "a-seed1", "a")):
        with pytest.raises(ValueError, match="a and a-seed... are both given"):
            groups.group([run(name, 0.5, 0.3) for name in names])
    with pytest.raises(ValueError, match="a-seed1 is given twice"):
        groups.group([run("a-seed1", 0.5, 0.3), run("a-seed1", 0.6, 0.3)])


def test_equal_differences_are_no_certainty():
    # Of 360 images each, 1/360 apart for both seeds: s is that of rounding, 1 / (360 sqrt(12)); t(0.975, 1) = 12.706.
    reports = [
        run(f"{name}-seed{seed}", 0.5, clean) for seed in (0, 1) for name, clean in (("a", 0.3), ("b", 0.3 - 1 / 360))
    ]
    by_name = groups.group(reports)
    gap = groups.difference(PGD, by_name["a"], by_name["b"])
    half = 12.706 / (360 * 12**0.5) / 2**0.5
    assert gap[:3] == pytest.approx((1 / 360, 1 / 360 - half, 1 / 360 + half), abs=1e-6)
    mean = groups.summary("a", by_name["a"])[PGD]  # nor are equal values of one group
    assert (mean.low, mean.high) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-6)
    assert mean.settings["deviation"] == 0


def test_a_verdict_does_not_contradict_its_pairs():
    """The mean of a is larger for its seeds 2 and 3 alone; of the seeds that both have, b is larger."""
    values = {"a": [0.30, 0.31, 0.90, 0.90], "b": [0.50, 0.512]}
    reports = [run(f"{name}-seed{seed}", 0.9, share) for name, of in values.items() for seed, share in enumerate(of)]
    (answer, *_) = verdict.verdict(compared(*reports, grouped=True))
    assert answer.startswith("The seeds do not tell which of a and b is more"), answer


def test_means_and_paired_differences():
    comparison = compared(*runs(), grouped=True, reference="other")
    assert [name for name, _ in comparison.named] == ["mine", "other"]
    mean = comparison.named[0][1][CLEAN]
    assert (mean.value, mean.low, mean.n) == pytest.approx((0.54, 0.44063, 3), abs=1e-5)
    difference = comparison.differences(comparison.named[0][1])[CLEAN]
    assert difference == (
        pytest.approx(0.10),
        pytest.approx(0.05032, abs=1e-5),
        pytest.approx(0.14968, abs=1e-5),
        "seeds",
    )
    assert compared(*runs(), grouped=True).reference == "mine"  # the first by default
    assert compared(*runs()[:3], grouped=True).reference is None


def test_pairs_on_other_data_and_missing_values_do_not_count():
    reports = runs()
    reports[0] = run("mine-seed0", 0.5, 0.3, data={**reports[0].data, "fingerprint": "b2" * 32})
    reports[1] = run("mine-seed1", 0.5, 0.3, measurements=[Measurement(CLEAN, None, "fraction")])
    comparison = compared(*reports, grouped=True, reference="other")
    difference = comparison.differences(comparison.named[0][1])[CLEAN]
    assert difference.kind == "" and difference.value == pytest.approx(0.12)
    assert comparison.named[0][1][CLEAN].n == 2


def test_page_and_json_have_the_groups():
    comparison = compared(*runs(), run("alone", 0.7, 0.2), grouped=True, reference="other")
    page = " ".join(Page(compare_views.html(comparison)).text)
    assert "44.1" in page and "mine-seed2" in page and "Small marks" in page
    mine = json.loads(compare_views.as_json(comparison))["rows"][0]
    files = [(0, "0.json"), (1, "1.json"), (2, "2.json")]
    assert mine["name"] == "mine" and [(entry["seed"], entry["file"]) for entry in mine["runs"]] == files
    assert mine["measurements"][CLEAN]["settings"]["deviation"] == pytest.approx(0.04)
    assert mine["measurements"][CLEAN]["difference"]["kind"] == "seeds"
    assert "54.0 % [44.1 to 63.9], SD 4.0" in compare_views.markdown(comparison).replace("\\", "")


def test_the_command_groups(tmp_path, capsys):
    for seed in (0, 1):
        for name, pgd in (("mine", 0.6), ("other", 0.5)):
            publish(tmp_path / "exported", f"{name}-seed{seed}", 1, pgd=pgd + 0.01 * seed)
    paths = sorted(map(str, (tmp_path / "exported").iterdir()))
    output = f"--output={tmp_path / 'page.html'}"
    assert command.main([*paths, output, "--group", "--reference=other"]) == 0
    text = capsys.readouterr().out
    assert "60.5 ± 6.4, SD 0.7" in text and "Differences from other" in text
    assert command.main([*paths, output, "--group", "--gap_from=mine", "--gap_to=other"]) == 2
    assert "leave out --group" in capsys.readouterr().err

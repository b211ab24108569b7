"""Many reports side by side."""

import dataclasses
import json
import re

import pytest
import stored
from report.synthetic import attack, fraction, make_report, measurements
from report.test_render import Page

from tfrobust.commands import compare as command
from tfrobust.report.comparison import groups
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views as compare_views
from tfrobust.report.difference import difference as compare_difference
from tfrobust.report.sections.attacks import Attacks
from tfrobust.structs import Finding, Series


def publish(folder, name, version, **changes):
    extra = folder / name / str(version) / "assets.extra"
    extra.mkdir(parents=True)
    (extra / "robustness_report.json").write_text(make_report(name=name, version=version, **changes).to_json())


@pytest.fixture
def exported(tmp_path):
    publish(tmp_path, "ascl", 2, pgd=0.5)
    publish(tmp_path, "ascl", 10)
    publish(tmp_path, "trades", 1, pgd=0.6)
    publish(tmp_path, "supervised", 1, fgsm=0.2, pgd=0.031)
    (tmp_path / "ascl" / "11.writing").mkdir()
    (tmp_path / "README.md").write_text("models")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('{"schema": "something else"}')
    return tmp_path


def test_finds_the_newest_version_of_each_or_what_is_named_each_once(exported):
    reports = compare.load_reports(sorted(exported.iterdir()))
    assert compare.names(reports) == ["ascl/10", "supervised/1", "trades/1"]
    assert compare.find_report(exported / "empty") is None and compare.find_report(exported / "nowhere") is None
    version = exported / "ascl" / "2"
    file = version / "assets.extra" / "robustness_report.json"
    reports = compare.load_reports([version, file, file.parent])
    assert compare.names(reports) == ["ascl/2"] and reports[0][0] == file


def test_bad_paths_are_one_clear_line(exported):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        compare.load_reports([exported / "nowhere"])
    broken = exported / "broken.json"
    broken.write_text('{"schema": "tfrobust/robustness_report/1"}')
    with pytest.raises(ValueError, match=r"broken.json: .*\$\."):
        compare.load_reports([broken])
    broken.write_bytes(make_report().to_json().encode("utf-16"))
    with pytest.raises(ValueError, match="is text in UTF-16"):
        compare.load_reports([broken])
    (exported / "ascl" / "10" / "assets.extra" / "robustness_report.json").write_bytes(b"")
    with pytest.raises(ValueError, match="robustness_report.json: The robustness report is not JSON"):
        compare.load_reports([exported / "ascl", exported / "trades"])


def compared(*reports, **order):
    return compare.arrange([(f"{number}.json", report) for number, report in enumerate(reports)], **order)


def tables(*arguments, **options):
    """The console view without the verdict above its tables."""
    return compare_views.table(*arguments, **options).partition("\nMeasurements\n")[2]


def rows(text):
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


@pytest.mark.parametrize("order, expected", stored.rows(globals(), "order"))
def test_order(exported, order, expected):
    reports = [report for _, report in compare.load_reports(sorted(exported.iterdir()))]
    few = make_report(name="few", measurements=measurements(0.9, 0.5, 0.4)[:1])
    comparison = compared(*reports, few, **order)
    assert [name for name, _ in comparison.named] == expected
    names = ["ascl/10", "supervised/1", "trades/1", "few/3"]
    assert [str(file)[0] for file in comparison.files] == [str(names.index(name)) for name in expected]


def test_whatever_is_sorted_by_is_a_column():
    comparison = compared(make_report("a", 1), make_report("b", 1), sort="geometry.intra_class_divergence")
    assert "geometry.intra_class_divergence" in comparison.columns
    assert "geometry.intra_class_divergence" not in compared(make_report("a", 1)).columns
    with pytest.raises(ValueError, match="No report has 'attack.pgd_linf_0.3.accuracy'; nearest: attack.pgd_linf_0.2"):
        compared(make_report("a", 1), sort="attack.pgd_linf_0.3.accuracy")


def outcomes(identity, row):
    return Series(f"outcomes.{identity}", "", {"right": [row]})


def judged(name, row, **changes):
    """A report of one accuracy with its outcomes image by image."""
    share = row.count("1") / len(row)
    parts = {"measurements": [fraction("accuracy.clean", share, len(row))], "series": [outcomes("accuracy.clean", row)]}
    return make_report(name, 1, **{**parts, **changes})


def test_differences_say_what_their_intervals_are():
    first, second = judged("a", "1" * 60 + "0" * 40), judged("b", "1" * 50 + "0" * 50)
    bare = judged("c", "1" * 50 + "0" * 50, series=[])
    elsewhere = judged("d", "1" * 50 + "0" * 50, data={**first.data, "fingerprint": "b2" * 32})
    comparison = compared(first, second, bare, elsewhere, reference="a")
    kinds = {name: comparison.differences(report)["accuracy.clean"] for name, report in comparison.named[1:]}
    assert [difference.kind for difference in kinds.values()] == ["paired", "independent", "independent"]
    assert all(difference.value == pytest.approx(-0.1) for difference in kinds.values())
    assert kinds["b/1"].high < 0 < kinds["c/1"].high  # the pairs show what two samples leave open
    (line,) = [
        line for line in compare_views.table(comparison).splitlines() if line.startswith("b/1") and " p*" in line
    ]
    assert rows(line)[0][1] == "-10.0 ± 6.6 p*"  # [-16.2 to -3.4]
    clips = [dataclasses.replace(report, data={**report.data, "kind": "clips"}) for report in (first, second, bare)]
    text = compare_views.table(compared(*clips, reference="a"))
    assert "p: paired over clips" in text and "if the clips are the same" in text


def test_reports_are_paired_by_what_they_were_judged_on_not_trained_on():
    ends = {"test_fingerprint": "c3" * 32}
    first = judged("a", "1" * 6 + "0" * 4)
    data = [{**first.data, "fingerprint": print_ * 32, **ends} for print_ in ("a1", "b2")]
    comparison = compared(
        *(judged(name, "1" * 6 + "0" * 4, data=changes) for name, changes in zip("ab", data, strict=True)),
        reference="a",
    )
    assert comparison.notes == {} and comparison.differences(comparison.named[1][1])["accuracy.clean"].kind == "paired"


@pytest.mark.parametrize("seed, size, kind", [(0, 360, "paired"), (1, 360, "independent"), (1, 10, "paired")])
def test_images_that_other_seeds_have_drawn_are_not_paired(seed, size, kind):
    identity, data = "attack.pgd_linf_0.2.accuracy", make_report().data | {"test_size": size}
    pair = [
        make_report(
            measurements=attack("pgd", 0.6, 1.0, 10, seed=number),
            series=[outcomes(identity, "1" * 6 + "0" * 4)],
            data=data,
        )
        for number in (0, seed)
    ]
    assert compare_difference(identity, *pair).kind == kind


def dropped(clean, attacked, **changes):
    """A report of an attack on the first images of a clean evaluation, with the outcomes of both."""
    count = len(attacked)
    share = clean[:count].count("1") / count
    numbers = attack("pgd", attacked.count("1") / count, share, count)
    parts = {
        "measurements": [fraction("accuracy.clean", clean.count("1") / len(clean), len(clean)), *numbers],
        "series": [outcomes("accuracy.clean", clean), outcomes("attack.pgd_linf_0.2.accuracy", attacked)],
    }
    return make_report(**{**parts, **changes})


def test_relative_drops_are_paired_image_by_image():
    identity = "attack.pgd_linf_0.2.drop"
    first, second = dropped("111101", "1100"), dropped("110111", "1000")
    # Drops 1/2 and 2/3. Scores 1/2 + (c/2 - a): 0, 0, 1, 1; and 2/3 + (c/3 - a) / (3/4): -2/9, 10/9, 2/3, 10/9. Their
    # differences 2/9, -10/9, 1/3, -1/9 have the deviation 0.6573; half the interval is 1.96 sd / 2.
    gap = compare_difference(identity, first, second)
    assert gap[:3] == pytest.approx((-1 / 6, -0.8108, 0.4775), abs=1e-4) and gap.kind == "paired"
    # Not without outcomes, nor with those of other images, nor where equal outcomes would give no width.
    bare = dropped("111101", "1100", series=[])
    elsewhere = dropped("000111", "1000", measurements=dropped("110111", "1000").measurements)
    for other in (bare, elsewhere, first):
        assert compare_difference(identity, first, other).kind != "paired"


@pytest.mark.parametrize("row", ["", "1" * 9, "1" * 10, "2" * 10, "11111 0000", 1111110000])
def test_outcomes_that_are_not_the_measurements_are_not_paired(row):
    good = judged("a", "1" * 6 + "0" * 4)
    bad = judged("b", "1" * 6 + "0" * 4, series=[outcomes("accuracy.clean", row)])
    comparison = compared(good, bad, reference="a")
    assert comparison.differences(bad)["accuracy.clean"].kind == "independent"


def test_columns_of_unlike_protocols_are_marked():
    base = make_report("a", 1)
    steps = make_report("c", 1, measurements=measurements(0.9, 0.6, 0.5, steps=20))
    comparison = compared(base, steps)
    assert comparison.notes["PGD, L∞ ε = 0.2: steps differs (100: a/1; 20: c/1)."] == ["attack.pgd_linf_0.2.accuracy"]
    assert comparison.marks("attack.pgd_linf_0.2.accuracy") == " [1] [2]" and comparison.marks("accuracy.clean") == ""
    unknown = [make_report(name, 1, data={**base.data, "fingerprint": None}) for name in "ef"]
    assert "unknown: e/1, f/1" in list(compared(*unknown).notes)[0]
    refused = make_report("b", 1, doctor=[Finding("gradients", "fail", "none"), Finding("ascent", "warn", "few")])
    assert list(compared(base, refused).notes) == ["The doctor's checks failed for b/1: gradients."]
    assert compared(refused).notes == {}


@pytest.mark.parametrize("identity, label, name, first, second", stored.rows(globals(), "what_makes_two_numbers"))
def test_what_makes_two_numbers_unlike(identity, label, name, first, second):
    settings_pair = [{"attack": "pgd"} | ({} if value is None else {name: value}) for value in (first, second)]
    pair = [
        make_report(model, 1, measurements=[fraction(identity, 0.5, **settings)])
        for model, settings in zip("ab", settings_pair, strict=True)
    ]
    name = "number of examples" if name == "n" else name
    first, second = ("-" if value is None else value for value in (first, second))
    assert list(compared(*pair).notes) == [f"{label}: {name} differs ({first}: a/1; {second}: b/1)."]


@pytest.mark.parametrize("first, second", stored.rows(globals(), "what_does_not"))
def test_what_does_not(first, second):
    identity = "attack.pgd_linf_0.0313725.accuracy"
    pair = [make_report("a", 1, measurements=[fraction(identity, 0.5, **changes)]) for changes in (first, second)]
    assert compared(*pair).notes == {}


def test_passes_have_a_table_where_they_are_known():
    counted = {"forward_passes": 1834.4, "backward_passes": 20.0}
    first = make_report("a", 1, measurements=attack("pgd", 0.5, 0.9, **counted))
    second = make_report("b", 1, measurements=attack("pgd", 0.4, 0.9))
    text = tables(compared(first, second)).partition("Passes, forward + backward, per image\n")[2]
    assert rows(text)[1:] == [["a/1", "1834 + 20"], ["b/1", "-"]]
    assert 'id="passes"' in compare_views.html(compared(first, second))
    assert "Passes" not in compare_views.table(compared(second))
    runs = {seed: dataclasses.replace(first, measurements=attack("pgd", 0.5, 0.9, **counted)) for seed in (0, 1)}
    runs[1].measurements[0].settings["forward_passes"] = 34.4
    (mean, _) = groups.summary("a", runs).measurements
    assert mean.settings["forward_passes"] == pytest.approx(934.4) and mean.settings["backward_passes"] == 20.0
    (_, table) = Attacks(first).blocks()
    assert table.header[-1] == "Passes, forward + backward" and table.rows[-1][-1] == "1834 + 20"
    assert len(Attacks(second).blocks()[1].header) == 3


def test_html_overlays_the_curves(exported):
    comparison = compare.arrange(compare.load_reports(sorted(exported.iterdir())), reference="trades")
    rendered = compare_views.html(comparison)
    page = Page(rendered)
    text = " ".join(page.text)
    assert "script" not in page.tags and not re.search(r"(https?:)?//[a-z]", rendered)
    assert page.tags.count("figure") == 2 and all(name in text for name, _ in comparison.named)
    assert len(set(re.findall(r"stroke: var\(--(series-\d)\)", rendered))) == 3
    assert str(comparison.files[0]) in text and "Differences from trades/1" in text and "[1]" not in text
    assert "Measurement" in page.text and "Model" in text
    many = Page(compare_views.html(compared(*(make_report(f"m{number}", 1) for number in range(7)))))
    assert "Measurement" not in many.text and "m6/1" in many.text  # many models stand one under the other
    wide = make_report("wide", 1, measurements=measurements(0.9, 0.6, 0.5, epsilon=0.3))
    marked = " ".join(Page(compare_views.html(compared(make_report("a", 1), wide))).text)
    assert "[2] PGD was run at different budgets" in marked and "PGD-100, L∞ ε = 0.3 [2]" in marked


def test_json_for_programs(exported):
    comparison = compare.arrange(compare.load_reports(sorted(exported.iterdir())), "accuracy.clean", reference="trades")
    document = json.loads(compare_views.as_json(comparison))
    assert document["schema"] == "tfrobust/comparison/1" and document["reference"] == "trades/1"
    assert [row["name"] for row in document["rows"]] == [name for name, _ in comparison.named]
    assert [column["id"] for column in document["columns"]] == list(comparison.columns)
    row = document["rows"][0]["measurements"]["attack.pgd_linf_0.2.accuracy"]
    assert row["value"] == 0.631 and row["difference"]["kind"] == "independent"
    difference = row["difference"]
    assert difference["value"] == pytest.approx(0.031)
    assert difference["low"] < 0 < difference["value"] < difference["high"]
    assert not any("difference" in number for number in document["rows"][2]["measurements"].values())


def test_markdown_is_escaped_and_same_names_stay_apart():
    text = compare_views.markdown(compared(make_report(name="a|b<i>", version=1), make_report("c", 1), reference="c"))
    assert "a\\|b&lt;i&gt;/1" in text and "## Differences from c/1" in text and "<i>" not in text
    assert compare.names([("a", make_report()), ("b", make_report())]) == ["ascl_leaked/3", "ascl_leaked/3 (2)"]


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture
def paths(tmp_path):
    publish(tmp_path, "trades", 1, pgd=0.6)
    publish(tmp_path, "ascl", 10)
    return [str(tmp_path / "trades"), str(tmp_path / "ascl"), f"--output={tmp_path / 'new' / 'page.html'}"]


def test_the_command_prints_and_writes(paths, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert command.main([*paths, "--sort=attack.pgd_linf_0.2.accuracy", "--reference=trades"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "/1" in line[:9]][:2] == ["ascl/10", "trades/1"]
    assert "+3.1 ± 7.1" in " ".join(lines)
    page = tmp_path / "new" / "page.html"
    assert last == str(page) and "Differences from trades/1" in page.read_text()
    assert command.main([*paths, "--format=json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert command.main([*paths, "--format=markdown"]) == 0
    assert "\n\n| model" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "50")
    assert command.main(paths) == 0
    assert capsys.readouterr().out.count("\nmodel ") > 1


@pytest.mark.parametrize("flags, message", stored.rows(globals(), "the_command_refuses_in_one_line"))
def test_the_command_refuses_in_one_line(flags, message, paths, tmp_path, capsys):
    publish(tmp_path, "other", 1, data={**make_report().data, "fingerprint": "b2" * 32})
    assert command.main([*paths, str(tmp_path / "other"), *flags]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and output.out == ""
    assert not (tmp_path / "new").exists()


def test_like_reports_pass_strict(paths, capsys):
    assert command.main([*paths, "--strict"]) == 0 and "[1]" not in capsys.readouterr().out


def test_a_comparison_that_cannot_be_written_leaves_the_old_one(paths, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("old")
    monkeypatch.setattr(compare_views, "html", lambda *_: "half a page \ud800")  # cannot be encoded
    assert command.main([*paths[:2], f"--output={page}"]) == 1
    assert page.read_text() == "old" and not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp")]


def test_a_comparison_replaces_no_page_of_a_report(paths, tmp_path, capsys):
    page = tmp_path / "trades" / "1" / "assets.extra" / "robustness_report.html"
    page.write_text("old")
    assert command.main([*paths[:2], f"--output={page}"]) == 2 and page.read_text() == "old"
    assert "is the page of the report beside it; give another name" in capsys.readouterr().err

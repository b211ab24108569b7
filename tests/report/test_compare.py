"""Many reports side by side."""

import re

import pytest
from report.synthetic import fraction, make_report, measurements
from report.test_render import Page

from tfrobust.report import compare


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


def test_finds_the_newest_version_of_each_and_skips_the_rest(exported):
    reports = compare.load_reports(sorted(exported.iterdir()))
    assert compare.names(reports) == ["ascl/10", "supervised/1", "trades/1"]
    assert compare.find_report(exported / "empty") is None and compare.find_report(exported / "nowhere") is None


def test_takes_versions_files_and_folders_each_once(exported):
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


def test_table_aligns_and_marks_what_is_missing(exported):
    reports = compare.load_reports(sorted(exported.iterdir()))
    few = make_report(name="few", version=None, measurements=measurements(0.9, 0.5, 0.4)[:1])
    lines = compare.table([*reports, ("few.json", few)]).splitlines()
    assert lines[0].split("  ")[0] == "model" and "pgd, Linf 0.2" in lines[0]
    rows = [re.split(r"\s{2,}", line) for line in lines[:5]]
    assert {len(row) for row in rows} == {7} and len({len(line) for line in lines[:5]}) == 1
    assert rows[1][0] == "ascl/10" and rows[1][3] == "63.1 % [58.0 to 67.9]"
    assert rows[4][:2] == ["few", "90.0 % [86.5 to 92.7]"] and rows[4][2:] == ["-"] * 5
    assert len(lines) == 5


def test_like_protocols_need_no_note(exported):
    reports = compare.load_reports([exported / "ascl", exported / "trades"])
    assert compare.differences(reports) == [] and "note" not in compare.table(reports)


def test_unlike_protocols_are_named():
    base = make_report("a", 1)
    data = make_report("b", 1, data={**base.data, "fingerprint": "b2" * 32})
    steps = make_report("c", 1, measurements=measurements(0.9, 0.6, 0.5, steps=20))
    wide = make_report("d", 1, measurements=measurements(0.9, 0.6, 0.5, epsilon=0.3))
    notes = compare.differences([("a", base), ("b", data)])
    assert notes == ["not the same data, fingerprints differ (a1a1a1a1: a/1; b2b2b2b2: b/1)."]
    notes = compare.differences([("a", base), ("c", steps)])
    assert "pgd, Linf 0.2: steps differs (100: a/1; 20: c/1)." in notes
    assert not any("fingerprint" in note or "fgsm" in note for note in notes)
    notes = compare.differences([("a", base), ("d", wide)])
    assert "pgd was run at different budgets (Linf 0.2: a/1; Linf 0.3: d/1)." in notes
    assert "note: pgd was run" in compare.table([("a", base), ("d", wide)])


def test_natural_numbers_of_unlike_origin_are_named():
    def one(name, source, baseline, bins, share=0.15):
        found = [
            fraction("accuracy.clean", 0.9),
            fraction("corruption.mean.accuracy", 0.7, source=source),
            fraction("corruption.mce", 0.6, source=source, baseline=baseline),
            fraction("noise.uniform.accuracy", 0.5, share=share),
            fraction("calibration.rms", 0.1, bins=bins),
        ]
        return f"{name}.json", make_report(name=name, version=None, measurements=found)

    first = one("a", "generated", "AlexNet", "paper")
    assert compare.differences([first, first]) == []
    assert "Mean corruption error (mCE), against AlexNet" in compare.table([first, first])
    pair = [first, one("b", "published: CIFAR-10-C", "b", "code", 0.3)]
    assert compare.differences(pair) == [
        "Corruptions, mean accuracy: source differs (generated: a; published: CIFAR-10-C: b).",
        "Mean corruption error (mCE): source differs (generated: a; published: CIFAR-10-C: b).",
        "Mean corruption error (mCE): baseline differs (AlexNet: a; b: b).",
        "Uniform noise (UN), accuracy: share differs (0.15: a; 0.3: b).",
        "Calibration error (RMS): bins differs (paper: a; code: b).",
    ]
    assert "against" not in compare.table(pair).splitlines()[0]


def test_html_overlays_the_curves(exported):
    reports = compare.load_reports(sorted(exported.iterdir()))
    rendered = compare.compare_html(reports)
    page = Page(rendered)
    text = " ".join(page.text)
    assert "script" not in page.tags and not re.search(r"(https?:)?//[a-z]", rendered)
    assert page.tags.count("figure") == 1 and all(name in text for name in compare.names(reports))
    assert len(set(re.findall(r"stroke: var\(--(series-\d)\)", rendered))) == 3
    assert str(reports[0][0]) in text


def test_same_names_stay_apart():
    assert compare.names([("a", make_report()), ("b", make_report())]) == ["ascl_leaked/3", "ascl_leaked/3 (2)"]
    assert compare.table([]) == "No robustness report found."

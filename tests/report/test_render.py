"""Console, Markdown and HTML renderings: whole, self-contained, aligned, and deaf to hostile text."""

import dataclasses
import functools
import hashlib
import html.parser
import re

import pytest
from report.synthetic import attack, classes, examples, make_report

from tfrobust.report import Report, formats, not_measured, sections, threat_statement, write_report
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views
from tfrobust.report.renderers import card, console
from tfrobust.report.renderers.html import render as render_html
from tfrobust.report.renderers.markdown import render as markdown
from tfrobust.report.renderers.markdown import safe
from tfrobust.report.sections.attacks import Curve
from tfrobust.structs import Finding, Measurement, Series

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`*$\\frac{\x1b[31m_é漢"


class Page(html.parser.HTMLParser):
    """Parses a page and insists that every tag is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)


def compared(view):
    return lambda report: view(compare.arrange([("report.json", report)]))


@pytest.mark.parametrize(
    "render",
    [
        console.console_table,
        functools.partial(console.console_table, short=True),
        markdown,
        render_html,
        functools.partial(card.render, repo="me/it", version=1, shape=(8, 8, 1)),
        *map(compared, (views.table, views.markdown, views.html)),
    ],
)
def test_a_number_that_was_not_possible_is_named_with_its_reason(render):
    """Without that line, a certified accuracy that is missing looks like one that was not requested."""
    report, reason = make_report(), "layer 3 has no sound bound"
    impossible = Measurement("certified.linf_0.2.accuracy", None, settings={"method": "ibp", "reason": reason})
    line = f"not measured(?: for [^:]+)?: Certified accuracy, L\\S+ \\S+ = 0.2: {reason}"
    assert not re.search(line, render(report), re.IGNORECASE)
    shown = render(dataclasses.replace(report, measurements=(*report.measurements, impossible)))
    assert re.search(line, shown, re.IGNORECASE)


def test_the_console_has_the_passes_that_were_counted():
    counted = attack("fast", 0.5, 0.9, forward_passes=689.3, backward_passes=355.0)
    lines = console.console_table(make_report(measurements=[*counted, *attack("pgd", 0.6, 0.9)])).splitlines()
    heading, fast, pgd = (line.split("  ") for line in lines[1:4])
    assert "forward + backward passes" in [cell.strip() for cell in heading]
    assert "689 + 355" in [cell.strip() for cell in fast] and not [cell for cell in pgd if " + " in cell]
    assert " + " not in console.console_table(make_report(measurements=attack("pgd", 0.6, 0.9)))


@pytest.fixture(scope="module")
def rendered():
    return render_html(make_report())


@pytest.fixture(scope="module")
def page(rendered):
    return Page(rendered)


def values(page, name):
    return [value for key, value in page.attributes if key == name]


def test_page_is_self_contained(rendered, page):
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not re.search(r"(https?:)?//[a-z]", rendered)
    assert not re.search(r"@import|url\((?!#)", rendered)
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert all(value.startswith("#") for value in values(page, "href"))
    assert "prefers-color-scheme:dark" in rendered and "@media print" in rendered


def test_ids_are_unique_and_every_reference_leads_somewhere(rendered, page):
    ids = values(page, "id")
    assert len(ids) == len(set(ids))
    targets = [value[1:] for value in values(page, "href")] + re.findall(r"url\(#([^)]+)\)", rendered)
    targets += values(page, "aria-labelledby")
    assert targets and set(targets) <= set(ids)


def test_every_colour_is_a_declared_variable(rendered):
    svgs = "".join(re.findall(r"<svg.*?</svg>", rendered, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}", svgs)
    used = set(re.findall(r"var\((--[a-z0-9-]+)", rendered))
    style = re.search(r"<style>(.*?)</style>", rendered, re.DOTALL)[1]
    light, dark = style.split("prefers-color-scheme:dark", 1)
    dark = dark[: dark.index("}}")]
    for half in (light, dark):
        assert used <= set(re.findall(r"(--[a-z0-9-]+):", half))


@pytest.mark.parametrize(("data", "named"), [({"kind": "clips"}, "clips"), ({"vocabulary_size": 9}, "sentences")])
def test_no_section_speaks_of_images_where_the_examples_are_others(data, named):
    """The texts of the report itself are written by the evaluation, which knows the examples."""

    def of_examples(text: str) -> str:
        return re.sub("[Ii]mage", lambda match: named[:-1].capitalize() if match[0] == "Image" else named[:-1], text)

    def with_interval(item):
        return dataclasses.replace(
            item, settings={name: of_examples(v) if name == "interval" else v for name, v in item.settings.items()}
        )

    report = make_report()
    numbers = list(map(with_interval, report.measurements))
    changed = dataclasses.replace(
        report,
        data=report.data | data,
        measurements=tuple(numbers),
        doctor=tuple(
            Finding(*(of_examples(part) for part in dataclasses.astuple(finding))) for finding in report.doctor
        ),
        series=tuple(dataclasses.replace(with_interval(s), title=of_examples(s.title)) for s in report.series),
        threat=threat_statement(numbers, examples=named),
        not_measured=tuple(not_measured(numbers, examples=named)),
    )
    for text in (Page(render_html(changed)).text, [markdown(changed)]):
        lines = [line for part in text for line in part.splitlines() if re.search(r"\b[Ii]mages?\b", line)]
        assert lines == []
    page = Page(render_html(changed)).text
    assert {f"{named} of the bin", f"natural {named}", f"adversarial {named}"} <= {part.strip() for part in page}


def test_a_number_of_the_page_is_shown_once():
    report = make_report()
    page = re.sub(r"</?i\b[^>]*>", "", render_html(report))  # around the parts of a number
    page = re.sub(r"<[^>]*>", " ", page)
    for identity in ("geometry.r_div", "calibration.ece"):
        (value,) = [formats.number(m) for m in report.measurements if m.id == identity]
        assert len(re.findall(rf"(?<![\d.]){re.escape(value)}(?!\d)", page)) == 1, identity


def test_a_curve_says_over_how_many_images_it_is():
    report = make_report()
    curve = dataclasses.replace(report.series[0], settings={"steps": 7})

    def lead(**columns):
        changed = dataclasses.replace(report, series=[dataclasses.replace(curve, columns=curve.columns | columns)])
        return Curve(changed).lead

    points = len(curve.columns["n"])
    for count, words in ((360, "on 360 test images"), (50, "on 50 test images, a random subset")):
        assert f"(PGD-7, L∞: 7 steps, {words})." in lead(n=[count] * points)
    for unknown in (["<b>"] * points, [None] * points, [True] * points, list(range(points))):
        assert "(PGD-7, L∞: 7 steps)." in lead(n=unknown)


def test_an_accuracy_halves_against_the_clean_one_or_not_at_all():
    """Without a point at epsilon 0 the first point is an accuracy under attack."""
    for first, words in ((0.0, "has halved by epsilon 0.3"), (0.1, "")):
        curve = Series("attack.pgd_linf.curve", "", {"epsilon": [first, 0.2, 0.3], "accuracy": [0.4, 0.25, 0.15]})
        sentence = Curve(make_report(series=[curve])).sentence
        assert words in sentence if words else sentence == ""


def hostile_report():
    numbers = attack("pgd", 0.5, 0.9, note=HOSTILE)
    numbers.append(Measurement("made.up", 1.0, HOSTILE))
    columns = {"epoch": [1, 2], HOSTILE: [0.5, 0.25], "accuracy" + HOSTILE: [0.1, None]}
    cloud = {"x": [0.0, 1.0], "y": [1.0, 0.0], "label": [0, 1], "adversarial": [0, 0], "entropy": [0.1, 0.2]}
    return make_report(
        name=HOSTILE,
        measurements=numbers,
        data={**make_report().data, "name": HOSTILE, "class_names": [HOSTILE[40:], "$_{$"], HOSTILE: HOSTILE},
        doctor=[Finding(HOSTILE, "fail", HOSTILE, HOSTILE)],
        threat=HOSTILE,
        not_measured=[HOSTILE],
        configuration=HOSTILE + "\n```\n",
        environment={HOSTILE: HOSTILE},
        cost={HOSTILE: HOSTILE},
        training={HOSTILE: [HOSTILE], "epsilon": HOSTILE},
        created=HOSTILE,
        series=[
            Series("training.history", HOSTILE, columns),
            Series(f"attack.{HOSTILE}_linf.curve", HOSTILE, {"epsilon": [0.0, 0.1], "accuracy": [0.9, 0.5]}),
            Series("geometry.feature_map", HOSTILE, cloud),
            Series(
                "calibration.reliability." + HOSTILE, HOSTILE, {"confidence": [0.5], "accuracy": [0.4], "count": [9]}
            ),
            dataclasses.replace(examples(), id=f"attack.{HOSTILE}_linf_0.2.examples", settings={HOSTILE: HOSTILE}),
            Series("accuracy.classes", HOSTILE, classes("", 0.9).columns, {"interval": HOSTILE}),
            Series("attack.pgd_linf_0.2.classes", HOSTILE, {**classes("", 0.9).columns, "label": [HOSTILE] * 10}),
        ],
    )


def test_hostile_text_stays_text():
    report = hostile_report()
    rendered = render_html(report)
    page = Page(rendered)
    assert not {"script", "img"} & set(page.tags)
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert "\x1b" not in rendered and "\x1b" not in console.console_table(report)
    assert "alert(1)" in " ".join(page.text)
    for shown in (make_report(threat="# Sold", not_measured=["1. Nothing", "~~~", "=== a"]), report):
        lines = re.sub(r"(`{3,})\n.*?\n\1", "", markdown(shown), flags=re.DOTALL).splitlines()
        headings = [line.lstrip("# ") for line in lines if re.match(r"#|=+$|-+$|~~~|\d+[.)] ", line)]
        titles, content = (
            set(),
            [(section.heading, block) for section in sections.build(shown) for block in section.content],
        )
        for heading, block in content:
            titles |= {heading, getattr(block, "title", ""), safe(getattr(block, "caption", ""))}
        assert set(headings[1:]) <= titles
    card = markdown(report)
    outside_code = re.sub(r"````\n.*?\n````", "", card, flags=re.DOTALL)
    assert "<script" not in outside_code and "<img" not in outside_code and "````" in card


@pytest.mark.parametrize("value", ["text", None, True])
def test_columns_of_other_writers_do_not_break_the_page(value):
    """The schema allows any value in a column; what cannot be drawn is left out."""
    whole, series = Ellipsis, make_report().series
    names = "epsilon accuracy low count x label height image entropy val_clean_accuracy".split()
    for name in (whole, *names):
        columns = [
            {
                n: [value] * len(c) if name is whole else [value, *c[1:]] if n == name else c
                for n, c in s.columns.items()
            }
            for s in series
        ]
        changed = [dataclasses.replace(s, columns=c) for s, c in zip(series, columns, strict=True)]
        shown = [s for s in changed if name is whole or name in s.columns]
        report = make_report(series=shown)
        report.validate()
        assert Page(render_html(report)) and markdown(report)


def test_markdown_tables_align():
    for report in (make_report(), hostile_report()):
        tables = re.findall(r"(?:^\|.*\n)+", markdown(report), re.MULTILINE)
        assert len(tables) >= 5
        for table in tables:
            rows = table.splitlines()
            bars = [[m.start() for m in re.finditer(r"(?<!\\)\|", row)] for row in rows]
            assert len(rows) >= 3 and all(positions == bars[0] for positions in bars)
            assert re.fullmatch(r"\|( -+:? \|)+", rows[1])


def test_write_report(tmp_path):
    folder = tmp_path / "new" / "folder"
    report = make_report(series=make_report().series[:1])
    paths = write_report(report, folder)
    files = [f"robustness_report.{ending}" for ending in ("json", "html", "md")]
    assert [path.name for path in paths] == [*files, "SHA256SUMS"]
    assert sorted(folder.iterdir()) == sorted(paths)
    assert Report.from_json(paths[0].read_text(encoding="utf-8")) == report
    write_report(make_report(name="other", series=()), folder)
    assert Report.from_json(paths[0].read_bytes()).model["name"] == "other" and len(list(folder.iterdir())) == 4
    lines = [line.split("  ") for line in paths[3].read_text().splitlines()]
    assert lines == [[hashlib.sha256((folder / name).read_bytes()).hexdigest(), name] for name in files]


def test_an_invalid_report_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"\$\.model\.version"):
        write_report(make_report(version="three"), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()

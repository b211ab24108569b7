"""Check all sections beyond the attacks: complete, once, self-contained, and absent without their measurements."""

import dataclasses
import re
import sys
import typing

import pytest
import stored
from report import (
    test_corruption_section,
    test_noise_section,
    test_sensitivity_section,
    test_stability_section,
    test_tokens_section,
)
from report.synthetic import attack, history, make_report, written

from tfrobust.report import Report, blocks, sections
from tfrobust.report.blocks import Block, Grid, Numbers
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views as compare_views
from tfrobust.report.renderers import console, html, markdown
from tfrobust.report.sections import attacks, noise, protocol, sensitivity, smoothing, tokens, training
from tfrobust.report.sections.corruptions import Corruptions
from tfrobust.report.sections.stability import Stability
from tfrobust.structs import Measurement, Series

# Anchor: the section, a report that has it, and a number that stands in it alone: identity, name, value.
CASES = {
    "corruptions": (
        Corruptions,
        test_corruption_section.report(),
        ("corruption.mean.accuracy", "Corruptions, mean accuracy", "61.6"),
    ),
    "noise": (
        noise.Noise,
        test_noise_section.report(test_noise_section.examples()[0], test_noise_section.replacement()),
        ("noise.uniform.accuracy", "Uniform noise (UN), accuracy", "70.0"),
    ),
    "sensitivity": (
        sensitivity.Sensitivity,
        test_sensitivity_section.report(test_sensitivity_section.series()),
        ("sensitivity.agreement", "Utility-sensitivity agreement", "0.43 to 0.47"),
    ),
    "stability": (Stability, test_stability_section.report(), ("stability.mfr", "Mean flip rate (mFR)", "58.0")),
    "tokens": (
        tokens.Tokens,
        test_tokens_section.report(test_tokens_section.series()),
        (
            "sensitivity.tokens.correlation",
            "Token sensitivity and strength, correlation in a sentence",
            "0.750 to 0.772",
        ),
    ),
}


@pytest.mark.parametrize("anchor", CASES)
def test_a_section_stands_once_in_a_page_that_needs_nothing_else(anchor):
    section, report, (identity, name, value) = CASES[anchor]
    page, (_, body) = html.render(report), written(section, report)
    assert page.count(body) == 1 and f'id="{anchor}"' in page
    assert page.count(f">{identity}<") == 1 and value in page  # in the table of ids
    for text in (markdown.render(report), console.console_table(report)):
        assert name in text and value.split(" ")[0] in text
    assert name in compare_views.table(compare.arrange([("a", report)]))
    again = Report.from_json(report.to_json())
    assert again == report and html.render(again) == page
    outside = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.search(r"(https?:)?//[a-z]", outside) and "<img" not in page
    identities = re.findall(r'\bid="([^"]+)"', page)
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("anchor", CASES)
def test_what_was_not_measured_has_no_section(anchor):
    assert written(CASES[anchor][0], make_report()) is None


# --------------------------------------------------------------------------------------- the blocks and the sections

NUMBER = Measurement("novel.kind", 0.4321, n=9)
BLOCKS = stored.table(vars(blocks) | globals(), "blocks")


def test_both_documents_write_every_kind_of_block():
    assert {type(block) for block in BLOCKS} - {Grid} == set(typing.get_args(Block))
    for block in BLOCKS:
        expected = "novel.kind" if isinstance(block, Numbers) else "Said once."
        for text in (html.write([block]), "\n".join(markdown.write(block))):
            assert text.count(expected) == 1, (block, text)


SECTION = stored.text(globals(), "section")


@pytest.fixture
def novel(tmp_path, monkeypatch):
    """A section in a file that nothing else names."""
    (tmp_path / "novel.py").write_text(SECTION)
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    sections.kinds.cache_clear()
    yield
    sections.kinds.cache_clear()
    del sys.modules["tfrobust.report.sections.novel"]


def test_a_new_section_takes_one_file(novel):
    report = make_report(measurements=[*make_report().measurements, NUMBER], series=())
    anchors = [section.anchor for section in sections.build(report)]
    following = sections.ORDER[sections.ORDER.index("further") :]
    assert anchors[anchors.index("novel") + 1] in following and anchors[anchors.index("novel") - 1] not in following
    page, card, table = html.render(report), markdown.render(report), console.console_table(report)
    assert '<section id="novel"><h2>A novel section</h2>' in page and "Its sentence.</p>" in page
    assert "## A novel section\n\n**Its sentence.**" in card
    for text in (page, card, table):
        assert text.count("A novel grid") == 1 and text.count("novel.kind") == 1 and "43.2 %" in text
    assert not [section for section in sections.build(make_report()) if section.anchor == "novel"]


def test_a_measurement_without_a_section_is_a_further_one():
    report = make_report(measurements=[NUMBER], series=())
    assert Report.from_json(report.to_json()) == report
    (further,) = [section for section in sections.build(report) if section.anchor == "further"]
    assert further.content == [Numbers([NUMBER])]
    for text in (html.render(report), markdown.render(report), console.console_table(report)):
        assert "novel.kind" in text and "43.2" in text


def test_the_order_names_sections_of_the_package_and_none_twice():
    """A section that it leaves out has a place too: test_a_new_section_takes_one_file."""
    assert len(set(sections.ORDER)) == len(sections.ORDER)
    assert set(sections.ORDER) <= {kind.anchor for kind in sections.kinds()}


@pytest.mark.parametrize("changes", [{}, {"epsilon": True}, {"epsilon": None}, {"norm": "l2"}])
def test_the_curves_mark_the_epsilon_of_training_in_their_norm(changes):
    report = make_report()
    page = html.render(dataclasses.replace(report, training=report.training | changes))
    assert ("ε of training, 0.2" in page) == (not changes)


def test_a_minimal_norm_curve_stands_beside_fixed_radii_with_its_area():
    report, radii = make_report(), [number / 80 for number in range(41)]
    settings = {"attack": "fmn", "norm": "linf", "steps": 200}
    columns = {"epsilon": radii, "accuracy": [1 - radius for radius in radii], "n": [360] * 41}
    area = Measurement("expected_robustness.fmn_linf_0.2.accuracy", 0.9, "fraction", 360, 0.8, 0.95, settings)
    for others, rows in ((report.series[1:], 14), (report.series, 7)):  # alone, and beside PGD at its 7 radii
        changed = dataclasses.replace(
            report,
            measurements=[*report.measurements, area],
            series=[*others, Series("attack.fmn_linf.curve", "", columns, settings)],
        )
        (section,) = [part for part in sections.build(changed) if part.anchor == "curve"]
        figure, grid, numbers = section.content
        assert len(grid.rows) == rows and numbers.measurements == [area]
        legend = {key.text: key for key in figure.draw("test").legend}
        fixed = legend["lowest under an attack at one ε"]
        assert (fixed.role, fixed.dash) == ("ink", -1) and "FMN, L∞" in legend
    # The lowest of FGSM, PGD and multi-targeted PGD.
    (line,) = [line for line in figure.draw.keywords["lines"] if not line.joined]
    assert (line.x, line.y) == ([0.2], [report.get("attack.multi_targeted_pgd_linf_0.2.accuracy").value])


def test_a_curve_of_few_radii_keeps_them_beside_one_of_many_in_another_norm():
    many = {"epsilon": [number / 80 for number in range(41)], "accuracy": [0.5] * 41}
    few = {"epsilon": [0.003, 1.003, 2.003], "accuracy": [0.9, 0.8, 0.7]}
    curves = [Series(f"attack.{name}.curve", "", part) for name, part in (("fmn_l2", many), ("pgd_linf", few))]
    _, grid, *_ = attacks.Curve(make_report(series=curves)).content
    assert [row[0] for row in grid.rows if row[2] is not None] == ["0.003", "1.003", "2.003"] and len(grid.rows) == 17


def test_a_single_epoch_makes_no_curve():
    section = training.Epochs(make_report(series=(history(5),)))
    (grid,) = section.blocks()
    ((_, robust),) = section._points
    assert isinstance(grid, Grid)
    assert section.sentence == f"The robust accuracy was measured once: {100 * robust:.1f} % after epoch 5."
    assert len(training.Epochs(make_report(series=(history(10),))).blocks()) == 2


def test_several_smoothed_classifiers_share_a_statement_only_where_they_agree():
    def lead(*draws):
        common = {"noise": "gaussian", "norm": "l2", "radius": 0.25, "confidence": 0.999}
        sigmas = zip((0.25, 0.5), draws, strict=False)
        settings = [{**common, "sigma": sigma, "n": count} for sigma, count in sigmas]
        ids = [f"smoothing.sigma_{part['sigma']}.l2_0.25.accuracy" for part in settings]
        numbers = [Measurement(name, 0.5, settings=part) for name, part in zip(ids, settings, strict=True)]
        return smoothing.Smoothing(make_report(measurements=numbers)).lead

    assert "A radius from 1,000 draws holds with confidence 99.9 %" in lead(1000, 1000)
    assert "A radius holds with confidence 99.9 %" in lead(1000, 10_000)


def test_the_settings_of_two_attacks_of_one_title_are_both_shown():
    plain, labelled = attack("pgd", 0.5, 0.9, steps=20, restarts=1), attack("pgd20", 0.4, 0.9, steps=20, restarts=5)
    for m in labelled:
        m.settings.update(attack="pgd", label="pgd20")
    *_, table = protocol.Protocol(make_report(measurements=[*plain, *labelled])).blocks()
    assert table.header == ["Setting", *["PGD-20, L∞ ε = 0.2"] * 2]
    assert ["restarts", "1", "5"] in table.rows

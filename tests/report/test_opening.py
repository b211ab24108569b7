"""The opening of a report: a reader without knowledge of the field learns how robust the model is, and against what."""

import dataclasses
import pathlib

import pytest
from report.synthetic import attack, classes, examples, fraction, make_report

from tfrobust.report import Report, parts
from tfrobust.report.attack_table import attack_rows
from tfrobust.report.opening import main_attack, of_hundred, opening, power, reference_of
from tfrobust.report.renderers import html, markdown
from tfrobust.report.renderers.console import console_table
from tfrobust.report.sections.attacks import Attacks
from tfrobust.structs import Finding, Measurement, Series

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "report_version_1.json"


def row(identity):
    return attack_rows([Measurement(identity, 0.5)])[0]


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("attack.pgd_linf_0.1.accuracy", "change every pixel by up to 10 % of full scale"),
        ("attack.pgd_linf_0.0313725.accuracy", "change every pixel by up to 3.14 % of full scale"),
        ("attack.pgd_l2_0.5.accuracy", "as changing one pixel value by 50 % of full scale"),
        ("attack.pgd_l2_3.accuracy", "as turning 9 pixel values from black to white"),
        ("attack.pgd_l1_12.accuracy", "as turning 12 pixel values from black to white"),
        ("attack.prox_log_barrier_l0_5.accuracy", "replace 5 pixel values"),
        ("attack.pgd_linf_1.2.3.accuracy", "change the image within L∞ ε = 1.2.3"),
        ("attack.pgd_linf_0.1_per_frame.accuracy", "of full scale in every frame"),
        ("attack.pgd_linf_0.1_max_frames_1.accuracy", "of full scale, in at most 1 frame"),
    ],
)
def test_what_an_attacker_may_change_is_said_in_plain_words(identity, words):
    assert power(row(identity)).endswith(words)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "none of the images"),
        (1, "all images"),
        (0.001, "fewer than 1 of 100 images"),
        (0.9964, "more than 99 of 100 images"),
        (0.337, "34 of 100 images"),
    ],
)
def test_shares_are_counts_of_a_hundred(share, words):
    assert of_hundred(share) == words and of_hundred(share, "") == words.removesuffix(" images").removesuffix(" of the")


def test_the_opening_says_all_that_a_reader_needs():
    first = opening(make_report())
    assert first.answer == (
        "An attacker allowed to change every pixel by up to 20 % of full scale makes this model wrong on 39 of 100"
        " images (34 to 44)."
    )
    assert first.details == (
        "Without any attack it is wrong on 2 of 100 images (1 to 4).",
        "No other model was measured for comparison; guessing among 10 classes is wrong on 90 of 100 images.",
        "The worst class is 9: under attack wrong on 48 of 100 (33 to 64).",
    )
    assert first.untried.startswith("Not tried: AutoAttack, attacks without gradients, attacks made for this defense,")
    assert first.verdict == "warn" and "in order except for 1 of 6 checks (the attack has converged)" in first.checks
    assert first.pair is not None
    page, card = html.render(make_report()), markdown.render(make_report())
    page = page.replace("<span>(34 to 44)</span>", "(34 to 44)")
    for sentence in (first.answer, *first.details, first.untried, first.checks):
        assert sentence in page and sentence in card


def test_a_reference_model_is_compared_under_the_same_attack_only():
    measured = [fraction("accuracy.clean", 0.9), *attack("pgd", 0.6, 0.9, steps=20)]
    named = {"reference": "plain/1", "undefended": True}
    settings = measured[1].settings | named
    other = [
        fraction("reference.accuracy.clean", 0.95, **named),
        fraction(f"reference.{measured[1].id}", 0.04, **settings),
    ]
    report = make_report(measurements=[*measured, *other])
    sentence = (
        "An undefended model (plain/1) is wrong on 96 of 100 images under the same attack, and on 5 of 100 without one."
    )
    assert (
        opening(report).details[1] == sentence
        and sentence in html.render(report)
        and "Correct, undefended model" in html.render(report)
    )
    (_, table) = Attacks(report).blocks()
    assert table.header == ["Attack", "Accuracy", "Accuracy of plain/1", "Relative drop"]
    assert [row[2].value for row in table.rows] == [0.95, 0.04]
    assert "Clean accuracy, of plain/1" in console_table(report) and "reference." not in html.fragment(report)
    weaker = dataclasses.replace(other[1], settings=settings | {"steps": 7})
    report = make_report(measurements=[*measured, other[0], weaker])
    assert reference_of(report, measured[1]) is None and "No other model" in opening(report).details[1]


def test_the_attack_within_the_radius_of_training_is_the_main_one():
    measured = [fraction("accuracy.clean", 0.9), *attack("pgd", 0.6, 0.9), *attack("pgd", 0.1, 0.9, epsilon=0.4)]
    report = make_report(measurements=measured)
    assert main_attack(report).epsilon == "0.2"
    assert opening(report).details[-1].startswith("Allowed to change every pixel by up to 40 % of full scale, an att")
    assert main_attack(make_report(measurements=measured, training={})).epsilon == "0.4"


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (
            [fraction("accuracy.clean", 0.9)],
            "On unmodified images this model is wrong on 10 of 100 images (7 to 14). No",
        ),
        ([], "No attack was run, so nothing is known about its robustness to attackers."),
        (attack("pgd", 0.0, 0.9, bound="upper"), "wrong on at least all images"),
        ([*attack("pgd", 0.5, 0.9), fraction("certified.linf_0.2.accuracy", 0.2)], "For 20 of 100 images it is proven"),
        ([*attack("pgd", 0.5, 0.9), fraction("corruption.mean.accuracy", 0.7)], "digital artifacts it is wrong on 30"),
    ],
)
def test_the_opening_of_other_reports(measured, words):
    report = dataclasses.replace(make_report(series=()), measurements=tuple(measured))
    assert words in opening(report).paragraph


@pytest.mark.parametrize(
    ("verdicts", "verdict", "words"),
    [
        (
            ["pass", "pass"],
            "pass",
            "The evaluation is in order: all 2 checks passed. They test the measurement, not the",
        ),
        (["pass", "warn"], "warn", "in order except for 1 of 2 checks (b)"),
        (["fail", "warn"], "fail", "Do not rely on these numbers: 1 of 2 checks failed (a)"),
        ([], "", "the doctor did not run"),
    ],
)
def test_passed_checks_are_no_praise_of_the_model(verdicts, verdict, words):
    doctor = [Finding(name, verdict_of_check, "") for name, verdict_of_check in zip("ab", verdicts, strict=False)]
    first = opening(make_report(doctor=doctor))
    assert first.verdict == verdict and words in first.checks


def test_the_first_published_report_has_an_opening():
    text = opening(Report.from_json(GOLDEN.read_bytes())).paragraph
    assert text.startswith(
        "An attacker allowed to change every pixel by up to 20 % of full scale makes this model wrong on 36"
    )
    assert text.endswith("The evaluation itself was not checked: the doctor did not run.")


def test_groups_and_other_attacks_with_classes():
    """The classes of the main attack are unknown; those of a weaker one within the budget say more than nothing."""
    groups = Series(
        "attack.pgd_linf_0.2.groups",
        "",
        {"group": ["day", "night"], "n": [300, 60], "accuracy": [0.7, 0.2], "low": [0.6, 0.1], "high": [0.8, 0.3]},
    )
    report = make_report(series=[classes("attack.pgd_linf_0.2", 0.7), groups, examples()])
    sentence = " ".join(opening(report).details)
    assert (
        "The worst class is 9" in sentence
        and "The worst group is night: under attack wrong on 80 of 100 (70 to 90)" in sentence
    )
    (night,) = parts.find(report, "attack.pgd_linf_0.2.group.night")
    assert night.value == 0.2 and night.n == 60

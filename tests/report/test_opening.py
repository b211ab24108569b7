"""The opening of a report: a reader without knowledge of the field learns how robust the model is, and against what."""

import dataclasses
import pathlib

import pytest
import stored
from report.synthetic import attack, classes, curve, fraction, make_report

from tfrobust.report import Report, attack_table, not_measured, threat
from tfrobust.report.opening import main_attack, of_hundred, opening, power, reference_of
from tfrobust.report.renderers import html
from tfrobust.report.sections.attacks import Curve
from tfrobust.structs import Finding, Measurement, Series

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "report_version_1.json"


@pytest.mark.parametrize("identity, words", stored.rows(globals(), "what_an_attacker_may_change_is_said_in_plain"))
def test_what_an_attacker_may_change_is_said_in_plain_words(identity, words):
    (row,) = attack_table.attack_rows([Measurement(identity, 0.5)])
    assert power(row).endswith(words)


@pytest.mark.parametrize("share, words", stored.rows(globals(), "shares_are_counts_of_a_hundred"))
def test_shares_are_counts_of_a_hundred(share, words):
    assert of_hundred(share) == words and of_hundred(share, "") == words.removesuffix(" images").removesuffix(" of the")


def test_a_reference_model_is_compared_under_the_same_attack_only():
    measured = [fraction("accuracy.clean", 0.9), *attack("pgd", 0.6, 0.9, steps=20)]
    named = {"reference": "plain/1", "undefended": True}
    settings = measured[1].settings | named
    other = fraction(f"reference.{measured[1].id}", 0.04, **settings)
    report = make_report(measurements=[*measured, fraction("reference.accuracy.clean", 0.95, **named), other])
    sentence = (
        "An undefended model (plain/1) is wrong on 96 of 100 images under the same attack, and on 5 of 100 without"
    )
    assert opening(report).details[1].startswith(sentence) and sentence in html.render(report)
    assert "Correct, undefended model" in html.render(report) and "reference." not in html.fragment(report)
    weaker = dataclasses.replace(other, settings=settings | {"steps": 7})
    report = make_report(measurements=[*measured, weaker])
    assert reference_of(report, measured[1]) is None and "No other model" in opening(report).details[1]


def test_the_attack_within_the_radius_of_training_is_the_main_one():
    measured = [fraction("accuracy.clean", 0.9), *attack("pgd", 0.6, 0.9), *attack("pgd", 0.1, 0.9, epsilon=0.4)]
    report = make_report(measurements=measured)
    assert main_attack(report).epsilon == "0.2"
    assert opening(report).details[-1].startswith("Allowed to change every pixel by up to 40 % of full scale, an att")
    assert main_attack(make_report(measurements=measured, training={})).epsilon == "0.4"


def test_the_radius_of_training_is_that_of_its_frames():
    ids = [f"attack.pgd_l2_0.5{frames}.accuracy" for frames in ("", "_per_frame", "_max_frames_2")]
    measured = [Measurement(name, value) for name, value in zip(ids, (0.2, 0.4, 0.3), strict=True)]
    for frames, budget in (({}, "L2 ε = 0.5"), ({"per_frame": True}, "L2 ε = 0.5 per frame")):
        training = {"norm": "l2", "epsilon": 0.5, **frames}
        columns, name = {"epsilon": [0.0, 1.0], "accuracy": [0.9, 0.1]}, f"attack.pgd_l2{'_per_frame' * len(frames)}"
        report = make_report(measurements=measured, training=training, series=[Series(f"{name}.curve", "", columns)])
        assert main_attack(report).budget == budget
        assert [key.text for key in Curve(report).content[0].draw("x").legend][-1] == "ε of training, 0.5"
    # In L∞ the balls of the frames are the ball of the clip.
    measured = [*attack("pgd", 0.6, 0.9), *attack("pgd", 0.1, 0.9, epsilon=0.4)]
    training = {"norm": "linf", "epsilon": 0.2, "per_frame": True}
    assert main_attack(make_report(measurements=measured, training=training)).epsilon == "0.2"


@pytest.mark.parametrize("verdicts, verdict, words", stored.rows(globals(), "passed_checks_are_no_praise_of_the_model"))
def test_passed_checks_are_no_praise_of_the_model(verdicts, verdict, words):
    names = ("deterministic", "b")
    doctor = [Finding(name, verdict_of_check, "") for name, verdict_of_check in zip(names, verdicts, strict=False)]
    first = opening(make_report(doctor=doctor))
    assert first.verdict == verdict and words in first.checks


def test_checks_without_the_doctor_are_no_evaluation_in_order():
    for verdict, rest in (("pass", "."), ("warn", ", and 1 of 1 other checks did not pass (certificates).")):
        first = opening(make_report(doctor=[Finding("certificates", verdict, "")]))
        assert first.checks == f"The evaluation itself was not checked: the doctor did not run{rest}"
        assert first.verdict == ("" if verdict == "pass" else "warn")


def test_a_certificate_and_an_attack_on_other_images_are_not_mixed():
    attacked = attack("pgd", 0.2, 0.9, n=300)
    for sample, text in (
        (
            {"sample": "first 100"},
            "Of the first 100 images, for 60 of 100 it is proven that no such attacker can succeed.",
        ),
        ({}, "Of 100 images, for 60 of 100 it is proven that no such attacker can succeed."),
    ):
        bound = fraction("certified.linf_0.2.accuracy", 0.6, 100, norm="linf", epsilon=0.2, method="ibp", **sample)
        details = opening(make_report(measurements=[fraction("accuracy.clean", 0.9), *attacked, bound])).details
        assert text in details
    on_hundred = attack("pgd", 0.7, 0.9, n=100)
    drawn = fraction("certified.linf_0.2.accuracy", 0.6, 100, norm="linf", epsilon=0.2, method="ibp")
    details = opening(make_report(measurements=[fraction("accuracy.clean", 0.9), *on_hundred, drawn])).details
    assert "For 60 of 100 images it is proven that no such attacker can succeed." in details
    # The first 100 images are not 100 drawn ones.
    first = dataclasses.replace(drawn, settings={**drawn.settings, "sample": "first 100"})
    (bracket,) = attack_table.brackets([*on_hundred, first])
    assert bracket.attacked is None
    rows = attack_table.attack_rows([*on_hundred, *attack("fgsm", 0.8, 0.9, n=100, sample="first 100")])
    assert len(attack_table.compared_with(rows[0], rows)) == 1


def test_only_the_measured_corruptions_are_named():
    for names, words in ((["brightness"], "With brightness it"), (list("abcd"), "With 4 of the 15 corruptions it")):
        mean = fraction("corruption.mean.accuracy", 0.9, corruptions=len(names), severities=[1], names=names)
        report = make_report(measurements=[*attack("pgd", 0.6, 0.9), mean])
        assert any(sentence.startswith(words) for sentence in opening(report).details)
        page, note = html.render(report), words.removeprefix("With ").removesuffix(" it")
        assert f"<i>{note}</i>" in page and "noise, blur, weather, digital" not in page


def test_guessing_is_among_the_classes_of_the_model():
    data = {**make_report().data, "class_names": []}
    classes_of_test = classes("accuracy", 0.9)
    report = make_report(measurements=attack("pgd", 0.6, 0.9), series=[classes_of_test], data=data)
    assert not any("guessing" in sentence for sentence in opening(report).details)


def test_what_was_tried_goes_by_the_attack_and_not_by_its_label():
    def untried(**settings):
        return opening(make_report(measurements=attack("x", 0.6, 0.9, **settings))).untried

    assert "AutoAttack" in untried(label="autoattack_like", attack="pgd")
    assert "AutoAttack" not in untried(label="aa", attack="autoattack")


@pytest.mark.parametrize("share, text", [(0.005, "fewer than 1"), (0.995, "more than 99"), (0.006, "1"), (0.994, "99")])
def test_shares_beside_all_and_none(share, text):
    assert of_hundred(share) == f"{text} of 100 images"


def test_the_first_published_report_has_an_opening():
    text = opening(Report.from_json(GOLDEN.read_bytes())).paragraph
    assert text.startswith(
        "An attacker allowed to change every pixel by up to 20 % of full scale makes this model wrong on 36"
    )
    assert text.endswith("The evaluation itself was not checked: the doctor did not run.")


def test_attacks_without_a_single_radius_are_not_denied():
    threats = [{"norm": "linf", "epsilon": 0.1}, {"norm": "l2", "epsilon": 1.0}]
    union = Measurement("union.apgd_linf_0.1_l2_1.accuracy", 0.3, settings={"label": "apgd", "threats": threats})
    curve = Measurement("expected_robustness.fmn_linf_0.2.accuracy", 0.4)
    for measurements, radii in [([union], "several norms"), ([union, curve], "several norms and a range of radii")]:
        answer = opening(make_report(measurements=measurements, series=())).answer
        assert answer == f"It was attacked within {radii} alone; the numbers are below."
        assert threat.threat_statement(measurements).startswith(f"Attacks were run within {radii} alone;")


def test_attacks_of_a_curve_or_on_videos_alone_are_not_denied():
    settings = {"attack": "pgd", "norm": "linf", "epsilon": 0.1}
    video = Measurement("video.attack.pgd_linf_0.1.accuracy", 0.4, settings=settings)
    cases = ([], [curve(0.9, 0.3)], "a range of radii"), ([video], [], "budgets of whole videos")
    for measurements, series, radii in cases:
        numbers = [fraction("accuracy.clean", 0.9), *measurements]
        answer = opening(make_report(measurements=numbers, series=series)).answer
        assert answer.endswith(f"It was attacked within {radii} alone; the numbers are below.")
        assert threat.threat_statement(numbers, series=series).startswith(f"Attacks were run within {radii} alone;")
        assert "Perturbations measured in L2 and L1." in not_measured(numbers, series=series)

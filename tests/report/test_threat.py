"""The honest sentences follow the numbers."""

import dataclasses

import pytest
from report.synthetic import attack, fraction, make_report

from tfrobust.report import catalog, not_measured, reading, threat_statement
from tfrobust.report.attack_table import attack_rows, weakly_attacked
from tfrobust.report.catalog import spelling
from tfrobust.report.sections.attacks import Attacks
from tfrobust.structs import Finding, Measurement, Series


def test_names_the_strongest_attack_of_each_budget():
    attacks = [*attack("fgsm", 0.7, 0.9), *attack("pgd", 0.5, 0.9, steps=100, restarts=1)]
    attacks += attack("pgd", 0.25, 0.9, norm="l2", epsilon=0.5, steps=20)
    text = threat_statement(attacks)
    assert "50.0 % of 360 test images" in text
    assert "under PGD-100 (100 steps, 1 restart), the strongest of 2 attacks within L∞ ε = 0.2." in text
    assert "25.0 % of 360 test images" in text and "PGD-20 (20 steps), the only attack within L2 ε = 0.5." in text
    assert "70.0 %" not in text
    assert "measured in L1" in text and "L2 and" not in text


def test_only_attacks_on_the_same_images_are_compared():
    clean, few = fraction("accuracy.clean", 0.9), attack("autoattack", 0.45, 0.9)
    few = [dataclasses.replace(m, n=100) for m in few]
    numbers = [clean, *attack("fgsm", 0.7, 0.9), *attack("pgd", 0.5, 0.9, steps=100), *few]
    assert "45.0 % of 100 test images" in threat_statement(numbers)
    assert "under AutoAttack, the only attack on these images within L∞ ε = 0.2." in threat_statement(numbers)
    assert "gives the lowest accuracy" not in Attacks(make_report(measurements=numbers)).sentence
    numbers += [dataclasses.replace(m, n=100) for m in attack("square", 0.6, 0.9)]
    assert "the strongest of 2 attacks on these images within" in threat_statement(numbers)
    lead = "Of 2 attacks on the same 100 images, AutoAttack gives the lowest accuracy."
    assert Attacks(make_report(measurements=numbers)).sentence.startswith(lead)


def test_an_ensemble_says_what_its_members_did():
    efforts = ["apgd_ce (50 steps, 1 restart)", "square (300 steps, 1 restart)"]
    attacks = attack("ensemble", 0.5, 0.9, members=["apgd_ce", "square"], member_efforts=efforts)
    members = "APGD-CE (50 steps, 1 restart), Square (300 steps, 1 restart)"
    assert f"ensemble of {members}, the only attack within L∞ ε = 0.2." in threat_statement(attacks)
    assert attack_rows(attacks)[0].effort == members


STRONG = {"steps": 100, "targets": 9}


@pytest.mark.parametrize(
    ("attacks", "weak"),
    [
        (attack("multi_targeted_pgd", 0.6, 0.9, steps=1000, targets=9), True),
        (attack("apgd_ce", 0.6, 0.9, steps=100), True),
        (attack("apgd_t", 0.6, 0.9, **STRONG), False),
        (attack("apgd_t", 0.6, 0.9, **STRONG | {"targets": 5}), False),  # AutoAttack's number in L1
        (attack("apgd_t", 0.6, 0.9, **STRONG | {"steps": 99}), True),
        (attack("apgd_t", 0.6, 0.9, **STRONG | {"targets": 4}), True),
        (attack("apgd_t", 0.6, 0.9), True),
        (attack("apgd_t", 0.6, 0.9, **STRONG, bound="upper"), True),
        (attack("autoattack", 0.6, 0.9), False),
        (attack("autoattack", 0.6, 0.9, bound="upper"), True),
        (attack("autoattack_rand", 0.6, 0.9), False),
        # An id may have a label in place of the name; a member counts for its ensemble.
        ([fraction("attack.mine_linf_0.2.accuracy", 0.6, attack="apgd_t", **STRONG)], False),
        ([fraction("attack.ensemble_linf_0.2.apgd_t.accuracy", 0.6, attack="apgd_t", **STRONG)], False),
    ],
)
def test_a_report_says_when_no_strong_attack_was_run(attacks, weak):
    clean, pgd = fraction("accuracy.clean", 0.9), attack("pgd", 0.7, 0.9, steps=100)
    other = attack("pgd", 0.5, 0.9, norm="l2", epsilon=0.5)
    assert weakly_attacked([*pgd, *attacks]) == ["L∞ ε = 0.2"] * weak
    assert weakly_attacked([*pgd, *attacks, *other])[-1] == "L2 ε = 0.5"  # each budget on its own
    text = Attacks(make_report(measurements=[clean, *pgd, *attacks])).sentence
    sentence = (
        "No attack as strong as APGD-T or AutoAttack was run within L∞ ε = 0.2; these usually leave less accuracy."
    )
    assert text.endswith(sentence) == weak and ("as strong" in text) == weak


def test_no_attack_is_said_plainly():
    assert threat_statement([fraction("accuracy.clean", 0.9)]).startswith("No attack was run")


def test_what_was_measured_without_an_attack_is_not_denied():
    clean, corrupted = fraction("accuracy.clean", 0.9), fraction("corruption.mean.accuracy", 0.8)
    assert threat_statement([clean]).endswith("only unmodified test images.")
    assert threat_statement([clean, corrupted, fraction("stability.mean.flip_probability", 0.1)]).endswith(
        "only unmodified test images, natural corruptions and perturbation sequences."
    )
    shifted = threat_statement([clean, fraction("shift.imagenet_r.accuracy", 0.4), *attack("pgd", 0.5, 0.9)])
    assert shifted.endswith("images other than the measured shifted sets.")


def test_an_attack_cut_short_is_an_upper_bound():
    numbers = [fraction("accuracy.clean", 0.98), *attack("apgd", 0.5, 0.9, bound="upper")]
    assert "at most 50.0 %" in threat_statement(numbers) and "time budget ended early" in threat_statement(numbers)


@pytest.mark.parametrize(
    "extra, word",
    [
        (attack("autoattack", 0.4, 0.9), "AutoAttack"),
        (attack("square", 0.6, 0.9), "Black-box"),
        ([fraction("corruption.mean.accuracy", 0.7)], "corruptions"),
        ([fraction("calibration.ece", 0.03)], "Calibration"),
        ([Measurement("stability.mfr", 0.2)], "Stability"),
        ([Measurement("accuracy.clean", 0.9, settings={"interval": "t, seeds"})], "seeds"),
        ([*attack("pgd", 0.4, 0.9, norm="l2"), *attack("pgd", 0.4, 0.9, norm="l1")], "measured in"),
    ],
)
def test_what_is_measured_leaves_the_list_of_what_is_not(extra, word):
    base = attack("fgsm", 0.7, 0.9)
    assert any(word in sentence for sentence in not_measured(base))
    assert not any(word in sentence for sentence in not_measured([*base, *extra]))


def test_measured_shifts_are_not_all_there_are():
    base = attack("fgsm", 0.7, 0.9)
    assert "Data from sources other than the test set (domain shift)." in not_measured(base)
    measured = not_measured([*base, fraction("shift.imagenet_r.accuracy", 0.4)])
    assert "Data from sources other than the test set and the measured shifted sets (domain shift)." in measured


@pytest.mark.parametrize(("member", "seen"), [("square", True), ("apgd_dlr", False)])
def test_an_ensemble_is_a_black_box_where_one_of_its_members_is(member, seen):
    numbers = [
        *attack("autoattack_rand", 0.4, 0.9),
        Measurement(f"attack.autoattack_rand_linf_0.2.{member}.accuracy", 0.4),
    ]
    assert seen != any("Black-box" in sentence for sentence in not_measured(numbers))


@pytest.mark.parametrize(
    ("check", "word"),
    [
        ("large_epsilon", "very large epsilon"),
        ("more_effort", "more steps"),
        ("black_box", "a black-box attack"),
        ("transfer", "transferred"),
        ("duplicates", "Overlap"),
    ],
)
def test_what_the_doctor_has_not_checked_is_said(check, word):
    base = attack("fgsm", 0.7, 0.9)
    (gone,) = set(not_measured(base)) - set(not_measured(base, [Finding(check, "pass", "evidence")]))
    assert word in gone


@pytest.mark.parametrize(
    "identity, expected",
    [
        ("attack.pgd_linf_0.2.accuracy", ("pgd", "linf", "0.2", None)),
        ("attack.multi_targeted_pgd_l2_3.accuracy", ("multi_targeted_pgd", "l2", "3", None)),
        ("attack.pgd20_linf_0.0313725.accuracy", ("pgd20", "linf", "0.0313725", None)),
        ("attack.pgd_linf_1e-05.accuracy", ("pgd", "linf", "1e-05", None)),
        ("attack.autoattack_l2_0.5.apgd_ce.accuracy", ("autoattack", "l2", "0.5", "apgd_ce")),
    ],
)
def test_reads_attack_ids(identity, expected):
    (row,) = attack_rows([Measurement(identity, 0.5)], members=True)
    assert (row.attack, row.norm, row.epsilon, row.member) == expected
    assert len(attack_rows([Measurement(identity, 0.5)])) == (expected[3] is None)


@pytest.mark.parametrize(
    "variant, words",
    [
        ("_per_frame", "L2 ε = 0.5 per frame"),
        ("_max_frames_1", "L2 ε = 0.5 in at most 1 frame"),
        ("_per_frame_max_frames_12", "L2 ε = 0.5 per frame, in at most 12 frames"),
    ],
)
def test_budgets_for_frames_are_budgets_of_their_own(variant, words):
    names = [f"attack.pgd_l2_0.5{variant}.accuracy", f"attack.ensemble_l2_0.5{variant}.apgd_t.accuracy"]
    plain, *rows = attack_rows(
        [Measurement(identity, 0.5, "fraction", 9) for identity in ("attack.pgd_l2_0.5.accuracy", *names)], members=True
    )
    assert plain.budget == "L2 ε = 0.5" and [row.budget for row in rows] == [words] * 2
    assert [row.name for row in rows] == ["PGD", "ensemble"] and rows[1].member == "apgd_t"
    measured = [plain.accuracy, rows[0].accuracy]
    statement = threat_statement(measured)
    assert f"within {words}." in statement and "within L2 ε = 0.5." in statement
    norms = "L∞, L2 and L1" if "max" in variant else "L∞ and L1"
    assert "measured in L∞ and L1" in statement and f"measured in {norms}" in threat_statement(measured[1:])
    assert reading.label(rows[0].accuracy) == f"PGD, {words}"
    curve = catalog.read(Series(f"attack.pgd_l2{variant}.curve", "", {})).settings
    assert spelling.curve_caption(curve) == f"PGD, {words.replace(' ε = 0.5', '')}"
    keys = [catalog.read(row.accuracy).sort_key for row in (plain, *rows)]
    assert keys[0] == keys[1] < keys[2]

"""The honest sentences follow the numbers."""

import pytest
import stored
from report.synthetic import attack, fraction, make_report

from tfrobust.report import attack_table, catalog, not_measured, reading, threat_statement
from tfrobust.report.catalog import spelling
from tfrobust.report.sections.attacks import Attacks
from tfrobust.structs import Finding, Measurement, Series

STRONG = {"steps": 100, "targets": 9}


@pytest.mark.parametrize("attacks, weak", stored.rows(globals(), "a_report_says_when_no_strong_attack_was_run"))
def test_a_report_says_when_no_strong_attack_was_run(attacks, weak):
    clean, pgd = fraction("accuracy.clean", 0.9), attack("pgd", 0.7, 0.9, steps=100)
    other = attack("pgd", 0.5, 0.9, norm="l2", epsilon=0.5)
    assert attack_table.weakly_attacked([*pgd, *attacks]) == ["L∞ ε = 0.2"] * weak
    assert attack_table.weakly_attacked([*pgd, *attacks, *other])[-1] == "L2 ε = 0.5"  # each budget on its own
    text = Attacks(make_report(measurements=[clean, *pgd, *attacks])).sentence
    sentence = (
        "No attack as strong as APGD-T or AutoAttack was run within L∞ ε = 0.2; these usually leave less accuracy."
    )
    assert text.endswith(sentence) == weak and ("as strong" in text) == weak


def union(attack, *efforts):
    threats = [{"norm": norm, "epsilon": epsilon} for norm, epsilon in (("linf", 0.1), ("l2", 1.0), ("l1", 10.0))]
    settings = {"label": "x", "threats": threats, "attacks": [attack] * 3, "member_efforts": [*efforts]}
    return fraction("union.x_linf_0.1_l2_1_l1_10.accuracy", 0.3, **settings)


@pytest.mark.parametrize("extra, word", stored.rows(globals(), "what_is_measured_leaves_the_list_of_what_is_not"))
def test_what_is_measured_leaves_the_list_of_what_is_not(extra, word):
    base = attack("fgsm", 0.7, 0.9)
    assert any(word in sentence for sentence in not_measured(base))
    assert not any(word in sentence for sentence in not_measured([*base, *extra]))


@pytest.mark.parametrize(("member", "seen"), [("square", True), ("apgd_dlr", False)])
def test_an_ensemble_is_a_black_box_where_one_of_its_members_is(member, seen):
    numbers = [
        *attack("autoattack_rand", 0.4, 0.9),
        Measurement(f"attack.autoattack_rand_linf_0.2.{member}.accuracy", 0.4),
    ]
    assert seen != any("Black-box" in sentence for sentence in not_measured(numbers))


@pytest.mark.parametrize("check, word", stored.rows(globals(), "what_the_doctor_has_not_checked_is_said"))
def test_what_the_doctor_has_not_checked_is_said(check, word):
    base = attack("fgsm", 0.7, 0.9)
    (gone,) = set(not_measured(base)) - set(not_measured(base, [Finding(check, "pass", "evidence")]))
    assert word in gone


@pytest.mark.parametrize("variant, words", stored.rows(globals(), "budgets_for_frames_are_budgets_of_their_own"))
def test_budgets_for_frames_are_budgets_of_their_own(variant, words):
    names = [f"attack.pgd_l2_0.5{variant}.accuracy", f"attack.ensemble_l2_0.5{variant}.apgd_t.accuracy"]
    plain, *rows = attack_table.attack_rows(
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

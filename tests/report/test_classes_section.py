"""Class by class, and the pictures of an attack: what is shown is what the series hold, and what cannot be is not."""

import dataclasses
import re

import numpy as np
import pytest
from report.synthetic import attack, classes, examples, images, make_report, written

from tfrobust.common import thumbnails
from tfrobust.report import sections
from tfrobust.report.sections.classes import Classes, Groups
from tfrobust.report.sections.examples import Examples
from tfrobust.structs import Series


def with_series(*series, **changes):
    return make_report(series=series, **changes)


def test_the_strongest_attack_that_has_classes_stands_beside_the_clean_accuracy():
    attacks = [*attack("fgsm", 0.7, 0.9), *attack("pgd", 0.5, 0.9), *attack("square", 0.4, 0.9)]
    pgd, fgsm = classes("attack.pgd_linf_0.2", 0.5), classes("attack.fgsm_linf_0.2", 0.7)
    names = [f"kind {label} of a name that is longer than a picture is wide" for label in range(10)]
    report = with_series(
        pgd, fgsm, classes("accuracy", 0.9), measurements=attacks, data={**make_report().data, "class_names": names}
    )
    lead, body = written(Classes, report)
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", body)
    assert heads == ["Class", "n", "", "Clean", "PGD, L∞ ε = 0.2"]  # all bars in one column
    assert re.findall(r'<th(?: class="(\w+)")?>', body) == ["name", "number", "", "number", "number"]
    assert body.count('class="bar"') == 20 and re.findall(r"</svg>([^<]*)</li>", body) == [
        *("Clean", "PGD, L∞ ε = 0.2", "95 % interval")
    ]
    (table,) = Classes(report).blocks()
    assert table.header == ["Class", "n", "Clean", "PGD, L∞ ε = 0.2"]
    assert [(row[1], round(row[2].value, 3), round(row[3].value, 3)) for row in table.rows] == [
        (36, round(0.9 - 0.02 * label, 3), round(0.5 - 0.02 * label, 3)) for label in reversed(range(10))
    ]  # the weakest comes first
    assert "n is the number of test images" in lead and f">{names[3]}<" in body
    assert [*Classes(with_series(pgd, measurements=attacks)).columns] == ["PGD, L∞ ε = 0.2"]
    assert written(Classes, with_series(pgd)) is not None  # make_report measures pgd
    assert written(Classes, with_series(Series("accuracy.classes", "", {"label": [0]}))) is None


def test_of_many_classes_the_weakest_are_shown():
    count = 100
    values = np.random.default_rng(0).permutation(count) / count
    columns = {"label": list(range(count)), "n": [50] * count, "accuracy": values, "low": values, "high": values}
    section = Classes(with_series(Series("accuracy.classes", "", columns), measurements=[]))
    (table,) = section.blocks()
    assert [row[0] for row in table.rows] == [f"class {label}" for label in np.argsort(values)[:30]]
    assert "the 30 of 100" in section.lead


def test_groups_are_ranked_by_their_accuracy_under_attack():
    columns = {"group": ["clinic", "lab", "ward"], "n": [5, 6, 7], "accuracy": [0.4, 0.2, 0.3]}
    columns |= {"low": [0.1] * 3, "high": [0.6] * 3}
    clean = Series("accuracy.groups", "", columns | {"accuracy": [0.9, 0.8, 1.0]})
    section = Groups(with_series(clean, Series("attack.pgd_linf_0.2.groups", "", columns)))
    (table,) = section.blocks()
    assert [(row[0], row[1], row[2].value) for row in table.rows] == [
        ("lab", 6, 0.8),
        ("ward", 7, 1.0),
        ("clinic", 5, 0.9),
    ]
    assert table.header[0] == "Group" and [role for _, role in table.bars] == ["clean", "attacked"]
    assert section.sentence == "Lowest accuracy: clean, lab with 80.0 %; under PGD-100, L∞ ε = 0.2, lab with 20.0 %."
    assert "number of test images of a group" in section.lead
    assert "groups" in [section.anchor for section in sections.build(section.report)]
    assert Groups(with_series()).blocks() == []


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_stand_in_their_order_under_what_the_model_says(channels):
    series = examples(channels=channels, side=5)
    lead, body = written(Examples, with_series(series))
    assert "multiplied by 2.5" in lead
    drawn = [picture / 255 for picture in images(body)]
    expected = [
        np.broadcast_to(thumbnails.decode(series.columns[name][row], 5, 5, channels), (5, 5, 3))
        for row in range(3)
        for name in ("image", "adversarial", "difference")
    ]
    np.testing.assert_allclose(drawn, expected, atol=1.1 / 255)
    captions = re.findall(r"<figcaption[^>]*>([^<]*)<", body)
    assert captions == ["Misclassified under PGD-20, L∞ ε = 0.2", "Still correct under PGD-20, L∞ ε = 0.2"]
    titles = [title for title in re.findall(r"<text[^>]*>([^<]*)</text>", body) if "%" in title]
    assert titles == ["0 (98.0 %)", "9 (71.0 %)", "1 (98.0 %)", "8 (71.0 %)", "2 (98.0 %)", "2 (71.0 %)"]


def test_who_stays_right_in_a_picture_and_falls_in_a_number_is_said_to():
    """The last of three examples, at position 20, stands under pgd20, and not under the attack that is measured."""
    attacks = attack("pgd", 0.5, 0.9, n=30)
    row = "1" * 5 + "0" * 10 + "1" * 5 + "{}" + "0" * 4 + "1" * 4 + "{}"
    leads = {}
    for name, ends in (("falls", "01"), ("stands", "10")):
        outcomes = Series("outcomes.attack.pgd_linf_0.2.accuracy", "", {"right": [row.format(*ends)]})
        report = with_series(examples(), outcomes, measurements=attacks)
        leads[name] = Examples(report).lead
    assert leads["falls"].endswith(
        "final point of this attack only: for 1 of these 1, another attack in this report succeeds."
    )
    assert leads["stands"].endswith('"Still correct" refers to the final point of this attack only.')
    elsewhere = with_series(examples(), measurements=attack("pgd", 0.5, 0.9, n=30, epsilon=0.1))
    assert not any(example.misclassified_elsewhere for shown in Examples(elsewhere).shown for example in shown.examples)


def test_what_a_time_budget_ended_is_a_bound_class_by_class_too():
    report = with_series(classes("attack.pgd_linf_0.2", 0.5), measurements=attack("pgd", 0.5, 0.9, bound="upper"))
    assert "&lt;= 32.0 %" in written(Classes, report)[1]


def test_what_is_not_known_is_not_shown():
    series = examples()
    silent = dataclasses.replace(series, settings={})
    assert "an unrecorded factor" in written(Examples, with_series(silent))[0]
    broken = dataclasses.replace(series, columns={**series.columns, "adversarial": ["?"] * 3})
    part = dataclasses.replace(series, columns={"label": [1]})
    for shown in (broken, part, dataclasses.replace(series, id="noise.examples")):
        assert written(Examples, with_series(shown)) is None
        assert "examples" not in [section.anchor for section in sections.build(with_series(shown))]

"""Class by class, and the pictures of an attack: what is shown is what the series hold, and what cannot be is not."""

import dataclasses
import re

import numpy as np
import pytest
from report.synthetic import attack, classes, examples, fraction, images, make_report, written

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


def test_an_attack_on_fewer_images_has_its_n_beside_its_accuracy():
    report = with_series(
        *(classes("attack.pgd_linf_0.2", 0.5, 12), classes("accuracy", 0.9)), measurements=attack("pgd", 0.5, 0.9)
    )
    (table,) = Classes(report).blocks()
    assert table.header == ["Class", "n", "Clean", "n, attacked", "PGD, L∞ ε = 0.2"]
    assert {(row[1], row[2].n, row[3], row[4].n) for row in table.rows} == {(36, 36, 12, 12)}
    assert table.bars == ((2, "clean"), (4, "attacked"))


@pytest.mark.parametrize(("kind", "part", "key"), [(Classes, "class", 0), (Groups, "group", "clinic")])
def test_the_interval_over_a_part_of_the_images_is_not_named_as_another_kind(kind, part, key):
    columns = {kind.kind.replace("classes", "label").removesuffix("s"): [key]}
    columns |= {"n": [9], "accuracy": [0.5], "low": [0.2], "high": [0.8]}
    parts = Series(f"accuracy.{kind.kind}", "", columns, {"interval": f"95 % over images of the {part}, Wilson"})
    clean = fraction("accuracy.clean", 0.9, interval="95 % over images, Wilson")
    assert "Intervals" not in kind(with_series(parts, measurements=[clean])).introduction


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
    expected = ["0 (98.0 %)", "9 (71.0 %)", "1 (98.0 %)", "8 (71.0 %)", "2 (98.0 %)", "2 (71.0 %)"]
    assert titles == [title.replace(" %", "\N{NO-BREAK SPACE}%") for title in expected]


def test_what_is_not_known_is_not_shown():
    series = examples()
    silent = dataclasses.replace(series, settings={})
    assert "an unrecorded factor" in written(Examples, with_series(silent))[0]
    broken = dataclasses.replace(series, columns={**series.columns, "adversarial": ["?"] * 3})
    part = dataclasses.replace(series, columns={"label": [1]})
    for shown in (broken, part, dataclasses.replace(series, id="noise.examples")):
        assert written(Examples, with_series(shown)) is None
        assert "examples" not in [section.anchor for section in sections.build(with_series(shown))]

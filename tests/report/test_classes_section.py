"""Class by class, and the pictures of an attack: what is shown is what the series hold, and what cannot be is not."""

import dataclasses
import re

import numpy as np
import pytest
from report.synthetic import attack, classes, examples, images, make_report

from tfrobust.common import pictures
from tfrobust.report.renderers.markdown import build
from tfrobust.report.sections import classes as section_classes
from tfrobust.report.sections import examples as section_examples
from tfrobust.report.sections.sentences import sentence
from tfrobust.structs import Series


def with_series(*series, **changes):
    return make_report(series=series, **changes)


def test_the_strongest_attack_that_has_classes_stands_beside_the_clean_accuracy():
    found = [*attack("fgsm", 0.7, 0.9), *attack("pgd", 0.5, 0.9), *attack("square", 0.4, 0.9)]
    pgd, fgsm = classes("attack.pgd_linf_0.2", 0.5), classes("attack.fgsm_linf_0.2", 0.7)
    names = [f"kind {label} of a name that is longer than a picture is wide" for label in range(10)]
    report = with_series(
        pgd, fgsm, classes("accuracy", 0.9), measurements=found, data={**make_report().data, "class_names": names}
    )
    lead, body = section_classes.section(report)
    header, rows = section_classes.table(report, section_classes.classes(report))
    assert header == ["Class", "n", "Clean", "pgd, Linf 0.2"]
    assert [(row[1], round(row[2].value, 3), round(row[3].value, 3)) for row in rows] == [
        (36, round(0.9 - 0.02 * label, 3), round(0.5 - 0.02 * label, 3)) for label in range(10)
    ]
    assert "over images of the class, Wilson" in lead and f"class {names[3]}"[:60] in body
    alone = section_classes.classes(with_series(pgd, measurements=found))
    assert [heading for heading, _ in alone.columns] == ["pgd, Linf 0.2"]
    assert section_classes.section(with_series(pgd)) is not None  # make_report measures pgd
    assert section_classes.section(with_series(Series("accuracy.classes", "", {"label": [0]}))) is None


def test_of_many_classes_the_weakest_are_shown():
    count = 100
    values = np.random.default_rng(0).permutation(count) / count
    columns = {"label": list(range(count)), "n": [50] * count, "accuracy": values, "low": values, "high": values}
    found = section_classes.classes(with_series(Series("accuracy.classes", "", columns), measurements=[]))
    assert found.total == count and found.labels == np.argsort(values)[:30].tolist()
    assert "the 30 of 100" in section_classes.lead(found)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_stand_in_their_order_under_what_the_model_says(channels):
    series = examples(channels=channels, side=5)
    lead, body = section_examples.examples(with_series(series))
    assert "multiplied by 2.5" in lead
    drawn = [picture / 255 for picture in images(body)]
    wanted = [
        np.broadcast_to(pictures.decode(series.columns[name][row], 5, 5, channels), (5, 5, 3))
        for row in range(3)
        for name in ("image", "adversarial", "difference")
    ]
    np.testing.assert_allclose(drawn, wanted, atol=1.1 / 255)
    captions = re.findall(r"<figcaption[^>]*>([^<]*)<", body)
    assert captions == ["Brought down by pgd20, Linf 0.2", "Still right under pgd20, Linf 0.2"]
    titles = [title for title in re.findall(r"<text[^>]*>([^<]*)</text>", body) if "%" in title]
    assert titles == ["0 (98 %)", "9 (71 %)", "1 (98 %)", "8 (71 %)", "2 (98 %)", "2 (71 %)"]


def test_who_stays_right_in_a_picture_and_falls_in_a_number_is_said_to():
    """The last of three examples, at position 20, stands under pgd20, and not under the attack that is measured."""
    found = attack("pgd", 0.5, 0.9, n=30)
    row = "1" * 5 + "0" * 10 + "1" * 5 + "{}" + "0" * 4 + "1" * 4 + "{}"
    said = {}
    for name, ends in (("falls", "01"), ("stands", "10")):
        outcomes = Series("outcomes.attack.pgd_linf_0.2.accuracy", "", {"right": [row.format(*ends)]})
        report = with_series(examples(), outcomes, measurements=found)
        said[name] = section_examples.lead(section_examples.shown(report)), sentence(report, "examples")
    assert said["falls"][0].endswith(
        "last point of this attack alone: attacks measured in this report bring down 1 of these 1."
    )
    assert said["stands"][0].endswith("Still right says so of the last point of this attack alone.")
    assert said["falls"][1].endswith(
        "1 that it does not (attacks measured in this report bring down 1 of these), to judge by eye."
    )
    assert said["stands"][1] == "2 images that the attack brings down and 1 that it does not, to judge by eye."
    elsewhere = with_series(examples(), measurements=attack("pgd", 0.5, 0.9, n=30, epsilon=0.1))
    assert not any(example.falls_elsewhere for one in section_examples.shown(elsewhere) for example in one.examples)


def test_what_a_time_budget_ended_is_a_bound_class_by_class_too():
    report = with_series(classes("attack.pgd_linf_0.2", 0.5), measurements=attack("pgd", 0.5, 0.9, bound="upper"))
    assert "&lt;= 32.0 %" in section_classes.section(report)[1] and "<= 32.0 %" in sentence(report, "classes")


def test_what_is_not_known_is_not_shown():
    series = examples()
    silent = dataclasses.replace(series, settings={})
    assert "an unrecorded factor" in section_examples.examples(with_series(silent))[0]
    broken = dataclasses.replace(series, columns={**series.columns, "adversarial": ["?"] * 3})
    part = dataclasses.replace(series, columns={"label": [1]})
    for shown in (broken, part, dataclasses.replace(series, id="noise.examples")):
        assert section_examples.examples(with_series(shown)) is None
        assert "examples" not in [anchor for anchor, *_ in build(with_series(shown))]

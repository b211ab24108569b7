"""The report's JSON: round trip, and our validator against the jsonschema package."""

import copy
import functools
import json
import math
import operator
import pathlib
import subprocess
import sys

import jsonschema
import numpy as np
import pytest
import stored
from report.synthetic import make_report

from tfrobust.report import schema, validator
from tfrobust.report.renderers import console, html, markdown
from tfrobust.report.schema import JSON_SCHEMA, SCHEMA_FILE, Report, check_document
from tfrobust.structs import Finding, Measurement, Series

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "report_version_1.json"
CHECKER = jsonschema.Draft202012Validator(JSON_SCHEMA)


def document():
    return make_report().to_dict()


def changed(path, value):
    """The example document with one place replaced; value `...` deletes it."""
    return replaced(document(), path, value)


def replaced(base, path, value):
    copied = copy.deepcopy(base)
    *parents, last = path
    parent = functools.reduce(operator.getitem, parents, copied)
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return copied


BROKEN = stored.table(globals(), "broken")
SOUND = stored.table(globals(), "sound")


def test_the_published_file_is_the_schema_that_is_used():
    """Draft 2020-12, described throughout, and beside the module that reads it, so that a wheel carries it."""
    published = json.loads(SCHEMA_FILE.read_text("utf-8"))
    assert published == JSON_SCHEMA and SCHEMA_FILE.parent == pathlib.Path(schema.__file__).parent
    assert published["$schema"].endswith("draft/2020-12/schema")
    assert published["$id"] == "urn:tfrobust:robustness_report:1"

    def undescribed(part, path):
        for name, inner in part.get("properties", {}).items():
            yield from undescribed(inner, f"{path}.{name}")
            if not inner.get("description"):
                yield f"{path}.{name}"
        if "items" in part:
            yield from undescribed(part["items"], path)

    assert list(undescribed(published, "$")) == []


# What version 1 asked for when it was first published: less would break readers, more would break old reports.
REQUIRED = stored.table(globals(), "required")


@pytest.mark.parametrize("part", REQUIRED)
def test_version_1_never_asks_for_more_or_less(part):
    properties = JSON_SCHEMA["properties"][part] if part else JSON_SCHEMA
    assert sorted(properties.get("items", properties)["required"]) == sorted(REQUIRED[part].split())


def test_the_first_report_of_version_1_is_still_one():
    """A genuine one (see its birth certificate): valid, written again to the byte, rendered whole."""
    text = GOLDEN.read_text("utf-8")
    CHECKER.validate(json.loads(text))
    report = Report.from_json(text)
    assert report.to_json() == text
    page, card = html.render(report), markdown.render(report)
    for shown in (page, card, console.console_table(report)):
        assert "63.6 %" in shown and "over images" in shown and "Wilson" in shown
    headings = " ".join(line.lower() for line in card.splitlines() if line.startswith("## "))
    for later in ("examples", "class", "epsilon", "calibration"):
        assert f'id="{later}"' not in page and later not in headings


@pytest.mark.parametrize("path, value, where", BROKEN)
def test_both_validators_refuse(path, value, where):
    broken = changed(path, value)
    assert not CHECKER.is_valid(broken)
    with pytest.raises(ValueError) as caught:
        check_document(broken)
    assert f" {where}: " in str(caught.value) and len(str(caught.value)) <= 300
    with pytest.raises(ValueError):
        Report.from_json(json.dumps(broken))


@pytest.mark.parametrize("path, value", SOUND)
def test_both_validators_accept(path, value):
    sound = changed(path, value)
    assert CHECKER.is_valid(sound)
    check_document(sound)


def test_validators_agree_on_every_single_replacement():
    small = make_report(series=[], doctor=make_report().doctor[:1], measurements=make_report().measurements[:1])
    base, disagreements, count = small.to_dict(), [], 0

    def places(value, path=()):
        yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, inner in items:
            yield from places(inner, (*path, name))

    for path in list(places(base)):
        for value in (None, True, -1, 1.5, 2.0, "", "x", "a" * 64, [], [None], {}, {"a": {}}):
            trial = replaced(base, path, value) if path else value
            count += 1
            if CHECKER.is_valid(trial) != (validator.first_problem(trial, JSON_SCHEMA) is None):
                disagreements.append((path, value))
    assert count > 500 and not disagreements


def test_the_schema_is_one_and_uses_only_what_our_validator_knows():
    jsonschema.Draft202012Validator.check_schema(JSON_SCHEMA)

    def check(schema):
        assert schema.keys() <= validator.KEYWORDS
        for inner in schema.get("properties", {}).values():
            check(inner)
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                check(schema[name])

    check(JSON_SCHEMA)


def test_reports_come_back_exactly_with_fields_of_a_later_writer():
    report = make_report(cost={"total_seconds": 0.1 + 0.2})
    text = report.to_json()
    again = Report.from_json(text)
    assert again == report and again.to_json() == text
    CHECKER.validate(json.loads(text))
    later = changed(("certificates",), [{"kind": "new"}])
    report = Report.from_json(json.dumps(later))
    assert json.loads(report.to_json())["certificates"] == [{"kind": "new"}]
    later = changed(("measurements", 0, "method_of_interval"), "wilson")
    assert Report.from_json(json.dumps(later)) == make_report()


def test_nan_and_infinity_become_null_and_numpy_becomes_plain():
    report = make_report(
        measurements=[Measurement("a.b", np.float32("nan"), n=np.int64(7), settings={"shape": (8, 8), "x": math.inf})],
        series=[Series("s", "t", {"x": np.array([1.0, np.nan]), "y": np.array([True, False])})],
        doctor=[Finding("check", "pass", "fine")],
    )
    text = report.to_json()
    assert "NaN" not in text and "Infinity" not in text
    measurement = report["a.b"]
    assert measurement.value is None and type(measurement.n) is int
    assert measurement.settings == {"shape": [8, 8], "x": None}
    assert report.series[0].columns == {"x": [1.0, None], "y": [True, False]}
    assert Report.from_json(text) == report


@pytest.mark.parametrize("text", ["", "{", "[1,2", '{"a": NaN}', "[" * 100_000, "null", "3", b"\xff\xfe\x00", '"x"'])
def test_what_is_no_report_is_one_clear_sentence(text):
    with pytest.raises(ValueError) as caught:
        Report.from_json(text)
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize("path, value, word", stored.rows(globals(), "rules_that_a_schema_cannot_say"))
def test_rules_that_a_schema_cannot_say(path, value, word):
    broken = changed(path, value)
    assert CHECKER.is_valid(broken)
    with pytest.raises(ValueError, match=word):
        check_document(broken)


def test_validate_and_lookup():
    report = make_report()
    report.validate()
    assert report["accuracy.clean"].value == 0.983
    assert report.get("nothing") is None and report.get_series("nothing") is None
    with pytest.raises(KeyError):
        report["nothing"]
    with pytest.raises(TypeError, match="JSON values only"):
        make_report(cost={"a": object()})


def test_needs_no_tensorflow_and_matplotlib_only_to_draw():
    program = (
        "import sys, tfrobust.report, tfrobust.report.comparison.reports, tfrobust.report.renderers.html\n"
        "assert 'matplotlib' not in sys.modules and 'jsonschema' not in sys.modules\n"
        "from report.synthetic import make_report\n"
        "tfrobust.report.renderers.html.render(make_report(series=make_report().series[:1]))\n"
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    paths = [path for path in sys.path if path]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{program}"], check=True)

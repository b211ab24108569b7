"""Robustness reports that lie, break, or try to run in the browser or the terminal of their reader."""

import json
import pickle

from hostile.data_files import Runs

from tfrobust.report.schema import Report
from tfrobust.structs import Finding, Measurement, Series

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m"


def report(text: str = "small", **changes) -> dict:
    """A whole report with a text of others in each place that takes one."""
    small_report = Report(
        model={"name": text, "version": 1, "weights_sha256": None, "parameters": 3},
        data={"name": text, "fingerprint": None, "train_size": 1, "validation_size": 1, "test_size": 6}
        | {"class_names": [text, "b"]},
        measurements=(
            Measurement("accuracy.clean", 0.5, "fraction", 6, 0.2, 0.8, {"attack": text, text: text}),
            Measurement("attack.pgd_linf_0.2.accuracy", 0.5, text, 6, 0.2, 0.8, {"epsilon": text, "norm": text}),
        ),
        doctor=(Finding(text, "fail", text, text),),
        threat=text,
        not_measured=(text,),
        configuration=text,
        environment={text: text},
        cost={text: text, "training_seconds": 1.0},
        series=(Series(text, text, {"epsilon": (0.0, 0.1), "accuracy": (0.5, 0.4), text: (text, text)}),),
        training={text: text, "method": text},
        created=text,
    )
    return {**small_report.to_dict(), **changes}


def _text(**changes) -> bytes:
    return json.dumps(report(**changes)).encode()


def _measurement(**changes) -> bytes:
    document = report()
    document["measurements"][0].update(changes)
    return json.dumps(document).encode()


_BEGIN = b'{"schema": "tfrobust/robustness_report/1", '

# Name -> content of a robustness_report.json.
CASES = {
    "half a report": _text()[:300],
    "not JSON at all": _BEGIN + b"import os",
    "no number": _BEGIN + b'"value": NaN}',
    "an endless number": _measurement(value=float("inf")),
    "a number of many digits": _BEGIN + b'"value": ' + b"9" * 10_000 + b"}",
    "a value of 401 digits": _measurement(value=10**400),
    "a cost of 401 digits": _text(cost={"seconds": 10**400}),
    "a training of 20 digits": _text(training={"seed": 2**64}),
    "an infinite exponent": _text(cost={"seconds": 1.5}).replace(b"1.5", b"1e400"),
    "brackets without end": _BEGIN + b'"other": ' + b"[" * 100_000 + b"}",
    "brackets a hundred thousand deep": _BEGIN + b'"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "brackets nine hundred deep": _text()[:-1] + b', "other": ' + b"[" * 900 + b"]" * 900 + b"}",
    "brackets two hundred deep": _text()[:-1] + b', "other": ' + b"[" * 200 + b"]" * 200 + b"}",
    "megabytes": _text().ljust(2**24 + 1),
    "a list": b'["tfrobust/robustness_report/1"]',
    "a text": b'"tfrobust/robustness_report/1"',
    "the schema alone": b'{"schema": "tfrobust/robustness_report/1"}',
    "a schema of tomorrow": _text(schema="tfrobust/robustness_report/99"),
    "no UTF-8": _BEGIN + b'"threat": "\xff\xfe"}',
    "UTF-16": _text().decode().encode("utf-16"),
    "a null": _BEGIN + b'\0"threat": ""}',
    "a pickle": pickle.dumps([Runs(), "tfrobust/robustness_report/1"]),
    "a name that is no text": _text(model={"name": 3, "version": 1, "weights_sha256": None, "parameters": 1}),
    "a name of nothing": _text(model={"name": "", "version": 1, "weights_sha256": None, "parameters": 1}),
    "a version below nothing": _text(model={"name": "a", "version": -1, "weights_sha256": None, "parameters": 1}),
    "a hash that is none": _text(model={"name": "a", "version": 1, "weights_sha256": "x", "parameters": 1}),
    "measurements that are a table": _text(measurements={}),
    "more measurements than are read": _text(measurements=report()["measurements"][:1] * 10_001),
    "a measurement twice": _text(measurements=report()["measurements"][:1] * 2),
    "an id that is markup": _measurement(id="<script>"),
    "an id that is a path": _measurement(id="../../outside"),
    "an id with an escape sequence": _measurement(id="a\x1b[2J"),
    "an interval the wrong way round": _measurement(low=0.9, high=0.1),
    "a value that is text": _measurement(value="0.9"),
    "a value that is true": _measurement(value=True),
    "settings that are a list": _measurement(settings=[1]),
    "a verdict of its own": _text(doctor=[{"check": "a", "verdict": "great", "evidence": "", "remedy": ""}]),
    "columns of unequal length": _text(series=[{"id": "a", "title": "", "columns": {"x": [1], "y": [1, 2]}}]),
    "columns of tables": _text(series=[{"id": "a", "title": "", "columns": {"x": [{}]}}]),
}

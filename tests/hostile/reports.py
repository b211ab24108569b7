"""Robustness reports that lie, break, or try to run in the browser or the terminal of their reader."""

import json

import stored

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
CASES = stored.cases(__file__, "reports", globals())

"""Reports of others: read as data, shown as text."""

import dataclasses
import html.parser
import json
import os
import re

import numpy as np
import pytest
import stored
from hostile import reports

from tfrobust.commands import compare, evaluate
from tfrobust.common import thumbnails
from tfrobust.report.renderers import console, markdown
from tfrobust.report.renderers import html as renderer
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series

QUICK = "--gin_file=gin/eval/quick.gin"


@pytest.mark.parametrize("name", reports.CASES)
def test_the_command_refuses(tmp_path, refused, name):
    (tmp_path / "robustness_report.json").write_bytes(reports.CASES[name])
    refused(compare.main, str(tmp_path / "robustness_report.json"), f"--output={tmp_path / 'page.html'}")


@pytest.mark.parametrize("name", ["half a report", "no UTF-8", "brackets a hundred thousand deep", "a pickle"])
def test_inside_an_export(valid, export_copy, refused, name):
    (export_copy / "assets.extra").mkdir(exist_ok=True)
    (export_copy / "assets.extra" / "robustness_report.json").write_bytes(reports.CASES[name])
    refused(evaluate.main, f"--model={export_copy}", f"--data={valid / 'data.npz'}", QUICK, "--gin_param=EPSILON=0.1")


SOURCES = stored.cases(__file__, "sources", globals())


@pytest.mark.parametrize("name", SOURCES)
def test_the_data_that_a_report_names(export_copy, refused, name, monkeypatch):
    """Without --data the report's own source is read: it is data, and never fetched."""
    monkeypatch.setattr("tensorflow_datasets.core.DatasetBuilder.download_and_prepare", _never)
    document = reports.report()
    document["data"]["source"] = SOURCES[name]
    (export_copy / "assets.extra").mkdir(exist_ok=True)
    (export_copy / "assets.extra" / "robustness_report.json").write_text(json.dumps(document))
    refused(evaluate.main, f"--model={export_copy}", QUICK, "--gin_param=EPSILON=0.1")


def _never(*_, **__):
    raise AssertionError("it was fetched")


class _Tags(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.scripts, self.handlers, self.links = 0, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("src", "href") and value and value[0] != "#"]


@pytest.mark.parametrize(
    "text", [reports.SCRIPT, "</style></title>" + reports.SCRIPT, "javascript:alert(1)", "```\n" + reports.SCRIPT]
)
def test_markup_in_a_report_is_text(tmp_path, text):
    report = Report.from_json(json.dumps(reports.report(text)))
    (tmp_path / "robustness_report.json").write_text(report.to_json())
    assert compare.main([str(tmp_path / "robustness_report.json"), f"--output={tmp_path / 'page.html'}"]) == 0
    plain = _Tags(renderer.render(Report.from_json(json.dumps(reports.report()))))
    for page in (renderer.render(report), (tmp_path / "page.html").read_text()):
        tags = _Tags(page)
        assert tags.scripts <= plain.scripts and tags.handlers == []
        assert all(link.startswith("data:image/") for link in tags.links)
    # In Markdown a fence longer than any in the text holds what is shown as it was written.
    assert "<script" not in re.sub(r"^(`{3,})\n.*?^\1$", "", markdown.render(report), flags=re.DOTALL | re.MULTILINE)


def test_escape_sequences_in_a_report_do_not_reach_the_terminal(tmp_path, capfd):
    (tmp_path / "robustness_report.json").write_text(json.dumps(reports.report(reports.ESCAPE)))
    for _ in range(2):
        compare.main([str(tmp_path / "robustness_report.json"), f"--output={tmp_path / 'page.html'}"])
    print(console.console_table(Report.from_json(json.dumps(reports.report(reports.ESCAPE)))))
    streams = capfd.readouterr()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", streams.out + streams.err)


def test_a_pipe_for_a_report_is_not_waited_for(tmp_path, refused):
    os.mkfifo(tmp_path / "robustness_report.json")
    refused(compare.main, str(tmp_path), f"--output={tmp_path / 'page.html'}", part="no robustness report")


BALL = {"norm": "linf", "epsilon": 0.2}
ODD_VALUES = {
    "a norm that is a list": {
        "training": {"norm": ["linf"], "epsilon": 0.1},
        "series": [Series("attack.pgd_linf.curve", "Curve", {"epsilon": [0.0, 0.1], "accuracy": [0.9, 0.4]})],
    },
    "words without numbers": {
        "series": [
            Series(
                "sensitivity.tokens",
                "Words",
                {name: ["a"] for name in ("sentence", "token", "label", "sensitivity", "strength")},
            )
        ]
    },
    "a class of words that is a text": {
        "series": [
            Series(
                "sensitivity.tokens",
                "Words",
                {"sentence": [0], "token": ["a"], "label": ["b"], "sensitivity": [0.5], "strength": [0.1]},
            )
        ]
    },
    "chances without numbers": {
        "series": [
            Series(
                "noise.replacement",
                "Chances",
                {"height": [1], "width": [1], "probability": [thumbnails.encode(np.ones([1, 1, 1]))]}
                | {"least_probability": ["a"], "largest_probability": [None]},
            )
        ]
    },
    "outcomes that are numbers": {
        "measurements": [
            Measurement("attack.pgd_linf_0.2.accuracy", 0.5, "fraction", 6, 0.2, 0.8, {"attack": "pgd", **BALL}),
            Measurement("certified.linf_0.2.accuracy", 0.5, "fraction", 3, 0.1, 0.9, {"sample": "first 3", **BALL}),
        ],
        "series": [Series("outcomes.attack.pgd_linf_0.2.accuracy", "Outcomes", {"right": [0.5]})],
    },
}


@pytest.mark.parametrize("name", ODD_VALUES)
def test_values_of_other_types_are_left_out(name):
    """A schema cannot forbid them: another program may have series and settings of its own."""
    report = dataclasses.replace(Report.from_json(json.dumps(reports.report())), **ODD_VALUES[name])
    report = Report.from_json(report.to_json())
    assert all(rendered(report) for rendered in (renderer.render, markdown.render, console.console_table))

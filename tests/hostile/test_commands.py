"""A few of the hostile inputs from outside: a process of its own, its exit code, its standard error."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from faults import processes
from hostile import keras_files, programs, reports
from hostile.small import tree

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _model(tmp_path, evaluate_flags, export_copy):
    programs.add_operation(export_copy, "WriteFile", "nested function")
    return "evaluate", evaluate_flags(model=export_copy)


def _keras_file(tmp_path, evaluate_flags, export_copy):
    keras_files.CASES["lambda.keras"][0](tmp_path / "model.keras")
    return "evaluate", evaluate_flags(model=tmp_path / "model.keras")


def _recipe(tmp_path, evaluate_flags, export_copy):
    (tmp_path / "case.gin").write_text("include 'supervised.gin'\nimport os\n")
    return "train", [f"--gin_file={tmp_path / 'case.gin'}", f"--workdir={tmp_path / 'run'}"]


def _report(tmp_path, evaluate_flags, export_copy):
    (tmp_path / "report.json").write_text(json.dumps(reports.report(model={"name": "\x1b[2J"})))
    return "compare", [str(tmp_path / "report.json"), f"--output={tmp_path / 'page.html'}"]


@pytest.mark.parametrize("build", [_model, _keras_file, _recipe, _report])
def test_refused_from_outside(tmp_path, evaluate_flags, export_copy, canary, build):
    command, flags = build(tmp_path, evaluate_flags, export_copy)
    before = tree(tmp_path)
    if command == "evaluate":  # it imports TensorFlow, which takes seconds
        ended = processes.run(f"tfrobust.{command}:main", [flags], cwd=tmp_path)
        code, output = ended.code, ended.err
    else:
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
        streams = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 240}
        done = subprocess.run([sys.executable, "-m", f"tfrobust.{command}", *flags], **streams)
        code, output = done.returncode, done.stderr
    assert code == 2 and "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(line) <= 300 and line.isprintable()
    assert tree(tmp_path) == before

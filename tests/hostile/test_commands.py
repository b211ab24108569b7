"""A few of the hostile inputs from outside: a process of its own, its exit code, its standard error."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from hostile import keras_files, programs, reports

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _model(whole, tmp_path, export_copy):
    programs.add_operation(export_copy, "WriteFile", "nested function")
    return ["evaluate", f"--model={export_copy}", f"--data={whole / 'data.npz'}", "--gin_file=gin/eval/quick.gin"]


def _keras_file(whole, tmp_path, export_copy):
    keras_files.CASES["lambda.keras"][0](tmp_path / "model.keras")
    model = f"--model={tmp_path / 'model.keras'}"
    return ["evaluate", model, f"--data={whole / 'data.npz'}", "--gin_file=gin/eval/quick.gin"]


def _recipe(whole, tmp_path, export_copy):
    (tmp_path / "case.gin").write_text("include 'supervised.gin'\nimport os\n")
    return ["train", f"--gin_file={tmp_path / 'case.gin'}", f"--workdir={tmp_path / 'run'}"]


def _report(whole, tmp_path, export_copy):
    (tmp_path / "report.json").write_text(json.dumps(reports.report(model={"name": "\x1b[2J"})))
    return ["compare", str(tmp_path / "report.json"), f"--output={tmp_path / 'page.html'}"]


@pytest.mark.parametrize("build", [_model, _keras_file, _recipe, _report])
def test_refused_from_outside(whole, tmp_path, export_copy, canary, build):
    command, *flags = build(whole, tmp_path, export_copy)
    before = sorted(tmp_path.rglob("*"))
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", f"tfrobust.{command}", *flags],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(line) <= 300 and line.isprintable()
    assert sorted(tmp_path.rglob("*")) == before

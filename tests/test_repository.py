"""Rules that hold for the repository as a whole: layers, budgets, packaging, scaffold."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import check_layers
import check_names
import check_types
import pytest
import stored

from tfrobust.commands import new_method

ROOT = pathlib.Path(__file__).resolve().parents[1]


def sources() -> list[pathlib.Path]:
    return sorted((ROOT / "tfrobust").rglob("*.py"))


# -------------------------------------------------------------------------------------------------- names


def test_at_most_a_few_names_say_nothing_of_their_values():
    shares = {name: check_names.share(files) for name, files in check_names.count(ROOT).items()}
    assert [name for name, share in shares.items() if share > check_names.LIMIT] == []


# ------------------------------------------------------------------------------------------------- layers


@pytest.mark.first
def test_no_package_has_more_type_errors_than_its_budget():
    assert check_types.main([str(ROOT)]) == 0


def test_imports_go_down_only():
    assert check_layers.faults(ROOT) == []


@pytest.mark.parametrize("path, text, fault", stored.rows(globals(), "the_layer_check_finds_or_allows"))
def test_the_layer_check_finds_or_allows(tmp_path, path, text, fault):
    file = tmp_path / "tfrobust" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    lines = check_layers.faults(tmp_path)
    assert len(lines) == bool(fault)
    assert all(fault in line and line.startswith(f"tfrobust/{path}:") for line in lines)


def test_python_below_gin_is_found(tmp_path):
    (tmp_path / "gin").mkdir()
    (tmp_path / "gin" / "__init__.py").touch()
    (fault,) = check_layers.faults(tmp_path)
    assert fault.startswith("gin/__init__.py:1:")


# ------------------------------------------------------------------------------------------------ budgets


def test_files_and_functions_keep_their_budgets():
    long = []
    for path in sources():
        text = path.read_text("utf-8")
        if text.count("\n") > 600:
            long.append(f"{path.relative_to(ROOT)} has {text.count(chr(10))} lines, allowed are 600")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = _code_lines(node)
                if length > 60:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines of code")
    assert long == []


def _code_lines(node) -> int:
    """Lines of a function without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_package_below_tests_and_no_leftovers():
    """With `__init__.py`, tests/keras would shadow keras."""
    assert sorted(ROOT.glob("tests/**/__init__.py")) == []
    for path in sources():
        leftover = re.search(r"\b(TODO|FIXME|XXX|HACK)\b|breakpoint\(", path.read_text("utf-8"))
        assert leftover is None, f"{path.relative_to(ROOT)}: {leftover.group()}"


# ----------------------------------------------------------------------------------------------- packaging


def test_licence_and_marker():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "tfrobust" / "py.typed").is_file()


def test_the_wheel_carries_the_gin_files_and_works_in_a_foreign_folder(tmp_path):
    source, foreign, unpacked = tmp_path / "source", tmp_path / "foreign", tmp_path / "unpacked"
    source.mkdir()
    for name in ("tfrobust", "gin", "setup.py", "README.md", "LICENSE", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("tfrobust-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    ours = {path.relative_to(ROOT / "gin").as_posix() for path in (ROOT / "gin").rglob("*.gin")}
    packed = unpacked / "tfrobust" / "gin_files"
    assert {path.relative_to(packed).as_posix() for path in packed.rglob("*.gin")} == ours
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {"tfrobust"}
    assert (unpacked / "tfrobust" / "py.typed").is_file() and (unpacked / "tfrobust" / "runs" / "stage.py").is_file()
    guides = {path.name for path in (ROOT / "tfrobust" / "guides").iterdir()}
    assert {path.name for path in (unpacked / "tfrobust" / "guides").iterdir()} == guides
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    page = metadata.read_text("utf-8")
    assert "own_data.md" in page and re.findall(r"""(?:\]\(|src=")(?!https?:|#)[^)"]*""", page) == []
    foreign.mkdir()
    code = (
        "import gin, tfrobust; from tfrobust.commands import run; print(tfrobust.__file__); "
        "run.configure(['gin/ascl_leaked.gin']); print(gin.config_str())"
    )
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=foreign, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(unpacked)) and "EPSILON = 0.2" in done.stdout


@pytest.mark.parametrize("on_the_path, of_pyenv, chosen", stored.rows(globals(), "ci_takes_the_oldest_and_the_newest"))
def test_ci_takes_the_oldest_and_the_newest_interpreter_in_turn(tmp_path, on_the_path, of_pyenv, chosen):
    paths = {tmp_path / "bin" / f"python{version}": version for version in on_the_path}
    paths |= {tmp_path / ".pyenv" / "versions" / version / "bin" / "python": version for version in of_pyenv}
    shims = {tmp_path / "bin" / f"python3.{minor}": None for minor in (11, 12, 13)}
    for path, version in {**shims, **paths}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        pair = version and str(tuple(map(int, version.split(".")[:2])))
        path.write_text(f'#!/bin/sh\ncase "$2" in *"!= {pair})"*) exit 0;; *) exit 127;; esac\n')
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    printed = [
        subprocess.run([ROOT / ".ci" / "python", number], env=environment, capture_output=True, text=True, check=True)
        for number in ("40", "41")
    ]
    assert [done.stdout.strip().replace(str(tmp_path), "HOME") for done in printed] == chosen


# ------------------------------------------------------------------------------------------------ scaffold


def test_the_scaffold_refuses_bad_names_and_existing_files(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    for arguments in (["../evil"], [], ["Camel"], ["supervised"]):
        assert new_method.main(arguments) == 2
    assert "nothing is written" in capsys.readouterr().err


def test_a_new_method_runs_at_once(tmp_path):
    for name in ("tfrobust", "gin", "tools", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("-m", "tfrobust", "new-method", "noisy_example")
    files = ("tfrobust/methods/noisy_example.py", "tests/methods/test_noisy_example.py")
    run("-m", "ruff", "check", *files)
    run("-m", "ruff", "format", "--check", *files)
    run("tools/check_layers.py")
    run("tools/check_gin.py", "gin/noisy_example.gin")
    run("-m", "pytest", "-q", "tests/methods/test_noisy_example.py")

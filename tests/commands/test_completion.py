"""The script for bash, asked by bash itself; and that nothing heavy is imported for it."""

import os
import pathlib
import subprocess
import sys

import pytest

from tfrobust.commands import __main__, completion
from tfrobust.commands.configuration import files

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script():
    return completion.script("bash")


def completed(script, folder, *words):
    """Return bash's completions with the cursor at the end of the last of these words."""
    listed = " ".join(f"'{word}'" for word in ("tfrobust", *words))
    asked = [f"COMP_WORDS=({listed})", f"COMP_CWORD={len(words)}", "_tfrobust", 'printf "%s\\n" "${COMPREPLY[@]}"']
    done = subprocess.run(
        ["bash", "-c", "\n".join([script, *asked])], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_commands_and_flags(script, tmp_path):
    assert completed(script, tmp_path, "") == list(__main__.COMMANDS)
    assert completed(script, tmp_path, "train", "--gin_") == ["--gin_file", "--gin_param", "--gin_import"]
    assert completed(script, tmp_path, "train", "--gin_param", "=", "A", "=", "1", "--dry") == ["--dry_run"]
    assert completed(script, tmp_path, "compare", "a", "--gap") == ["--gap_from", "--gap_to"]
    assert completed(script, tmp_path, "compare", "--gin") == []


def test_values(script, tmp_path):
    (tmp_path / "mine.gin").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "other.txt").touch()
    # bash separates words at "=".
    assert completed(script, tmp_path, "train", "--gin_file", "=", "gin/eval/autoa") == ["gin/eval/autoattack.gin"]
    assert completed(script, tmp_path, "train", "--gin_file", "gin/eval/autoa") == ["gin/eval/autoattack.gin"]
    packaged = {
        f"gin/{path.relative_to(folder).as_posix()}" for folder in files.folders() for path in folder.rglob("*.gin")
    }
    assert set(completed(script, tmp_path, "train", "--gin_file", "=")) == {"mine.gin", "more/"} | packaged
    assert completed(script, tmp_path, "train", "--gin_param", "=", "EPS") == ["EPSILON="]
    assert completed(script, tmp_path, "train", "--workdir", "=", "") == ["more"]
    assert completed(script, tmp_path, "compare", "--format", "=", "m") == ["markdown"]
    assert completed(script, tmp_path, "compare", "--strict", "o") == ["other.txt"]
    assert completed(script, tmp_path, "train", "--version", "=", "") == []


@pytest.mark.parametrize("shell, part", [("bash", "complete -o bashdefault -F _tfrobust"), ("zsh", '"*--gin_file=[')])
def test_the_command_prints_it_without_tensorflow(shell, part):
    code = (
        f"import sys; from tfrobust.commands.__main__ import main; c = main(['completion', '{shell}']); "
        "print([m for m in ('tensorflow', 'keras') if m in sys.modules], file=sys.stderr); sys.exit(c)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0 and done.stderr == "[]\n" and part in done.stdout


def test_an_unknown_shell_and_a_missing_package_are_one_line(monkeypatch, capfd):
    assert completion.main(["fish"]) == 2
    assert "'fish'" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert completion.main(["bash"]) == 2
    assert capfd.readouterr().err == ("error: completion needs the package shtab: pip install 'tfrobust[completion]'\n")

"""The script for bash, asked by bash itself; and that nothing heavy is imported for it."""

import os
import pathlib
import subprocess
import sys

import pytest

from tfrobust.commands import compare, train
from tfrobust.commands.configuration import completion, files

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script():
    """Of two commands, one after the other, as a shell would read them."""
    return "\n".join(completion.script(module.parser(), "bash") for module in (train, compare))


def completed(script, folder, *words):
    """What bash offers where the cursor stands behind the last of these words."""
    listed = " ".join(f"'{word}'" for word in words)
    lines = [
        script,
        f"COMP_WORDS=({listed})",
        f"COMP_CWORD={len(words) - 1}",
        "_tfrobust",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if line]


TRAIN, COMPARE = ("python", "-m", "tfrobust.train"), ("python", "-m", "tfrobust.compare")


def test_flags(script, tmp_path):
    assert completed(script, tmp_path, *TRAIN, "--gin_") == ["--gin_file=", "--gin_param=", "--gin_import="]
    assert completed(script, tmp_path, *TRAIN, "--dry") == ["--dry_run"]
    assert completed(script, tmp_path, *COMPARE, "--gap") == ["--gap_from=", "--gap_to="]
    assert completed(script, tmp_path, *COMPARE, "--gin") == []


def test_values(script, tmp_path):
    (tmp_path / "mine.gin").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "other.txt").touch()
    # bash separates words at "=", zsh does not.
    assert completed(script, tmp_path, *TRAIN, "--gin_file", "=", "gin/eval/autoa") == ["gin/eval/autoattack.gin"]
    assert completed(script, tmp_path, *TRAIN, "--gin_file=gin/eval/autoa") == ["--gin_file=gin/eval/autoattack.gin"]
    assert completed(script, tmp_path, *TRAIN, "--gin_file", "gin/eval/autoa") == ["gin/eval/autoattack.gin"]
    everything = completed(script, tmp_path, *TRAIN, "--gin_file", "=")
    assert {"mine.gin", "more/"} < set(everything) and "other.txt" not in everything
    packaged = {
        f"gin/{path.relative_to(folder).as_posix()}" for folder in files.folders() for path in folder.rglob("*.gin")
    }
    assert set(everything) - packaged == {"mine.gin", "more/"} and packaged < set(everything)
    assert completed(script, tmp_path, *TRAIN, "--gin_param", "=", "EPS") == ["EPSILON="]
    assert completed(script, tmp_path, *TRAIN, "--workdir", "=", "") == ["more/"]
    assert completed(script, tmp_path, *TRAIN, "--workdir=m") == ["--workdir=more/"]
    assert completed(script, tmp_path, *COMPARE, "--format", "=", "m") == ["markdown"]
    assert completed(script, tmp_path, *COMPARE, "--strict", "o") == ["other.txt"]
    assert completed(script, tmp_path, *TRAIN, "--version", "=", "") == []


def test_other_programs_are_left_alone(script, tmp_path):
    for words in (("python", "x.py", "--gin_"), ("python", "-m", "pip", "--"), ("python", "-m", "tfrobust.none", "--")):
        assert completed(script, tmp_path, *words) == []


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_command_prints_it_without_tensorflow(shell):
    code = (
        f"import sys; from tfrobust.commands import train; c = train.main(['--completion={shell}']); "
        "print([m for m in ('tensorflow', 'keras', 'numpy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr == "[]\n" and "--gin_file=\n" in done.stdout and "--completion=" in done.stdout
    assert ("bashcompinit" in done.stdout) == (shell == "zsh")

"""A gin file configures; it does not run, read, write or exhaust anything."""

import pathlib
import random

import pytest
import stored
from hostile import gin_texts

from tfrobust.commands import evaluate, train
from tfrobust.commands.configuration import files, registry
from tfrobust.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", gin_texts.CASES)
def test_the_command_refuses(tmp_path, refused, name):
    (tmp_path / "case.gin").write_text(gin_texts.text(name), encoding="utf-8")
    refused(train.main, "--gin_file=case.gin", "--workdir=run", part=gin_texts.CASES[name][1])


@pytest.mark.parametrize("text", ["import os", "include 'x.gin'", "EPOCHS = 1\nimport os", "@os.system()", "\x1b[2J"])
def test_a_flag_sets_one_value_and_nothing_else(refused, text):
    refused(train.main, "--gin_file=gin/supervised.gin", f"--gin_param={text}", "--workdir=run")


def _huge(path):
    path.write_bytes(b"# " + b"x" * 1_000_001)


def _deep_row(path):
    for number in range(2000):
        (path.parent / f"r{number}.gin").write_text(f"include 'r{number + 1}.gin'\n")
    path.write_text("include 'r0.gin'\n")
    (path.parent / "r2000.gin").write_text("")


FILES = stored.cases(__file__, "gin_files", globals())


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_gin(tmp_path, refused, name):
    build, part = FILES[name]
    build(tmp_path / "case.gin")
    refused(train.main, "--gin_file=case.gin", "--workdir=run", part=part)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_spoiled_recipes_never_crash_the_reader(tmp_path):
    """Recipes with letters changed, moved or doubled: each is read, or refused in one line."""
    draw = random.Random(0)
    recipes = sorted((ROOT / "gin").rglob("*.gin"))
    odd = ["'", '"""', "[", ")", "{", "@", "%", "/", ".", "\\", "\n", "\t", ";", "import ", "\x1b", "é", "0x", "="]
    refused = 0
    for number in range(100):
        text = list(recipes[number % len(recipes)].read_text("utf-8"))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(text))
            text[at : at + draw.randint(0, 3)] = draw.choice(odd) * draw.randint(1, 3)
        (tmp_path / "case.gin").write_text("".join(text), encoding="utf-8")
        try:
            files.read([str(tmp_path / "case.gin")])
        except InputError as error:
            refused += 1
            assert "\x1b" not in str(error)
    assert 20 < refused < 100  # both ends are reached


def test_no_name_in_the_registry_reaches_files_or_other_programs():
    """No function that a file may name opens, writes, loads or starts anything by itself."""
    objects = registry.collect().objects
    words = {"open", "write_text", "write_bytes", "read_text", "load", "save", "system", "Popen", "rmtree"}
    words |= {"unlink", "rename", "mkdir", "write_atomically", "load_model", "eval", "exec", "__import__"}
    dangerous = []
    for name, item in objects.items():
        code = getattr(item, "__code__", None)
        if code is not None and words & set(code.co_names):
            dangerous.append(name)
    # The roots: what the commands run, which no value may name.
    assert [name for name in dangerous if not name.startswith("tfrobust.runs.experiment.")] == []


def test_evaluation_obeys_the_same_rule(tmp_path, refused):
    (tmp_path / "case.gin").write_text("include 'eval/quick.gin'\nevaluate.data = @train()\n")
    refused(evaluate.main, "--model=.", "--gin_file=case.gin", part="cannot be a value")

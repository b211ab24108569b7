"""Fixtures of the hostile inputs: a canary that nothing may touch, and what "refused" means."""

import json
import shutil

import pytest
from hostile import small
from hostile.small import tree


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that every hostile input tries to make; nothing may have made it when the test is over."""
    path = tmp_path / "canary"
    monkeypatch.setenv("TFROBUST_CANARY", str(path))
    yield path
    assert not path.exists(), "something ran"


@pytest.fixture
def refused(tmp_path, canary, capfd):
    """Runs a command; it must end with 2, one clear line, and no file more or less than before."""

    def run(main, *arguments, part=""):
        before = tree(tmp_path)
        capfd.readouterr()
        code = main(list(map(str, arguments)))
        lines = capfd.readouterr().err.splitlines()
        assert code == 2, "\n".join(lines[-12:])
        (line,) = [line for line in lines if line.startswith("error: ")]
        assert not any("Traceback" in line for line in lines)
        assert len(line) <= 300 and line.isprintable() and part in line, line
        assert tree(tmp_path) == before, "something was left behind"
        return line

    return run


@pytest.fixture
def evaluate_flags(valid, tmp_path):
    """The flags that judge a model on data, whole ones where none are given."""

    def flags(model=None, data=None) -> list[str]:
        judged = [f"--model={model or valid / 'export'}", f"--data={data or valid / 'data.npz'}"]
        return [*judged, "--gin_file=gin/eval/quick.gin", "--gin_param=EPSILON=0.1", f"--output={tmp_path / 'report'}"]

    return flags


@pytest.fixture
def not_judged(refused, evaluate_flags):
    """Runs the command that judges a model on data, which must refuse it."""
    from tfrobust.commands import evaluate

    def run(model=None, data=None, part="", more=()):
        return refused(evaluate.main, *evaluate_flags(model, data), *more, part=part)

    return run


@pytest.fixture(scope="session")
def valid(tmp_path_factory):
    """A folder of whole things to spoil, see `hostile.small`."""
    folder = tmp_path_factory.mktemp("whole")
    small.write(folder)
    return folder


@pytest.fixture
def rehearsed_here(monkeypatch):
    """Models of others are rehearsed in this process; one of its own takes seconds to start."""
    from tfrobust.security import rehearsal, rehearsal_process

    def run(directory, growth, *_):
        return rehearsal.verdict(0, json.dumps(rehearsal_process.rehearse(directory)).encode(), growth)

    monkeypatch.setattr(rehearsal, "run", run)


@pytest.fixture
def export_copy(valid, tmp_path):
    """The SavedModel, to spoil."""
    return shutil.copytree(valid / "export", tmp_path / "model")

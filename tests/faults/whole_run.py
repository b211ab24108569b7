"""A run of the command `train` that takes a few seconds, and what must be equal of two such runs."""

import contextlib
import importlib
import os
import pathlib
import resource
import subprocess
import types
from unittest import mock

import numpy as np
import once
import stored
import tensorflow as tf
from faults import processes

from tfrobust.report.schema import Report
from tfrobust.security import rehearsal
from tfrobust.serving.export import verify

# Commands without the processes of `unverified`.
TRAIN, EVALUATE, EXPORT = (f"faults.whole_run:{name}_unverified" for name in ("train", "evaluate", "export"))

# Two epochs of 5 steps, clean and FGSM and PGD accuracy. The seed is not the default.
TINY = stored.table(globals(), "tiny")
WORKDIR = pathlib.Path("runs", "tiny")

# Calls that happen all along a run: training steps, graph calls of attacks, and what makes a file last.
PROGRESS = [
    *processes.CRITICAL,
    "tfrobust.training.loop:Loop._check_finite",
    "tfrobust.attacks.shared.engine:_Run._report",
    "tfrobust.evaluation.runner:_run_one",
    "tfrobust.report.renderers.html:render",
    "tfrobust.serving.export.golden:record",
    "tfrobust.serving.export.verify:verify",
    "shutil:copytree",
    "shutil:rmtree",
]


@contextlib.contextmanager
def unverified():
    """Let publications and evaluations go without the processes that load a model once more, which take 5 s each."""

    def run(command, **_):
        pathlib.Path(command[4]).write_text("{}")
        return subprocess.CompletedProcess(command, 0)

    clean = types.SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    with mock.patch.object(verify, "subprocess", clean), mock.patch.object(rehearsal, "run", lambda *_: ""):
        yield


def train_in(folder: pathlib.Path, **arguments) -> Report:
    """Train a small model for an epoch and publish it, both in a folder."""
    import keras

    from tfrobust.keras.methods import Supervised
    from tfrobust.runs import experiment

    plain = {"name": "small", "method": Supervised, "optimizer": keras.optimizers.Adam, "epochs": 1}
    plain |= {"batch_size": 128, "workdir": str(folder / "run"), "export_dir": str(folder / "exported")}
    return experiment.train(**plain | arguments)


def train_unverified(flags: list[str], command: str = "train") -> int:
    with unverified():
        return importlib.import_module(f"tfrobust.{command}").main(flags)


def evaluate_unverified(flags: list[str]) -> int:
    return train_unverified(flags, "evaluate")


def export_unverified(flags: list[str]) -> int:
    return train_unverified(flags, "export")


def trained(factory) -> pathlib.Path:
    """The folder of a whole run that nothing has interrupted, for all tests; `calls` in it: how many of PROGRESS."""

    def make(folder):
        ended = processes.run("tfrobust.train:main", [TINY], cwd=folder, counts=PROGRESS)
        assert ended.code == 0, ended.err
        (folder / "calls").write_text(ended.err.splitlines()[-1])

    return once.shared_folder(factory, "tiny", make)


def copy(source: pathlib.Path, target: pathlib.Path, *names: str) -> None:
    """Copy what a run has left, or some of it."""
    subprocess.run(["cp", "-r", *(f"{source}/{name}" for name in names or ("runs", "exported")), target], check=True)


def train(folder, *flags, **keywords) -> processes.Ended:
    """Runs the command in a folder."""
    return processes.run(TRAIN, [[*TINY, *flags]], cwd=folder, **keywords)


def train_on_a_small_disk(flags: list[str], size: int) -> int:
    """The command in a process that can write no file larger than `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # Python ignores SIGXFSZ: writing fails with EFBIG
    return train_unverified(flags)


def report_of(directory) -> Report:
    """The valid report in a folder."""
    report = Report.from_json((pathlib.Path(directory) / "robustness_report.json").read_text())
    report.validate()
    return report


def numbers(report: Report) -> dict:
    """Everything measured but times: id -> what must be reproduced to the bit."""
    return {
        measurement.id: (measurement.value, measurement.low, measurement.high, measurement.n)
        for measurement in report.measurements
        if not measurement.id.startswith("cost.")
    }


def listing(directory) -> list[str]:
    """The files of a published version or of a workdir."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def versions(folder) -> list[str]:
    """Everything that lies beside the published versions, these included."""
    return sorted(os.listdir(folder / "exported" / "tiny"))


def variables_of(version) -> list[tuple]:
    """Every number of a SavedModel to the bit. Keras numbers the names from a set: they differ between processes."""
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    names = [name for name, kind in reader.get_variable_to_dtype_map().items() if kind != tf.string]
    assert names
    arrays = [reader.get_tensor(name) for name in names]
    return sorted((array.shape, array.tobytes()) for array in arrays)


def check_equal(folder, reference) -> None:
    """One version, equal in what it holds to the one of an uninterrupted run, and nothing left over."""
    assert versions(folder) == ["1"]
    here, there = folder / "exported" / "tiny" / "1", reference / "exported" / "tiny" / "1"
    assert listing(here) == listing(there)
    ours, theirs = (report_of(version / "assets.extra") for version in (here, there))
    assert numbers(ours) == numbers(theirs)
    assert ours.model == theirs.model and ours.run_sha256 == theirs.run_sha256
    assert ours.series == theirs.series and ours.doctor == theirs.doctor
    assert ours.training["configuration"] == theirs.training["configuration"]
    variables = [variables_of(version) for version in (here, there)]
    assert variables[0] == variables[1]
    answers = [np.load(version / "assets.extra" / "golden.npz") for version in (here, there)]
    assert all(np.array_equal(answers[0][name], answers[1][name]) for name in ("images", "logits", "embedding"))
    assert report_of(folder / WORKDIR) == ours
    leftovers = [path for path in folder.rglob(".*") if not path.name.startswith(".nfs")]
    assert not leftovers, leftovers

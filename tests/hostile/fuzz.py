"""Random changes of valid files: whatever they are, a command ends with 0, or with 2 and one line.

    PYTHONPATH=tests python -m hostile.fuzz 5000

Inputs in a row share a process, forked from one that has imported TensorFlow, with a limit of memory and, for each, of
time; where one of them ends it, the next ones get another. The number of an input is its seed: `python -m hostile.fuzz
1 --first 4711` makes that one again, and shows its end; `--kind weights` makes that kind alone.
"""

import argparse
import collections
import itertools
import os
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import threading
from typing import NamedTuple

from faults import processes

KINDS = ("program", "program", "program", "variables", "keras", "arrays", "report", "report inside", "gin")
KINDS += ("prepared", "checkpoint", "weights", "initial encoder", "litert")
LARGEST = 4 * 2**30  # bytes
PROCESSOR_SECONDS = 100  # of one input; where it waits for nothing it has no more
SECONDS = 1_000  # on the clock, so long since other programs may run as well
TOGETHER = 50  # inputs in one process
_REHEARSED_SECONDS = 30
_EVALUATION = """include 'base/evaluation.gin'
EVAL_EPSILON = 0.1
EVALUATORS = [@CleanAccuracy(), @fgsm/AttackAccuracy()]
fgsm/AttackAccuracy.attack = @fgsm/FGSM()
fgsm/FGSM.threat = @evaluation/ThreatModel()
"""
# What asks a whole model for nothing that takes seconds to trace.
_SHORT = _EVALUATION + "EVALUATORS = [@CleanAccuracy()]\n"
_NAMES = ("PGD", "@PGD()", "@FGSM", "Supervised", "@os.system()", "@Digits()", "train.data", "include", "import")


class Result(NamedTuple):
    """How one input ended; `fault` is "" where that is as it should be."""

    kind: str
    number: int
    code: int
    fault: str
    said: str


def run(numbers, folder, show=lambda result: None) -> list[Result]:
    """Make and run inputs.

    Args:
        numbers: of the inputs.
        folder: an empty folder to work in.
        show: called with each result.
    """
    folder, left, found = pathlib.Path(folder), list(numbers), []
    (folder / "whole").mkdir()
    for part in ("write", "write_trained", "write_prepared", "write_litert"):
        made = processes.run(f"hostile.small:{part}", [str(folder / "whole")], cwd=folder)
        assert made.code == 0, made.err
    while left:
        child = processes.start("hostile.fuzz:some", [left[:TOGETHER], str(folder)], cwd=folder)
        timer = threading.Timer(SECONDS, child.kill)
        timer.start()
        ended = child.wait()
        timer.cancel()
        for number in left[:TOGETHER]:
            place = folder / str(number)
            code = int((place / "code").read_text()) if (place / "code").exists() else ended.code
            said = (place / "said").read_text() if (place / "said").exists() else ended.err
            # A crash in a rehearsal is what a rehearsal is for; what the command then says has tests of its own.
            fault = "" if (place / "rehearsed").exists() else _fault(code, said)
            found.append(Result(KINDS[number % len(KINDS)], number, code, fault, said.strip()))
            show(found[-1])
            left.remove(number)
            alive = (place / "code").exists()
            shutil.rmtree(place, ignore_errors=True)
            if not alive:
                break
    return found


def _fault(code: int, said: str) -> str:
    """Return what is wrong with how a command ended; "" where nothing is."""
    if code not in (0, 2):
        return f"it ended with {code}"
    if "Traceback" in said:
        return "it showed a traceback"
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if len(lines) != (code == 2):
        return f"it showed {len(lines)} lines of errors"
    if any(len(line) > 300 or not line.isprintable() for line in lines):
        return "its line is too long, or not printable"
    return ""


# -------------------------------------------------------------------------------------------------- in the child


def some(numbers: list[int], folder: str) -> None:
    """Run inputs one after the other, each in a folder of its number that gets its `code` and what was `said`."""
    import traceback

    import state

    from tfrobust.security import rehearsal

    resource.setrlimit(resource.RLIMIT_DATA, (LARGEST, LARGEST))
    for number in numbers:
        place = pathlib.Path(folder) / str(number)
        (place / "input").mkdir(parents=True)
        os.chdir(place / "input")
        errors = os.open(place / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 2)
        os.close(errors)
        rehearsal.run = _rehearsal(place / "rehearsed")
        _limit_time(PROCESSOR_SECONDS)
        try:
            code = one(number, pathlib.Path(folder) / "whole", place / "input")
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        state.put_back()
        (place / "code").write_text(str(code))


def _limit_time(seconds: int) -> None:
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds, resource.RLIM_INFINITY))


def one(number: int, whole: pathlib.Path, place: pathlib.Path) -> int:
    """Change a copy of a valid file, give it to a command, and return the command's exit code."""
    from hostile import litert_files, mutations, small

    from tfrobust.commands import compare, evaluate, export
    from tfrobust.security import rehearsal

    kind, chance = KINDS[number % len(KINDS)], random.Random(number)
    gin, data, model = place / "fuzz.gin", whole / "data.npz", whole / "model.keras"
    attacked = kind in ("variables", "keras", "gin") or number % len(KINDS) == 0  # a third of the programs
    gin.write_text(_EVALUATION if attacked else _SHORT)
    if kind in ("program", "variables", "report inside"):
        model = shutil.copytree(whole / "export", place / "model")
    if kind == "program":
        mutations.change_program(model, chance)
    elif kind == "variables":
        mutations.change_variables(model, chance)
    elif kind == "keras":
        model = pathlib.Path(shutil.copy(model, place))
        mutations.change_keras_file(model, chance)
    elif kind == "arrays":
        data = pathlib.Path(shutil.copy(data, place))
        mutations.change_arrays(data, chance)
    elif kind == "prepared":
        data = shutil.copytree(whole / "prepared", place / "prepared")
        mutations.change_prepared(data, chance)
    elif kind in ("checkpoint", "weights", "initial encoder"):
        for name in ("weights.safetensors", "weights.npz", "color.npz"):
            shutil.copy(whole / name, place)
        if kind == "checkpoint":
            mutations.change_workdir(shutil.copytree(whole / "run", place / "run"), chance)
        else:
            mutations.change_tensors(place / "weights.safetensors", chance)
            mutations.change_arrays(place / "weights.npz", chance)
        if kind != "weights":
            (place / "run").exists() or shutil.copytree(whole / "run", place / "run")
            with small.unpublished():
                return export.main(["--workdir=run", "--export_dir=exported"])
        gin.write_text(small.TRAINING + _SHORT)
        data, model = place / "color.npz", place / chance.choice(("weights.safetensors", "weights.npz"))
    elif kind == "litert":
        model = pathlib.Path(shutil.copy(whole / "model.tflite", place))
        litert_files.change_litert(model, chance)
    elif kind == "gin":
        mutations.change_gin(gin, _NAMES, chance)
    else:
        report = place / "robustness_report.json"
        shutil.copy(whole / report.name, report)
        mutations.change_report(report, chance)
        if kind == "report":
            return compare.main([str(report), str(whole / report.name), f"--output={place / 'page.html'}"])
        rehearsal.remember(model)  # it is whole
        (model / "assets.extra").mkdir(exist_ok=True)
        report.rename(model / "assets.extra" / report.name)
    return evaluate.main(
        [
            f"--model={model}",
            f"--data={data}",
            f"--gin_file={gin}",
            "--gin_param=EPSILON=0.1",
            f"--output={place / 'report'}",
        ]
    )


def _rehearsal(mark: pathlib.Path):
    """The rehearsal in this process, which has imported TensorFlow; `mark` is there while it runs."""
    import json

    from tfrobust.security import rehearsal, rehearsal_process

    def run(directory: str, growth: int, *_) -> str:
        mark.touch()
        _limit_time(_REHEARSED_SECONDS)
        printed = json.dumps(rehearsal_process.rehearse(directory)).encode()
        _limit_time(PROCESSOR_SECONDS)
        mark.unlink()
        return rehearsal.verdict(0, printed, growth)

    return run


def main(arguments: list[str] | None = None) -> int:
    """Run inputs and print what goes wrong, and how many there were of each kind; 1 where anything goes wrong."""
    flags = argparse.ArgumentParser(prog="python -m hostile.fuzz")
    flags.add_argument("count", type=int)
    flags.add_argument("--first", type=int, default=0)
    flags.add_argument("--kind", choices=set(KINDS))
    given = flags.parse_args(arguments)
    wanted = (n for n in itertools.count(given.first) if given.kind in (None, KINDS[n % len(KINDS)]))

    def show(result: Result) -> None:
        if result.fault or given.count == 1:
            print(f"{result.number} ({result.kind}): {result.fault}\n{result.said}", flush=True)

    with tempfile.TemporaryDirectory(prefix="tfrobust-fuzz-") as folder:
        found = run(itertools.islice(wanted, given.count), folder, show)
    counts = collections.Counter((result.kind, result.code) for result in found)
    for kind in dict.fromkeys(KINDS):
        codes = {code: count for (one, code), count in sorted(counts.items()) if one == kind}
        print(f"{kind}: {sum(codes.values())} inputs, exit codes {codes}")
    return 1 if any(result.fault for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random changes of valid files: whatever they are, a command ends with 0, or with 2 and one line.

    PYTHONPATH=tests python -m hostile.fuzz 5000

Each input has a process of its own, forked from one that has imported TensorFlow, with a limit of memory and of time.
The number of an input is its seed: `python -m hostile.fuzz 1 --first 4711` makes that one again, and shows its end.
"""

import argparse
import collections
import json
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
LARGEST = 4 * 2**30  # bytes
PROCESSOR_SECONDS = 100  # of one input; where it waits for nothing it has no more
SECONDS = 1_000  # on the clock, so long since other programs may run as well
_REHEARSED_SECONDS = 30
_EVALUATION = """include 'base/evaluation.gin'
EVAL_EPSILON = 0.1
EVALUATORS = [@CleanAccuracy(), @fgsm/AttackAccuracy()]
fgsm/AttackAccuracy.attack = @fgsm/FGSM()
fgsm/FGSM.threat = @evaluation/ThreatModel()
"""
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
    folder = pathlib.Path(folder)
    (folder / "whole").mkdir()
    made = processes.run("hostile.small:write", [str(folder / "whole")], cwd=folder)
    assert made.code == 0, made.err
    found = []
    for number in numbers:
        kind = KINDS[number % len(KINDS)]
        place = folder / "input"
        place.mkdir()
        child = processes.start("hostile.fuzz:one", [kind, number, str(folder / "whole"), str(place)], cwd=place)
        timer = threading.Timer(SECONDS, child.kill)
        timer.start()
        ended = child.wait()
        timer.cancel()
        shutil.rmtree(place)
        found.append(Result(kind, number, ended.code, _fault(ended), ended.err.strip()))
        show(found[-1])
    return found


def _fault(ended) -> str:
    """Return what is wrong with how a command ended; "" where nothing is."""
    if ended.code not in (0, 2):
        return f"it ended with {ended.code}"
    if "Traceback" in ended.err:
        return "it showed a traceback"
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if len(lines) != (ended.code == 2):
        return f"it showed {len(lines)} lines of errors"
    if any(len(line) > 300 or not line.isprintable() for line in lines):
        return "its line is too long, or not printable"
    return ""


# -------------------------------------------------------------------------------------------------- in the child


def one(kind: str, number: int, whole: str, folder: str) -> int:
    """Change a copy of a valid file, give it to a command, and return the command's exit code."""
    from hostile import mutations

    from tfrobust import compare, evaluate
    from tfrobust.ops import rehearsal

    for which, bound in ((resource.RLIMIT_DATA, LARGEST), (resource.RLIMIT_CPU, PROCESSOR_SECONDS)):
        resource.setrlimit(which, (bound, bound))
    rehearsal.run = _rehearsed
    chance, whole, place = random.Random(number), pathlib.Path(whole), pathlib.Path(folder)
    gin, data, model = place / "fuzz.gin", whole / "data.npz", whole / "model.keras"
    gin.write_text(_EVALUATION)
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
    elif kind == "gin":
        mutations.change_gin(gin, _NAMES, chance)
    else:
        report = place / "robustness_report.json"
        shutil.copy(whole / report.name, report)
        mutations.change_report(report, chance)
        if kind == "report":
            return compare.main([str(report), str(whole / report.name), f"--output={place / 'page.html'}"])
        (model / "assets.extra").mkdir(exist_ok=True)
        report.rename(model / "assets.extra" / report.name)
    return evaluate.main([f"--model={model}", f"--data={data}", f"--gin_file={gin}", f"--output={place / 'report'}"])


def _rehearsed(directory: str, largest: int, seconds: int) -> str:
    """The rehearsal in a fork, which need not import TensorFlow."""
    from tfrobust.ops import rehearsal, rehearsal_process

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            rehearsal_process.limit(largest, _REHEARSED_SECONDS)
            os.write(writer, json.dumps(rehearsal_process.rehearse(directory)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        printed = stream.read()
    _, status = os.waitpid(pid, 0)
    return rehearsal.verdict(os.waitstatus_to_exitcode(status), printed, largest)


def main(arguments: list[str] | None = None) -> int:
    """Run inputs and print what goes wrong, and how many there were of each kind; 1 where anything goes wrong."""
    flags = argparse.ArgumentParser(prog="python -m hostile.fuzz")
    flags.add_argument("count", type=int)
    flags.add_argument("--first", type=int, default=0)
    given = flags.parse_args(arguments)

    def show(result: Result) -> None:
        if result.fault or given.count == 1:
            print(f"{result.number} ({result.kind}): {result.fault}\n{result.said}", flush=True)

    with tempfile.TemporaryDirectory(prefix="tfrobust-fuzz-") as folder:
        found = run(range(given.first, given.first + given.count), folder, show)
    counts = collections.Counter((result.kind, result.code) for result in found)
    for kind in dict.fromkeys(KINDS):
        codes = {code: count for (one, code), count in sorted(counts.items()) if one == kind}
        print(f"{kind}: {sum(codes.values())} inputs, exit codes {codes}")
    return 1 if any(result.fault for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())

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

import stored
from faults import processes

KINDS = ("program", "program", "program", "variables", "keras", "arrays", "report", "report inside", "gin")
KINDS += ("prepared", "checkpoint", "weights", "initial encoder", "litert")
LARGEST = 4 * 2**30  # bytes
PROCESSOR_SECONDS = 100  # of one input; where it waits for nothing it has no more
SECONDS = 1_000  # on the clock, so long since other programs may run as well
TOGETHER = 50  # inputs in one process
_REHEARSED_SECONDS = 30
_EVALUATION = stored.text(globals(), "evaluation")
# What asks a whole model for nothing that takes seconds to trace.
_SHORT = _EVALUATION + "EVALUATORS = [@CleanAccuracy()]\n"
_NAMES = ("PGD", "@PGD()", "@FGSM", "Supervised", "@os.system()", "@Digits()", "train.data", "include", "import")


class Result(NamedTuple):
    """How one input ended; `fault` is "" where that is as it should be."""

    kind: str
    number: int
    code: int
    fault: str
    output: str


def run(numbers, folder, show=lambda result: None) -> list[Result]:
    """Make and run inputs.

    Args:
        numbers: of the inputs.
        folder: an empty folder to work in.
        show: called with each result.
    """
    folder, remaining, results = pathlib.Path(folder), list(numbers), []
    (folder / "whole").mkdir()
    for part in ("write", "write_trained", "write_prepared", "write_litert"):
        written = processes.run(f"hostile.small:{part}", [str(folder / "whole")], cwd=folder)
        assert written.code == 0, written.err
    while remaining:
        child = processes.start("hostile.fuzz:some", [remaining[:TOGETHER], str(folder)], cwd=folder)
        timer = threading.Timer(SECONDS, child.kill)
        timer.start()
        ended = child.wait()
        timer.cancel()
        for number in remaining[:TOGETHER]:
            case = folder / str(number)
            code = int((case / "code").read_text()) if (case / "code").exists() else ended.code
            output = (case / "said").read_text() if (case / "said").exists() else ended.err
            # A crash in a rehearsal is what a rehearsal is for; what the command then says has tests of its own.
            fault = "" if (case / "rehearsed").exists() else _fault(code, output)
            results.append(Result(KINDS[number % len(KINDS)], number, code, fault, output.strip()))
            show(results[-1])
            remaining.remove(number)
            alive = (case / "code").exists()
            shutil.rmtree(case, ignore_errors=True)
            if not alive:
                break
    return results


def _fault(code: int, output: str) -> str:
    """Return what is wrong with how a command ended; "" where nothing is."""
    if code not in (0, 2):
        return f"it ended with {code}"
    if "Traceback" in output:
        return "it showed a traceback"
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
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
        case = pathlib.Path(folder) / str(number)
        (case / "input").mkdir(parents=True)
        os.chdir(case / "input")
        errors = os.open(case / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 2)
        os.close(errors)
        rehearsal.run = _rehearsal(case / "rehearsed")
        _limit_time(PROCESSOR_SECONDS)
        try:
            code = attempt(number, pathlib.Path(folder) / "whole", case / "input")
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        state.put_back()
        (case / "code").write_text(str(code))


def _limit_time(seconds: int) -> None:
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds, resource.RLIM_INFINITY))


def attempt(number: int, valid: pathlib.Path, target: pathlib.Path) -> int:
    """Change a copy of a valid file, give it to a command, and return the command's exit code."""
    from hostile import litert_files, mutations, small

    from tfrobust.commands import compare, evaluate, export
    from tfrobust.security import rehearsal

    kind, chance = KINDS[number % len(KINDS)], random.Random(number)
    gin, data, model = target / "fuzz.gin", valid / "data.npz", valid / "model.keras"
    attacked = kind in ("variables", "keras", "gin") or number % len(KINDS) == 0  # a third of the programs
    gin.write_text(_EVALUATION if attacked else _SHORT)
    if kind in ("program", "variables", "report inside"):
        model = shutil.copytree(valid / "export", target / "model")
    if kind == "program":
        mutations.change_program(model, chance)
    elif kind == "variables":
        mutations.change_variables(model, chance)
    elif kind == "keras":
        model = pathlib.Path(shutil.copy(model, target))
        mutations.change_keras_file(model, chance)
    elif kind == "arrays":
        data = pathlib.Path(shutil.copy(data, target))
        mutations.change_arrays(data, chance)
    elif kind == "prepared":
        data = shutil.copytree(valid / "prepared", target / "prepared")
        mutations.change_prepared(data, chance)
    elif kind in ("checkpoint", "weights", "initial encoder"):
        for name in ("weights.safetensors", "weights.npz", "color.npz"):
            shutil.copy(valid / name, target)
        if kind == "checkpoint":
            mutations.change_workdir(shutil.copytree(valid / "run", target / "run"), chance)
        else:
            mutations.change_tensors(target / "weights.safetensors", chance)
            mutations.change_arrays(target / "weights.npz", chance)
        if kind != "weights":
            (target / "run").exists() or shutil.copytree(valid / "run", target / "run")
            with small.unpublished():
                return export.main(["--workdir=run", "--export_dir=exported"])
        gin.write_text(small.TRAINING + _SHORT)
        data, model = target / "color.npz", target / chance.choice(("weights.safetensors", "weights.npz"))
    elif kind == "litert":
        model = pathlib.Path(shutil.copy(valid / "model.tflite", target))
        litert_files.change_litert(model, chance)
    elif kind == "gin":
        mutations.change_gin(gin, _NAMES, chance)
    else:
        report = target / "robustness_report.json"
        shutil.copy(valid / report.name, report)
        mutations.change_report(report, chance)
        if kind == "report":
            return compare.main([str(report), str(valid / report.name), f"--output={target / 'page.html'}"])
        rehearsal.remember(model)  # it is whole
        (model / "assets.extra").mkdir(exist_ok=True)
        report.rename(model / "assets.extra" / report.name)
    return evaluate.main(
        [
            f"--model={model}",
            f"--data={data}",
            f"--gin_file={gin}",
            "--gin_param=EPSILON=0.1",
            f"--output={target / 'report'}",
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
    options = flags.parse_args(arguments)
    numbers = (n for n in itertools.count(options.first) if options.kind in (None, KINDS[n % len(KINDS)]))

    def show(result: Result) -> None:
        if result.fault or options.count == 1:
            print(f"{result.number} ({result.kind}): {result.fault}\n{result.output}", flush=True)

    with tempfile.TemporaryDirectory(prefix="tfrobust-fuzz-") as folder:
        results = run(itertools.islice(numbers, options.count), folder, show)
    counts = collections.Counter((result.kind, result.code) for result in results)
    for kind in dict.fromkeys(KINDS):
        codes = {code: count for (counted, code), count in sorted(counts.items()) if counted == kind}
        print(f"{kind}: {sum(codes.values())} inputs, exit codes {codes}")
    return 1 if any(result.fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

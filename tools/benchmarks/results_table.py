#!/usr/bin/env python3
r"""Make a table of trainings from a plan: each row is one command, each result one small file that stays.

A run is `python -m tfrobust.train` with the gin files of a row and one of its seeds. It can be stopped at any time;
running the tool again goes on with its checkpoint. From the report of its export the tool keeps the measurements, their
settings and the outcome of each image, so that later rows can be compared with it image by image; checkpoints and
exports can go. Several processes may work on one plan: each takes the next run that no other has locked.

    python tools/benchmarks/results_table.py --list              # rows, seeds, planned and spent time, commands
    python tools/benchmarks/results_table.py                     # run what is missing, then print the tables
    python tools/benchmarks/results_table.py --print             # print the tables from the stored results
    python tools/benchmarks/results_table.py --write             # put them into the plan's page
    python tools/benchmarks/results_table.py --only=adv,trades   # run these rows alone
"""

import argparse
import base64
import contextlib
import fcntl
import json
import math
import os
import pathlib
import resource
import shlex
import subprocess
import sys

import _results_markdown
import _results_plan
from _recipes import ROOT, source_sha256

from tfrobust.commands import failures
from tfrobust.common import files
from tfrobust.errors import Failure, InputError, StopRequested

SCHEMA = "tfrobust/result/1"
LONG = 60  # minutes
COLUMNS = 112  # of a line of a page, less its indent
BEGIN, END = "<!-- Written by tools/benchmarks/results_table.py --write; do not edit. -->", "<!-- end -->"
PLAN = ROOT / "tools/benchmarks/plans/fashion_mnist.toml"


class Run:
    """One training of a plan, a row with one of its seeds; or one ensemble; or one later evaluation."""

    def __init__(self, plan: _results_plan.Plan, table: _results_plan.Table, row: _results_plan.Row, seed: int):
        self.row, self.seed, self.name = row, seed, f"{row.name}-seed{seed}"
        self.result = plan.output / f"{self.name}.json"
        self.workdir, self.exported = plan.work / self.name, plan.work / "exported"
        self.files, self.params = table.gin(row, seed, self.exported)
        self.imports = [f"--gin_import={module}" for module in table.imports]
        seeds = plan.rows()[row.members][1].seeds if row.members else (seed,)
        self.members = [f"{row.source}-seed{number}" for number in seeds] if row.source else []

    def commands(self) -> list[list[str]]:
        """Return the arguments of Python that train and evaluate."""
        settings = [*(f"--gin_file={file}" for file in self.files), *(f"--gin_param={param}" for param in self.params)]
        if not self.members:
            folders = [f"--workdir={self.workdir}", f"--export_dir={self.exported}"]
            return [["-m", "tfrobust.train", *self.imports, *settings, f"--gin_param=NAME='{self.name}'", *folders]]
        members = [str(self.exported / name) for name in self.members]
        model = str(self.exported / self.name) if self.row.members else members[0]
        evaluation = ["-m", "tfrobust.evaluate", f"--model={model}", *settings, f"--output={self.workdir}"]
        if not self.row.members:
            return [evaluation]
        return [["tools/benchmarks/ensemble.py", *members, f"--output={model}"], evaluation]

    def shown(self, width: float = math.inf) -> str:
        """Return the commands as a user would type them, with the default folders.

        Values that a later one replaces are left out.

        Args:
            width: columns of a line, with its indent; a longer argument has a line of its own.
        """
        folders = f"--workdir={self.workdir}", f"--export_dir={self.exported}", f"--output={self.workdir}"
        lines, conjunction = [], ""
        for command in self.commands():
            last_values = {_target(argument): argument for argument in command if argument not in folders}
            typed = [_quoted(argument.replace(str(self.exported), "exported")) for argument in last_values.values()]
            lines += _filled([f"{conjunction}python", *typed], width)
            conjunction = "&& "
        return " \\\n    ".join(lines)

    def load(self) -> dict | None:
        """Return the stored result; None if there is none.

        Raises:
            InputError: the file is not readable, or of other settings than the plan's.
        """
        if not self.result.exists():
            return None
        try:
            result = json.loads(self.result.read_text("utf-8"))
            settings = result["schema"], result["files"], result["params"], result.get("members", [])
            agrees = settings == (SCHEMA, self.files, self.recorded(), self.members)
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.result} is no result of this tool; move it away.") from None
        if not agrees:
            raise InputError(f"{self.result} has other gin files or values than the plan; move it away to run it anew.")
        return result

    def recorded(self) -> list[str]:
        """Return the values of --gin_param without the folder of this machine."""
        return [param.replace(str(self.exported), "{exported}") for param in self.params]

    def execute(self) -> None:
        """Train and evaluate, from the checkpoint if there is one, and store the result.

        Raises:
            Failure: the command failed; its output stands in the workdir's .log file.
            StopRequested: it was stopped.
        """
        self.workdir.parent.mkdir(parents=True, exist_ok=True)
        spent = pathlib.Path(f"{self.workdir}.seconds")
        before = _processor_seconds()
        try:
            with open(f"{self.workdir}.log", "a", encoding="utf-8") as log:
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                for command in self.commands():
                    code = _ran([sys.executable, *command], stdout=log, stderr=log, env=environment, cwd=ROOT)
                    if code:
                        break
        finally:  # those of a stopped run count too
            seconds = _processor_seconds() - before + (float(spent.read_text()) if spent.exists() else 0.0)
            spent.write_text(f"{seconds:.1f}\n")
        if code == failures.STOPPED:
            raise StopRequested(f"{self.name} was stopped; the same command goes on.")
        if code:
            raise Failure(f"{self.name} ended with exit code {code}; see {log.name}")
        report = json.loads((self._report_folder() / "robustness_report.json").read_text("utf-8"))
        self.result.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(self.result, json.dumps(self._kept(report, seconds), indent=1) + "\n")

    def _report_folder(self) -> pathlib.Path:
        if self.members:
            return self.workdir
        newest = max((self.exported / self.name).iterdir(), key=lambda folder: int(folder.name))
        return newest / "assets.extra"

    def _kept(self, report: dict, seconds: float) -> dict:
        history = [series for series in report["series"] if series["id"] == "training.history"]
        return {
            "schema": SCHEMA,
            "row": self.row.name,
            "seed": self.seed,
            "files": self.files,
            "params": self.recorded(),
            **({"members": self.members} if self.members else {}),
            "command": self.shown(),
            "source_sha256": source_sha256(),
            "run_sha256": report["run_sha256"],
            "environment": report["environment"],
            "data": {name: report["data"][name] for name in ("fingerprint", "test_fingerprint", "train_size")},
            "parameters": report["model"]["parameters"],
            "epochs": report["training"].get("epochs"),
            "seconds": {**report["cost"], "processor_seconds": round(seconds)},
            "measurements": {measured.pop("id"): measured for measured in report["measurements"]},
            "outcomes": {
                series["id"].removeprefix("outcomes."): pack(series["columns"]["right"][0])
                for series in report["series"]
                if series["id"].startswith("outcomes.")
            },
            "last_epoch": {name: values[-1] for series in history for name, values in series["columns"].items()},
        }


def pack(row: str) -> dict:
    """Return a row of digits 0 and 1, one per image, as bits in base64, the first image in the highest bit."""
    padded = row + "0" * (-len(row) % 8)
    bits = bytes(int(padded[start : start + 8], 2) for start in range(0, len(padded), 8))
    return {"images": len(row), "bits": base64.b64encode(bits).decode()}


def _ran(command: list[str], **options) -> int:
    """Run a command to its end; if this process is stopped, stop it too and wait for its checkpoint."""
    with subprocess.Popen(command, **options) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise


def _target(argument: str) -> str:
    """Return the name that a value of --gin_param is bound to; any other argument as it is."""
    return "=".join(argument.split("=")[:2]) if argument.startswith("--gin_param=") else argument


def _filled(words: list[str], width: float) -> list[str]:
    """Return lines of as many words as fit, with room for an indent and a backslash."""
    lines = words[:1]
    for word in words[1:]:
        if len(f"    {lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _quoted(argument: str) -> str:
    """Return an argument as a shell reads it, a flag's value in double quotes where that is possible."""
    flag, equals, value = argument.partition("=")
    if equals and argument != shlex.quote(argument) and not set(value) & set('"$`\\!'):
        return f'{flag}="{value}"'
    return shlex.quote(argument)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def locked(run: Run):
    """Hold the lock of a run; gives False if another process has it."""
    run.workdir.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{run.workdir}.lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def runs_of(plan: _results_plan.Plan, only: list[str]) -> list[Run]:
    """Return the runs of a plan in order: the first seed of all rows, then the second; in each, the long ones last.

    A run is long if it is planned with more than LONG minutes. Every table thus has its first numbers early. Ensembles
    and later evaluations follow all trainings.

    Raises:
        InputError: `only` names no row of the plan.
    """
    unknown = sorted(set(only) - set(plan.rows()))
    if unknown:
        raise InputError(f"--only names {unknown[0]!r}; the rows are {', '.join(plan.rows())}.")
    chosen = [
        (bool(row.source), position, row.minutes > LONG, Run(plan, table, row, seed))
        for table in plan.tables
        for row in table.rows
        for position, seed in enumerate(row.seeds)
        if not only or row.name in only
    ]
    return [run for *_, run in sorted(chosen, key=lambda entry: entry[:3])]


def run_missing(runs: list[Run]) -> None:
    """Execute the runs that have no result and are not locked by another process, and whose exports are all there."""
    for number, run in enumerate(runs):
        with locked(run) as free:
            missing = [name for name in run.members if not (run.exported / name).is_dir()]
            if missing:
                print(f"[{number + 1}/{len(runs)}] {run.name} waits for {missing[0]}", flush=True)
            elif free and run.load() is None:
                print(f"[{number + 1}/{len(runs)}] {run.name}, planned {run.row.minutes:g} min", flush=True)
                run.execute()


def listing(plan: _results_plan.Plan, runs: list[Run]) -> str:
    """Format the plan: a line for each row with its planned and spent processor time, then the commands."""
    lines = [f"{'row':28} {'seeds':>5} {'planned':>8} {'spent':>8}   processor minutes"]
    for name, (_, row) in plan.rows().items():
        results = [run.load() for run in runs if run.row is row]
        spent = sum(result["seconds"]["processor_seconds"] for result in results if result) / 60
        lines.append(f"{name:28} {len(row.seeds):5} {row.minutes * len(row.seeds):8.0f} {spent:8.0f}")
    total = sum(row.minutes * len(row.seeds) for _, row in plan.rows().values())
    lines += [f"planned {total / 60:.1f} of {plan.hours:g} processor hours", ""]
    return "\n".join([*lines, *(run.shown() for run in runs)])


def contents(plan: _results_plan.Plan) -> dict[pathlib.Path, str]:
    """Return the marked part of each page of a plan: the tables, then the commands, from the stored results."""
    results = stored(plan)
    commands = {run.row.name: run.shown(COLUMNS) for run in reversed(runs_of(plan, []))}
    tables, sources = _results_markdown.page(plan, results), _results_markdown.sources(plan, results, commands)
    if plan.commands == plan.page:
        return {plan.page: f"{tables}\n{sources}"}
    return {plan.page: tables, plan.commands: sources}


def written(page: pathlib.Path, content: str) -> str:
    """Return a page's text with the content between its two marks.

    Raises:
        InputError: it does not have each mark once, in order.
    """
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise InputError(f"{page} needs a line {BEGIN!r} and, after it, a line {END!r}, once each.")
    return f"{before}{BEGIN}\n\n{content}\n{END}{after}"


def stored(plan: _results_plan.Plan) -> list[dict]:
    """Return the stored results of a plan, in its order."""
    return [result for run in runs_of(plan, []) if (result := run.load())]


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--plan", type=pathlib.Path, default=PLAN, help=f"default: {PLAN.relative_to(ROOT)}")
    flags.add_argument("--only", default="", help="names of rows, by comma; default: all")
    modes = flags.add_mutually_exclusive_group()
    modes.add_argument("--list", action="store_true", help="show rows and commands, and end")
    modes.add_argument("--print", action="store_true", help="print the tables of the stored results, and end")
    modes.add_argument("--write", action="store_true", help="put them into the plan's pages, and end")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Run what is missing, and print."""
    plan = _results_plan.read(flags.plan)
    runs = runs_of(plan, [name for name in flags.only.split(",") if name])
    if flags.list:
        print(listing(plan, runs))
        return
    if flags.write:
        for page, content in contents(plan).items():
            files.write_atomically(page, written(page, content))
        return
    if not flags.print:
        run_missing(runs)
    print(_results_markdown.page(plan, stored(plan)))


if __name__ == "__main__":
    sys.exit(failures.main(parser(), run))

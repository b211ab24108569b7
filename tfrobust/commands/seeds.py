"""`train --seeds`: one training run per seed, each in a process, a workdir and an export of its own."""

import argparse
import collections
import pathlib
import re
import signal
import subprocess
import sys
import time

from tfrobust.commands import failures
from tfrobust.commands.configuration import macros, pipe
from tfrobust.commands.configuration.statements import Macro, shown
from tfrobust.commands.flags import Parser, count
from tfrobust.errors import Failure, InputError, RefusedByGate, StopRequested

_ERRORS = {failures.WRONG_INPUT: InputError, failures.REFUSED: RefusedByGate, failures.STOPPED: StopRequested}
_POLL_SECONDS = 0.1
_LOG_END = 4096  # bytes


def add_flags(parser: Parser) -> None:
    """Add --seeds and --parallel."""
    help_text = "train once per seed, such as 0,1,2; workdirs and exports get the ending -seed0 and so on"
    parser.add_argument("--seeds", metavar="N,N,...", type=seeds, help=help_text)
    help_text = "with --seeds: number of processes that train at the same time; default: 1"
    parser.add_argument("--parallel", metavar="N", type=count, help=help_text)


def seeds(text: str) -> list[int]:
    """Parse distinct seeds below 10**9, separated by commas.

    Raises:
        ArgumentTypeError: the text is no such list.
    """
    numbers = [int(number) for number in text.split(",")] if re.fullmatch(r"\d{1,9}(,\d{1,9})*", text, re.ASCII) else []
    if not numbers or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{shown(text, 40)} is not a list of distinct seeds, such as 0,1,2")
    return numbers


def run(flags: argparse.Namespace, parser: Parser) -> None:
    """Train with every seed; a run that was interrupted resumes, a finished one is not repeated.

    Args:
        flags: of the command `train`, with `seeds`.
        parser: the command's flags, from which each run's command line is made.

    Raises:
        InputError: the configuration does not take the seed or the name from its knobs, or all failed runs were
            refused for wrong input.
        RefusedByGate: all failed runs missed their gate.
        StopRequested: SIGTERM or Ctrl-C has stopped the runs.
        Failure: runs failed for other or different reasons.
    """
    name = _name(flags)
    base = flags.workdir or str(pathlib.Path("runs", name))
    common = parser.command_line(flags, without=("seeds", "parallel", "workdir"))
    chosen = flags.seeds[:1] if flags.dry_run else flags.seeds
    commands = {}
    for seed in chosen:
        settings = [f"--gin_param=SEED={seed}", f"--gin_param=NAME='{name}-seed{seed}'"]
        settings += [f"--workdir={base}-seed{seed}"] if flags.workdir else []  # else the default for that NAME
        commands[seed] = [sys.executable, "-m", "tfrobust.train", *common, *settings]
    logs = {seed: pathlib.Path(f"{base}-seed{seed}.log") if flags.parallel else None for seed in chosen}
    codes = _run_all(commands, logs, flags.parallel or 1)
    failed = {seed: code for seed, code in codes.items() if code}
    if failed:
        kind = _ERRORS.get(next(iter(failed.values())), Failure) if len(set(failed.values())) == 1 else Failure
        listed = ", ".join(f"{seed} ({_end(code)})" for seed, code in failed.items())
        again = " Run the same command again to resume." if failures.STOPPED in failed.values() else ""
        raise kind(f"{len(failed)} of {len(chosen)} seeds did not finish: {listed}.{again}")
    if flags.dry_run:
        print(f"This is the run of seed {chosen[0]}, one of {len(flags.seeds)} such runs.")
    else:
        print(f"compare with: python -m tfrobust.compare --group {flags.export_dir}/{name}-seed*")


def _name(flags: argparse.Namespace) -> str:
    """Return NAME after a check of the gin files that needs no TensorFlow."""
    bindings, _ = pipe.read(flags.gin_file, flags.gin_param)
    if any(item.macro == "SEED" and item.from_flag for item in bindings):
        raise InputError("--gin_param sets SEED, and so does --seeds; leave one of them out.")
    for knob, argument in (("SEED", "seed"), ("NAME", "name")):
        bindings_of_argument = [
            item for item in bindings if item.selector.endswith("train") and item.argument == argument
        ]
        if not bindings_of_argument or bindings_of_argument[-1].value != Macro(knob):
            origin = bindings_of_argument[-1].origin if bindings_of_argument else flags.gin_file[-1]
            raise InputError(f"{origin}: --seeds needs train.{argument} = %{knob}, as in gin/base/train.gin.")
    name = macros.substitute(Macro("NAME"), macros.in_force(bindings), "")
    if not isinstance(name, str):
        raise InputError("NAME must be set; add --gin_param=\"NAME='...'\".")
    return name


def _run_all(commands: dict[int, list[str]], logs: dict[int, pathlib.Path | None], parallel: int) -> dict[int, int]:
    """Run the commands, at most `parallel` at a time, and print one line for each end.

    SIGTERM and Ctrl-C are passed on to the running processes, and no further ones start.

    Returns:
        Seed -> exit code; 75 for those that have not started.
    """
    waiting, running, codes = collections.deque(commands), {}, {}
    signals: list[int] = []
    passed_on = 0
    # A handler that raised could lose the process that is just being started.
    before = {
        number: signal.signal(number, lambda number, _: signals.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while running or (waiting and not signals):
            while waiting and len(running) < parallel and not signals:
                seed = waiting.popleft()
                running[seed] = (_started(commands[seed], seed, logs[seed]), time.monotonic())
            for seed, (process, began) in list(running.items()):
                if process.poll() is not None:
                    del running[seed]
                    # A process that is still importing ends by the signal itself.
                    stopped = signals and -process.returncode in (signal.SIGTERM, signal.SIGINT)
                    codes[seed] = failures.STOPPED if stopped else process.returncode
                    _print_end(seed, codes[seed], time.monotonic() - began, logs[seed])
            if len(signals) > passed_on:
                passed_on = len(signals)
                for process, _ in running.values():
                    process.terminate()
            time.sleep(_POLL_SECONDS)
    finally:
        for process, _ in running.values():  # after an error of this process, such as a closed output
            process.terminate()
        for process, _ in running.values():
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    return {seed: codes.get(seed, failures.STOPPED) for seed in commands}


def _started(command: list[str], seed: int, log: pathlib.Path | None) -> subprocess.Popen:
    """Start a run in a process group of its own, so that Ctrl-C reaches it once, from here."""
    if log is None:
        print(f"seed {seed}", flush=True)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    print(f"seed {seed}: output in {log}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )


def _print_end(seed: int, code: int, seconds: float, log: pathlib.Path | None) -> None:
    if code == 0:
        print(f"seed {seed}: done in {seconds:.0f} s", flush=True)
        return
    last = _last_line(log) if log else ""
    print(f"seed {seed}: {_end(code)}{f': {last}' if last else ''}", file=sys.stderr, flush=True)


def _end(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(log: pathlib.Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_END))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return shown(lines[-1], 250, quote=False) if lines else ""

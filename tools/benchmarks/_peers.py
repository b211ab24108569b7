"""Shared parts of the benchmarks against other libraries: a task on disk, and one process per side.

Every side of a comparison is a function `side(task) -> (run, outcome, versions)` in a module next to this one: `run()`
is timed, `outcome(result)` evaluates its result afterwards, untimed. A side has its own process, in which its libraries
are imported, its model is built and its graph is traced before the first round; there it waits for its turn. Thus
frameworks do not compete for threads, and all sides see the same state of the machine, round by round.
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

import numpy as np
from _measuring import announce, progress

HERE = pathlib.Path(__file__).resolve().parent
ARRAYS, SETTINGS = "arrays.npz", "settings.json"
LARGEST_LOGIT_DIFFERENCE = 1e-3  # of the largest logit


# ------------------------------------------------------------------------------------------------------- tasks


@dataclasses.dataclass(frozen=True)
class Task:
    """The task, the same for all sides.

    Attributes:
        network: 'resnet20' or 'digits'.
        images: float32 [n, h, w, c] in [0, 1].
        labels: int64 [n].
        logits: float32 [n, k], tfrobust's outputs for the images.
        weights: 'place/name' -> array in Keras's layout; the places count convolutions, then dense layers, in the order
            of the forward pass (a projection after its path).
        settings: 'epsilon', 'batch', 'threads' and whatever the attack needs.
    """

    network: str
    images: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    weights: dict[str, np.ndarray]
    settings: dict

    def write(self, folder: pathlib.Path) -> None:
        """Write the task to a folder."""
        weights = {f"weights/{name}": value for name, value in self.weights.items()}
        np.savez(folder / ARRAYS, images=self.images, labels=self.labels, logits=self.logits, **weights)
        (folder / SETTINGS).write_text(json.dumps({"network": self.network, **self.settings}))

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Task":
        """Read the task that `write` has written to a folder."""
        settings = json.loads((folder / SETTINGS).read_text())
        with np.load(folder / ARRAYS) as arrays:
            weights = {name.partition("/")[2]: arrays[name] for name in arrays.files if name.startswith("weights/")}
            images, labels, logits = (arrays[name] for name in ("images", "labels", "logits"))
        return cls(settings.pop("network"), images, labels, logits, weights, settings)

    def batches(self):
        """Return slices of `batch` images."""
        size = self.settings["batch"]
        return [slice(start, start + size) for start in range(0, len(self.images), size)]

    def check(self, logits: np.ndarray) -> None:
        """Exit if a side's network is not that of the task, judging by its logits."""
        difference, largest = np.abs(logits - self.logits).max(), np.abs(self.logits).max()
        if not difference <= LARGEST_LOGIT_DIFFERENCE * largest:
            raise SystemExit(
                f"the logits differ by {difference} from those of the task, of which the largest is {largest}"
            )


# ---------------------------------------------------------------------------------------------------- processes


class Side:
    """A side's process, as the tool controls it.

    Args:
        name: for the table.
        function: 'module:function' of the side.
        python: the interpreter that has the side's libraries.
        folder: of the task.
    """

    def __init__(self, name: str, function: str, python: str, folder: pathlib.Path):
        self.name = name
        self.rounds: list[dict] = []
        self.log = folder / f"{function.replace(':', '_')}.log"
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [python, str(HERE / "_peers.py"), function, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
            )

    def ready(self) -> str:
        """Wait until the side can run; return its versions, or raise RuntimeError with the end of its log."""
        return self._answer()["versions"]

    def run(self, keep: bool = True) -> dict:
        """Run one round: {'wall', 'processor' (seconds), and the entries of the side's outcome}."""
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        answer = self._answer()
        if keep:
            self.rounds.append(answer)
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def median(self, entry: str = "wall") -> float:
        """Return the median over the rounds."""
        return statistics.median(answer[entry] for answer in self.rounds)

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(self.log.read_text().strip()[-2000:] or f"{self.name} ended without a word.")
        return json.loads(line)


def add_flags(flags: argparse.ArgumentParser, parts, rounds: int) -> None:
    """Add the flags that the benchmarks share."""
    flags.add_argument("--peers", help="a Python that has the other libraries; without it tfrobust runs alone")
    help_of_parts = f"some of {','.join(parts)}; default: all"
    flags.add_argument("--parts", type=lambda text: text.split(","), default=list(parts), help=help_of_parts)
    flags.add_argument("--rounds", type=int, default=rounds, help=f"in which every side runs once; default {rounds}")
    flags.add_argument("--threads", type=int, default=2, help="of all sides, on as many processors; default 2")
    flags.add_argument("--channels_first", action="store_true", help="PyTorch's own layout, which is slower")
    flags.add_argument("--folder", type=pathlib.Path, help="keeps the tasks (trained networks) for the next time")


def begin(tool: str, arguments: list[str] | None, processors: int) -> None:
    """Print the command line and the load of the machine, and restrict the process to the first `processors`."""
    announce(tool, arguments, f"{processors} of {os.cpu_count()} processors")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])


def run_sides(
    sides: dict[str, tuple[str, str]], folder: pathlib.Path, rounds: int, title: str = "", cold=()
) -> list[Side]:
    """Start sides, print the versions of each or why it does not run, and run each once per round.

    They start one after another, so that they do not slow each other down.

    Args:
        sides: name -> ('module:function', interpreter).
        folder: of the task.
        rounds: after a warm-up round.
        title: in front of the progress.
        cold: names of the sides that need no warm-up round.

    Returns:
        The sides that run; their processes have ended.
    """
    running, messages = [], []
    for name, (function, python) in sides.items():
        side = Side(name, function, python, folder)
        try:
            versions = side.ready()
            if name not in cold:
                side.run(keep=False)
        except RuntimeError as error:
            messages.append(f"{name}: does not run: {error}")
        else:
            running.append(side)
            messages.append(f"{name}: {versions}")
    print("\n" + "\n".join(messages), flush=True)
    with contextlib.ExitStack() as stack:
        for side in running:
            stack.callback(side.close)
        for number in range(rounds):
            for side in running:
                progress(f"{title}round {number + 1} of {rounds}, {side.name}")
                side.run()
    progress("")
    return running


def speed_cells(ratios: np.ndarray) -> list[str]:
    """Return the median of the rounds' ratios and its 95 % interval, as cells of a table."""
    import _recipes  # noqa: F401  (finds tfrobust)

    from tfrobust.evaluation.engine.statistics import median

    value, *ends = median(ratios)
    return [f"{value:.2f}", "" if None in ends else "{:.2f} - {:.2f}".format(*ends)]


def make_task(function: str, settings: dict, folder: pathlib.Path) -> None:
    """Make a task in a process of tfrobust, unless the folder has one with these settings.

    Args:
        function: 'module:function' with settings -> Task.
        settings: including 'network' if the function does not know it.
        folder: created if missing.
    """
    settings_file = folder / SETTINGS
    if settings_file.is_file() and settings.items() <= json.loads(settings_file.read_text()).items():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "_peers.py"), function, str(folder), f"--make={json.dumps(settings)}"]
    done = subprocess.run(command, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def function_of(name: str):
    """Return the function named 'module:function'."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def serve(function: str, folder: pathlib.Path) -> None:
    """Run a side's process: build it, then run one round for every line of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the libraries goes to the log
    run, outcome, versions = function_of(function)(Task.read(folder))
    print(json.dumps({"versions": versions}), file=answers, flush=True)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        result = run()
        clocks = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        print(json.dumps(clocks | outcome(result)), file=answers, flush=True)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(
        description="The process of one side, or one that makes a task; for the benchmarks."
    )
    flags.add_argument("function")
    flags.add_argument("folder", type=pathlib.Path)
    flags.add_argument("--make", help="settings of a task to be made, as JSON")
    flag_values = flags.parse_args()
    if flag_values.make is None:
        serve(flag_values.function, flag_values.folder)
    else:
        function_of(flag_values.function)(json.loads(flag_values.make)).write(flag_values.folder)

"""Rehearse a model in a separate process, where a crash, a lack of memory or an endless call does no harm."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.security import memory, own_models, rehearsal_process
from tfrobust.security.program_files import shown

LARGEST = 2**30  # bytes, plus the model's files and the batch as often as below, plus the processors' share
SECONDS = 300
_TIMES_FILES = 16
# A wide network keeps thousands of values for each one of its input until the gradient is computed.
_TIMES_BATCH = 4096
# TensorFlow starts several threads for each processor, and their stacks count.
_PER_PROCESSOR = 2**26
_MOST_EXAMPLES = 15

remember = own_models.remember


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """Calls that a command will make of a model, which the rehearsal makes before it.

    Attributes:
        batch_size: largest number of examples in one call.
        gradient_batch: largest number of examples in one call whose gradient is computed; 0 for none.
        examples: some of the real examples [n, ...], of which the first few are used; None: noise.
        opener: "module:function" of the function that opens the model in the other process: path, **options ->
            (function of examples, shape of its input with None for any size, name of the input's dtype). "" for a
            `.keras` file is `saving.rehearsed`; for other models TensorFlow's or LiteRT's own loader is sufficient.
        options: more arguments of `opener`, numbers and texts.
        modules: modules to import before, such as those of a user's own layers.
        signature: the signature of a SavedModel that is called.
    """

    batch_size: int = 2
    gradient_batch: int = 0
    examples: np.ndarray | None = None
    opener: str = ""
    options: dict = dataclasses.field(default_factory=dict)
    modules: tuple[str, ...] = ()
    signature: str = rehearsal_process.SIGNATURE


# Of a command that says no more.
A_FEW = Use()


def rehearse(model, use: Use = A_FEW) -> None:
    """Load a model and call it as a command will, in another process with limits on memory and time.

    That process may connect to nothing, start nothing, and read no files but those of the model and of Python
    (`security.walls`).

    Args:
        model: a SavedModel, a LiteRT file or a `.keras` file, without findings in a scan.
        use: how it will be called.

    Raises:
        InputError (a ValueError): TensorFlow or LiteRT crashes, takes too much memory or time, or cannot load it; or it
            does what no model needs.
    """
    model = pathlib.Path(os.path.abspath(model))  # a link keeps its name, whose suffix says what the file is
    if own_models.is_own(model):
        return
    fault = run(str(model), memory_limit(model, use), SECONDS, use)
    if fault:
        runtime = "LiteRT" if model.suffix == ".tflite" else "Keras" if model.suffix == ".keras" else "TensorFlow"
        outcome = f"{runtime} {fault}"
        raise InputError(f"{named(model)} is not loaded: {outcome}. Export it again, or get an unchanged copy.")


def run(model: str, growth: int, seconds: int, use: Use) -> str:
    """Return why a model must not be loaded, as a clause about its runtime without the subject; "" if it may be.

    Args:
        model: absolute path, so that it cannot be mistaken for a flag.
        growth: bytes that the process may take beyond TensorFlow itself.
        seconds: until the process is ended.
        use: how the model is called.
    """
    with tempfile.TemporaryDirectory(prefix="tfrobust-rehearsal-") as temporary:
        described = dataclasses.asdict(dataclasses.replace(use, examples=None))
        if use.examples is not None and len(use.examples):
            described["examples"] = os.path.join(temporary, "examples.npy")
            np.save(described["examples"], np.asarray(use.examples[:_MOST_EXAMPLES]), allow_pickle=False)
        # -P keeps the folder of that file off the path.
        command = [sys.executable, "-P", rehearsal_process.__file__, model, str(growth), str(seconds)]
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TMPDIR": temporary}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:
            more = {"env": environment, "cwd": temporary, "timeout": seconds}
            done = subprocess.run([*command, json.dumps(described), temporary], **more, **streams)
        except subprocess.TimeoutExpired:
            return f"has not loaded and called it within {seconds} s"
    return verdict(done.returncode, done.stdout, growth)


def verdict(code: int, printed: bytes, growth: int) -> str:
    """Return the fault shown by the end of a rehearsal, as `run` does."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"crashes on it, or needs more than {growth >> 20} MiB ({name})"
    try:
        verb, fault = json.loads(printed.splitlines()[-1])
    except (ValueError, TypeError, IndexError):
        return f"crashes on it (code {code})"
    return f"cannot {'call' if verb == 'call' else 'load'} it ({shown(fault, 160)[1:-1]})" if fault else ""


def memory_limit(model, use: Use = A_FEW) -> int:
    """Return the bytes that a model may take in a process, beyond those of TensorFlow itself.

    Files count by what they take on the disk, so holes do not, and a file of many links counts once.
    """
    model = pathlib.Path(model)
    states = (path.stat() for path in (model, *model.rglob("*")) if path.is_file())
    stored = {(state.st_dev, state.st_ino): min(state.st_size, 512 * state.st_blocks) for state in states}
    batch = 0 if use.examples is None else 4 * use.batch_size * math.prod(use.examples.shape[1:])
    growth = LARGEST + _TIMES_FILES * sum(stored.values()) + _TIMES_BATCH * batch
    return memory.bounded(growth + _PER_PROCESSOR * (os.cpu_count() or 1))


def limited(model, use: Use = A_FEW, more: int = 0) -> contextlib.AbstractContextManager:
    """Limit the memory of this process to `memory_limit` and `more` bytes while it calls a model.

    With a GPU there is no limit, because its driver maps memory of its own.
    """
    if tf.config.list_physical_devices("GPU"):
        return contextlib.nullcontext()
    return memory.limited(memory.bounded(memory_limit(model, use) + more))


def named(directory) -> str:
    """Return a path, shortened to its end if it is too long for a line."""
    name = str(directory)
    return name if len(name) <= 70 else f"...{name[-67:]}"

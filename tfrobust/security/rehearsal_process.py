"""Load a model and call it as a command will, in a process with limits and walls; a program of its own.

    python -P rehearsal_process.py MODEL BYTES SECONDS USE TEMPORARY

MODEL is the folder of a SavedModel, a LiteRT file, or a `.keras` file; BYTES what it may take beyond TensorFlow itself;
USE a `rehearsal.Use` as JSON; TEMPORARY the only folder that may be written to. The program prints one line of JSON: a
list of a verb and a fault, "" if there is none. Exit code 0: it has printed that line.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pathlib
import resource
import sys
import threading
import time

if __name__ == "__main__":  # the last folder, so that nothing in it is taken for another package
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from tfrobust.security import memory, own_models, walls  # noqa: E402

SIGNATURE = "serving_default"
CALL_SECONDS = 60  # of one call, its gradient included
# A larger batch is left out if it would take longer, since an evaluation makes thousands of such calls.
LONGEST_BATCH = 5.0
_UNKNOWN_SIZE = 32
_OUT_OF_MEMORY = "it takes more memory than it may"
_LARGEST_FILE = 2**28  # of a file that Keras unpacks


def limit(seconds: int) -> None:
    """Limit the CPU time of this process, and the files that it writes."""
    bounds = (
        # The caller ends the process at its time limit; this ends it if the caller no longer exists.
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, bound in bounds:
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))


def rehearse(model: str, use: dict | None = None) -> list[str]:
    """Load a model and call it on batches, with the gradients that `use` asks for.

    Errors while TensorFlow or LiteRT loads the model count; and of the calls a crash, memory and time. Other errors are
    left to the caller, whose examples are different.

    Returns:
        ["load" or "call", ""], or the fault in place of "".
    """
    use = use or {}
    if not _is_keras(model):
        try:
            loaded = _loaded_litert(model) if os.path.isfile(model) else _loaded_program(model)
        except BaseException as error:
            return ["load", _fault(error)]
        prepare = _litert if os.path.isfile(model) else functools.partial(_program, use.get("signature") or SIGNATURE)
        verdict = _call_verdict(lambda: prepare(loaded, model), use)
        if verdict[1] or not use.get("opener"):
            return verdict
    return _call_verdict(lambda: _open(model, use), use)


def _call_verdict(prepare, use: dict) -> list[str]:
    try:
        _call(*prepare(), use)
    except BaseException as error:
        fault = _fault(error)
        return ["call", fault if fault == _OUT_OF_MEMORY else ""]
    return ["call", ""]


def _fault(error: BaseException) -> str:
    memory = isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
    return _OUT_OF_MEMORY if memory else " ".join(str(error).split())[:200] or type(error).__name__


def _is_keras(model: str) -> bool:
    return model.endswith(".keras")


def _open(model: str, use: dict):
    """Return a function of examples, the shape of its input (None for any size) and the name of its dtype."""
    module, _, name = (use.get("opener") or "tfrobust.saving:rehearsed").partition(":")
    own_models.remember(model)  # this is its rehearsal
    return getattr(importlib.import_module(module), name)(model, **use.get("options", {}))


def _call(function, shape, dtype, use: dict) -> None:
    """Call a function on one example, on two, and on the largest batch unless that takes too long."""
    import numpy as np
    import tensorflow as tf

    kind = tf.as_dtype(dtype)
    gradient_batch = int(use.get("gradient_batch", 0)) if kind.is_floating else 0
    examples = _examples(use, shape[1:], kind)
    seconds = 0.0
    for batch in [shape[0]] if shape[0] else sorted({1, 2, max(2, int(use.get("batch_size", 2)))}):
        if seconds / 2 * batch > LONGEST_BATCH:  # of two examples, measured when the graphs were there
            batch = max(3, int(LONGEST_BATCH * 2 / seconds))
        rows = tf.constant(examples[np.arange(batch) % len(examples)], kind)
        started = time.monotonic()
        with _within(CALL_SECONDS, f"a call with a batch of {batch} takes more than {CALL_SECONDS:g} s"):
            _run(function, rows, batch <= gradient_batch)
        seconds = time.monotonic() - started


def _run(function, batch, gradients: bool) -> None:
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(batch)
        outputs = [tf.convert_to_tensor(output) for output in tf.nest.flatten(function(batch))]
        floats = [tf.cast(output, tf.float32) for output in outputs if output.dtype.is_floating]
        total = tf.add_n([tf.zeros([]), *map(tf.reduce_sum, floats)])
    for output in outputs:
        output.numpy()
    gradient = tape.gradient(total, batch) if gradients else None
    if gradient is not None:
        tf.convert_to_tensor(gradient).numpy()


def _examples(use: dict, shape: list, kind):
    """Return one gray example, or a word, and then the examples of the command, or noise."""
    import numpy as np

    more = np.load(use["examples"], allow_pickle=False) if use.get("examples") else None
    fits = more is not None and more.ndim == len(shape) + 1
    if fits and all(size in (None, actual) for size, actual in zip(shape, more.shape[1:], strict=True)):
        shape = more.shape[1:]
    else:
        shape = [size or _UNKNOWN_SIZE for size in shape]
        draws = np.random.default_rng(0).uniform(size=(7, *shape))
        more = draws if kind.is_floating else np.rint(draws)
    first = np.full((1, *shape), 0.5 if kind.is_floating and len(shape) > 1 else 1.0)
    examples = np.concatenate([first, more])
    return examples.astype(str) if kind.name == "string" else examples.astype(kind.as_numpy_dtype)


@contextlib.contextmanager
def _within(seconds: float, fault: str):
    """End this process with a fault if a call takes longer."""
    timer = threading.Timer(seconds, _end, (["call", fault],))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(verdict: list[str]) -> None:
    os.write(1, json.dumps(verdict).encode() + b"\n")
    # Skip the shutdown of TensorFlow.
    os._exit(0)


def _loaded_litert(path: str):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)
    _invoke(interpreter, None)
    return interpreter


def _litert(interpreter, path: str):
    """Return a function that runs a LiteRT file, which is prepared for each batch size."""
    import numpy as np

    inputs = interpreter.get_input_details()
    shapes = [detail["shape_signature"].tolist() or detail["shape"].tolist() for detail in inputs]
    any_number = all(shape[:1] == [-1] for shape in shapes)

    def function(batch):
        if any_number or -1 in shapes[0]:
            for detail, shape in zip(inputs, shapes, strict=True):
                sizes = batch.shape[1:] if len(inputs) == 1 else [max(1, size) for size in shape[1:]]
                interpreter.resize_tensor_input(detail["index"], [len(batch) if any_number else shape[0], *sizes])
        return _invoke(interpreter, batch.numpy())

    fixed = None if any_number else max(1, shapes[0][0])
    return function, [fixed, *(None if size < 0 else size for size in shapes[0][1:])], np.dtype(inputs[0]["dtype"]).name


def _invoke(interpreter, batch):
    import numpy as np

    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        fits = batch is not None and batch.shape == tuple(detail["shape"]) and batch.dtype == detail["dtype"]
        interpreter.set_tensor(
            detail["index"], batch if fits else np.full(detail["shape"], 0.5).astype(detail["dtype"])
        )
    interpreter.invoke()
    return [interpreter.get_tensor(returned["index"]) for returned in interpreter.get_output_details()]


def _loaded_program(directory: str):
    import tensorflow as tf

    return tf.saved_model.load(directory)


def _program(name: str, loaded, directory: str):
    """Return the signature of a SavedModel, whose variables are read, too."""
    _read_variables(loaded, directory)
    signature = loaded.signatures[name]
    ((key, specification),) = signature.structured_input_signature[1].items()

    def function(batch):
        outputs = loaded.signatures[name](**{key: batch})
        return [outputs[output] for output in sorted(outputs)]

    return function, list(specification.shape), specification.dtype.name


def _read_variables(loaded, directory: str) -> None:
    import tensorflow as tf

    prefix = os.path.join(directory, "variables", "variables")
    if getattr(loaded, "variables", None) or not os.path.exists(f"{prefix}.index"):
        return
    checkpoint = tf.train.load_checkpoint(prefix)
    for name in checkpoint.get_variable_to_shape_map():
        checkpoint.get_tensor(name)


def main(model: str, growth: str, seconds: str, use: str, temporary: str) -> None:
    """Print why a model must not be loaded, or ""."""
    limit(int(seconds))
    options = json.loads(use)
    names = [*options.get("modules", ()), options.get("opener", "").partition(":")[0]]
    names += ["tfrobust.saving"] * _is_keras(model) + ["ai_edge_litert.interpreter"] * model.endswith(".tflite")
    for name in ("tensorflow", *filter(None, names)):
        with contextlib.suppress(ImportError):  # a module of the caller that lies in its folder
            importlib.import_module(name)
    if _is_keras(model):
        sys.modules["tfrobust.saving"].import_all()  # registers the classes that the file may name
    memory.limit(int(growth))
    hook = walls.raise_walls(model, temporary)
    verdict = rehearse(model, options)
    _end(["load", hook.refused[0]] if hook.refused else verdict)


if __name__ == "__main__":
    main(*sys.argv[1:])

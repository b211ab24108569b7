"""Load a model and call it once in a process with limits; a program of its own that does not import tfrobust.

    python -P rehearsal_process.py MODEL BYTES SECONDS

The model is the folder of a SavedModel, or a LiteRT file. The program prints one line of JSON: "" on success, otherwise
why the model is not loaded. Exit code 0: it has printed that line.
"""

from __future__ import annotations

import json
import os
import resource
import sys

SIGNATURE = "serving_default"
_UNKNOWN_SIZE = 32
_OUT_OF_MEMORY = "it takes more memory than it may"


def limit(largest: int, seconds: int) -> None:
    """Limit the memory that this process may write to, its CPU time, and its core dumps."""
    bounds = (
        (resource.RLIMIT_DATA, largest),
        # The caller ends the process at its time limit; this ends it if the caller no longer exists.
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, bound in bounds:
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))


def rehearse(model: str) -> str:
    """Load a model and call it on one example, as `rehearse_saved_model` does, or `rehearse_litert` for a file."""
    return rehearse_litert(model) if os.path.isfile(model) else rehearse_saved_model(model)


def rehearse_litert(path: str) -> str:
    """Load a LiteRT file, and call it on one example, and on two if it takes any number.

    Returns:
        "", or why the model must not be loaded.
    """
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(path, num_threads=1)
        _invoke(interpreter)
    except MemoryError:
        return _OUT_OF_MEMORY
    except Exception as error:  # noqa: BLE001 - any error of LiteRT
        return " ".join(str(error).split())[:200] or type(error).__name__
    try:
        inputs = interpreter.get_input_details()
        if all(given["shape_signature"][:1].tolist() == [-1] for given in inputs):
            for given in inputs:
                interpreter.resize_tensor_input(given["index"], [2, *given["shape"][1:]])
            _invoke(interpreter)
    except MemoryError:
        return _OUT_OF_MEMORY
    except Exception:  # noqa: BLE001, S110 - left to the caller, who may call it on one
        pass
    return ""


def _invoke(interpreter) -> None:
    import numpy as np

    interpreter.allocate_tensors()
    for given in interpreter.get_input_details():
        interpreter.set_tensor(given["index"], np.full(given["shape"], 0.5).astype(given["dtype"]))
    interpreter.invoke()
    for returned in interpreter.get_output_details():
        interpreter.get_tensor(returned["index"])


def rehearse_saved_model(directory: str) -> str:
    """Load a SavedModel, read its variables, and call it on one example.

    After loading, only a crash, memory and time count. Other errors are left to the caller, whose examples are
    different.

    Returns:
        "", or why the model must not be loaded.
    """
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(directory)
    except (MemoryError, tf.errors.ResourceExhaustedError):
        return _OUT_OF_MEMORY
    except Exception as error:  # noqa: BLE001 - any error of TensorFlow
        return " ".join(str(error).split())[:200] or type(error).__name__
    for attempt in (_read_variables, _ask):
        try:
            attempt(loaded, directory)
        except (MemoryError, tf.errors.ResourceExhaustedError):
            return _OUT_OF_MEMORY
        except Exception:  # noqa: BLE001, S110 - see above
            pass
    return ""


def _read_variables(loaded, directory: str) -> None:
    import tensorflow as tf

    prefix = os.path.join(directory, "variables", "variables")
    if getattr(loaded, "variables", None) or not os.path.exists(f"{prefix}.index"):
        return
    checkpoint = tf.train.load_checkpoint(prefix)
    for name in checkpoint.get_variable_to_shape_map():
        checkpoint.get_tensor(name)


def _ask(loaded, directory: str) -> None:
    import tensorflow as tf

    signature = loaded.signatures[SIGNATURE]
    ((key, specification),) = signature.structured_input_signature[1].items()
    batch, *shape = specification.shape
    example = tf.fill([batch or 1, *(size or _UNKNOWN_SIZE for size in shape)], 0.5 if len(shape) > 1 else 1.0)
    for output in signature(**{key: tf.cast(example, specification.dtype)}).values():
        output.numpy()


def main(model: str, largest: str, seconds: str) -> None:
    """Print why a model must not be loaded, or ""."""
    limit(int(largest), int(seconds))
    print(json.dumps(rehearse(model)), flush=True)
    # Skip the shutdown of TensorFlow.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

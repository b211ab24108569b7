"""Load a SavedModel and ask it once, in a process with limits; also a program of its own, which imports no tfrobust.

    python -P rehearsal_process.py DIRECTORY BYTES SECONDS

It prints one line of JSON: "" if all went well, else why TensorFlow does not load the model. Code 0: it printed that.
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
    """Limit the memory that this process may write to, its time, and what it leaves behind."""
    bounds = (
        (resource.RLIMIT_DATA, largest),
        # The caller ends the process; this ends it where the caller is no more.
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, bound in bounds:
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))


def rehearse(directory: str) -> str:
    """Load a SavedModel, read its variables, and ask it for one example.

    Only a crash, the memory and the time count in what comes after loading: other errors are for the caller, whose
    examples are other ones.

    Returns:
        "", or why it is not to be loaded.
    """
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(directory)
    except (MemoryError, tf.errors.ResourceExhaustedError):
        return _OUT_OF_MEMORY
    except Exception as error:  # noqa: BLE001 - whatever TensorFlow says of it
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
    example = tf.fill([batch or 1, *(size or _UNKNOWN_SIZE for size in shape)], 0.5 if len(shape) == 3 else 1.0)
    for output in signature(**{key: tf.cast(example, specification.dtype)}).values():
        output.numpy()


def main(directory: str, largest: str, seconds: str) -> None:
    """Print why a model is not to be loaded."""
    limit(int(largest), int(seconds))
    print(json.dumps(rehearse(directory)), flush=True)
    # Nothing of TensorFlow's own end is of interest.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

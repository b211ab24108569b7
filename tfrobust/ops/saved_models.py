"""SavedModels are programs: what one does is read from its file, against a list, before TensorFlow loads it."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import program_files, program_graph, rehearsal, variable_index
from tfrobust.structs import Finding

_LONGEST = 300
# How TensorFlow begins what it says of an error in a graph.
_SAYING_NOTHING = ("Graph execution error", "Detected at node", "<stack traces unavailable>")


def scan(directory) -> list[Finding]:
    """Return what in a SavedModel is not what a model needs; nothing of it is loaded or run.

    Each node of every graph, and of every function in the libraries, nested ones included, must be of an operation in
    `ops.allowed_operations`. Saving and restoring stand only where nothing served reaches them, and the files that
    are read are the model's own `assets/` and `variables/`. Functions neither call themselves nor what is not there;
    names, sizes, calls and objects are bounded as `guides/safety.md` says; no file and no link leads out of the folder.

    What it cannot tell: whether the answers are right, how long a loop runs, or whether TensorFlow itself has a hole.

    Args:
        directory: holds saved_model.pb.

    Returns:
        One finding per kind of fault, none where the model may be loaded.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no folder {directory}; a SavedModel is one with a saved_model.pb.")
    findings = program_files.findings(directory)
    if findings:
        # What stands in the way of reading it: no more can be said.
        return findings
    program = program_files.parsed(directory)
    if isinstance(program, Finding):
        return [program]
    found = [each for graph in program.meta_graphs for each in program_graph.findings(graph)]
    names = [asset.filename for graph in program.meta_graphs for asset in program_graph.assets(graph)]
    found += program_files.asset_findings(directory, names)
    return found or variable_index.findings(directory)


def check(directory) -> None:
    """Refuse a SavedModel in which `scan` finds something.

    Raises:
        InputError (a ValueError): one line with the first finding and what would be right.
        FileNotFoundError: there is no such folder.
    """
    findings = scan(directory)
    if not findings:
        return
    first, more = findings[0], len(findings) - 1
    rest = f" (and {more} more)" if more else ""
    name = rehearsal.named(directory)
    raise InputError(f"{name} is not loaded: {first.evidence}{rest}. {first.remedy}"[:_LONGEST])


def load(directory):
    """Load a SavedModel that `check` lets through and that loads in a process of its own (`ops.rehearsal`).

    Raises:
        InputError (a ValueError): see `check`; or TensorFlow cannot load it, which is one line.
        FileNotFoundError: there is no such folder.
    """
    check(directory)
    rehearsal.rehearse(directory)
    try:
        return tf.saved_model.load(str(directory))
    except Exception as error:  # whatever TensorFlow says of it
        raise InputError(f"{rehearsal.named(directory)} cannot be loaded: {_first_line(error)}"[:_LONGEST]) from error


def signatures(loaded) -> Mapping:
    """Return the signatures of a loaded SavedModel by name; none where it has none."""
    found = getattr(loaded, "signatures", None)
    return found if isinstance(found, Mapping) else {}


@contextlib.contextmanager
def answering(name: str, errors: tuple[type[Exception], ...] = (tf.errors.OpError,)):
    """Turn TensorFlow's errors while a model of others is asked into one line that names the model.

    Raises:
        InputError (a ValueError): the model fails.
    """
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(f"{name[-70:]} fails when it is asked: {_first_line(error)}"[:_LONGEST]) from error


def _first_line(error: Exception) -> str:
    lines = map(str.strip, str(error).splitlines())
    text = next((line for line in lines if line and not line.startswith(_SAYING_NOTHING)), type(error).__name__)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:160])

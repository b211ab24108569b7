"""Safe loading of SavedModels, which are programs: they are checked against a list before TensorFlow loads them."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.security import program_files, program_graph, rehearsal, variable_index
from tfrobust.structs import Finding

# Uninformative first lines of TensorFlow's messages about errors in a graph.
_SAYING_NOTHING = ("Graph execution error", "Detected at node", "<stack traces unavailable>")


def scan(directory) -> list[Finding]:
    """Scan a SavedModel for unsafe or invalid content, without loading or running any of it.

    Each node of every graph, and of every function in the libraries, nested ones included, must be an operation in
    `security.operations.ALLOWED`. Saving and restoring operations may occur only where serving does not reach them,
    and the files that are read must be the model's own `assets/` and `variables/`. Functions must neither call
    themselves nor call missing functions. Names, sizes, calls and objects are bounded as described in
    `guides/safety.md`. No file and no link may lead out of the folder.

    The scan cannot tell if the outputs are correct, how long a loop runs, or if TensorFlow itself is vulnerable.

    Returns:
        One finding per kind of fault; none if the model may be loaded.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no folder {directory}; a SavedModel is a folder with a saved_model.pb.")
    findings = program_files.findings(directory)
    if findings:
        # The files cannot be read, so nothing more can be checked.
        return findings
    program = program_files.parsed(directory)
    if isinstance(program, Finding):
        return [program]
    faults = [finding for graph in program.meta_graphs for finding in program_graph.findings(graph)]
    names = [asset.filename for graph in program.meta_graphs for asset in program_graph.assets(graph)]
    faults += program_files.asset_findings(directory, names)
    return faults or variable_index.findings(directory)


def check(directory) -> None:
    """Raise InputError for a SavedModel with findings in `scan`.

    Raises:
        InputError (a ValueError): one line with the first finding and its remedy.
        FileNotFoundError: the folder does not exist.
    """
    findings = scan(directory)
    if not findings:
        return
    first, more = findings[0], len(findings) - 1
    rest = f" (and {more} more)" if more else ""
    name = rehearsal.named(directory)
    raise InputError(f"{name} is not loaded: {first.evidence}{rest}. {first.remedy}")


def load(directory, use: rehearsal.Use = rehearsal.A_FEW):
    """Load a SavedModel that passes `check`, and that a separate process has called (`security.rehearsal`).

    Raises:
        InputError (a ValueError): see `check`; or TensorFlow cannot load it, in one line.
        FileNotFoundError: the folder does not exist.
    """
    check(directory)
    rehearsal.rehearse(directory, use)
    try:
        return tf.saved_model.load(str(directory))
    except Exception as error:  # any error of TensorFlow
        raise InputError(f"{rehearsal.named(directory)} cannot be loaded: {_first_line(error)}") from error


def signatures(loaded) -> Mapping:
    """Return the signatures of a loaded SavedModel by name; an empty mapping if it has none."""
    mapping = getattr(loaded, "signatures", None)
    return mapping if isinstance(mapping, Mapping) else {}


@contextlib.contextmanager
def answering(name: str, errors: tuple[type[Exception], ...] = (tf.errors.OpError, MemoryError)):
    """Convert TensorFlow's errors in calls of an untrusted model into one line that names the model.

    Raises:
        InputError (a ValueError): the model fails.
    """
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(f"{name[-70:]} fails when it is called: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    if isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError)):
        return "it takes more memory than it may"
    lines = map(str.strip, str(error).splitlines())
    text = next((line for line in lines if line and not line.startswith(_SAYING_NOTHING)), type(error).__name__)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:160])

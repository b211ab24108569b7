"""Verification: a process without tfrobust and Keras loads the artifact and reproduces the recorded outputs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import tensorflow as tf

from tfrobust.errors import InputError, cut
from tfrobust.security import memory, rehearsal, saved_models
from tfrobust.serving.export import probe

_SECONDS = 300.0
_TENSORFLOW = 2**30  # bytes that a process with TensorFlow takes before it loads a model
_ANY = 2**60  # bytes, more than a machine has


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """The result of a clean process: check -> problems, one sentence each, none if the check passed.

    The checks are `checksums`, `signatures`, `golden request`, `warm-up`, `report` and `clean process`, and `smoothed`
    of an export with the smoothed classifier. `loading` holds the problem of a process that did not finish them, `scan`
    the findings because of which the SavedModel is not loaded at all.
    """

    directory: str
    checks: dict[str, tuple[str, ...]]

    @property
    def passed(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, in the order of the checks."""
        return tuple(problem for messages in self.checks.values() for problem in messages)


def verify(directory, *, timeout: float | None = None) -> VerifyResult:
    """Check a version directory in a clean process started in an empty folder.

    The checksums must hold. The SavedModel must load although importing tfrobust or Keras fails, and must have this
    project's endpoints. The golden request and every warm-up record must reproduce the recorded bits.
    `robustness_report` must return the text of `assets.extra/robustness_report.json`. The bits are guaranteed only on
    the machine that recorded them: another kind of processor may round differently.

    Args:
        directory: version directory, published or staged.
        timeout: seconds after which the process is ended; None: 300, or never for an export with recorded outputs of
            the smoothed classifier, because their replay takes thousands of passes.

    Returns:
        The problems by check. Failures of the process count as problems and are not raised.

    Raises:
        FileNotFoundError: there is no SavedModel.
    """
    directory = pathlib.Path(directory).resolve()
    if not (directory / "saved_model.pb").is_file():
        raise FileNotFoundError(f"{directory} holds no SavedModel (saved_model.pb is missing).")
    is_smoothed = _is_smoothed(directory)
    if timeout is None and not is_smoothed:
        timeout = _SECONDS
    findings = saved_models.scan(directory)
    if findings:
        return VerifyResult(str(directory), {"scan": tuple(f"{finding.evidence}." for finding in findings)})
    try:
        rehearsal.rehearse(directory)
    except InputError as error:
        return _failed(directory, str(error))
    with tempfile.TemporaryDirectory(prefix="tfrobust-verify-") as empty:
        result_file = os.path.join(empty, "result.json")
        # -P keeps the folder of probe.py, and thus this package, off the path.
        command = [
            sys.executable,
            "-P",
            probe.__file__,
            str(directory),
            result_file,
            _largest(directory, is_smoothed),
        ]
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        try:
            done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return _failed(directory, f"The clean process was ended after {timeout:g} s.")
        if not os.path.exists(result_file):
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return _failed(directory, f"The clean process ended with code {done.returncode}: {last}")
        problems = json.loads(pathlib.Path(result_file).read_text(encoding="utf-8"))
    return VerifyResult(str(directory), {check: tuple(map(cut, messages)) for check, messages in problems.items()})


def _largest(directory: pathlib.Path, is_smoothed: bool) -> str:
    """Return the most bytes that the clean process may take; "" for any."""
    if tf.config.list_physical_devices("GPU"):  # as in `rehearsal.limited`
        return ""
    # A pass of the smoothed classifier has a hundred noisy copies or more, and several passes run at once.
    growth = memory.bounded(_ANY) if is_smoothed else rehearsal.memory_limit(directory)
    return str(_TENSORFLOW + growth)


def _is_smoothed(directory: pathlib.Path) -> bool:
    with (
        contextlib.suppress(OSError, ValueError, zipfile.BadZipFile),
        zipfile.ZipFile(directory / probe.GOLDEN_FILE) as file,
    ):
        return f"smoothed_{probe.ANSWERS[0]}.npy" in file.namelist()
    return False


def _failed(directory: pathlib.Path, problem: str) -> VerifyResult:
    return VerifyResult(str(directory), {"loading": (cut(problem),)})

"""Conversion of a SavedModel to a LiteRT file (`.tflite`), for phones and boards."""

from __future__ import annotations

import re
import warnings

import numpy as np
import tensorflow as tf

from tfrobust.common.console import quiet_stderr
from tfrobust.errors import InputError
from tfrobust.security import litert_files, rehearsal

KINDS = ("float32", "float16", "int8")
_SIGNATURE = "serving_default"
# An operation that has no builtin operator, in TensorFlow's message.
_OPERATION = re.compile(r"'tf\.(\w+)' op is neither")


def convert(directory, kind: str, representative: np.ndarray) -> bytes:
    """Convert the endpoint `serving_default` of a SavedModel, with the names of its inputs and outputs.

    Builtin operators only. `float16` halves the weights and computes in float32; `int8` quantizes weights and
    activations, so that the arithmetic is integer, and keeps inputs and outputs float32.

    Args:
        directory: a SavedModel of images.
        kind: one of `KINDS`.
        representative: float32 [n, h, w, c], training images, from which `int8` takes the ranges of the activations.

    Returns:
        The content of the file, which passes `security.litert_files.scan_content`.

    Raises:
        InputError: an operation of the model has no builtin operator, or TensorFlow cannot convert it.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(str(directory), signature_keys=[_SIGNATURE])
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.representative_dataset = lambda: ({"images": image[None]} for image in representative)
    name = rehearsal.named(directory)
    try:
        # The converter writes to the standard error from C++, and warns of its own use of an old interpreter.
        with quiet_stderr(after_errors=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = converter.convert()
    except Exception as error:  # any error of the converter
        raise InputError(_line(name, _OPERATION.findall(str(error)), str(error))) from error
    for fault in litert_files.scan_content(content):
        raise InputError(f"{name} cannot be a LiteRT file: {fault.evidence}. Replace the layer that needs it.")
    return content


def _line(name: str, operations: list[str], message: str) -> str:
    if not operations:
        first = next(iter(message.split("\n")), "")
        return f"{name} cannot be converted to a LiteRT file: {first}"
    listed = ", ".join(dict.fromkeys(operations))
    advice = "set approximate=True in GELU" if "Erf" in operations or "Erfc" in operations else "replace its layer"
    return f"{name} cannot be a LiteRT file, which has no operator for {listed[:120]}: {advice}."

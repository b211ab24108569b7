"""Conversion of a SavedModel to an ONNX file, for other runtimes."""

from __future__ import annotations

import functools
import logging

import numpy as np
import tensorflow as tf

from tfrobust.common.console import quiet_stderr
from tfrobust.errors import InputError
from tfrobust.security import rehearsal, saved_models

FILE = "model.onnx"
_SIGNATURE = "serving_default"
_OPSET = 18


def convert(directory) -> bytes:
    """Convert the endpoint `serving_default` of a SavedModel, with the names of its inputs and outputs.

    Args:
        directory: a SavedModel.

    Returns:
        The content of the file, which onnxruntime can load.

    Raises:
        InputError: tf2onnx or onnxruntime is missing, or cannot convert or load the model.
    """
    _, converter = _packages()
    name = rehearsal.named(directory)
    loaded = saved_models.load(directory)
    signature = saved_models.signatures(loaded)[_SIGNATURE]
    ((key, specification),) = signature.structured_input_signature[1].items()
    inputs = [tf.TensorSpec(specification.shape, specification.dtype, name=key)]
    function = tf.function(lambda examples: signature(**{key: examples}), input_signature=inputs)
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    try:
        with quiet_stderr(after_errors=False):
            model, _ = converter.from_function(function, input_signature=inputs, opset=_OPSET)
            content = model.SerializeToString()
            _session(content)
    except Exception as error:  # any error of the converter, or of the runtime about an operation it does not know
        reason = " ".join(str(error).split())
        raise InputError(f"{name} cannot be converted to an ONNX file: {reason}") from error
    return content


def run(content: bytes, examples: np.ndarray, output: str) -> np.ndarray:
    """Return a named output of an ONNX file that `convert` returned, for a batch of examples."""
    session = _session(content)
    (graph_input,) = session.get_inputs()
    return session.run([output], {graph_input.name: examples})[0]


@functools.lru_cache(maxsize=1)
def _session(content: bytes):
    runtime, _ = _packages()
    return runtime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _packages():
    try:
        import onnxruntime
        from tf2onnx import convert as converter
    except ImportError:
        raise InputError("an ONNX file needs tf2onnx and onnxruntime: pip install 'tfrobust[onnx]'.") from None
    return onnxruntime, converter

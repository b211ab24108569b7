"""LiteRT files (`.tflite`) under evaluation: outputs from the interpreter, gradients from a differentiable copy."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.data.checks import MOST_CLASSES
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.litert_graph import Copy, Graph
from tfrobust.evaluation.engine.litert_operators import UncoveredError
from tfrobust.security.litert_files import interpreter_class

# Interpreters that are kept, one per batch size; an attack uses about ten sizes.
_INTERPRETERS = 16
# The smallest probability of a softmax in float32.
_SMALLEST = 1e-30
# Images on which the copy is compared with the file, and the largest mean difference, as a share of the logits' spread.
_PROBES, _TOLERANCE = 16, 0.25
_PROBE_SIZE = 32  # in a dimension of any size
# Operators whose outputs are probabilities, with the kinds of `ops.probabilities`.
_PROBABILITIES = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}


class File:
    """A LiteRT file, run by the interpreter.

    It may be called from several threads. Integer inputs and outputs are quantized and dequantized here.

    Args:
        content: the file, checked by `security.litert_files`.
        name: in messages.

    Attributes:
        graph: tensors and operators.
        image_shape: (h, w, c).
        grid: gap between two values of an integer input, in pixel units; 0 for a float input.

    Raises:
        InputError: not one input of images; ai-edge-litert is not installed.
    """

    def __init__(self, content: bytes, name: str):
        self.name, self._content = name, content
        self._interpreter = interpreter_class()
        self.graph = Graph(content)
        if len(self.graph.inputs) != 1:
            raise InputError(
                f"{name} takes the inputs {sorted(self.graph.inputs)}; only models of one image tensor can be "
                "evaluated."
            )
        (self._input,) = self.graph.inputs.values()
        tensor = self.graph.tensors[self._input]
        if len(tensor.shape) != 4 or not (tensor.quantized or tensor.dtype is np.float32):
            kind = getattr(tensor.dtype, "__name__", "another type")
            raise InputError(f"{name} takes {kind} {tensor.shape}; float or quantized images [b, h, w, c] are needed.")
        self.image_shape = tensor.shape[1:]
        self.grid = float(tensor.scale[0]) if tensor.quantized else 0.0
        self._interpreters, self._lock = {}, threading.Lock()

    def run(self, images: np.ndarray, tensor: int) -> np.ndarray:
        """Return a tensor's real values for a batch of images.

        Args:
            images: float32 [b, h, w, c], in the real values that the file's input stands for.
            tensor: position of an output.

        Returns:
            float32 [b, ...].
        """
        step = self.graph.fixed_batch or len(images)
        padded = np.concatenate([images, np.repeat(images[:1], -len(images) % step, axis=0)])
        stored = self.graph.tensors[self._input].stored(padded)
        parts = [self._run(stored[start : start + step], tensor) for start in range(0, len(stored), step)]
        shapes = {part.shape for part in parts}
        if any(shape[:1] != (step,) for shape in shapes):
            raise InputError(f"{self.name} returns {min(shapes)} for {step} examples; logits have one row for each.")
        return self.graph.tensors[tensor].real(np.concatenate(parts)[: len(images)])

    def output(self, images: tf.Tensor, tensor: int) -> tf.Tensor:
        """Return the same as `run` as an operation of TensorFlow, without a gradient."""
        values = tf.numpy_function(lambda batch: self.run(batch, tensor), [tf.cast(images, tf.float32)], tf.float32)
        return tf.ensure_shape(values, [images.shape[0], *self.graph.tensors[tensor].shape[1:]])

    def _run(self, stored: np.ndarray, tensor: int) -> np.ndarray:
        with self._lock:
            interpreter = self._interpreters.pop(stored.shape, None) or self._prepared_interpreter(stored.shape)
            self._interpreters[stored.shape] = interpreter  # the most recent one is the last
            if len(self._interpreters) > _INTERPRETERS:
                del self._interpreters[next(iter(self._interpreters))]
            interpreter.set_tensor(self._input, stored)
            interpreter.invoke()
            return interpreter.get_tensor(tensor)

    def _prepared_interpreter(self, shape: tuple[int, ...]):
        interpreter = self._interpreter(model_content=self._content)
        if not self.graph.fixed_batch or None in self.image_shape:
            interpreter.resize_tensor_input(self._input, shape)
        interpreter.allocate_tensors()
        return interpreter


class Logits:
    """Logits of a LiteRT file as a differentiable function: outputs of the file, gradients of its copy.

    Where the output is a softmax or a sigmoid, its logarithm or log odds are returned, with the gradient of the tensor
    before it, which does not vanish where rounded probabilities are 0 or 1.

    Args:
        file: the file.
        output: name of its output.

    Attributes:
        fault: why there is no copy; "" if there is one.
        inverse: "softmax" or "sigmoid" if that is the output, else "".
    """

    def __init__(self, file: File, output: str):
        self._file, self._output = file, file.graph.outputs[output]
        maker = file.graph.maker(self._output)
        self.inverse = _PROBABILITIES.get(maker.name, "") if maker else ""
        self._require_logits()
        self._smallest = _SMALLEST
        tensor = file.graph.tensors[maker.outputs[0]] if self.inverse else None
        if tensor is not None and tensor.quantized:
            self._smallest = float(tensor.scale[0]) / 2
        try:
            self._copy = Copy(file.graph, maker.inputs[0] if self.inverse else self._output)
        except UncoveredError as error:
            self._copy, self.fault = None, f"its differentiable copy does not cover {error}"
        else:
            self.fault = self._copy_fault()

    def _require_logits(self) -> None:
        gray = np.full([2, *(size or _PROBE_SIZE for size in self._file.image_shape)], 0.5, np.float32)
        shape = self._file.run(gray, self._output).shape
        declared = self._file.graph.tensors[self._output].shape
        if len(shape) != 2 or not 2 <= shape[1] <= MOST_CLASSES:
            fault = f"logits are [b, k] with 2 to {MOST_CLASSES} classes"
        elif len(declared) != 2 or declared[1] not in (None, shape[1]):
            fault = f"the file declares {declared}"
        else:
            return
        raise InputError(f"{self._file.name} returns shape {shape} for 2 examples; {fault}.")

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        """Return the logits, float32 [b, k], of images float32 [b, h, w, c]."""
        return self._differentiable(images) if not self.fault else self._forward(images)

    def dequantized_logits(self, images: tf.Tensor) -> tf.Tensor:
        """Return the logits of the copy without rounding: a float model with the file's weights."""
        return self._copy(images, rounding=False)

    @functools.cached_property
    def _differentiable(self) -> Callable:
        @tf.custom_gradient
        def logits(images):
            def backward(upstream):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(images)
                    copied = self._copy(images)
                return tape.gradient(copied, images, upstream)

            return self._forward(images), backward

        return logits

    def _forward(self, images):
        values = self._file.output(images, self._output)
        if not self.inverse:
            return values
        logits = tf.math.log(tf.maximum(values, self._smallest))
        return logits - tf.math.log(tf.maximum(1.0 - values, self._smallest)) if self.inverse == "sigmoid" else logits

    def _copy_fault(self) -> str:
        """Return why the copy must not be used: it fails, or differs from the file by more than rounding."""
        shape = [size or _PROBE_SIZE for size in self._file.image_shape]
        images = np.random.default_rng(0).uniform(size=[_PROBES, *shape]).astype(np.float32)
        try:
            copied = self._copy(tf.constant(images)).numpy()
        except (tf.errors.OpError, UncoveredError, ValueError, TypeError) as error:
            return f"its differentiable copy fails: {str(error).strip().splitlines()[0]}"[:160]
        file = self._forward(tf.constant(images)).numpy()
        if self.inverse == "softmax":
            copied = tf.nn.log_softmax(copied).numpy()
        if self.inverse:  # rounded probabilities of 0 and 1 hide how large the values were
            copied = np.clip(copied, file.min(), file.max())
        gap = float(np.mean(np.abs(copied - file))) / max(float(np.std(file)), 1e-12)
        return "" if gap <= _TOLERANCE else f"its differentiable copy differs by {gap:.0%} of the spread of its logits"

"""Predictors: models under evaluation, as functions `images -> logits`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import modes
from tfrobust.certification.network import Network
from tfrobust.common.kinds import TEXT, Kind, kind_of
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.outputs import first_line, probe
from tfrobust.ops import probabilities

# Images whose gradient `as_logits` computes.
GRADIENT_PROBES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictor:
    """Classifier under evaluation: of images, of clips (float32 [b, t, h, w, c]), or of text (int32 [b, length]).

    Attributes:
        logits: float32 [b, h, w, c] in [0, 1] -> float [b, k]. Always the same object, so that callers that compile it
            can share the compiled function.
        embedding: float32 [b, h, w, c] -> float [b, d], the penultimate features; None if unknown.
        image_shape: (h, w, c); None in a position where the model accepts any size. For clips: (t, h, w, c). For text:
            (length,).
        class_count: k.
        name: name in reports.
        differentiable: False if there are no input gradients; white-box attacks reject it. `as_logits` tries one.
        no_gradient: the reason, if it was determined.
        outputs_probabilities: True if the model's own output is probabilities p; `logits` is then log(p).
        one_per_class: True if these are sigmoids, which need not sum to 1; `logits` is then log(p / (1 - p)).
        parameters: number of values in its variables; None if unknown.
        weights_sha256: hash of its variables (`common.fingerprint.weights_sha256`) or of its file; None if unknown.
        surrogate: another predictor of the same classes, which transfer attacks search in place of this one; or None.
        grid: gap between two values of an integer input, in pixel units; 0 for a float input.
        grid_origin: a value of that grid, in pixel units.
        normalization: float32 [b, h, w, c] -> `NormalizationInput`, of a Keras model's first normalization layer; None
            if unknown.
        vocabulary_size: number of token ids that it accepts; None if unknown.
        network: operations of the model, through which bounds are propagated; None if they are unknown.
        no_network: the reason, if there is none.
        variables: returns the values of a SavedModel's variables; None for other models.
    """

    logits: Callable
    embedding: Callable | None
    image_shape: tuple[int | None, ...]
    class_count: int
    name: str
    differentiable: bool = True
    no_gradient: str = ""
    outputs_probabilities: bool = False
    one_per_class: bool = False
    parameters: int | None = None
    weights_sha256: str | None = None
    surrogate: Predictor | None = None
    grid: float = 0.0
    grid_origin: float = 0.0
    normalization: Callable | None = None
    vocabulary_size: int | None = None
    network: Network | None = None
    no_network: str = "its layers are not known; bounds need the model's .keras file"
    variables: Callable[[], list[np.ndarray]] | None = None
    # Why there is no input gradient, or ""; None until it was tested, which `as_logits` does once.
    _fault: str | None = dataclasses.field(default=None, init=False, repr=False, compare=False)

    @property
    def kind(self) -> Kind:
        """Kind of its inputs, which the rank of `image_shape` defines."""
        return kind_of(self.image_shape)

    @property
    def is_text(self) -> bool:
        """True if it takes tokens, which have no gradient."""
        return self.kind is TEXT

    @functools.cached_property
    def compiled_logits(self) -> Callable:
        """`logits` as one compiled function, traced once per batch shape."""
        return tf.function(lambda images: tf.cast(self.logits(images), tf.float32), autograph=False)

    @functools.cached_property
    def compiled_embedding(self) -> Callable:
        """`embedding` as one compiled function, traced once per batch shape."""
        if self.embedding is None:
            raise InputError(f"{self.name} names no embedding: an output called 'embedding' is needed here.")
        return tf.function(lambda images: tf.cast(self.embedding(images), tf.float32), autograph=False)

    @property
    def is_file(self) -> bool:
        """True for a SavedModel or a LiteRT file, which no layer can be put before."""
        no_layers = self.no_network == type(self).no_network
        return self.variables is not None or (self.weights_sha256 is not None and no_layers)

    def with_surrogate(self, surrogate: Predictor) -> Predictor:
        """Return this predictor with another surrogate; raise ValueError if that has other classes or inputs."""
        sizes, surrogate_sizes = ((predictor.class_count, *predictor.image_shape) for predictor in (self, surrogate))
        if len(sizes) != len(surrogate_sizes) or any(
            len({*pair, None}) > 2 for pair in zip(sizes, surrogate_sizes, strict=True)
        ):
            raise InputError(
                f"{surrogate.name} has {surrogate.class_count} classes and takes {surrogate.image_shape}, so it is no "
                f"surrogate of {self.name}: {self.class_count} classes, {self.image_shape}."
            )
        return dataclasses.replace(self, surrogate=surrogate)

    def on_unit_pixels(self, low: float, high: float) -> Predictor:
        """Return the predictor of pixels in [0, 1] for a model, and its surrogate, that take pixels in [low, high].

        Args:
            low: the model's value of black.
            high: its value of white, > low.

        Returns:
            The predictor, itself if the range is [0, 1] already.

        Raises:
            ValueError: the model takes tokens.
        """
        if (low, high) == (0.0, 1.0):
            return self
        if self.is_text:
            raise InputError(f"bounds are those of pixels, and {self.name} takes tokens: leave them out.")
        width = np.float32(high - low)
        functions = {name: getattr(self, name) for name in ("logits", "embedding", "normalization")}
        functions = {
            name: function and functools.partial(_after_scaling, function, np.float32(low), width)
            for name, function in functions.items()
        }
        return dataclasses.replace(
            self,
            **functions,
            grid=self.grid / (high - low),
            grid_origin=(self.grid_origin - low) / (high - low),
            network=self.network and self.network.after_scaling(float(width), low),
            surrogate=self.surrogate and self.surrogate.on_unit_pixels(low, high),
        )

    def onto_grid(self, images: np.ndarray) -> np.ndarray:
        """Return images [n, h, w, c] in [0, 1] as an integer input stores them; unchanged for a float input."""
        if not self.grid:
            return images
        grid, origin = np.float32(self.grid), np.float32(self.grid_origin)
        return np.clip(origin + np.rint((images - origin) / grid) * grid, 0.0, 1.0)

    def as_logits(self, images: np.ndarray, batch_size: int = 128) -> Predictor:
        """Return this predictor, converted to logits if its outputs for `images` are probabilities.

        Probabilities taken for logits hide the gradient from an attack. For a softmax, log(p) differs from the logits
        by a constant per image, which affects no attack here; for sigmoids, log(p / (1 - p)) are the logits. The
        existence of input gradients is tested here, once.

        Args:
            images: float32 [n, h, w, c] in [0, 1]; a first batch with outputs outside [0, 1] is sufficient, otherwise
                all images are predicted.
            batch_size: b, the largest number of images in one graph call.

        Raises:
            ValueError: the outputs for the first batch are not finite or not [b, class_count].
        """
        outputs = np.asarray(self.compiled_logits(images[:batch_size]))
        expected = (min(batch_size, len(images)), self.class_count)
        if outputs.shape != expected:
            raise InputError(
                f"{self.name} returns shape {outputs.shape} for {expected[0]} examples; logits have the shape "
                f"{expected}."
            )
        if not np.all(np.isfinite(outputs)):
            raise InputError(f"{self.name} returns NaN or infinity for examples of this data set.")
        kind = "logits" if self.outputs_probabilities else probabilities.kind_of_outputs(outputs)
        if kind != "logits":  # decided on all images, so that batch_size does not matter
            outputs = in_batches(self.compiled_logits, images, batch_size)
            kind = probabilities.kind_of_outputs(outputs[np.isfinite(outputs).all(axis=-1)])
        changes: dict[str, Any] = {}
        if self.surrogate is not None:
            changes["surrogate"] = self.surrogate.as_logits(images, batch_size)
        if kind in probabilities.INVERSES:
            changes |= {"outputs_probabilities": True, "one_per_class": kind == "sigmoid"}
            changes["logits"] = functools.partial(probabilities.INVERSES[kind], self.logits)
        fault = ""
        if self.is_text:
            fault = "its inputs are tokens, which have no gradient"
        elif self.differentiable:
            fault = self._gradient_fault(images[:GRADIENT_PROBES])
        if fault:
            changes |= {"differentiable": False, "no_gradient": fault}
        converted = dataclasses.replace(self, **changes) if changes else self
        object.__setattr__(converted, "_fault", fault)
        return converted

    def _gradient_fault(self, images: np.ndarray) -> str:
        """Return why there is no input gradient, or ""; tested once in the life of the predictor."""
        fault = _gradient_fault(self.logits, images) if self._fault is None else self._fault
        object.__setattr__(self, "_fault", fault)
        return fault


def _after_scaling(function: Callable, low: np.float32, width: np.float32, images):
    return function(low + width * images)


def _gradient_fault(logits: Callable, images: np.ndarray) -> str:
    images = tf.constant(images)
    try:
        logits(images)
    except Exception:  # noqa: BLE001 - it may not accept such a small batch; the attacks will show
        return ""
    try:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            # For a SavedModel the backward pass is already built here.
            total = tf.reduce_sum(tf.cast(logits(images), tf.float32))
        gradient = tape.gradient(total, images)
    except Exception as error:  # noqa: BLE001 - it worked without a tape, so the backward pass fails
        return first_line(error)
    return "the outputs do not depend on the pixels by differentiable operations" if gradient is None else ""


def in_batches(function: Callable, images: np.ndarray, batch_size: int, progress: Callable | None = None):
    """Apply a function to many images, in batches of one static size.

    Args:
        function: float32 [b, h, w, c] -> [b, ...].
        images: float32 [n, h, w, c], n >= 1; or tokens, int32 [n, length].
        batch_size: b; the last batch is padded with copies of the last image, whose outputs are dropped.
        progress: (done, total) after each batch.

    Returns:
        NumPy [n, ...].
    """
    size, count, outputs = min(batch_size, len(images)), len(images), []
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        outputs.append(np.asarray(function(tf.constant(images[rows])))[: count - start])
        if progress is not None:
            progress(min(start + size, count), count)
    return np.concatenate(outputs)


def from_function(
    logits: Callable,
    *,
    image_shape: tuple[int | None, ...],
    class_count: int | None = None,
    embedding: Callable | None = None,
    name: str = "function",
    differentiable: bool = True,
) -> Predictor:
    """Make a predictor from any function `images -> logits`.

    Args:
        logits: float32 [b, h, w, c] (tokens: int32 [b, length]) -> float [b, k], made of TensorFlow operations; or of
            others, such as NumPy's, of which there are no gradients.
        image_shape: (h, w, c), (t, h, w, c) or (length,).
        class_count: k; None: determined by predicting one gray image.
        embedding: float32 [b, h, w, c] -> [b, d], or None.
        name: name in reports.
        differentiable: False for a function without input gradients.

    Raises:
        ValueError: the output is not [b, k] with k >= 2.
    """
    logits = modes.in_graph(logits)
    return Predictor(
        logits=logits,
        embedding=embedding,
        image_shape=tuple(image_shape),
        class_count=class_count or probe(logits, image_shape, name),
        name=name,
        differentiable=differentiable,
    )

"""Predictors: models under evaluation, as functions `images -> logits` (Keras, SavedModel, LiteRT, functions)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import modes
from tfrobust.attacks.shared.modes import following_precision
from tfrobust.certification.network import Network, NoBoundsError, walk
from tfrobust.common import files, fingerprint
from tfrobust.common.kinds import TEXT, Kind, kind_of
from tfrobust.data.checks import MOST_CLASSES
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import keras_models, litert
from tfrobust.evaluation.engine.normalization import first_normalization
from tfrobust.models.shared import foreign
from tfrobust.ops import probabilities
from tfrobust.security import keras_files, litert_files, rehearsal, saved_models
from tfrobust.security.rehearsal import A_FEW, Use

_OPENER = f"{__name__}:opened"
_PROBE_SIZE = 32
# Images whose gradient `as_logits` computes.
GRADIENT_PROBES = 2
_BY_FLAG = "name the logits with --logits_output"


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
    no_network: str = "its layers are not known; bounds need the Keras model"

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
        return self.weights_sha256 is not None and self.no_network == type(self).no_network

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

        Returns:
            The predictor, itself if nothing changes.

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
        changes = {}
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
        converted.__dict__["_fault"] = fault
        return converted

    def _gradient_fault(self, images: np.ndarray) -> str:
        """Return why there is no input gradient, or ""; tested once in the life of the predictor."""
        if "_fault" not in self.__dict__:
            self.__dict__["_fault"] = _gradient_fault(self.logits, images)
        return self.__dict__["_fault"]


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
        return _first_line(error)
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

    Returns:
        The predictor.

    Raises:
        ValueError: the output is not [b, k] with k >= 2.
    """
    logits = modes.in_graph(logits)
    return Predictor(
        logits=logits,
        embedding=embedding,
        image_shape=tuple(image_shape),
        class_count=class_count or _probe(logits, image_shape, name),
        name=name,
        differentiable=differentiable,
    )


def from_keras(model: keras.Model, logits_output: str | None = None) -> Predictor:
    """Make a predictor from a built Keras model, run in inference mode.

    The embedding is `model.embed`, an output named 'embedding', or, in a Sequential or functional model that ends with
    a dense layer, that layer's input.

    Args:
        model: images -> logits [b, k], or several named outputs. Probabilities are detected later.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.

    Returns:
        The predictor.

    Raises:
        ValueError: the model is not built, or has no such output.
    """
    named = "let it return a dict with the key 'logits': keras.Model(model.inputs, {'logits': model.outputs[0]})"
    return _from_keras(model, logits_output, named)


def _from_keras(model: keras.Model, logits_output: str | None, remedy: str) -> Predictor:
    """Make a predictor as `from_keras`; `remedy` says how to name one of several outputs."""
    if not model.built:
        raise InputError(f"The Keras model {model.name!r} is not built: call it once on a batch, or build it.")
    shape = keras_models.image_shape(model)
    # A tfrobust method has parts that are not deployed; encoder and head are evaluated.
    parts = [model.encoder, model.head] if hasattr(model, "propagate") else [model]
    weights = [variable.numpy() for variable in {id(v): v for part in parts for v in part.variables}.values()]

    def logits(images):
        with following_precision(model):
            outputs = keras_models.named_outputs(model, model(images, training=False))
        return outputs[_output_name(list(outputs), logits_output, f"The Keras model {model.name!r}", remedy)]

    return Predictor(
        logits=logits,
        embedding=keras_models.embedding(model),
        image_shape=shape,
        # Traced, as evaluations call it: some models fail only then.
        class_count=_probe(tf.function(logits, autograph=False), shape, model.name),
        name=model.name,
        parameters=_parameters(weights),
        weights_sha256=fingerprint.weights_sha256(weights),
        normalization=first_normalization(model),
        vocabulary_size=foreign.vocabulary_size(model),
        **network_of(model),
    )


def network_of(model: keras.Model) -> dict:
    """Return the fields `network` and `no_network` of a Keras model's predictor."""
    try:
        return {"network": walk(model), "no_network": ""}
    except NoBoundsError as error:
        return {"network": None, "no_network": str(error)}
    except Exception as error:  # noqa: BLE001 - foreign models can be made in any way, and need no bounds to be evaluated
        return {"network": None, "no_network": f"its layers cannot be read ({_first_line(error)})"}


def from_saved_model(directory: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a SavedModel.

    Args:
        directory: holds saved_model.pb.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.
        use: how it will be called, for its rehearsal; by default its signature `serving_default`.

    Returns:
        The predictor.

    Raises:
        ValueError: no such signature, several inputs, or no output that must be the logits.
    """
    folder = pathlib.Path(directory).resolve()
    name = f"{folder.parent.name}/{folder.name}" if folder.name.isdecimal() else folder.name
    loaded = saved_models.load(directory, use)
    with rehearsal.limited(directory, use), saved_models.answering(name, (Exception,)):
        return _from_loaded(loaded, directory, name, logits_output, use.signature)


def _from_loaded(loaded, directory: str, name: str, logits_output: str | None, called: str) -> Predictor:
    signatures = saved_models.signatures(loaded)
    if called not in signatures:
        raise InputError(f"{directory} has no signature {called!r}; set --signature to one of {sorted(signatures)}.")
    signature = signatures[called]
    inputs = signature.structured_input_signature[1]
    if len(inputs) != 1:
        raise InputError(
            f"{directory} takes the inputs {sorted(inputs)}; only models of one image tensor can be evaluated."
        )
    ((key, spec),) = inputs.items()
    fits = spec.dtype.is_integer if spec.shape.rank == 2 else spec.dtype.is_floating
    if spec.shape.rank not in keras_models.RANKS or not fits:
        raise InputError(
            f"{directory} takes {spec.dtype.name} {spec.shape}; a float input [b, h, w, c] is needed, or clips, floats "
            "[b, t, h, w, c], or tokens, integers [b, length]."
        )
    output = _output_name(list(signature.structured_outputs), logits_output, directory)

    def output_of(images, which):
        # The loaded object owns the variables: this reference keeps them alive as long as the function.
        with saved_models.answering(name, (Exception,)):
            return loaded.signatures[called](**{key: tf.cast(images, spec.dtype)})[which]

    logits = functools.partial(output_of, which=output)
    promised = signature.structured_outputs[output]
    is_complete = promised.shape[-1:].is_fully_defined()
    classes = _class_count(promised, name) if is_complete else _probe(logits, spec.shape[1:], name)
    variables = _saved_variables(loaded, directory)
    return Predictor(
        logits=logits,
        embedding=functools.partial(output_of, which="embedding")
        if "embedding" in signature.structured_outputs
        else None,
        image_shape=tuple(spec.shape[1:]),
        class_count=classes,
        name=name,
        parameters=_parameters(variables),
        weights_sha256=fingerprint.weights_sha256(variables),
        vocabulary_size=_vocabulary_size(directory),
    )


def _vocabulary_size(directory: str) -> int | None:
    """Return the number of words in the vocabulary of an export; None if it has none."""
    path = pathlib.Path(directory, "assets.extra", "vocabulary.txt")
    return len(files.read_text(path).splitlines()) if path.is_file() else None


def from_litert(path: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a LiteRT file, whose outputs are those of the interpreter.

    Its gradients are those of a differentiable copy of the file, so that white-box attacks run unchanged and each
    candidate is verified on the file itself. If the copy does not cover an operator, the predictor has no gradients.
    Its surrogate is the copy without rounding, a float model.

    Args:
        path: a `.tflite` file.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.
        use: how it will be called, for its rehearsal.

    Returns:
        The predictor.

    Raises:
        ValueError: the scan refuses it; not one image input; no output that must be the logits; or ai-edge-litert is
            not installed.
    """
    parts = pathlib.Path(path).resolve().parts
    name = "/".join(parts[-3:-1]) if parts[-2].isdecimal() else parts[-1]
    opening = {"opener": _OPENER, "options": {"logits_output": logits_output}}
    content = litert_files.load(path, dataclasses.replace(use, **opening))
    with rehearsal.limited(path, use), saved_models.answering(name, (Exception,)):
        return _from_litert(content, name, logits_output)


def _from_litert(content: bytes, name: str, logits_output: str | None) -> Predictor:
    file = litert.File(content, name)
    output = _output_name(list(file.graph.outputs), logits_output, name)
    logits = litert.Logits(file, output)
    position = file.graph.outputs.get("embedding")
    embedding = None if position is None else functools.partial(file.output, tensor=position)
    predictor = from_function(logits, image_shape=file.image_shape, embedding=embedding, name=name)
    predictor = dataclasses.replace(predictor, weights_sha256=hashlib.sha256(content).hexdigest())
    float_copy = {"logits": logits.dequantized_logits, "embedding": None, "name": f"{name}, dequantized"}
    return dataclasses.replace(
        predictor,
        differentiable=not logits.fault,
        no_gradient=logits.fault,
        outputs_probabilities=bool(logits.inverse),
        one_per_class=logits.inverse == "sigmoid",
        parameters=file.graph.parameters,
        surrogate=None if logits.fault else dataclasses.replace(predictor, **float_copy),
        grid=file.grid,
    )


def load(path: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a path: a SavedModel, a LiteRT or `.keras` file, or a folder of numbered versions.

    Args:
        path: a directory with saved_model.pb or model.tflite; or with numbered versions, of which the newest is loaded;
            or a `.tflite` file; or a `.keras` file (import what defines its own classes beforehand).
        logits_output: as in `from_saved_model`.
        use: how it will be called, for its rehearsal in another process.

    Returns:
        The predictor.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: the path is something else.
    """
    target = locate(path)
    if target.is_dir():
        return from_saved_model(str(target), logits_output, use)
    if litert_files.is_litert(target):
        return from_litert(str(target), logits_output, use)
    use = dataclasses.replace(use, opener=_OPENER, options={"logits_output": logits_output})
    return _from_keras(keras_files.load(target, compiled=False, use=use), logits_output, _BY_FLAG)


def locate(path: str) -> pathlib.Path:
    """Return the folder of the SavedModel, or the file, that `load` reads; raise as it does if there is none."""
    target = pathlib.Path(path)
    if not target.exists():
        raise FileNotFoundError(f"There is no model at {path}: name a SavedModel directory, a .keras or .tflite file.")
    if target.is_dir():
        directory = files.model_directory(target)
        return directory / files.LITERT_FILE if (directory / files.LITERT_FILE).exists() else directory
    if target.suffix in (".h5", ".hdf5"):
        raise InputError(f"{path} is a legacy HDF5 model, whose loading can run code: save it again as .keras.")
    if target.suffix not in (".keras", litert_files.SUFFIX):
        raise InputError(f"{path} is neither a SavedModel directory nor a .keras or .tflite file.")
    return target


def rehearse(path: str, use: Use, logits_output: str | None = None) -> None:
    """Rehearse a model in another process as `load` does, without loading it here."""
    target = locate(path)
    if not target.is_dir():
        use = dataclasses.replace(use, opener=_OPENER, options={"logits_output": logits_output})
    rehearsal.rehearse(target, use)


def opened(path: str, logits_output: str | None = None) -> tuple[Callable, list, str]:
    """Open a model for its rehearsal: the function of its logits, the shape of its input, and the dtype."""
    predictor = load(path, logits_output)
    return predictor.logits, [None, *predictor.image_shape], predictor.kind.dtype


class _NoSuchOutputError(InputError):
    """Error for a missing output, or for an ambiguous choice of the logits."""


def _output_name(names: list[str], chosen: str | None, where: str, remedy: str = _BY_FLAG) -> str:
    if chosen is not None and chosen not in names:
        raise _NoSuchOutputError(f"{where} has no output {chosen!r}, only {sorted(names)} (--logits_output).")
    if chosen is not None:
        return chosen
    if "logits" in names:
        return "logits"
    if len(names) == 1:
        return names[0]
    raise _NoSuchOutputError(f"{where} has the outputs {sorted(names)}: {remedy}.")


def _saved_variables(loaded, directory: str) -> list[np.ndarray]:
    """Return the values of a SavedModel's variables: those it lists, else all in its checkpoint."""
    if getattr(loaded, "variables", None):
        return [variable.numpy() for variable in {id(v): v for v in loaded.variables}.values()]
    prefix = pathlib.Path(directory) / "variables" / "variables"
    if not prefix.with_suffix(".index").exists():
        return []
    checkpoint = tf.train.load_checkpoint(str(prefix))
    values = [checkpoint.get_tensor(name) for name in checkpoint.get_variable_to_shape_map()]
    return [value for value in values if isinstance(value, np.ndarray) and not value.dtype.hasobject]


def _parameters(values: list[np.ndarray]) -> int:
    # Random-seed states are integers, not parameters.
    return sum(int(np.size(value)) for value in values if value.dtype.kind not in "iu")


def _probe(logits: Callable, image_shape, name: str) -> int:
    # One gray image or clip, or a sentence that consists of one unknown word.
    example = tf.fill([1, *[size or _PROBE_SIZE for size in image_shape]], 1 if kind_of(image_shape) is TEXT else 0.5)
    try:
        output = tf.convert_to_tensor(logits(example))
    except _NoSuchOutputError:
        raise
    except (tf.errors.InvalidArgumentError, ValueError, TypeError) as error:
        raise InputError(f"{name} fails on one example of shape {tuple(image_shape)}: {_first_line(error)}") from error
    return _class_count(output, name)


def _class_count(output, name: str) -> int:
    shape = output.shape
    if output.dtype.is_complex:
        raise InputError(f"{name} returns {output.dtype.name}; logits are real numbers.")
    if shape.rank != 2 or shape[1] < 2:
        raise InputError(f"{name} returns shape {shape}; logits are [b, k] with at least two classes.")
    if shape[1] > MOST_CLASSES:
        raise InputError(f"{name} has {shape[1]} classes; at most {MOST_CLASSES} can be evaluated.")
    return int(shape[1])


def _first_line(error: Exception, limit: int = 160) -> str:
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return text if len(text) <= limit else text[: limit - 3] + "..."

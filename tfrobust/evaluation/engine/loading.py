"""Predictors from models: Keras models, SavedModels, LiteRT files, and whatever lies at a path."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.modes import following_precision
from tfrobust.certification.network import NoBoundsError, walk
from tfrobust.common import files, fingerprint
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import keras_models, litert
from tfrobust.evaluation.engine.normalization import first_normalization
from tfrobust.evaluation.engine.outputs import BY_FLAG, count_classes, first_line, output_name, probe
from tfrobust.evaluation.engine.predictor import Predictor, from_function
from tfrobust.models.shared import foreign
from tfrobust.models.weights import weight_files
from tfrobust.security import keras_files, litert_files, rehearsal, saved_models
from tfrobust.security.rehearsal import A_FEW, Use

_OPENER = f"{__name__}:opened"


def load(path: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a path: a SavedModel, a LiteRT or `.keras` file, or a folder of numbered versions.

    Args:
        path: a directory with saved_model.pb or model.tflite; or with numbered versions, of which the newest is loaded;
            or a `.tflite` file; or a `.keras` file (import what defines its own classes beforehand).
        logits_output: as in `from_saved_model`.
        use: how it will be called, for its rehearsal in another process.

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
    return _from_keras(keras_files.load(target, compiled=False, use=use), logits_output, BY_FLAG)


def locate(path: str) -> pathlib.Path:
    """Return the folder of the SavedModel, or the file, that `load` reads; raise as it does if there is none."""
    target = pathlib.Path(path)
    files.require_model(target)
    if target.is_dir():
        directory = files.model_directory(target)
        return directory / files.LITERT_FILE if (directory / files.LITERT_FILE).exists() else directory
    if target.suffix in (".h5", ".hdf5"):
        raise InputError(f"{path} is a legacy HDF5 model, whose loading can run code: save it again as .keras.")
    if weight_files.is_weights(target):
        raise InputError(
            f"{path} holds only weights: robust.models.classifier_from_checkpoint(encoder, path) makes a model of them."
        )
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


def from_keras(model: keras.Model, logits_output: str | None = None) -> Predictor:
    """Make a predictor from a built Keras model, run in inference mode.

    The embedding is `model.embed`, an output named 'embedding', or, in a Sequential or functional model that ends with
    a dense layer, that layer's input.

    Args:
        model: images -> logits [b, k], or several named outputs. Probabilities are detected later.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.

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
        return outputs[output_name(list(outputs), logits_output, f"The Keras model {model.name!r}", remedy)]

    return Predictor(
        logits=logits,
        embedding=keras_models.embedding(model),
        image_shape=shape,
        # Traced, as evaluations call it: some models fail only then.
        class_count=probe(tf.function(logits, autograph=False), shape, model.name),
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
        return {"network": None, "no_network": f"its layers cannot be read ({first_line(error)})"}


def from_saved_model(directory: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a SavedModel.

    Args:
        directory: holds saved_model.pb.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.
        use: how it will be called, for its rehearsal; by default its signature `serving_default`.

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
    output = output_name(list(signature.structured_outputs), logits_output, directory)

    def output_of(images, which):
        # The loaded object owns the variables: this reference keeps them alive as long as the function.
        with saved_models.answering(name, (Exception,)):
            return loaded.signatures[called](**{key: tf.cast(images, spec.dtype)})[which]

    logits = functools.partial(output_of, which=output)
    promised = signature.structured_outputs[output]
    is_complete = promised.shape[-1:].is_fully_defined()
    classes = count_classes(promised, name) if is_complete else probe(logits, spec.shape[1:], name)
    saved = functools.partial(_saved_variables, loaded, directory)
    variables = saved()
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
        variables=saved,
    )


def _vocabulary_size(directory: str) -> int | None:
    """Return the number of words in the vocabulary of an export; None if it has none."""
    path = pathlib.Path(directory, "assets.extra", "vocabulary.txt")
    return len(files.read_text(path).removesuffix("\n").split("\n")) if path.is_file() else None


def from_litert(path: str, logits_output: str | None = None, use: Use = A_FEW) -> Predictor:
    """Make a predictor from a LiteRT file, whose outputs are those of the interpreter.

    Its gradients are those of a differentiable copy of the file, so that white-box attacks run unchanged and each
    candidate is verified on the file itself. If the copy does not cover an operator, the predictor has no gradients.
    Its surrogate is the copy without rounding, a float model.

    Args:
        path: a `.tflite` file.
        logits_output: name of the output that holds the logits; None: the one named 'logits', else the only one.
        use: how it will be called, for its rehearsal.

    Raises:
        ValueError: the scan refuses it; not one image input; no output that must be the logits; or ai-edge-litert is
            not installed.
    """
    parts = pathlib.Path(os.path.abspath(path)).parts
    name = "/".join(parts[-3:-1]) if parts[-2].isdecimal() else parts[-1]
    opening: dict[str, Any] = {"opener": _OPENER, "options": {"logits_output": logits_output}}
    content = litert_files.load(path, dataclasses.replace(use, **opening))
    with rehearsal.limited(path, use), saved_models.answering(name, (Exception,)):
        return _from_litert(content, name, logits_output)


def _from_litert(content: bytes, name: str, logits_output: str | None) -> Predictor:
    file = litert.File(content, name)
    output = output_name(list(file.graph.outputs), logits_output, name)
    logits = litert.Logits(file, output)
    position = file.graph.outputs.get("embedding")
    embedding = None if position is None else functools.partial(file.output, tensor=position)
    predictor = from_function(logits, image_shape=file.image_shape, embedding=embedding, name=name)
    predictor = dataclasses.replace(predictor, weights_sha256=hashlib.sha256(content).hexdigest())
    float_copy: dict[str, Any] = {
        "logits": logits.dequantized_logits,
        "embedding": None,
        "name": f"{name}, dequantized",
    }
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

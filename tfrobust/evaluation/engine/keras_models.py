"""Keras models under evaluation: the shape of their input, their outputs by name, and their embedding."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import keras_private

# Ranks of a batch of tokens, images or clips.
RANKS = (2, 4, 5)
# Layers that may follow the last dense layer.
_AFTER_LOGITS = (keras.layers.Activation, keras.layers.Softmax)


def image_shape(model: keras.Model) -> tuple[int | None, ...]:
    """Return the shape of one example that a built model takes; raise ValueError unless it takes one tensor."""
    names = [tensor.name for tensor in getattr(model, "inputs", None) or ()]
    if len(names) > 1:
        raise InputError(
            f"The Keras model {model.name!r} takes the inputs {names}; only models of one image tensor can be "
            "evaluated."
        )
    shape = getattr(model, "input_shape", None) or (model.get_build_config() or {}).get("input_shape")
    if (
        not isinstance(shape, (tuple, list, tf.TensorShape))
        or len(shape) not in RANKS
        or any(isinstance(size, (tuple, list)) for size in shape)
    ):
        raise InputError(
            f"The Keras model {model.name!r} takes neither images [b, h, w, c], nor clips [b, t, h, w, c], nor tokens "
            f"[b, length]: its input is {shape}."
        )
    return tuple(shape[1:])


def named_outputs(model: keras.Model, outputs) -> dict:
    """Return the outputs of a Keras model by name: a dict's keys, or the names of the layers that produce them."""
    if isinstance(outputs, dict):
        return outputs
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    names = getattr(model, "output_names", None) or []
    if len(names) != len(outputs):  # a subclassed model has no output names
        names = [f"output_{number}" for number in range(len(outputs))]
    return dict(zip(names, outputs, strict=True))


def embedding(model: keras.Model) -> Callable | None:
    """Return the function images -> penultimate features of a built model, or None if they are not known."""
    embed = getattr(model, "embed", None)
    if callable(embed) and not isinstance(embed, keras.Layer):  # a layer with that name is not a function of images
        return embed
    output = getattr(model, "output", None)
    if "embedding" in (*(getattr(model, "output_names", None) or ()), *(output if isinstance(output, dict) else ())):
        return lambda images: named_outputs(model, model(images, training=False))["embedding"]
    # Only Sequential and functional models have a known graph.
    graph = keras_private.functional(model)
    if graph is None or len(graph.outputs) != 1:
        return None
    call = keras_private.call_of(graph, graph.outputs[0])
    while isinstance(call.operation, _AFTER_LOGITS):
        call = keras_private.call_of(graph, call.input_tensors[0])
    if not isinstance(call.operation, keras.layers.Dense):
        return None
    penultimate = keras.Model(graph.inputs, call.input_tensors[0])
    return lambda images: penultimate(images, training=False)

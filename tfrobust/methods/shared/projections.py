"""Building of encoder, head and projection of a method, and checks of their output shapes."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import keras_private


def build(method: keras.Model, input_shape: tuple) -> tuple[int, int]:
    """Build the encoder and the head of a method.

    Args:
        method: the model that owns them.
        input_shape: (None, h, w, c), or (None, length) for tokens.

    Returns:
        Features of the embedding, and number of classes.

    Raises:
        ValueError: the encoder's output is no embedding [b, d], or the head's output no logits [b, k] with k >= 2.
    """
    name = type(method).__name__
    embedding = built_shape(method.encoder, input_shape)
    if len(embedding) != 2:
        raise InputError(
            f"The encoder of {name} has output shape {embedding}; it must be [b, d]: robust.models.Backbone(model) "
            "pools maps and tokens."
        )
    logits = built_shape(method.head, embedding)
    if len(logits) != 2 or logits[1] is None or logits[1] < 2:
        raise InputError(
            f"The head of {name} has output shape {logits}; logits are [b, k], k >= 2: use Dense(2) for two classes."
        )
    final = "encoder" if isinstance(method.head, keras.layers.Identity) else "head"
    activation = last_activation(getattr(method, final))
    if activation in ("softmax", "sigmoid"):
        raise InputError(f"The {final} of {name} must return logits: remove the {activation}.")
    return int(embedding[1]), int(logits[1])


def build_projection(method: keras.Model, projection: keras.layers.Layer, features: int) -> int:
    """Build a projection, with batch norm synchronized over replicas if there are several, or if the encoder's is.

    Returns:
        Features of its output.
    """
    several = tf.distribute.get_strategy().num_replicas_in_sync > 1
    if not projection.built and getattr(projection, "synchronized", False) is None:
        projection.synchronized = several or bool(getattr(method.encoder, "synchronized", False))
    return int(built_shape(projection, (None, features))[-1])


def build_prediction(method: keras.Model, prediction: keras.layers.Layer, features: int) -> None:
    """Build the layer that predicts projections from projections.

    Raises:
        ValueError: the output has another size than a projection.
    """
    size = build_projection(method, prediction, features)
    if size != features:
        raise InputError(
            f"{type(method).__name__}.prediction has {size} output features; the projection has {features}. "
            "They must be equal."
        )


def output_shape(layer: keras.layers.Layer, shape: tuple) -> tuple:
    """Return the output shape of a layer, also of a subclassed model that does not define it.

    Raises:
        ValueError: the layer has several outputs, or a dict of them.
    """
    try:
        output = layer.compute_output_shape(shape)
    except NotImplementedError:
        spec = layer.compute_output_spec(keras.KerasTensor(shape))
        output = getattr(spec, "shape", spec)
    if isinstance(output, dict) or not all(isinstance(size, int | None) for size in output):
        raise InputError(
            f"{layer.name!r} has {len(output)} outputs; encoder and head of a method have one. Of a functional model: "
            "keras.Model(model.inputs, model.outputs[0])."
        )
    return tuple(output)


def built_shape(layer: keras.layers.Layer, shape: tuple) -> tuple:
    """Build a layer if necessary, and return its output shape."""
    if not layer.built:
        # Keras's default `build` creates no variables: a subclassed model creates them in its first call.
        if keras_private.builds_in_call(layer):
            layer(keras.KerasTensor(shape))
        else:
            layer.build(shape)
    return output_shape(layer, shape)


def last_activation(layer: keras.layers.Layer) -> str | None:
    """Return the name of the activation with which a layer or model ends; None if unknown, as of subclassed models."""
    while isinstance(layer, keras.Sequential) and layer.layers:
        layer = layer.layers[-1]
    if isinstance(layer, keras.Model) and getattr(layer, "outputs", None):
        return last_activation(keras_private.operation_of(layer.outputs[0]))
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", None)

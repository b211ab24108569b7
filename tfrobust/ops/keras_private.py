"""Whatever this library takes from Keras beyond its public interface; nothing else names a private attribute of it.

Every function here says what Keras lacks. `tests/ops/test_keras_private.py` tries all of them with the installed
release, so that a new one that lacks a name fails there first. Keras 3.15 has them.
"""

from collections.abc import Iterable

import keras
import tensorflow as tf

from tfrobust.errors import InputError

# Here because attacks, methods and models all import this module.
if keras.config.backend() != "tensorflow":
    raise InputError(
        f"tfrobust needs Keras on TensorFlow, and Keras runs on {keras.config.backend()}: set the environment variable "
        "KERAS_BACKEND=tensorflow before Keras is imported."
    )


def all_layers(layer: keras.layers.Layer, include_self: bool = True) -> list[keras.layers.Layer]:
    """Return a layer and its inner layers at any depth.

    `Model.layers` lists neither those of inner models nor those that a layer holds, such as branches.
    """
    return list(layer._flatten_layers(include_self=include_self))


def functional(model: keras.Model) -> keras.Model | None:
    """Return a functional model itself, and what a built sequential model is inside; None for others."""
    if isinstance(model, keras.Sequential):
        return model._functional
    return model if hasattr(model, "_nodes_by_depth") else None


def calls(model: keras.Model) -> list:
    """Return the calls of layers in a functional model, each after those that compute its inputs.

    A call has `operation`, `arguments`, `input_tensors`, `outputs`, `parent_nodes` and `is_input`. The order of
    `Model.operations` is another one, and has a shared layer once.
    """
    return [node for depth in sorted(model._nodes_by_depth, reverse=True) for node in model._nodes_by_depth[depth]]


def call_of(model: keras.Model, tensor: keras.KerasTensor):
    """Return the call in a functional model that computes a tensor.

    `Layer.input` and `Layer.output` are those of the layer's first call, which may lie in another model.
    """
    return next(call for call in calls(model) if any(output is tensor for output in call.outputs))


def operation_of(tensor: keras.KerasTensor) -> keras.Operation:
    """Return the operation or layer that computes a symbolic tensor."""
    return tensor._keras_history.operation


def losses_of_last_call(layer: keras.layers.Layer) -> list[tf.Tensor]:
    """Return what a layer and its inner layers added by `add_loss` in their last calls, without weight regularizers."""
    return [loss for part in all_layers(layer) for loss in part._losses]


def builds_in_call(layer: keras.layers.Layer) -> bool:
    """Return True if a layer has no `build` of its own, so that its first call creates its variables."""
    return getattr(layer.build, "_is_default", False)


def was_called(model: keras.Model) -> bool:
    """Return True if a model has been called, without which Keras exports none."""
    return model._called


def trackable(archive: keras.export.ExportArchive):
    """Return the object that an archive saves; its attributes become those of the loaded object."""
    return archive._tf_trackable


def learning_rate(optimizer: keras.optimizers.Optimizer):
    """Return the learning rate as it was given, a number's variable or a schedule; `learning_rate` has its value."""
    return optimizer._learning_rate


def batches_seen(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Return the number of batches so far; `iterations` counts updates, of which several batches may share one."""
    return optimizer._iterations


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables for which an optimizer was built, in its order."""
    return optimizer._trainable_variables


def lora_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the two factors of a layer's low-rank update, [] for a layer without one."""
    if not getattr(layer, "lora_enabled", False):
        return []
    name = _adapted_weight(layer)
    return [getattr(layer, f"lora_{name}_{factor}") for factor in ("a", "b")]


def merge_lora(layer: keras.layers.Layer) -> None:
    """Add a layer's low-rank update to its weights, and remove it. Keras merges it in the files of `save` only."""
    factors = lora_variables(layer)
    if not factors:
        return
    name = _adapted_weight(layer)
    weight, scale = getattr(layer, f"_{name}"), layer.lora_alpha / layer.lora_rank
    weight.assign_add(keras.ops.cast(scale * keras.ops.matmul(*factors), weight.dtype))
    weight.trainable = True
    layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None
    for factor in ("a", "b"):
        delattr(layer, f"lora_{name}_{factor}")


def _adapted_weight(layer: keras.layers.Layer) -> str:
    return "embeddings" if hasattr(layer, "_embeddings") else "kernel"


def accumulated_gradients(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> list[keras.Variable]:
    """Return the sums of the gradients since the last update, of an optimizer that accumulates them."""
    return [optimizer._accumulated_gradients[optimizer._get_variable_index(variable)] for variable in variables]

"""The part of a foreign model that is trained: all of it, its last stage, nothing, or low-rank adapters."""

import types

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.ops import keras_private

CHOICES = ("head", "last_stage", "all")


def checked(trainable: bool | str, stage_count: int, lora_rank: int | None) -> str:
    """Return one of `CHOICES`.

    Args:
        trainable: one of them; True is "all", and so is False, with which the encoder begins frozen.
        stage_count: stages of the encoder.
        lora_rank: rank of the adapters, or None.

    Raises:
        ValueError: an unknown choice, a last stage of a model that is not divided, or adapters of a part alone.
    """
    if isinstance(trainable, bool):
        trainable = "all"
    require_choice(trainable, "Backbone.trainable", CHOICES)
    if trainable == "last_stage" and stage_count < 2:
        raise InputError("Backbone.trainable = 'last_stage' needs stages: set stage_names, such as 'resolution'.")
    if lora_rank is not None:
        require_whole(lora_rank, "Backbone.lora_rank")
        if trainable != "all":
            raise InputError(f"Backbone.lora_rank adapts all stages: leave trainable = {trainable!r} out.")
    return trainable


def add_adapters(model: keras.Model, rank: int | None) -> None:
    """Give every layer of a built model that has Keras's `enable_lora` an adapter, unless the model has adapters.

    Args:
        model: built; one that was saved with adapters, or to some of whose layers the user gave them, keeps these.
        rank: rank of the adapters; None for a model without.

    Raises:
        ValueError: no layer has it, adapters of another rank, or a layer whose weights are constrained.
    """
    # A backbone of KerasHub has a method enable_lora too, for a choice of its layers.
    layers = [layer for layer in keras_private.all_layers(model) if hasattr(layer, "lora_enabled")]
    ranks = {layer.lora_rank for layer in layers if layer.lora_enabled}
    if ranks - {rank}:
        raise InputError(f"{model.name!r} has adapters of rank {max(ranks)}: set Backbone.lora_rank = {max(ranks)}.")
    if rank is None:
        return
    if not layers:
        raise InputError(f"{model.name!r} has no layer with enable_lora: leave Backbone.lora_rank out.")
    constraints = ("kernel_constraint", "embeddings_constraint")
    constrained = [layer.name for layer in layers if any(getattr(layer, name, None) for name in constraints)]
    if constrained and not ranks:
        raise InputError(f"{constrained[0]!r} has a constraint, with which Keras has no adapter: leave lora_rank out.")
    for layer in layers:
        if not ranks:
            layer.enable_lora(rank)
        layer.load_own_variables = types.MethodType(_load_below_adapter, layer)


def _load_below_adapter(layer: keras.layers.Layer, store) -> None:
    """Load the weights of a layer, which files hold with the adapter merged into them, and begin a new adapter.

    Keras sets both factors to 0, so that neither would ever have a gradient.
    """
    factors = keras_private.lora_variables(layer)
    values = [factor.numpy() for factor in factors[:1]]
    type(layer).load_own_variables(layer, store)
    for factor, value in zip(factors, values, strict=False):
        factor.assign(value)


def adapters(model: keras.layers.Layer) -> list[keras.Variable]:
    """Return the variables of the adapters in a model, at any depth."""
    return [variable for layer in keras_private.all_layers(model) for variable in keras_private.lora_variables(layer)]


def without_adapters(model: keras.layers.Layer) -> list[keras.Variable]:
    """Return the variables of a model in its order, without those of adapters."""
    ids = {id(variable) for variable in adapters(model)}
    return [variable for variable in model.variables if id(variable) not in ids]


def freeze(encoder, trained: str) -> None:
    """Freeze what is not trained in an encoder whose layers are all trainable."""
    ids = {id(variable) for variable in adapters(encoder)}
    if ids:
        for variable in encoder.trainable_variables:
            variable.trainable = id(variable) in ids
    elif trained == "last_stage":
        for layer in (layer for stage in encoder.stage_layers[:-1] for layer in stage):
            layer.trainable = False

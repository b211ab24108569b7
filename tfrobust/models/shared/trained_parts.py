"""The part of a foreign model that is trained: all of it, its last stage, nothing, or low-rank adapters."""

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.ops import keras_private

CHOICES = ("head", "last_stage", "all")


def checked(trainable: bool | str, stage_count: int, lora_rank: int | None) -> str:
    """Return one of `CHOICES`.

    Args:
        trainable: one of them; True is "all", False is "head".
        stage_count: stages of the encoder.
        lora_rank: rank of the adapters, or None.

    Raises:
        ValueError: an unknown choice, a last stage of a model that is not divided, or adapters of a part alone.
    """
    if isinstance(trainable, bool):
        trainable = "all" if trainable else "head"
    require_choice(trainable, "Backbone.trainable", CHOICES)
    if trainable == "last_stage" and stage_count < 2:
        raise InputError("Backbone.trainable = 'last_stage' needs stages: set stage_names, such as 'resolution'.")
    if lora_rank is not None:
        require_whole(lora_rank, "Backbone.lora_rank")
        if trainable == "last_stage":
            raise InputError("Backbone.lora_rank adapts all stages: leave trainable = 'last_stage' out.")
    return trainable


def add_adapters(model: keras.Model, rank: int) -> None:
    """Give every layer of a built model that has Keras's `enable_lora` an adapter.

    Raises:
        ValueError: no layer has it.
    """
    # A backbone of KerasHub has a method enable_lora too, for a choice of its layers.
    layers = [layer for layer in keras_private.all_layers(model) if hasattr(layer, "lora_enabled")]
    if not layers:
        raise InputError(f"{model.name!r} has no layer with enable_lora: leave Backbone.lora_rank out.")
    for layer in layers:
        if not layer.lora_enabled:  # that of a saved model has its adapter
            layer.enable_lora(rank)


def adapters(model: keras.layers.Layer) -> list[keras.Variable]:
    """Return the variables of the adapters in a model, at any depth."""
    return [variable for layer in keras_private.all_layers(model) for variable in keras_private.lora_variables(layer)]


def without_adapters(model: keras.layers.Layer) -> list[keras.Variable]:
    """Return the variables of a model in its order, without those of adapters."""
    ids = {id(variable) for variable in adapters(model)}
    return [variable for variable in model.variables if id(variable) not in ids]


def freeze(encoder, trained: str) -> None:
    """Freeze what is not trained in an encoder whose layers are all trainable.

    Args:
        encoder: has `stage_layers`.
        trained: one of `CHOICES`.
    """
    ids = {id(variable) for variable in adapters(encoder)}
    if ids:
        for variable in encoder.trainable_variables:
            variable.trainable = id(variable) in ids
    elif trained == "last_stage":
        for layer in (layer for stage in encoder.stage_layers[:-1] for layer in stage):
            layer.trainable = False

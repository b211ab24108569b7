"""Whole classifiers in place of encoder and head."""

from __future__ import annotations

import functools
from collections.abc import Callable

import keras

from tfrobust.common.configured import constructor_arguments
from tfrobust.errors import InputError
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.mixin import Mixin
from tfrobust.ops import keras_private


class WholeModels(Mixin):
    """Mixin of `Method`: constructors also take a whole classifier in place of encoder and head."""

    def __init_subclass__(cls, **keywords):
        """Let the constructor of a subclass take a whole classifier."""
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = splitting(cls.__init__)


def splitting(init: Callable) -> Callable:
    """Return a constructor of (encoder, head, ...) that splits a whole classifier if there is no head."""

    @functools.wraps(init)
    def construct(self, *arguments, **keywords):
        missing = len(arguments) < 2 and keywords.get("head") is None
        if missing and (arguments or "encoder" in keywords):
            model = arguments[0] if arguments else keywords["encoder"]
            encoder, head = split(model, type(self).__name__)
            keywords = {name: value for name, value in keywords.items() if name not in ("encoder", "head")}
            return init(self, encoder, head, **keywords)
        return init(self, *arguments, **keywords)

    return construct


def split(model: keras.Model, name: str) -> tuple[keras.Model, keras.layers.Dense]:
    """Split a classifier into all layers before its last dense layer, as encoder, and this layer, as head.

    The layers are the same objects, so that the classifier is trained along.

    Args:
        model: Sequential or functional, from one tensor of images to logits.
        name: of the method, for messages.

    Raises:
        ValueError: another kind of model, or one that returns probabilities.
    """
    refuse_probabilities(model, name)
    graph = keras_private.functional(model)
    call = None
    if graph is not None and len(graph.inputs) == len(graph.outputs) == 1:
        call = keras_private.call_of(graph, graph.outputs[0])
    if call is None or not isinstance(call.operation, keras.layers.Dense) or _is_repeated(graph, call.operation):
        raise InputError(
            f"{name} takes an encoder and a head. It splits one model only if that begins with keras.Input and ends "
            f"with Dense(k), unlike {model.name!r}: pass head=keras.layers.Identity() if it returns logits."
        )
    head = call.operation
    return keras.Model(graph.inputs[0], call.input_tensors[0], name=f"{model.name}_without_{head.name}"), head


def _is_repeated(graph: keras.Model, layer: keras.layers.Layer) -> bool:
    return sum(call.operation is layer for call in keras_private.calls(graph)) > 1


def check_parts(method: keras.Model, encoder: keras.layers.Layer, keywords: dict) -> None:
    """Raise InputError for an encoder that is a whole classifier, and for arguments that a method does not have."""
    name, unknown = type(method).__name__, sorted(set(keywords) - {"trainable", "dtype"})
    refuse_probabilities(encoder, name)
    if unknown:
        weights = method.default_weights or dict.fromkeys(method.terms, 1.0)
        radius = "the radius is that of attack=PGD(ThreatModel(epsilon=8 / 255)), and "
        radius = radius if "attack" in constructor_arguments(type(method)) else ""
        raise InputError(
            f"{name} has no argument {unknown[0]!r}; {radius}the weights of its terms are term_weights={weights}."
        )


def refuse_probabilities(encoder: keras.layers.Layer, name: str) -> None:
    """Raise InputError if a model ends in a softmax: it is a whole classifier, and hides its logits."""
    model = getattr(encoder, "model", encoder)  # of a Backbone
    if isinstance(model, keras.Model) and projections.last_activation(model) == "softmax":
        raise InputError(
            f"{name} takes an encoder, and {model.name!r} ends in a softmax: leave its last layer out "
            "(include_top=False), or let it return logits and pass it without a head."
        )

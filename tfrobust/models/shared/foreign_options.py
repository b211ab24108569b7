"""The options of a `Backbone` by subject: where its model comes from, which pixels it expects, how its layers run."""

import dataclasses
import logging
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.common.settings import require_choice, require_tuple
from tfrobust.errors import InputError
from tfrobust.models.shared import foreign

_log = logging.getLogger("tfrobust")


@dataclasses.dataclass(frozen=True)
class SourceOptions:
    """The source of the model, exactly one of three; see `Backbone` for the fields.

    Raises:
        ValueError: none or several of model, application and preset, or arguments for a model.
    """

    model: keras.Model | None
    application: str | Callable | None
    preset: str | Callable | None
    arguments: dict

    def __post_init__(self):
        if sum(value is not None for value in (self.model, self.application, self.preset)) != 1:
            raise InputError("Backbone takes exactly one of model, application and preset.")
        if self.arguments and self.model is not None:
            raise InputError("Backbone.arguments are those of application or preset; a model has been built already.")

    @property
    def saved_arguments(self) -> dict:
        """The arguments that a config holds. Weights that were loaded are saved with the encoder, as is a preset."""
        if self.preset is not None:
            return {}
        return {name: value for name, value in self.arguments.items() if name != "weights"}

    def load(self, policy, side: int | None) -> foreign.ForeignModel:
        """Return the model, built where it is not the user's.

        Args:
            policy: dtype policy of its layers.
            side: of the square images that it will see, or None for any.
        """
        if self.model is not None:
            return foreign.ForeignModel(self.model, None)
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)  # keras.applications take no dtype
        try:
            if self.preset is not None:
                return foreign.from_preset(self.preset, dict(self.arguments), policy)
            return foreign.from_application(foreign.application_name(self.application), dict(self.arguments), side)
        finally:
            keras.config.set_dtype_policy(before)


@dataclasses.dataclass(frozen=True)
class PixelOptions:
    """The pixels that the model expects, as far as the user says so; see `Backbone` for the fields."""

    pixel_range: tuple[float, float] | None
    mean: float | tuple[float, ...] | None
    std: float | tuple[float, ...] | None
    order: str | None

    def resolve(self, known: foreign.PixelMap | None, name: str) -> foreign.PixelMap:
        """Return the map from pixels in [0, 1].

        Args:
            known: the map that belongs to the model's source, or None.
            name: of the model, for messages.

        Raises:
            ValueError: contradicting options, or none of a model of which nothing is known.
        """
        explicit = self.mean is not None or self.std is not None
        if explicit and self.pixel_range is not None:
            raise InputError("Backbone takes pixel_range, or pixel_mean and pixel_std, not both.")
        if self.pixel_range is not None:
            low, high = require_tuple(self.pixel_range, "Backbone.pixel_range", 2)
            if not low < high:
                raise InputError(f"Backbone.pixel_range is (low, high) with low < high, got {self.pixel_range!r}.")
            known = foreign.range_map(low, high)
        elif explicit:
            known = foreign.PixelMap(0.0 if self.mean is None else self.mean, 1.0 if self.std is None else self.std)
        if known is None:
            raise InputError(
                f"which pixels {name!r} expects is not known: set pixel_range, such as (0, 1), (0, 255) or (-1, 1), or "
                "pixel_mean and pixel_std of pixels in [0, 1]."
            )
        return known._replace(order=require_choice(self.order or known.order, "Backbone.channel_order", ("rgb", "bgr")))


@dataclasses.dataclass(frozen=True)
class LayerOptions:
    """Changes of the model's layers; see `Backbone` for the fields."""

    dropout: bool
    synchronized: bool
    momentum: float | None
    epsilon: float | None

    def apply(self, model: keras.Model) -> None:
        """Change the layers, and warn of random layers that several replicas would run otherwise than one device."""
        foreign.load_exactly(model)
        if not self.dropout:
            foreign.stop_dropout(model)
        for layer in foreign.layers_of(model, keras.layers.BatchNormalization):
            layer.synchronized = layer.synchronized or self.synchronized
            if self.momentum is not None:
                layer.momentum = self.momentum
            if self.epsilon is not None:
                layer.epsilon = self.epsilon
        _warn_of_random_layers(model)


def _warn_of_random_layers(model: keras.Model) -> None:
    drawing = [layer.name for layer in foreign.random_layers(model)]
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if drawing and replicas > 1:
        shown = ", ".join(drawing[:3]) + (f" and {len(drawing) - 3} more" if len(drawing) > 3 else "")
        _log.warning(
            "%s draws random numbers from Keras's own seeds (%s), so that %d replicas train otherwise than one "
            "device would; dropout=False stops dropout.",
            model.name, shown, replicas,
        )  # fmt: skip

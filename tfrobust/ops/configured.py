"""Constructor argument = attribute = config key: one `get_config` for every object of the library."""

from __future__ import annotations

import inspect

import keras

_PLAIN = (bool, int, float, str, type(None))


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """The named constructor arguments of a class, its bases' included where `**kwargs` hands them on.

    Args:
        cls: any class.

    Returns:
        name -> parameter, the class's own first; `self`, `*args` and `**kwargs` themselves left out.
    """
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is None:
            continue
        if base.__module__.split(".")[0] == "keras":
            # keras.Model takes `name`, `trainable` and `dtype` through **kwargs that it does not spell out.
            for name in ("name", "trainable", "dtype"):
                found.setdefault(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))
            break
        parameters = list(inspect.signature(init).parameters.values())[1:]
        for parameter in parameters:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                found.setdefault(parameter.name, parameter)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


def serialize(value):
    """A JSON-able form of a config value: Keras objects by name and config, containers by element."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {key: serialize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [serialize(item) for item in value]
    return keras.saving.serialize_keras_object(value)


def deserialize(value):
    """The inverse of `serialize`; lists come back as tuples, so that they compare equal to the defaults."""
    if isinstance(value, dict):
        if "class_name" in value and "config" in value:
            return keras.saving.deserialize_keras_object(value)
        return {key: deserialize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(deserialize(item) for item in value)
    return value


class Configured:
    """Gives `get_config` and `from_config` to a class that keeps each constructor argument as an attribute.

    Comes first among the bases. Works for Keras models and layers as for frozen dataclasses.
    """

    def get_config(self) -> dict:
        config = {}
        for name in constructor_arguments(type(self)):
            if name == "dtype":
                policy = getattr(self, "dtype_policy", None)
                if policy is not None:
                    config[name] = keras.saving.serialize_keras_object(policy)
            elif hasattr(self, name):
                config[name] = serialize(getattr(self, name))
        return config

    @classmethod
    def from_config(cls, config: dict):
        return cls(**{name: deserialize(value) for name, value in config.items()})

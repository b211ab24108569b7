"""Serialization of configured objects: each constructor argument is an attribute and a config key."""

from __future__ import annotations

import inspect

import keras

_PLAIN = (bool, int, float, str, type(None))


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Return the named constructor arguments of a class, with those of its bases where `**kwargs` passes them on.

    Args:
        cls: any class.

    Returns:
        name -> parameter, the class's own first, without `self`, `*args` and `**kwargs`.
    """
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is None:
            continue
        if base.__module__.split(".")[0] == "keras":
            # keras.Model accepts `name`, `trainable` and `dtype` through **kwargs, not as named parameters.
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
    """Return a JSON-compatible form of a config value: Keras objects by name and config, containers by element."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {key: serialize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [serialize(item) for item in value]
    return keras.saving.serialize_keras_object(value)


def identity(value):
    """Return the serialized form of a value with packages in place of modules, so that keys survive moved files."""
    return _without_files(serialize(value))


def _without_files(value):
    if isinstance(value, dict):
        at_package = {"module": value["module"].partition(".")[0]} if isinstance(value.get("module"), str) else {}
        return {key: _without_files(item) for key, item in value.items()} | at_package
    return [_without_files(item) for item in value] if isinstance(value, list) else value


def deserialize(value):
    """Invert `serialize`; lists become tuples, so that they compare equal to the defaults."""
    if isinstance(value, dict):
        if "class_name" in value and "config" in value:
            return keras.saving.deserialize_keras_object(value)
        return {key: deserialize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(deserialize(item) for item in value)
    return value


class Configured:
    """Mixin with `get_config` and `from_config`, for classes that keep each constructor argument as an attribute.

    It is the first base class. It works for Keras models and layers and for frozen dataclasses.
    """

    def get_config(self) -> dict:
        """Return the constructor's arguments, serialized."""
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
        """Build an object from its config."""
        return cls(**{name: deserialize(value) for name, value in config.items()})

"""Serialization of configured objects: each constructor argument is an attribute and a config key."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import pathlib
import sys
import types
import typing

import keras

from tfrobust.errors import InputError

_NONE = type(None)
_UNIONS: tuple[object, ...] = (typing.Union, types.UnionType)
_PLAIN = (bool, int, float, str, type(None))
_NUMBERS: dict[object, str] = {float: "number", int: "integer"}
# Packages whose classes an identity names by package and class alone.
_LIBRARIES = {"tfrobust", "keras", *sys.stdlib_module_names}
_NO_NUMBERS = (bool, str, list, tuple, dict)  # others, such as tensors, may be compared like numbers


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Return the named constructor arguments of a class, with those of its bases where `**kwargs` passes them on.

    Returns:
        name -> parameter, the class's own first, without `self`, `*args` and `**kwargs`.
    """
    arguments: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is None:
            continue
        if base.__module__.split(".")[0] == "keras":
            # keras.Model accepts `name`, `trainable` and `dtype` through **kwargs, not as named parameters.
            for name in ("name", "trainable", "dtype"):
                arguments.setdefault(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))
            break
        parameters = list(inspect.signature(init).parameters.values())[1:]
        for parameter in parameters:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                arguments.setdefault(parameter.name, parameter)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return arguments


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
    """Return the serialized form of a value with packages in place of modules, so that keys survive moved files.

    A class outside this library and Keras has a hash of its source file, and of those of its bases, as `source`, so
    that stored results of code that was edited since are not used. Files that these import do not count.
    """
    return _without_files(serialize(value))


def _without_files(value):
    if isinstance(value, dict):
        at_package = _at_package(value) if isinstance(value.get("module"), str) else {}
        return {key: _without_files(item) for key, item in value.items()} | at_package
    return [_without_files(item) for item in value] if isinstance(value, list) else value


def _at_package(value: dict) -> dict:
    """Return the package of a serialized object, and the hash of its source if it is of another library."""
    package, module = value["module"].partition(".")[0], sys.modules.get(value["module"])
    if package in _LIBRARIES:
        return {"module": package}
    registered = keras.saving.get_registered_object(value.get("registered_name"))
    item = registered or getattr(module, str(value.get("class_name")), module)
    return {"module": package} | ({} if item is None else {"source": _source_sha256(item)})


@functools.cache
def _source_sha256(item) -> str:
    """Hash the source files of a class and its bases, or of a module, as they are at the first call."""
    bases = getattr(item, "__mro__", [item])
    bases = [base for base in bases if getattr(base, "__module__", "").partition(".")[0] not in _LIBRARIES]
    return hashlib.sha256(b"".join(map(_source, bases))).hexdigest()


def _source(item) -> bytes:
    try:
        return pathlib.Path(inspect.getsourcefile(item) or "").read_bytes()
    except (TypeError, OSError):  # of a notebook, which has no file: the functions of the class
        text = ""
        for member in filter(inspect.isfunction, vars(item).values()):
            with contextlib.suppress(OSError):
                text += inspect.getsource(member)
        return text.encode()


def deserialize(value):
    """Invert `serialize`; lists become tuples, so that they compare equal to the defaults."""
    if isinstance(value, dict):
        if "class_name" in value and "config" in value:
            return keras.saving.deserialize_keras_object(value)
        return {key: deserialize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(deserialize(item) for item in value)
    return value


@functools.cache
def _classes(cls: type) -> dict[str, tuple[type, ...]]:
    """Return the classes of constructor arguments that are annotated by numbers and classes of tfrobust or Keras."""
    hints: dict[str, typing.Any] = {}
    for base in (base for base in reversed(cls.__mro__) if "__init__" in base.__dict__ and base is not object):
        with contextlib.suppress(Exception):  # names for type checkers only
            hints |= typing.get_type_hints(base.__dict__["__init__"])
    classes = {}
    for name in constructor_arguments(cls):
        hint = hints.get(name)
        union = typing.get_origin(hint) in _UNIONS
        options = typing.get_args(hint) if union else (hint,)
        options = tuple(option for option in options if option is not _NONE)
        if options and all(map(_is_checked, options)):
            classes[name] = (*options, _NONE) if union else options
    return classes


def _is_checked(option) -> bool:
    of_keras = getattr(option, "__module__", "").partition(".")[0] == "keras"
    return inspect.isclass(option) and (option in _NUMBERS or of_keras or issubclass(option, Configured))


def _is_one_of(value, options: tuple[type, ...]) -> bool:
    if _NUMBERS.keys() & options:
        return not isinstance(value, _NO_NUMBERS) and (value is not None or _NONE in options)
    return isinstance(value, options) or _is_function_for(value, options)


def _is_function_for(value, options: tuple[type, ...]) -> bool:
    """Return True for a function where objects of a class that are called like one are expected, other than layers."""
    called = [kind for kind in options if not issubclass(kind, keras.layers.Layer)]
    defines = any("__call__" in vars(base) for kind in called for base in kind.__mro__)
    return defines and inspect.isroutine(value)


def _refuse_other_classes(cls: type, arguments: tuple, keywords: dict) -> None:
    """Raise InputError for an argument that is an object of another class than the constructor takes."""
    classes = _classes(cls)
    items = constructor_arguments(cls)
    positional = [name for name, item in items.items() if item.kind is not item.KEYWORD_ONLY]
    if len(arguments) > len(positional) and items:
        shown = ", ".join(f"{name}=" for name in [*items][len(positional) :][:5])
        count = f"{len(positional) or 'no'} argument{'s' * (len(positional) != 1)} without a name"
        named = f"; name them: {shown}" if shown else f", {', '.join(positional)}"
        raise InputError(f"{cls.__name__} takes {count}{named}.")
    for name, value in [*zip(positional, arguments, strict=False), *keywords.items()]:
        if name in classes and value is not items[name].default and not _is_one_of(value, classes[name]):
            expected = " or ".join(_NUMBERS.get(kind, kind.__name__) for kind in classes[name] if kind is not _NONE)
            article = "an" if expected[0] in "AEIOUi" else "a"
            raise InputError(f"{cls.__name__}.{name} is {described(value)}; it must be {article} {expected}.")


def described(value) -> str:
    """Return a plain value as text, and the class of another one, for messages."""
    if isinstance(value, _PLAIN):
        return repr(value)[:80]
    return f"the class {value.__name__}" if inspect.isclass(value) else f"of the type {type(value).__name__}"


def _is_default(value, parameter: inspect.Parameter) -> bool:
    """Return True if an argument has its default; values without a truth of their equality count as others."""
    try:
        return value is parameter.default or bool(value == parameter.default)
    except ValueError:  # arrays
        return False


class Configured:
    """Mixin with `get_config` and `from_config`, for classes that keep each constructor argument as an attribute.

    It is the first base class. It works for Keras models and layers and for frozen dataclasses. An argument that is
    annotated by numbers, or by classes of this library or of Keras, is refused if it is something else.
    """

    def __new__(cls, *arguments, **keywords):
        """Check the classes of the arguments, and create the object."""
        _refuse_other_classes(cls, arguments, keywords)
        create = super().__new__
        return create(cls) if create is object.__new__ else create(cls, *arguments, **keywords)

    def __repr__(self) -> str:
        """Return the call that makes the object, without the arguments that have their defaults."""
        inherited = super().__repr__
        if getattr(inherited, "__objclass__", None) is not object:  # of a Keras object
            return inherited()
        arguments = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in constructor_arguments(type(self)).items()
            if hasattr(self, name) and not _is_default(getattr(self, name), parameter)
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"

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

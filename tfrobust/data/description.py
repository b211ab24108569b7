"""Data sources that a report describes: read as data, and built from the library's own classes only.

A description is what `common.configured.serialize` returns for a source. Keras would build any registered class from
it. Here every class, argument and value is compared with the annotations of the sources.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import os
import pkgutil
import re
import types
import typing
from collections.abc import Sequence

import keras

from tfrobust.common import outside
from tfrobust.common.configured import Configured
from tfrobust.data import sources
from tfrobust.data.sources.source import Source
from tfrobust.errors import InputError

_MOST_PARTS = 8  # sources and their parts in one description
_LONGEST_TEXT = 4096
_LONGEST_LIST = 2**20
_trusted: set[str] = set()
_REMOTE = re.compile(r"[A-Za-z][\w+.-]*:/")


def described_source(description) -> Source:
    """Return the source of a description, without downloads.

    Args:
        description: parsed JSON of untrusted origin.

    Raises:
        InputError (a ValueError): a class that is no source of this library, an argument that it does not take, a
            value of another type or out of range, or an address of another machine. It names the first fault.
    """
    return _part(description, Source, "source", [_MOST_PARTS])


def trust(modules: Sequence[str]) -> None:
    """Let descriptions also name the sources of these modules, which the user has imported."""
    _trusted.clear()
    _trusted.update(modules)
    _classes.cache_clear()


def relative_paths(source: Source) -> dict[str, str]:
    """Return the arguments of a source and of its parts that are relative paths of existing files or folders.

    Returns:
        argument -> path; an argument of a part has the name of the part in front, as in "source.path".
    """
    paths = {name: path for name, path in _paths(source).items() if not os.path.isabs(path) and os.path.exists(path)}
    for name, part in _parts(source).items():
        paths |= {f"{name}.{argument}": path for argument, path in relative_paths(part).items()}
    return paths


def placed(source: Source, folder) -> Source:
    """Return a source whose relative paths that do not exist here are taken from another folder, if they exist there.

    Args:
        source: as described; the paths of its parts are taken from there, too.
        folder: where its relative paths began, of untrusted origin; or None.
    """
    if not _fits(folder, str) or _REMOTE.match(folder):
        return source
    elsewhere: dict[str, typing.Any] = {name: placed(part, folder) for name, part in _parts(source).items()}
    for name, value in _paths(source).items():
        path = os.path.join(folder, value)
        if not os.path.exists(value) and os.path.exists(path):
            elsewhere[name] = path
    return dataclasses.replace(source, **elsewhere)


def _paths(source) -> dict[str, str]:
    """Return the arguments of a source, without those of its parts, that may name a file or a folder."""
    hints = typing.get_type_hints(type(source), include_extras=True)
    values = {name: getattr(source, name) for name, hint in hints.items() if outside.is_marked(hint)}
    return {name: value for name, value in values.items() if isinstance(value, str) and value}


def _parts(source) -> dict[str, typing.Any]:
    """Return the arguments of a source that are configured dataclasses: its own source, or a tokenizer."""
    values = {field.name: getattr(source, field.name) for field in dataclasses.fields(source) if field.init}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, Configured) and dataclasses.is_dataclass(value)
    }


def _is_known(cls: type) -> bool:
    """Return True for a source of the library, and for one of a module that the user has imported."""
    name, module = keras.saving.get_registered_name(cls), cls.__module__
    if module.startswith(f"{sources.__name__}."):
        return name.startswith("tfrobust>")
    return any(f"{module}.".startswith(f"{trusted}.") for trusted in _trusted) and not name.startswith("tfrobust>")


@functools.cache
def _classes() -> dict[str, type]:
    """Return the sources that can be loaded, by the name under which Keras registers them."""
    for module in pkgutil.iter_modules(sources.__path__, f"{sources.__name__}."):
        importlib.import_module(module.name)
    classes, waiting = {}, [Source]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if _is_known(cls):
            classes[keras.saving.get_registered_name(cls)] = cls
    return classes


def _part(value, kind: type, path: str, room: list[int]):
    """Build a source, or another part of one, such as a tokenizer.

    Args:
        value: its description.
        kind: the class that the annotation names; for `Source`, any source.
        path: where the description is, for messages.
        room: number of parts that may still be built; counted down in place.
    """
    room[0] -= 1
    if room[0] < 0:
        raise InputError(f"it has more than {_MOST_PARTS} parts")
    if not isinstance(value, dict) or not isinstance(value.get("config"), dict):
        raise InputError(f"{path} is {_short_repr(value)}, not a class and its config")
    names = _classes() if kind is Source else {keras.saving.get_registered_name(kind): kind}
    name = value.get("registered_name")
    if not isinstance(name, str) or name not in names:
        module = value.get("module")
        is_own = (
            isinstance(module, str) and not module.startswith("tfrobust") and module.replace(".", "_").isidentifier()
        )
        remedy = f"; if it is your own class, add --gin_import={module}" if is_own and len(module) < 60 else ""
        raise InputError(
            f"{path} is of {_short_repr(name or value.get('class_name'))}, which a report must not name{remedy}"
        )
    hints = _arguments(names[name])
    unknown = [argument for argument in value["config"] if argument not in hints]
    if unknown:
        raise InputError(f"{path} has no argument {_short_repr(unknown[0])}")
    arguments = {
        argument: _value(item, hints[argument], f"{path}.{argument[:40]}", room)
        for argument, item in value["config"].items()
        if argument != "download"
    }
    try:
        return names[name](**arguments)
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # a missing argument
        raise InputError(f"{path}: {str(error)[:100]}") from error


@functools.cache
def _arguments(cls: type) -> dict[str, object]:
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in cls.__dataclass_fields__}


def _value(value, hint, path: str, room: list[int]):
    """Return a value as the annotation `hint` has it, with lists as tuples.

    Raises:
        InputError: the value is of another type.
    """
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        fitting = next((option for option in options if _fits(value, option)), None)
        if fitting is None:
            raise InputError(f"{path} is {_short_repr(value)}, not {' or '.join(map(_type_name, options))}")
        return _value(value, fitting, path, room)
    if not _fits(value, hint):
        raise InputError(f"{path} is {_short_repr(value)}, not {_type_name(hint)}")
    if isinstance(value, dict):
        return _part(value, hint, path, room)
    if isinstance(value, list):
        kinds = options[:1] * len(value) if options[1:] == (Ellipsis,) else options
        return tuple(_value(item, kind, path, room) for item, kind in zip(value, kinds, strict=True))
    if isinstance(value, str) and _REMOTE.match(value):
        raise InputError(f"{path} is {_short_repr(value)}; a report must not name another machine")
    return value


def _fits(value, hint) -> bool:
    """Return True if the type of a value is that of an annotation, without the items of a list."""
    if hint is type(None):
        return value is None
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and math.isfinite(value)
    if hint is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT and value.isprintable()
    if typing.get_origin(hint) is tuple:
        options = typing.get_args(hint)
        length = _LONGEST_LIST if options[1:] == (Ellipsis,) else len(options)
        return isinstance(value, list) and (len(value) == length or (Ellipsis in options and len(value) <= length))
    return isinstance(hint, type) and issubclass(hint, Configured) and isinstance(value, dict)


def _type_name(hint) -> str:
    return getattr(hint, "__name__", str(hint)) if typing.get_origin(hint) is None else str(hint)


def _short_repr(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""Check plain values in the description of a Keras object: numbers, shapes, arrays; and show a value in a message."""

from __future__ import annotations

import math
from collections.abc import Callable

import keras

from tfrobust.security import keras_names as names

LARGEST_NUMBER = 2**63
_MOST_DIMENSIONS = 32


class Refused(Exception):
    """A fault, as a clause about the description."""


def check_shapes(value, where: str, depth: int = 0) -> None:
    """Check shapes: whole numbers and None in lists, and these in dicts by words."""
    if depth > 8:
        raise Refused(f"{where} is nested more than 8 deep")
    if isinstance(value, list):
        if len(value) > _MOST_DIMENSIONS and not any(isinstance(item, list) for item in value):
            raise Refused(f"{where} has {len(value)} dimensions")
        for item in value:
            check_shapes(item, where, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not names.PATTERNS["name"].fullmatch(key) or keras.saving.get_registered_object(key) is not None:
                raise Refused(f"{where} has an entry {shown(key)}")
            check_shapes(item, where, depth + 1)
    elif value is not None and not isinstance(value, str):
        check_number(value, where)
    elif isinstance(value, str) and value not in names.DTYPES:
        raise Refused(f"{where} is {shown(value)}, no shape")


def check_number(value, where: str) -> None:
    """Raise Refused unless a value is a number of at most 64 bits, a Boolean or None."""
    if value is None or isinstance(value, (bool, float)):
        return
    if not isinstance(value, int):
        raise Refused(f"{where} is {shown(value)}")
    if not -LARGEST_NUMBER <= value < 2 * LARGEST_NUMBER:
        raise Refused(f"{where} is a number of {int(math.log10(abs(value))) + 1} digits")


def listed(value, words) -> bool:
    """Return True if a value of any type is a text in a set or a dict."""
    return isinstance(value, str) and value in words


def check_array(value, where: str) -> None:
    """Raise Refused unless an object is an array or a tensor of numbers."""
    config = value["config"]
    if not isinstance(config, dict) or set(config) != {"value", "dtype"} or not listed(config["dtype"], names.DTYPES):
        raise Refused(f"{where} holds an array of {shown(config)}")
    waiting = [config["value"]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        else:
            check_number(item, where)


def _check_slice(value, where: str) -> None:
    if not isinstance(value["config"], dict):
        raise Refused(f"{where} holds {shown(value)}")
    for item in value["config"].values():
        check_number(item, where)


# Values that Keras describes as objects.
LEAVES: dict[str, Callable] = {
    "__numpy__": check_array,
    "__tensor__": check_array,
    "__slice__": _check_slice,
    "__ellipsis__": lambda value, where: None,
}


def is_object(value) -> bool:
    """Return True for what Keras takes for an object, a function, a tensor or another special value."""
    return isinstance(value, dict) and "class_name" in value and "config" in value


def full_name(module, name, registered=None) -> str:
    """Return the name of a class as a message has it."""
    text = f"{module}.{name}" if module else str(name)
    return text if registered in (None, name) else f"{text} as {registered}"


def article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def shown(value) -> str:
    """Return a value as it is shown in a message: in one line, and short."""
    text = "".join(letter if letter.isprintable() else "?" for letter in repr(value)[:200])
    return text if len(text) <= 70 else f"{text[:67]}..."

"""Checks of settings: each returns a valid value, or names the setting, its value and what it may be."""

import numbers
from collections.abc import Collection, Iterable

import numpy as np

from tfrobust.errors import InputError


def require_choice(value, name: str, choices: Collection[str]) -> str:
    """Return a value that is one of `choices`.

    Raises:
        InputError (a ValueError): `value` is not one of them.
    """
    if value not in choices:
        raise InputError(f"{name} is {value!r}; it is one of {list(choices)}.")
    return value


def require_some(values: Iterable, name: str, choices: Collection) -> tuple:
    """Return values that are some of `choices`, each once, as a tuple.

    Raises:
        InputError (a ValueError): there are none, one of them is not among `choices`, or one occurs twice.
    """
    values = tuple(values)
    wrong = [value for value in values if value not in choices]
    if wrong or not values or len(set(values)) < len(values):
        fault = f"has {wrong[0]!r}" if wrong else "is empty or has duplicates"
        raise InputError(f"{name} {fault}; it is some of {', '.join(map(str, choices))}.")
    return values


def require_least(value, name: str, least: float):
    """Return a number of at least `least`.

    Raises:
        InputError (a ValueError): `value` is no number, below it, or NaN.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number:
        raise InputError(f"{name} is {value!r}; it must be a number of at least {least}.")
    if not value >= least:
        raise InputError(f"{name} is {value}; it must be at least {least}.")
    return value


def require_share(value, name: str) -> float:
    """Return a number of at least 0 and below 1.

    Raises:
        InputError (a ValueError): `value` is no number, outside [0, 1), or NaN.
    """
    if isinstance(value, (bool, str)) or not 0 <= value < 1:
        raise InputError(f"{name} is {value!r}; it lies in [0, 1).")
    return value


def require_whole(value, name: str, minimum: int = 1) -> int:
    """Return an integer of at least `minimum`, one of NumPy as Python's, which JSON can represent.

    Raises:
        InputError (a ValueError): `value` is no integer, or below `minimum`.
    """
    if not is_whole(value, minimum):
        raise InputError(f"{name} is {value!r}; it must be an integer >= {minimum}.")
    return int(value)


def is_whole(value, minimum: int = 1) -> bool:
    """Return True for an integer of at least `minimum`, of Python or of NumPy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= minimum


def require_wholes(values, name: str) -> tuple[int, ...]:
    """Return integers >= 1 as a tuple.

    Raises:
        InputError (a ValueError): `values` is no tuple of integers >= 1.
    """
    if not isinstance(values, (list, tuple)):
        raise InputError(f"{name} must be a tuple of integers >= 1, got {values!r}.")
    return tuple(require_whole(value, f"each entry of {name}") for value in values)


def as_plain(value):
    """Return a number of NumPy as Python's, and all else as it is.

    JSON cannot represent those of NumPy, and some operations of TensorFlow take float64 from them.
    """
    return value.item() if isinstance(value, np.generic) else value


def require_tuple(value, name: str, length: int) -> tuple:
    """Return a fixed number of numbers as a tuple.

    Raises:
        InputError (a ValueError): `value` is no list, tuple or array of `length` numbers.
    """
    values = tuple(value) if isinstance(value, Iterable) else ()
    if len(values) != length or not all(isinstance(entry, numbers.Real) for entry in values):
        raise InputError(f"{name} is {value!r}; it must be a tuple of {length} numbers.")
    return values

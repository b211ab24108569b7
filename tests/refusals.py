"""Refusals as data: rows of a refusals.toml, each a call and a part of the line it is refused with.

A row may name what the facade offers, the contents of the toml's `modules`, and what a test file adds.
"""

import functools
import importlib
import inspect
import pathlib
import re
import tomllib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.errors import InputError

REFUSALS = (ValueError, TypeError, FileNotFoundError, NotImplementedError, tf.errors.InvalidArgumentError)


def rows(file: str) -> list:
    """Return the parameters of all tables of the refusals.toml next to a test file."""
    tables = _read(file)
    return [
        pytest.param(*row, id=f"{name}-{number}")
        for name, table in tables.items()
        for number, row in enumerate(table)
        if name != "modules"
    ]


def check(file: str, call: str, message: str, **names) -> None:
    """Assert that a call is refused with the message, a regular expression, and by an InputError in one short line."""
    with pytest.raises(REFUSALS) as caught:
        eval(call, _names(file) | names)
    line = str(caught.value)
    assert re.search(message, line), line
    if isinstance(caught.value, InputError) and not line.startswith("Exception encountered"):  # Keras adds lines
        assert len(line) <= 300 and "\n" not in line, line


@functools.cache
def _read(file: str) -> dict:
    return tomllib.loads(pathlib.Path(file).with_name("refusals.toml").read_text("utf-8"))


@functools.cache
def _names(file: str) -> dict:
    areas = [area for name in robust.__all__ if inspect.ismodule(area := getattr(robust, name))]
    areas.sort(key=lambda area: area is not robust.layers)  # its AugMix is not that of the augmentations
    names = {name: getattr(area, name) for area in areas for name in area.__all__}
    for module in _read(file).get("modules", ()):
        names |= vars(importlib.import_module(module))
    return names | {"keras": keras, "np": np, "tf": tf}

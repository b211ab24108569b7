"""Refusals as data: rows of a refusals.toml, each a call and a part of the line it is refused with (see stored.py)."""

import re

import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError

REFUSALS = (ValueError, TypeError, FileNotFoundError, NotImplementedError, tf.errors.InvalidArgumentError)


def rows(file: str) -> list:
    """Return the parameters of all lists of the refusals.toml next to a test file."""
    tables = stored.read(file)
    return [
        pytest.param(*row, id=f"{name}-{number}")
        for name, table in tables.items()
        if isinstance(table, list) and name not in stored.SETTINGS
        for number, row in enumerate(table)
    ]


def check(file: str, call: str, message: str, **names) -> None:
    """Assert that a call is refused with the message, a regular expression, and by an InputError in one short line."""
    with pytest.raises(REFUSALS) as caught:
        eval(call, stored.known_names(file) | names)
    line = str(caught.value)
    assert re.search(message, line), line
    if isinstance(caught.value, InputError) and not line.startswith("Exception encountered"):  # Keras adds lines
        assert len(line) <= 300 and "\n" not in line, line

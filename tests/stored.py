"""Tables of tests as data: a toml next to a test file holds its cases, whose cells are expressions.

A cell may name what the test file hands over, numpy, keras and tf, the modules of the toml's `imports`, the contents of
its `modules`, and, where the toml says `facade = true` or names modules, what the facade offers.
"""

import functools
import importlib
import inspect
import pathlib
import tomllib

import numpy as np
import pytest

SETTINGS = ("facade", "imports", "modules")


def cases(file: str, table: str, names: dict, data: str = "refusals.toml") -> dict:
    """Return a table of cases with its cells evaluated; the last cell of a row of several, a message, is text."""
    names = known_names(file, data) | names

    def evaluated(row: list):
        if isinstance(row[0], list):
            return [evaluated(inner) for inner in row]
        made = [eval(cell, names) for cell in (row[:-1] or row)]
        return (*made, row[-1]) if len(row) > 1 else made[0]

    return {name: evaluated(row) for name, row in read(file, data)[table].items()}


def rows(names: dict, name: str) -> list:
    """Return a table of tables.toml as parameters, whose ids are the keys where the table has keys.

    A row is a tuple, or `pytest.param` of it with marks.
    """
    values = table(names, name)
    if not isinstance(values, dict):
        return values
    return [
        pytest.param(*getattr(row, "values", row), marks=getattr(row, "marks", ()), id=key)
        for key, row in values.items()
    ]


def table(names: dict, name: str):
    """Return a table of tables.toml, a list or a dictionary, evaluated with the names of a file of tests."""
    expressions = read(names["__file__"], "tables.toml")[name]
    if isinstance(expressions, dict):
        return {key: eval(expression, names) for key, expression in expressions.items()}
    return [eval(expression, names) for expression in expressions]


def text(names: dict, name: str) -> str:
    """Return a text of tables.toml."""
    return read(names["__file__"], "tables.toml")[name]


@functools.cache
def read(file: str, data: str = "refusals.toml") -> dict:
    """Return a toml next to a test file."""
    return tomllib.loads(pathlib.Path(file).with_name(data).read_text("utf-8"))


@functools.cache
def known_names(file: str, data: str = "refusals.toml") -> dict:
    """Return what the cells of a toml may name."""
    import keras
    import tensorflow as tf

    settings, names = read(file, data), {}
    if settings.get("facade") or "modules" in settings:
        from tfrobust import keras as robust

        areas = [area for name in robust.__all__ if inspect.ismodule(area := getattr(robust, name))]
        areas.sort(key=lambda area: area is not robust.layers)  # its AugMix is not that of the augmentations
        names = {name: getattr(area, name) for area in areas for name in area.__all__}
    for module in settings.get("modules", ()):
        names |= vars(importlib.import_module(module))
    for module in settings.get("imports", ()):
        names[module.rpartition(".")[2]] = importlib.import_module(module)
    return names | {"keras": keras, "np": np, "tf": tf}

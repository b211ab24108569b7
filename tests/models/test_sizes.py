"""Encoders against published numbers of parameters and the sizes of their maps, which are in sizes.toml."""

import pathlib
import tomllib

import numpy as np
import pytest

from tfrobust import keras as robust
from tfrobust.models.text_transformer import TransformerStyle

TABLES = tomllib.loads(pathlib.Path(__file__).with_name("sizes.toml").read_text("utf-8"))
NAMES = {name: getattr(robust.models, name) for name in robust.models.__all__} | {
    "TEXT": {"width": 8, "depth": 2, "heads": 2, "inner": 5},
    "BEHIND": TransformerStyle(positions="sinusoidal", normalization="behind"),
    "UNPADDED": {"batch_normalization": False, "padding": "valid"},
}


def built(call: str, shape):
    encoder = eval(call, NAMES.copy())
    encoder.build((None, *shape))
    return encoder


@pytest.mark.parametrize(
    "call, shape, classes, published",
    [pytest.param(*row, marks=[pytest.mark.rest] * (len(row[1]) == 4)) for row in TABLES["parameters"]],
)
def test_the_published_number_of_parameters(call, shape, classes, published):
    encoder = built(call, shape)
    trainable = sum(int(np.prod(variable.shape)) for variable in encoder.trainable_variables)
    assert trainable + (encoder.dim + 1) * classes == published


@pytest.mark.parametrize(("call", "expected"), TABLES["stages"])
def test_stage_shapes(call, expected):
    encoder, shapes = eval(call, NAMES.copy()), []
    images = np.zeros((1, *expected[0]), np.float32)
    encoder(images, at_stage=lambda index, hidden: shapes.append([*hidden.shape[1:]]) or hidden)
    assert shapes == expected


@pytest.mark.parametrize(("call", "shape", "kernels"), TABLES["kernels"])
def test_kernels(call, shape, kernels):
    variables = built(call, shape).trainable_variables
    assert [[*variable.shape] for variable in variables if variable.path.endswith("kernel")] == kernels

"""Runs the encoder battery of tests/conformance/encoders.py."""

import pytest

from conformance.encoders import FILE_PROPERTIES, FIRST_OF_CLASS, PARAMETERS, PROPERTIES, PROPERTIES_OF_CLASSES, SHALLOW


# The rows vary slowest, so that a worker builds few of them.
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@pytest.mark.parametrize("row", PARAMETERS)
def test_encoder(row, holds):
    holds(row)


@pytest.mark.parametrize("holds", PROPERTIES_OF_CLASSES, ids=lambda holds: holds.__name__)
@pytest.mark.parametrize("row", FIRST_OF_CLASS)
def test_encoder_class(row, holds):
    holds(row)


@pytest.mark.parametrize("holds", FILE_PROPERTIES, ids=lambda holds: holds.__name__)
@pytest.mark.parametrize("row", SHALLOW)
def test_encoder_files(row, holds, tmp_path):
    holds(row, tmp_path)

"""Runs the encoder battery of tests/conformance/encoders.py."""

import pytest

from conformance.encoders import FILE_PROPERTIES, PARAMETERS, PROPERTIES


@pytest.mark.parametrize("row", PARAMETERS)
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_encoder(row, holds):
    holds(row)


@pytest.mark.parametrize("row", PARAMETERS)
@pytest.mark.parametrize("holds", FILE_PROPERTIES, ids=lambda holds: holds.__name__)
def test_encoder_files(row, holds, tmp_path):
    holds(row, tmp_path)

"""Refusals of the functions below all else, and their messages."""

import numpy as np
import pytest
import refusals

ROWS = np.eye(3)[[0, 2, 1, 2]]


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, ROWS=ROWS)

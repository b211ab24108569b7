"""Refusals of rules for pairs, and their messages."""

import pytest
import refusals


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_bad_arguments_are_refused_by_name(call, message):
    refusals.check(__file__, call, message)

"""Runs the conformance battery over every loss."""

import pytest

from conformance import losses


@pytest.mark.parametrize("check", losses.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", losses.LOSSES, ids=lambda case: case.name)
def test_battery(case, check):
    check(case)

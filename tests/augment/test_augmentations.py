import pytest

from conformance.augmentations import AUGMENTATIONS, CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", AUGMENTATIONS, ids=lambda case: case.name)
def test_battery(case, check):
    check(case)

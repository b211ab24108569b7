"""The lower bounds of pyproject.toml, and the tool that runs the tests with them."""

import check_lower_bounds
import pytest
import stored
from packaging.requirements import Requirement


def test_every_requirement_has_a_lower_bound_and_the_same_everywhere():
    declared = check_lower_bounds.requirements()
    bounds = {check_lower_bounds.plain(item.name): check_lower_bounds.lowest(item) for item in declared}
    assert len(bounds) == len(declared) > 25
    assert {"tensorflow", "keras", "numpy", "av", "pytest", "pre-commit"} <= set(bounds)


def test_a_requirement_without_a_lower_bound_is_an_error():
    for text in ("av", "av<19", "av!=14.0"):
        with pytest.raises(ValueError, match="has no lower bound; write av>=VERSION"):
            check_lower_bounds.lowest(Requirement(text))


@pytest.mark.parametrize("bound, version, reached", stored.rows(globals(), "a_bound_is_reached_by_its_own_release"))
def test_a_bound_is_reached_by_its_own_release(bound, version, reached):
    wrong = check_lower_bounds.unreached_bounds([Requirement(bound)], {"ml-dtypes": version})
    assert bool(wrong) is not reached and all(f"has {version}" in line for line in wrong)

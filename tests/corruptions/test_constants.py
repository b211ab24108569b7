"""Every constant of corruptions and sequences against the published ones."""

import pytest
import stored

from oracles import corruption_constants as published
from oracles import corruptions as oracle
from tfrobust import corruptions
from tfrobust.corruptions import registry, sequences

ALL = (*corruptions.NAMES, *corruptions.EXTRA_NAMES)


def differing(side: int) -> list:
    """Return (name, severity) of all constants that differ from the published ones for square images."""
    return [
        (name, severity)
        for name in ALL
        for severity in corruptions.SEVERITIES
        if registry.constants(name, severity, side, side) != pytest.approx(published.at(name, severity, side))
    ]


@pytest.mark.parametrize("side", [32, 224, 8, 31, 33, 64, 84, 85, 96, 448])
def test_the_constants_are_the_published_ones_and_other_sizes_follow_the_rule(side):
    assert set(ALL) == set(published.CIFAR) == set(published.IMAGENET)
    assert all(hasattr(oracle, name) for name in ALL)
    assert differing(side) == []


def test_the_shorter_side_decides():
    for name in ALL:
        assert registry.constants(name, 3, 64, 300) == registry.constants(name, 3, 300, 64)
        assert registry.constants(name, 3, 64, 300) == registry.constants(name, 3, 64, 64)


# ------------------------------------------------------------------------------------------------- sequences

SEQUENCES = {side: stored.cases(__file__, str(side), {}, "sequences.toml") for side in (32, 224)}


@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", [*corruptions.SEQUENCES, *corruptions.EXTRA_SEQUENCES])
def test_the_constants_of_sequences_are_the_published_ones(name, side):
    constants, expected = sequences.constants(name, side, side), SEQUENCES[side][name]
    if sequences.is_noise(name):
        assert constants == (31, expected)  # the image, and 30 draws on it
        return
    frames, more = expected
    assert [constants.first + constants.step * i for i in range(constants.frames)] == pytest.approx(frames)
    assert constants.more == more

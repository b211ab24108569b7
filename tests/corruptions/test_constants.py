"""Every constant of corruptions and sequences against the published ones."""

import pytest

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

# From make_cifar_p.py and make_imagenet_p.py, the formula in i of each frame and whatever else the code names: of
# noise the strengths of three levels.
WATER = (0.6, 0.265, 1.75, 0.7, 0.6, (0.2, 0.8)), (0.65, 0.27, 3.7, 0.69, 0.6, (0.05, 0.1, 0.15, 0.7))
SEQUENCES = {
    32: {
        "gaussian_noise": (0.02, 0.04, 0.06),
        "shot_noise": (700, 400, 200),
        "speckle_noise": (0.05, 0.07, 0.1),
        "motion_blur": ([(i - 20) * 9 for i in range(21)], (6, 1.8)),
        "zoom_blur": ([1 + 0.004 * i for i in range(31)], ()),
        "snow": ([i * 4 - 150 for i in range(31)], (0.05, 0.3, 2, 0.5, 10, 2, 0.85)),
        "brightness": ([(i - 15) * 1.5 / 100 for i in range(31)], ()),
        "translate": ([i - 7 for i in range(16)], ()),
        "rotate": ([i - 15 for i in range(31)], ()),
        "tilt": ([0.75 * (i - 15) for i in range(31)], ()),
        "scale": ([(i * 2 + 70) / 100 for i in range(31)], ()),
        "gaussian_blur": ([0.3 + 0.015 * i for i in range(31)], (7.0,)),
        "spatter": ([*range(31)], WATER[0]),
        "shear": ([i - 15 for i in range(31)], ()),
    },
    224: {
        "gaussian_noise": (0.03, 0.05, 0.08),
        "shot_noise": (300, 120, 60),
        "speckle_noise": (0.05, 0.1, 0.15),
        "motion_blur": ([(i - 30) * 4 for i in range(31)], (10, 3)),
        "zoom_blur": ([1 + 0.004 * i for i in range(31)], ()),
        "snow": ([i * 4 - 150 for i in range(31)], (0.05, 0.3, 3, 0.5, 14, 4, 0.85)),
        "brightness": ([(i - 15) * 2 / 100 for i in range(31)], ()),
        "translate": ([i - 20 for i in range(41)], ()),
        "rotate": ([i - 15 for i in range(31)], ()),
        "tilt": ([i - 15 for i in range(31)], ()),
        "scale": ([(i * 2.5 + 40) / 100 for i in range(31)], ()),
        "gaussian_blur": ([0.25 + 0.035 * i for i in range(31)], (6.0,)),
        "spatter": ([*range(31)], WATER[1]),
        "shear": ([i - 15 for i in range(31)], ()),
    },
}


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

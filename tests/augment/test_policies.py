"""AutoAugment and RandAugment: the published tables once more, Pillow on chosen draws, what is drawn how often."""

import pathlib
import tomllib

import numpy as np
import PIL.ImageOps
import pytest
import tensorflow as tf
from scipy import stats

from oracles import augmix as pillow
from tfrobust.augment.policies import POLICIES, RAND_AUGMENT_OPERATIONS, AutoAugment, RandAugment
from tfrobust.ops import randomness

KEY = randomness.make_key(6, "policies")
GENERATOR = np.random.default_rng(5)
# Smooth enough that directions matter, of more than one brightness.
IMAGES = np.cumsum(np.cumsum(GENERATOR.integers(-9, 10, (8, 16, 12, 3)), axis=1), axis=2) % 256
IMAGES = IMAGES.astype(np.uint8)

# Entered once more from torchvision's listing (0.24, `AutoAugment._get_policies`), which leaves out magnitudes without
# a meaning.
LISTED = tomllib.loads(pathlib.Path(__file__).with_name("policies.toml").read_text("utf-8"))


def listed(policy):
    """[[(name, probability, magnitude or None), (...)], ...]"""
    sub_policies = []
    for row in LISTED[policy]:
        words = [part.split() for part in row.split(",")]
        sub_policies.append([(word[0], float(word[1]), int(word[2]) if len(word) > 2 else None) for word in words])
    return sub_policies


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policies_are_the_published_ones(policy):
    assert len(POLICIES[policy]) == len(listed(policy)) == 25
    for ours, theirs in zip(POLICIES[policy], listed(policy), strict=True):
        for (name, probability, magnitude), (other, chance, size) in zip(ours, theirs, strict=True):
            assert (name.replace("_", ""), probability) == (other.lower(), chance)
            assert size is None or magnitude == size


# ------------------------------------------------------------------------------------------------------- Pillow


def parameter(name, share, negative, ranges, size):
    """Return Pillow's parameter for a share in [0, 1] of an operation's range."""
    if ranges == "code" or name.startswith("shear") or name in ("color", "contrast", "brightness", "sharpness"):
        return pillow.parameter(name, 10 * share, negative, size)
    sign = -1 if negative else 1
    return {
        "posterize": 8 - round(4 * share),
        "solarize": 256 - round(256 * share),
        "rotate": sign * 30 * share,
        "translate_x": sign * round(share * size[1] * 150 / 331),
        "translate_y": sign * round(share * size[0] * 150 / 331),
    }.get(name)


def by_pillow(pixels, chain):
    """One image through [(name, parameter), ...], float in [0, 1]."""
    image = pillow.picture(pixels)
    for name, value in chain:
        image = PIL.ImageOps.invert(image) if name == "invert" else pillow.OPERATIONS[name](image, value)
    return pillow.pixels_of(image) / 255.0


@pytest.mark.parametrize("ranges", ["paper", "code"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair_is_what_pillow_makes_of_it(policy, ranges):
    """All draws that can occur: each pair in both directions of each of its operations, and without either."""
    augmentation = AutoAugment(policy=policy, ranges=ranges)
    names = augmentation.names
    draw = {name: value.numpy() for name, value in augmentation.draw(KEY, (3000, 16, 12, 3)).items()}
    rows = np.concatenate([draw["operation"], draw["level"]], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    assert len(first) > 100
    pixels = IMAGES[np.arange(len(first)) % len(IMAGES)]
    images = tf.constant(pixels, tf.float32) / 255.0
    results = augmentation.apply(images, {name: tf.constant(value[first]) for name, value in draw.items()}).numpy()
    for image, result, places, sizes in zip(
        pixels, results, draw["operation"][first], draw["level"][first], strict=True
    ):
        chain = [
            (names[index], parameter(names[index], abs(level) / 10, level < 0, ranges, (16, 12)))
            for index, level in zip(places, sizes, strict=True)
            if index < len(names)
        ]
        off = np.abs(result - by_pillow(image, chain)) * 255 > 1.01
        # Of what may be one level off here and there, the second operation can make more.
        assert off.mean() <= (0.02 if len(chain) > 1 else 0), chain


def parameter_of_magnitude(name, magnitude):
    return parameter(name, magnitude / 10, False, "paper", (16, 12))


@pytest.mark.parametrize("magnitude", [0.0, 4.5, 10.0])
@pytest.mark.parametrize("name", RAND_AUGMENT_OPERATIONS)
def test_each_operation_of_rand_augment_is_pillows(name, magnitude):
    augmentation = RandAugment(count=1, magnitude=magnitude, operations=(name,))
    images = tf.constant(IMAGES, tf.float32) / 255.0
    draw = {"operation": tf.zeros([8, 1], tf.int32), "level": tf.fill([8, 1], magnitude)}
    chain = [] if name == "identity" else [(name, parameter_of_magnitude(name, magnitude))]
    expected = [by_pillow(image, chain) for image in IMAGES]
    assert np.abs(augmentation.apply(images, draw) - expected).max() * 255 <= 1.01


def test_ranges_end_where_the_paper_says():
    ends = {
        "posterize": (8, 4),
        "solarize": (256, 0),
        "rotate": (0, 30),
        "translate_x": (0, round(12 * 150 / 331)),
        "shear_y": (0, 0.3),
        "color": (0.1, 1.9),
    }
    for name, (low, high) in ends.items():
        assert parameter_of_magnitude(name, 0.0) == pytest.approx(low)
        assert parameter_of_magnitude(name, 10.0) == pytest.approx(high)


# -------------------------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize(("ranges", "full"), [("paper", 9), ("code", 10)])
def test_pairs_are_equally_likely_and_their_operations_as_likely_as_they_say(ranges, full):
    count, augmentation = 20000, AutoAugment(ranges=ranges)
    names, draw = augmentation.names, augmentation.draw(KEY, (count, 4, 4, 3))
    for step in (0, 1):
        expected = {}
        for row in POLICIES["cifar10"]:
            name, probability, magnitude = row[step]
            for sign in (-1, 1):
                cell = (names.index(name), sign * round(10 * magnitude / full, 3) + 0.0)
                expected[cell] = expected.get(cell, 0) + count * probability / 50
        operation, level = (draw[name][:, step].numpy() for name in ("operation", "level"))
        done = operation < len(names)
        pairs = zip(operation[done], np.round(level[done], 3) + 0.0, strict=True)
        cells, counts = np.unique([f"{index} {size:.3f}" for index, size in pairs], return_counts=True)
        expected_counts = {f"{index} {size:.3f}": number for (index, size), number in expected.items() if number}
        assert set(cells) == set(expected_counts)
        expected_counts = np.array([expected_counts[name] for name in cells])
        assert stats.chisquare(counts, expected_counts * counts.sum() / expected_counts.sum()).pvalue > 1e-3
        assert stats.binomtest(int(counts.sum()), count, sum(expected.values()) / count).pvalue > 1e-3


def test_rand_augment_draws_each_operation_and_direction_alike():
    draw = RandAugment(count=3, magnitude=7.0).draw(KEY, (5000, 4, 4, 3))
    assert draw["operation"].shape == (5000, 3)
    for step in range(3):
        chosen, counts = np.unique(draw["operation"][:, step], return_counts=True)
        assert list(chosen) == list(range(14)) and RandAugment().names == RAND_AUGMENT_OPERATIONS
        assert stats.chisquare(counts).pvalue > 1e-3
    levels = draw["level"].numpy()
    assert set(np.unique(levels)) == {-7.0, 7.0} and stats.binomtest(int(np.sum(levels > 0)), levels.size).pvalue > 1e-3
    steps = draw["operation"].numpy().T
    assert np.abs(np.corrcoef(steps) - np.eye(3)).max() < 0.06

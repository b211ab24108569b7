import collections

import numpy as np
import pytest

from tfrobust.data.sources.digits import Digits
from tfrobust.data.sources.moving_digits import MOTIONS, MovingDigits, moved

FRAMES, SIDE = 4, 5


@pytest.fixture(scope="module")
def dataset():
    return MovingDigits().load()


@pytest.fixture(scope="module")
def everywhere():
    """One image with every motion from every start: clips of a motion, [motion][start, frame, side, side, 1]."""
    image = np.random.default_rng(0).random((3, 2, 1), np.float32) + 0.1
    starts = np.stack(np.meshgrid(range(SIDE), range(SIDE), indexing="ij"), -1).reshape(-1, 2)
    repeated = np.stack([image] * len(starts))
    return [moved(repeated, np.full(len(starts), m), starts, FRAMES, SIDE) for m in range(len(MOTIONS))]


def _bytes(frames):
    return collections.Counter(frame.tobytes() for frame in frames)


@pytest.mark.parametrize("frame", range(FRAMES))
def test_a_single_frame_says_nothing_about_the_motion(everywhere, frame):
    """Over the starts, each frame has the same distribution with every motion, exactly."""
    first, *rest = (_bytes(clips[:, frame]) for clips in everywhere)
    assert len(first) == SIDE * SIDE and all(other == first for other in rest)


def test_frames_without_their_order_do_not_tell_a_motion_from_its_reverse(everywhere):
    for motion in range(0, len(MOTIONS), 2):
        sets = [
            collections.Counter(frozenset(_bytes(clip)) for clip in clips) for clips in everywhere[motion : motion + 2]
        ]
        assert sets[0] == sets[1]
        assert not _bytes(everywhere[motion]) & _bytes(everywhere[motion + 1])  # in their order they do


def test_clips_are_rolled_images():
    """Each frame is the zero-padded image, rolled: not the indexing of the implementation."""
    generator = np.random.default_rng(1)
    images = generator.random((16, 3, 4, 2), np.float32)
    starts, motions = generator.integers(0, 6, (16, 2)), np.arange(16) % 8
    clips = moved(images, motions, starts, 9, 6)
    directions = "right left down up down-right up-left down-left up-right".split()
    for clip, image, motion, (row, column) in zip(clips, images, motions, starts, strict=True):
        words = directions[motion].split("-")
        for time in range(9):
            shift = [row + time * (("down" in words) - ("up" in words)), column]
            shift[1] += time * (("right" in words) - ("left" in words))
            expected = np.roll(np.pad(image, ((0, 3), (0, 2), (0, 0))), shift, (0, 1))
            np.testing.assert_array_equal(clip[time], expected)


def test_the_default_is_small_and_balanced(dataset):
    assert dataset.image_shape == (8, 16, 16, 1) and dataset.class_names == ("right", "left", "down", "up")
    assert dataset.sizes == {"train": 2 * 1337, "validation": 100, "test": 360}
    for split in (dataset.train, dataset.validation, dataset.test):
        assert np.ptp(np.bincount(split.labels)) <= 2


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_clip_shows_a_digit_of_its_split_and_the_motion_of_its_label(dataset, split):
    digits, _ = getattr(Digits(validation_size=100).load(), split).arrays()
    clips, labels = getattr(dataset, split).arrays()
    digits = np.concatenate([digits] * (len(clips) // len(digits)))
    padded = np.pad(digits, ((0, 0), (0, 8), (0, 8), (0, 0)))
    shown = np.zeros(len(clips), bool)
    for row, column in np.ndindex(16, 16):
        shown |= (clips[:, 0] == np.roll(padded, (row, column), (1, 2))).all((1, 2, 3))
    assert shown.all()
    for label, step in enumerate([(0, 1), (0, -1), (1, 0), (-1, 0)]):
        moving = clips[labels == label]
        np.testing.assert_array_equal(np.roll(moving[:, :-1], step, (2, 3)), moving[:, 1:])


def test_digit_and_motion(dataset):
    both = MovingDigits(label="digit and motion").load()
    assert both.class_names[:2] == ("0 right", "1 right") and both.class_names[39] == "9 up"
    for split in ("train", "test"):
        many, few = getattr(both, split), getattr(dataset, split)
        np.testing.assert_array_equal(many.labels // 10, few.labels)
        counts = np.bincount(many.labels, minlength=40).reshape(4, 10)
        assert np.all(np.ptp(counts, axis=0) <= 2)  # of each digit, each motion
    digits = Digits(validation_size=100).load().test.labels
    np.testing.assert_array_equal(both.test.labels % 10, digits)


def test_clips_follow_from_the_seed_alone(dataset):
    """Published numbers rest on these clips: whoever changes them must say so in CHANGELOG."""
    assert dataset.fingerprint == "51b38630b734be532050999029f651c777ed64f8e62f6db924f0cffea9641918"
    assert MovingDigits(split_seed=1).load().test.fingerprint != dataset.test.fingerprint
    alone = MovingDigits(source=Digits()).load()  # the validation split changes no test clip
    assert alone.test.fingerprint == dataset.test.fingerprint and not len(alone.validation)

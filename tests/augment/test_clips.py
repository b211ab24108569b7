"""Augmentations of clips: one change for all frames, the image's own change for one frame, and the choice of frames."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.augment.clips import frames_at, sparse_and_dense, two_starts
from tfrobust.errors import InputError
from tfrobust.keras import augment

KEY = tf.constant([3, 4])
IMAGES = np.random.default_rng(0).random((6, 8, 10, 3)).astype(np.float32)
AUGMENTATIONS = stored.table(globals(), "clip_augmentations")


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_all_frames_change_alike_and_one_frame_as_an_image(name):
    augmentation = AUGMENTATIONS[name]
    single = augmentation.augmentation if isinstance(augmentation, augment.EveryFrame) else augmentation
    expected = single(IMAGES, KEY).numpy()
    assert expected.shape != IMAGES.shape or np.abs(expected - IMAGES).max() > 0.1
    np.testing.assert_allclose(augmentation(IMAGES[:, None], KEY)[:, 0], expected, rtol=0, atol=1e-6)
    # Repeated frames have the mean of each, so that contrast is that of the image, too.
    clips = augmentation(np.repeat(IMAGES[:, None], 3, axis=1), KEY).numpy()
    for frame in range(3):
        np.testing.assert_allclose(clips[:, frame], expected, rtol=0, atol=1e-5)


def test_a_sequence_supports_what_all_of_its_parts_support():
    noise, views, flip = augment.AddGaussian(deviation=0.1), augment.ContrastiveViews(), augment.RandomFlip()
    clips = np.repeat(IMAGES[:, None], 2, axis=1)
    both = augment.Compose(augmentations=(noise, views))
    assert both(clips, KEY).shape == clips.shape and both(IMAGES, KEY).shape == IMAGES.shape
    with pytest.raises(InputError, match="Compose changes clips by itself; use it without EveryFrame"):
        augment.EveryFrame(augmentation=both)
    with pytest.raises(InputError, match="Compose changes images, not clips"):
        augment.Compose(augmentations=(noise, flip))(clips, KEY)
    per_frame = augment.Compose(augmentations=(augment.EveryFrame(augmentation=flip), noise))
    assert per_frame(clips, KEY).shape == clips.shape
    with pytest.raises(InputError, match="Compose changes clips, not images"):
        per_frame(IMAGES, KEY)


def test_frames_keep_their_order_and_clips_their_own_draws():
    clips = np.random.default_rng(1).random((20, 3, 4, 4, 1)).astype(np.float32)
    flip = AUGMENTATIONS["composed"].augmentation.augmentations[0]
    flipped = augment.EveryFrame(augmentation=flip)(clips, KEY).numpy()
    kinds = {
        (np.array_equal(flipped_clip, clip), np.array_equal(flipped_clip, clip[:, :, ::-1]))
        for flipped_clip, clip in zip(flipped, clips, strict=True)
    }
    assert kinds == {(True, False), (False, True)}


def test_contrast_is_about_the_mean_of_the_clip():
    clips = np.stack([np.full((1, 4, 4, 3), 0.2), np.full((1, 4, 4, 3), 0.6)], axis=1).astype(np.float32)
    views = augment.ContrastiveViews(flip=0.0, grey=0.0)
    draw = {
        "box": tf.constant([[0, 0, 4, 4]]),
        "operation": tf.constant([[1, 4, 4, 4]]),
        "amount": tf.constant([[1.0, 0.5, 1.0, 0.0]]),
        "sigma": tf.zeros([1]),
    }
    result = views.apply(tf.constant(clips), draw | dict.fromkeys(("flip", "grey", "solarize"), tf.constant([False])))
    np.testing.assert_allclose(result[0, :, 0, 0, 0], [0.3, 0.5], atol=1e-6)


def test_frames_at_repeats_a_short_clip():
    clips = tf.reshape(tf.range(10.0), [2, 5, 1, 1, 1])
    frames = frames_at(clips, tf.constant([0, 3]), 4, stride=2)[..., 0, 0, 0]
    np.testing.assert_array_equal(frames, [[0, 2, 4, 1], [8, 5, 7, 9]])


def test_dense_clips_tile_the_span_of_the_sparse_one():
    """A clip of 9 frames has four starts of a span of 6; each has a quarter of the shares."""
    clips = tf.reshape(tf.range(45.0), [5, 9, 1, 1, 1])
    shares = tf.constant([0.0, 0.24, 0.25, 0.99, 1.0 - 2.0**-24])
    sparse, dense = sparse_and_dense(clips, shares, 2, 3)
    first = 9 * np.arange(5) + [0, 0, 1, 3, 3]
    np.testing.assert_array_equal(sparse[..., 0, 0, 0], first[:, None] + [0, 3])
    np.testing.assert_array_equal(tf.concat(dense, axis=1)[..., 0, 0, 0], first[:, None] + np.arange(6))


@pytest.mark.parametrize("gap", ["decreasing", "uniform"])
def test_the_distance_of_two_starts_has_its_distribution(gap):
    """On a grid of uniform numbers; M = 10 - 2 * 2 = 6 starts."""
    share = (np.arange(6000) + 0.5) / 6000
    uniform = np.stack([share, (share * 7919) % 1.0, (share * 104729) % 1.0], axis=1).astype(np.float32)
    first, second = (start.numpy() for start in two_starts(tf.constant(uniform), 10, 3, 2, gap))
    apart = np.abs(first - second)
    assert min(first.min(), second.min()) == 0 and max(first.max(), second.max()) == 5
    places = np.arange(7) / 6
    cumulative = 2 * places - places**2 if gap == "decreasing" else places
    np.testing.assert_allclose(np.bincount(apart, minlength=6) / 6000, np.diff(cumulative), atol=1e-3)
    earlier = np.minimum(first, second)
    for distance in range(5):
        chosen = earlier[apart == distance]
        np.testing.assert_allclose(
            np.bincount(chosen, minlength=6 - distance) / len(chosen), 1 / (6 - distance), atol=0.03
        )
    swapped = (first < second)[apart > 0].mean()
    assert 0.45 < swapped < 0.55


def test_short_videos_have_independent_starts():
    uniform = np.random.default_rng(0).random((4000, 3)).astype(np.float32)
    first, second = (start.numpy() for start in two_starts(tf.constant(uniform), 4, 5, 1, "decreasing"))
    table = np.zeros((4, 4))
    np.add.at(table, (first, second), 1 / 4000)
    np.testing.assert_allclose(table, 1 / 16, atol=0.02)

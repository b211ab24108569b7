"""Corruptions in time: properties of the frames that are shown, and the frames of literal examples."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.corruptions import temporal

COUNT, FRAMES = 200, 10
KEYS = tf.stack([tf.zeros([COUNT], tf.int32), tf.range(COUNT)], axis=1)
# Each frame says its number.
CLIPS = tf.tile(tf.reshape(tf.range(10.0) / 16, [1, FRAMES, 1, 1, 1]), [COUNT, 1, 2, 2, 1])


def _shown(name, severity, keys=KEYS):
    frames = corruptions.corrupt_clips(CLIPS[: len(keys)], name, severity, keys).numpy()
    assert frames.shape == (len(keys), FRAMES, 2, 2, 1) and np.ptp(frames, axis=(2, 3)).max() == 0
    return np.rint(16 * frames[:, :, 0, 0, 0]).astype(int)


def test_the_constants():
    """Literal here, as no publication has them: whoever changes them must say so in CHANGELOG."""
    assert temporal.SEVERITIES == {
        "frame_drop": (0.1, 0.2, 0.3, 0.4, 0.5),
        "frame_freeze": (0.2, 0.3, 0.4, 0.5, 0.6),
        "frame_shuffle": (2, 3, 4, 6, 8),
        "video_compression": (4, 8, 13, 20, 31),
    }
    assert corruptions.CLIP_NAMES == (*corruptions.NAMES, *temporal.SEVERITIES)


@pytest.mark.parametrize(("severity", "lost"), [(1, 1), (3, 3), (5, 4)])  # of 9 frames: 0.9, 2.7, 4.5
def test_a_lost_frame_shows_the_one_before(severity, lost):
    shown = _shown("frame_drop", severity)
    for row in shown:
        assert len(set(row)) == FRAMES - lost and row[0] == 0
        for time in range(1, FRAMES):  # new, or as before
            assert row[time] in (time, row[time - 1])
    share = (shown[:, 1:] != np.arange(1, FRAMES)).mean(axis=0)
    assert np.all(np.abs(share - lost / 9) < 4 * np.sqrt(lost / 9 * (1 - lost / 9) / COUNT))


@pytest.mark.parametrize(("severity", "still"), [(1, 2), (5, 6)])
def test_a_clip_freezes_once_and_goes_on_where_it_would_be(severity, still):
    shown = _shown("frame_freeze", severity)
    first = []
    for row in shown:
        places = np.flatnonzero(row != np.arange(FRAMES))
        assert len(places) == still and np.ptp(places) == still - 1 and set(row[places]) == {places[0] - 1}
        first.append(places[0] - 1)
    assert set(first) == set(range(FRAMES - still))


@pytest.mark.parametrize(("severity", "window"), [(1, 2), (2, 3), (5, 8)])
def test_frames_stay_in_their_window(severity, window):
    shown = _shown("frame_shuffle", severity)
    assert np.all(shown // window == np.arange(FRAMES) // window)
    assert np.all(np.sort(shown, axis=1) == np.arange(FRAMES))
    places = shown[:, :window]  # each frame of the first window is in each place equally often
    for frame in range(window):
        share = (places == frame).mean(axis=0)
        assert np.all(np.abs(share - 1 / window) < 4.5 * np.sqrt((1 - 1 / window) / window / COUNT))


def test_literal_frames():
    uniform = tf.constant([[0.9, 0.2, 0.7, 0.1, 0.8]])
    assert temporal.frames_after_drops(uniform, 0.5).numpy().tolist() == [[0, 0, 2, 2, 4]]
    assert temporal.frames_after_freezes(uniform, 0.4).numpy().tolist() == [[0, 1, 2, 2, 2]]
    assert temporal.frames_after_shuffles(uniform, 3).numpy().tolist() == [[1, 2, 0, 3, 4]]
    assert temporal.frames_after_shuffles(uniform, 2).numpy().tolist() == [[1, 0, 3, 2, 4]]
    for change in (temporal.frames_after_drops, temporal.frames_after_freezes):
        assert change(uniform[:, :1], 0.5).numpy().tolist() == [[0]]  # a single frame has no time


def test_a_corruption_is_a_function_of_the_key():
    for name in ("frame_drop", "frame_freeze", "frame_shuffle"):
        shown = _shown(name, 4)
        assert len({row.tobytes() for row in shown}) > 3
        np.testing.assert_array_equal(_shown(name, 4, KEYS[5:9]), shown[5:9])


def test_frames_of_a_clip_have_the_same_random_numbers():
    still = tf.fill([2, 3, 8, 8, 1], 0.5)
    noisy = corruptions.corrupt_clips(still, "gaussian_noise", 5, KEYS[:2]).numpy()
    np.testing.assert_array_equal(noisy[:, 0], noisy[:, 2])
    assert np.any(noisy[0] != noisy[1])
    np.testing.assert_array_equal(noisy[:, 1], corruptions.corrupt(still[:, 1], "gaussian_noise", 5, KEYS[:2]))


@pytest.mark.parametrize("channels", [1, 3])
def test_compression_loses_more_with_a_larger_scale(channels):
    generator = np.random.default_rng(0)
    smooth = np.linspace(0.2, 0.8, 20)[:, None, None] * np.ones((1, 21, channels))
    clips = np.clip(smooth + generator.normal(0, 0.1, (2, 5, 20, 21, channels)), 0, 1).astype(np.float32)
    decoded = {scale: temporal.compressed(tf.constant(clips), scale).numpy() for scale in (1, 4, 31)}
    lost = {scale: np.abs(coded - clips).mean() for scale, coded in decoded.items()}
    assert all(coded.shape == clips.shape and coded.min() >= 0 and coded.max() <= 1 for coded in decoded.values())
    # Coding in color halves the resolution of the colors.
    assert lost[1] < (0.012 if channels == 1 else 0.08) and lost[1] < lost[4] < lost[31] < 0.12
    inside = tf.function(lambda clips: corruptions.corrupt_clips(clips, "video_compression", 5, KEYS[:2]))
    np.testing.assert_array_equal(inside(tf.constant(clips)), decoded[31])

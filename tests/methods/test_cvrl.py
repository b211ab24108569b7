"""CVRL: clips of the right frames, the scale of its loss, and its settings."""

import numpy as np
import tensorflow as tf

from conformance.methods import NO_CHANGE, StagedClips
from tfrobust.methods.cvrl import CVRL
from tfrobust.models.heads.linear import LinearHead

# Pixels are the number of the frame / 32.
VIDEOS = np.broadcast_to((np.arange(12) / 32).reshape(1, 12, 1, 1, 1), (200, 12, 4, 4, 1)).astype(np.float32)


def test_views_are_clips_of_frames_a_stride_apart():
    method = CVRL(StagedClips(), LinearHead(2), frames=4, stride=2, views=NO_CHANGE)
    views = method.host_views(tf.constant(VIDEOS), tf.constant([1, 2]))
    frames = np.stack([32 * views[name].numpy()[..., 0, 0, 0] for name in ("view_1", "view_2")])
    assert frames.shape == (2, 200, 4)
    np.testing.assert_allclose(np.diff(frames, axis=-1), 2)
    starts = frames[..., 0]
    assert set(starts.ravel()) == set(range(6)), "12 frames have 6 starts of clips of 7 frames"
    apart = np.bincount(np.abs(starts[0] - starts[1]).astype(int), minlength=6) / 200
    # 1 - (1 - d / 6)^2: 11, 9, 7, ... of 36.
    np.testing.assert_allclose(apart, np.array([11, 9, 7, 5, 3, 1]) / 36, atol=0.1)
    assert 0.2 < (starts[0] < starts[1]).mean() < 0.6


def test_the_defaults_are_those_of_the_code():
    method = CVRL(StagedClips(), LinearHead(2))
    first, second = method.views
    assert (method.frames, method.stride, method.temperature, method.scale) == (16, 2, 0.1, "sum")
    assert (first.blur, first.solarize, second.blur, second.solarize) == (1.0, 0.0, 0.1, 0.2)
    assert first.crop == second.crop == (0.3, 1.0) and first.aspect == (0.5, 2.0)
    assert method.projection.hidden == (2048,) * 3 and method.projection.dim == 128
    assert CVRL.kinds == ("clips",)

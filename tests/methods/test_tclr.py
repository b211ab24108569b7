"""TCLR: its clips in time, its four losses against loops in float64, and what it refuses."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance.methods import NO_CHANGE, StagedClips
from oracles import temporal as oracle
from tfrobust.keras.models import R3D18, LinearHead, LinearProjection
from tfrobust.methods.tclr import TCLR
from tfrobust.structs import Batch

PARTS, FRAMES, COUNT = 2, 2, 4


def make(**settings) -> TCLR:
    parts = StagedClips(), LinearHead(2)
    return TCLR(*parts, **{"frames": FRAMES, "parts": PARTS, "views": NO_CHANGE, **settings})


def test_dense_clips_tile_the_span_of_the_sparse_clip():
    videos = np.broadcast_to((np.arange(8) / 32).reshape(1, 8, 1, 1, 1), (60, 8, 4, 4, 1)).astype(np.float32)
    views = make(frames=3).host_views(tf.constant(videos), tf.constant([1, 2]))
    frames = {name: np.round(32 * view.numpy()[..., 0, 0, 0]) for name, view in views.items()}
    start = frames["sparse_1"][:, 0]
    assert set(start) == {0, 1, 2}, "8 frames have 3 starts of spans of 6"
    for number in "12":
        np.testing.assert_array_equal(frames[f"sparse_{number}"], start[:, None] + [0, 2, 4])
        np.testing.assert_array_equal(frames[f"dense_{number}"].reshape(60, 6), start[:, None] + np.arange(6))


def test_each_clip_is_augmented_by_a_draw_of_its_own():
    method, keys = make(), []
    method.views = lambda clips, key: keys.append(tuple(key.numpy())) or clips
    method.host_views(tf.zeros([1, FRAMES * PARTS, 4, 4, 1]), tf.constant([1, 2]))
    assert len(set(keys)) == len(keys) == 2 * (1 + PARTS)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_the_terms_are_the_losses_of_the_projections(across, forward):
    """In inference statistics, so that every clip can be passed through the network alone."""
    method = make(across_parts=across, forward=forward, temperature=0.3, projection=LinearProjection(5))
    method.compile(keras.optimizers.SGD(0.1))
    videos = np.random.default_rng(0).random((COUNT, 5, 8, 8, 1)).astype(np.float32)
    method.build((None, *videos.shape[1:]))
    method.encoder.trainable = False
    batch = Batch(tf.constant(videos), tf.constant([0, 1, 0, 1]), tf.range(COUNT, dtype=tf.int64), {})
    context = method.context(batch)
    views = method.make_views(batch, context)
    terms, logits = method.loss_terms(views, batch, context)
    assert logits.shape == (COUNT, 2)

    def projected(clip):
        return method.project(method.encoder(clip, training=False)).numpy()

    def slices(clip):
        states = {}
        method.encoder(clip, training=False, at_stage=lambda index, hidden: states.setdefault(index, hidden))
        pooled = states[1].numpy().mean(axis=(2, 3))
        return np.stack([method.project(tf.constant(pooled[:, part])).numpy() for part in range(PARTS)], axis=1)

    sparse = np.stack([projected(views[f"sparse_{number}"]) for number in "12"], axis=1)
    dense = [np.stack([projected(views[f"dense_{n}"][:, part]) for part in range(PARTS)], axis=1) for n in "12"]
    long_clips = [slices(views[f"sparse_{number}"]) for number in "12"]
    sets = np.concatenate(dense, axis=1)
    pairs = [pair for pair in itertools.permutations(range(2 * PARTS), 2) if across or (pair[0] - pair[1]) % PARTS == 0]
    assert len(pairs) == (12 if across else 4)
    expected = {
        "instance_sparse": oracle.instances(sparse, 0.3, [(0, 1), (1, 0)]),
        "instance_dense": oracle.instances(sets, 0.3, pairs),
        "local_local": [oracle.local_local(first, other, 0.3) for first, other in zip(*dense, strict=True)],
        "global_local": [
            np.mean([oracle.global_local(a[video], b[video], 0.3) for a in long_clips for b in dense])
            for video in range(COUNT)
        ],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(terms[name], values, rtol=2e-5, err_msg=name)


def test_a_plain_model_is_refused_and_the_dilated_network_has_slices():
    with pytest.raises(ValueError, match="which Sequential has not"):
        TCLR(keras.Sequential([keras.layers.Flatten()]), LinearHead(2))
    assert R3D18("small", width=1, dilated=True).last_stage_shape((None, 16, 8, 8, 1))[1] == 4

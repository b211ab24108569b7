import numpy as np
import pytest
import stored
import tensorflow as tf
from videos import numbered, write_video

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.data.clips import ClipSampling, VideoExamples
from tfrobust.data.pipeline import training_batches
from tfrobust.data.spec import PIXEL_SCALE
from tfrobust.security import video_files

LENGTHS = (9, 5, 2)
LABELS = (1, 0, 1)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    clips = [numbered(length, first=100 * number) for number, length in enumerate(LENGTHS)]
    names = zip(("a.avi", "b.mkv", "c.avi"), clips, strict=True)
    return [str(write_video(folder / name, frames)) for name, frames in names]


def _examples(paths, size=(8, 12), crop=None, **sampling):
    return VideoExamples(paths, LENGTHS, LABELS, size, ClipSampling(**sampling), training_crop=crop)


def _numbers(clips):
    """The frame numbers that red pixels say, [b, t]."""
    return np.rint(np.asarray(clips)[..., 3, 4, 0] * 255).astype(int)


@pytest.mark.parametrize("short, length, start, expected", stored.rows(globals(), "a_clip_goes_on_in_a_short_video"))
def test_a_clip_goes_on_in_a_short_video(short, length, start, expected):
    sampling = ClipSampling(frames=4, stride=2, short=short)
    positions = sampling.positions(tf.constant([length], tf.int64), tf.constant([start], tf.int64))
    assert positions.numpy().tolist() == [expected]
    order = [*range(length), *(range(length - 2, 0, -1) if short == "mirror" else ())] * 9  # written out
    assert [order[start + 2 * frame] for frame in range(4)] == expected


def test_starts_of_test_clips_are_evenly_spaced():
    sampling = ClipSampling(frames=4, stride=2, clips=3)  # spans 7 frames
    assert sampling.starts([27, 7, 8, 2]).tolist() == [[0, 10, 20], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert ClipSampling(frames=4, stride=2).starts([27, 7, 8, 2]).tolist() == [[10], [0], [0], [0]]


def test_starts_in_training_are_uniform_and_of_the_key_alone():
    sampling, keys = ClipSampling(frames=3, stride=2), tf.stack([tf.fill([4000], 5), tf.range(4000)], 1)
    starts = sampling.random_starts(tf.fill([4000], tf.constant(8, tf.int64)), keys).numpy()
    assert set(starts) == {0, 1, 2, 3}
    assert np.all(np.abs(np.bincount(starts) - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75))
    again = sampling.random_starts(tf.constant([8, 2], tf.int64), keys[7:9]).numpy()
    assert again[0] == starts[7] and again[1] == 0


def test_clips_are_the_frames_of_the_video(paths):
    examples = _examples(paths, frames=2, stride=3, clips=2)
    assert examples.image_shape == (2, 8, 12, 3) and len(examples) == 6
    assert examples.groups.tolist() == [0, 0, 1, 1, 2, 2] and examples.labels.tolist() == [1, 1, 0, 0, 1, 1]
    index = tf.range(6)
    expected = [[0, 3], [5, 8], [100, 103], [101, 104], [200, 201], [200, 201]]
    stream = tf.data.Dataset.from_tensors(index).map(examples.fetch)
    for clips in (examples.fetch(index), next(iter(stream))):
        assert clips.dtype == tf.float32 and _numbers(clips).tolist() == expected
    np.testing.assert_allclose(clips[1], numbered(9)[[5, 8]] * PIXEL_SCALE, atol=1e-6)
    images, labels = examples.arrays()
    np.testing.assert_array_equal(images, clips)
    assert labels.tolist() == examples.labels.tolist()


def test_a_split_has_whole_videos(paths):
    examples = _examples(paths, frames=2, stride=3, clips=2)
    taken = examples.take([4, 5, 0, 1])
    assert taken.videos == (paths[2], paths[0]) and taken.labels.tolist() == [1, 1, 1, 1]
    assert taken.groups.tolist() == [0, 0, 1, 1] and taken.lengths.tolist() == [2, 9]
    for wrong in ([0, 2], [1, 0], [0, 1, 2]):
        with pytest.raises(ValueError, match="all 2 clips"):
            examples.take(wrong)


@pytest.mark.rest
def test_training_takes_random_starts_and_one_crop_for_all_frames(paths):
    examples = _examples(paths, (4, 6), RandomResizedCrop(scale=(0.2, 0.5)), frames=3, stride=2)
    keys, fetch = tf.stack([tf.range(40), tf.range(40)], 1), tf.function(examples.fetch_training, autograph=False)
    clips = fetch(tf.zeros([40], tf.int64), keys).numpy()
    numbers = np.rint(clips[:, :, 2, 3, 0] * 255).astype(int)
    assert set(map(tuple, numbers)) == {(start, start + 2, start + 4) for start in range(5)}
    places = clips[..., 1:]  # green and blue say where a pixel is from
    np.testing.assert_allclose(places, np.repeat(places[:, :1], 3, 1), atol=1e-6)
    assert len({clip[0].tobytes() for clip in places}) > 20
    np.testing.assert_allclose(examples.fetch_training(tf.constant([0], tf.int64), keys[7:8])[0], clips[7], atol=1e-6)


def test_the_pipeline_reads_videos_ahead(paths):
    examples = _examples(paths, frames=3, stride=1)
    batches = training_batches(examples, batch_size=2, seed=0, steps=4)
    for batch in batches:
        assert batch.images.shape == (2, 3, 8, 12, 3)
        for clip, index, label in zip(_numbers(batch.images), batch.index.numpy(), batch.labels.numpy(), strict=True):
            assert clip[0] // 100 == index and label == LABELS[index] and clip[1] == clip[0] + 1


def test_the_fingerprint_is_of_the_files_and_the_sampling(paths):
    first = _examples(paths, frames=2).fingerprint
    assert first == _examples(paths, frames=2).fingerprint
    changed = [
        _examples(paths, frames=2, stride=3),
        _examples(paths[::-1], frames=2),
        _examples(paths, (4, 6), frames=2),
    ]
    assert len({first, *(examples.fingerprint for examples in changed)}) == 4


def test_frames_beyond_a_wrong_length_repeat_the_last_one(paths):
    frames = video_files.decoded(paths[2], np.array([0, 7, 1]))
    assert frames[:, 0, 0, 0].tolist() == [200, 201, 201]

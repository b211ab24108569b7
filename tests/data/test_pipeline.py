import numpy as np
import tensorflow as tf

from tfrobust.augment.standard import Compose, RandomFlip, RandomShift
from tfrobust.data.pipeline import of_all, shuffled, steps_per_epoch, training_batches
from tfrobust.data.spec import ArrayExamples
from tfrobust.ops import randomness
from tfrobust.structs import Batch

COUNT = 22
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 4, 1), np.uint8)
EXAMPLES = ArrayExamples(IMAGES, np.arange(COUNT) % 3)
SHAKE = Compose(augmentations=(RandomFlip(), RandomShift(fraction=0.3)))


def _take(steps, **arguments):
    arguments = {"batch_size": 6, "seed": 1, **arguments}
    return [tf.nest.map_structure(np.asarray, batch) for batch in training_batches(EXAMPLES, steps=steps, **arguments)]


def _equal(first, second):
    return len(first) == len(second) and all(
        np.array_equal(left_part, right_part)
        for left_part, right_part in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    )


def test_batch_is_what_it_says():
    weights = np.linspace(0, 1, COUNT, dtype=np.float32)
    stream = training_batches(EXAMPLES, batch_size=6, seed=1, steps=4, extra={"weight": weights})
    assert stream.element_spec.images.shape == (6, 4, 4, 1)
    for batch in stream:
        assert isinstance(batch, Batch) and batch.index.dtype == tf.int64 and batch.labels.dtype == tf.int32
        assert np.array_equal(batch.images, EXAMPLES.fetch(batch.index))
        assert np.array_equal(batch.labels, EXAMPLES.labels[batch.index])
        assert np.array_equal(batch.extra["weight"], weights[batch.index])
    assert _take(1)[0].extra == {}


def test_releasing_the_stream_waits_for_no_thread():
    """TensorFlow's tuning thread sleeps up to a minute, and on one core nothing wakes it."""
    stream = training_batches(EXAMPLES, batch_size=6, seed=1)
    assert stream.options().autotune.enabled is False and stream.rebatch(3).options().autotune.enabled is False


def test_every_example_once_per_epoch():
    epochs = [np.concatenate([b.index for b in _take(2, batch_size=11, start_step=2 * e)]) for e in range(4)]
    for order in epochs:
        assert np.array_equal(np.sort(order), np.arange(COUNT))
    assert len({tuple(order) for order in epochs}) == 4


def test_remainder_is_dropped_and_changes():
    assert steps_per_epoch(EXAMPLES, 6) == 3
    left_out = [
        set(range(COUNT)) - set(np.concatenate([b.index for b in _take(3, start_step=3 * e)]).tolist())
        for e in range(4)
    ]
    assert all(len(rest) == 4 for rest in left_out) and len({frozenset(rest) for rest in left_out}) > 1


def test_resume_equals_the_uninterrupted_stream_and_the_seed_decides():
    stream = _take(8, augmentation=SHAKE)
    for start in (1, 5):
        assert _equal(stream[start:], _take(8 - start, augmentation=SHAKE, start_step=start))
    assert not _equal(_take(3), _take(3, seed=2))


def test_augmentation_follows_the_example_not_the_batch():
    """Equal index and epoch, other batch size: equal pixels; another epoch: other pixels."""
    large = {int(i): image for b in _take(2, batch_size=11, augmentation=SHAKE) for i, image in _pairs(b)}
    small = {int(i): image for b in _take(11, batch_size=2, augmentation=SHAKE) for i, image in _pairs(b)}
    assert all(np.array_equal(large[i], small[i]) for i in range(COUNT))
    next_epoch = _take(2, batch_size=11, augmentation=SHAKE, start_step=2)
    later = {int(i): image for b in next_epoch for i, image in _pairs(b)}
    assert sum(np.array_equal(large[i], later[i]) for i in range(COUNT)) < COUNT / 2


def _pairs(batch):
    return zip(batch.index, batch.images, strict=True)


def test_orders_do_not_recur():
    """Keys that differ in the epoch only: index_shuffle itself has 256 orders, the same after 256 epochs."""
    count, epochs = 40, 1500
    positions = tf.range(count, dtype=tf.int64)
    keys = randomness.example_keys(randomness.make_key(0, "shuffle"), tf.range(epochs))
    orders = tf.function(
        lambda: tf.map_fn(lambda key: shuffled(positions, count, key), keys, fn_output_signature=tf.int64)
    )().numpy()
    assert np.array_equal(np.sort(orders, 1), np.tile(np.arange(count), (epochs, 1)))
    assert len(np.unique(orders, axis=0)) == epochs
    expected = epochs / count
    for column in (orders[:, 0], (orders[:, 1] - orders[:, 0]) % count):
        counts = np.bincount(column, minlength=count)
        counts = counts[counts > 0]
        assert np.sum((counts - expected) ** 2 / expected) / (len(counts) - 1) < 2


def test_a_function_of_positions_sees_each_once():
    calls = []
    assert of_all(lambda places: calls.append(len(places)) or 2 * places, 7, 3).tolist() == [*range(0, 14, 2)]
    assert calls == [3, 3, 1]


def test_shares_are_the_blocks_of_the_global_batch():
    extra = {"weight": np.linspace(0, 1, COUNT, dtype=np.float32)}
    fetched = []

    def noted(images, keys):
        fetched.append(images.shape[0])  # once per trace
        return SHAKE(images, keys)

    stream = _take(5, augmentation=SHAKE, extra=extra, start_step=2)
    shares = [_take(5, augmentation=noted, extra=extra, start_step=2, share=(block, 3)) for block in range(3)]
    for batch, *parts in zip(stream, *shares, strict=True):
        joined = tf.nest.map_structure(lambda *rows: np.concatenate(rows), *parts)
        assert _equal([joined], [batch])
    assert set(fetched) == {2}


def test_single_example():
    single = ArrayExamples(IMAGES[:1], [0])
    assert [int(batch.index[0]) for batch in training_batches(single, batch_size=1, seed=0, steps=2)] == [0, 0]


def test_views_follow_from_the_augmented_image_and_the_example_alone():
    def views(images, keys):
        return {"noisy": images + randomness.draw(randomness.uniform(), keys, images.shape)}

    stream = _take(5, augmentation=SHAKE, views=views)
    plain = _take(5, augmentation=SHAKE)
    for batch, other in zip(stream, plain, strict=True):
        assert np.array_equal(batch.images, other.images)  # draws of their own, and no others'
        assert 0 < np.ptp(batch.extra["noisy"] - batch.images) < 1
    assert _equal(stream[3:], _take(2, augmentation=SHAKE, views=views, start_step=3))
    noise = [{int(i): v for b in _take(3, views=views, batch_size=size, start_step=0) for i, v in
              zip(b.index, b.extra["noisy"] - b.images, strict=True)} for size in (6, 2)]  # fmt: skip
    shared = set(noise[0]) & set(noise[1])
    assert shared and all(np.allclose(noise[0][i], noise[1][i], atol=1e-6) for i in shared)

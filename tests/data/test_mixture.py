"""Generated examples: their share of every batch, where they come from, and streams that resume."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.data.mixture import MixedExamples
from tfrobust.data.pipeline import steps_per_epoch, training_batches
from tfrobust.errors import InputError
from tfrobust.keras.data import ArrayExamples, CornerDigits, Digits, MovingDigits, Npz, WithGenerated
from tfrobust.ops import randomness

COUNT, EXTRA, BATCH = 22, 300, 10


def examples(count, first, seed):
    """Images whose first pixel says which they are."""
    images = np.random.default_rng(seed).uniform(size=(count, 2, 2, 1)).astype(np.float32)
    images[:, 0, 0, 0] = (first + np.arange(count)) / 1000
    return ArrayExamples(images, np.arange(count) % 3)


ORIGINAL, GENERATED = examples(COUNT, 0, 0), examples(EXTRA, COUNT, 1)


def taken(steps, share=0.7, **arguments):
    mixed = MixedExamples(ORIGINAL, GENERATED, share)
    arguments = {"batch_size": BATCH, "seed": 1, "steps": steps, **arguments}
    return [tf.nest.map_structure(np.asarray, batch) for batch in training_batches(mixed, **arguments)]


@pytest.mark.parametrize(("share", "expected"), [(0.7, 7), (0.25, 2), (0.99, 9)])
def test_each_batch_has_the_share_spread_over_its_rows(share, expected):
    for batch in taken(5, share):
        generated = batch.index >= COUNT
        assert generated.sum() == expected
        halves = generated[:5].sum(), generated[5:].sum()
        assert abs(int(halves[0]) - int(halves[1])) <= 1
        np.testing.assert_allclose(batch.images[:, 0, 0, 0], batch.index / 1000, atol=1e-6)
        labels = np.where(generated, (batch.index - COUNT) % 3, batch.index % 3)
        np.testing.assert_array_equal(batch.labels, labels)


def test_original_examples_are_shuffled_and_generated_ones_drawn_with_replacement():
    index = np.concatenate([batch.index for batch in taken(70)])
    original = index[index < COUNT].reshape(-1, 21)  # 7 steps of 3 rows are a pass; one example is left out
    assert all(len(set(row)) == 21 for row in original) and len({tuple(row) for row in original}) == len(original)
    generated = index[index >= COUNT] - COUNT
    counts = np.bincount(generated, minlength=EXTRA)
    assert counts.min() == 0 and counts.max() > 2 and len(generated) == 490
    # The number of examples without a draw is that of independent draws.
    assert abs(np.mean(counts == 0) - (1 - 1 / EXTRA) ** 490) < 0.08


def test_an_epoch_has_the_steps_of_the_original_examples_and_the_stream_resumes():
    mixed = MixedExamples(ORIGINAL, GENERATED, 0.7)
    assert steps_per_epoch(mixed, BATCH) == 2 and len(mixed) == COUNT + EXTRA
    assert MixedExamples(ORIGINAL, GENERATED, 0.29).rows_of(100) == 29
    stream, rest = taken(9), taken(6, start_step=3)
    for expected, other in zip(stream[3:], rest, strict=True):
        np.testing.assert_array_equal(expected.index, other.index)
        np.testing.assert_array_equal(expected.images, other.images)


def test_the_rows_of_workers_are_those_of_the_global_batch():
    mixed = MixedExamples(ORIGINAL, GENERATED, 0.7)
    parts = [
        [batch.index.numpy() for batch in training_batches(mixed, batch_size=BATCH, seed=1, steps=3, share=(i, 2))]
        for i in range(2)
    ]
    for number, batch in enumerate(taken(3)):
        np.testing.assert_array_equal(np.concatenate([part[number] for part in parts]), batch.index)


def test_repetitions_of_a_generated_example_are_augmented_independently():
    def noisy(images, keys):
        return images + randomness.draw(randomness.uniform(), keys, images.shape)

    mixed = MixedExamples(ORIGINAL, examples(2, COUNT, 1), 0.7)
    arguments = {"batch_size": BATCH, "seed": 1, "augmentation": noisy, "views": lambda *pair: {"view": noisy(*pair)}}
    stream = [batch for batch in training_batches(mixed, steps=4, **arguments)]
    for batch in stream:
        index = batch.index.numpy()
        assert len(set(index)) < BATCH
        noise = (batch.images - mixed.fetch(batch.index)).numpy()
        for values in (noise, (batch.extra["view"] - batch.images).numpy()):
            assert len(np.unique(values[:, 0, 0, 0])) == BATCH
    parts = [training_batches(mixed, steps=2, start_step=2, share=(i, 2), **arguments) for i in range(2)]
    for batch, *halves in zip(stream[2:], *parts, strict=True):
        for expected, *found in zip(*map(tf.nest.flatten, (batch, *halves)), strict=True):
            np.testing.assert_array_equal(np.concatenate(found), expected)


def test_fetching_keeps_the_order_and_the_fingerprint_knows_the_parts():
    mixed = MixedExamples(ORIGINAL, GENERATED, 0.7)
    index = tf.constant([300, 0, 21, 22, 5], tf.int64)
    np.testing.assert_allclose(mixed.fetch(index)[:, 0, 0, 0], [0.3, 0.0, 0.021, 0.022, 0.005], atol=1e-6)
    changed = [MixedExamples(ORIGINAL, GENERATED, 0.6), MixedExamples(GENERATED, ORIGINAL, 0.7)]
    assert len({mixture.fingerprint for mixture in (mixed, *changed)}) == 3


def test_a_limit_takes_original_examples_first():
    """A search for test images among them would otherwise see mostly generated ones."""
    mixed = MixedExamples(ORIGINAL, GENERATED, 0.7)
    for limit, count in ((5, 5), (COUNT, COUNT), (COUNT + 3, COUNT), (None, COUNT)):
        images, labels = mixed.arrays(limit)
        assert len(images) == len(labels) == (COUNT + EXTRA if limit is None else limit)
        places = np.rint(images[:, 0, 0, 0] * 1000)
        assert np.all(places[:count] < COUNT) and np.all(places[count:] >= COUNT)
        np.testing.assert_array_equal(labels, np.where(places < COUNT, places % 3, (places - COUNT) % 3))


def written(folder, classes, names=None):
    path = str(folder / f"{classes}.npz")
    images = np.random.default_rng(0).integers(0, 256, (4 * classes, 8, 8, 1), np.uint8)
    labels = np.arange(4 * classes) % classes
    np.savez(path, images=images, labels=labels if names is None else np.array(names)[labels])
    return Npz(path=path, test_size=classes)


def test_classes_of_other_names_or_in_another_order_are_refused(tmp_path):
    for folder in "abc":
        (tmp_path / folder).mkdir()
    named, other = written(tmp_path / "a", 3, "ant bee fly".split()), written(tmp_path / "b", 3, "ant fly owl".split())
    numbered = written(tmp_path / "c", 3)
    for pair in ((named, named), (named, numbered), (numbered, other)):
        assert WithGenerated(source=pair[0], generated=pair[1]).load().class_count == 3
    with pytest.raises(ValueError, match="class 1 is 'fly' in the generated data and 'bee' in"):
        WithGenerated(source=named, generated=other).load()
    (tmp_path / "d").mkdir()
    texts = written(tmp_path / "d", 12, list(map(str, range(12))))  # "10" follows "1"
    with pytest.raises(ValueError, match="class 2 is '2' in the generated data and '10' in"):
        WithGenerated(source=texts, generated=written(tmp_path, 12)).load()


def test_a_source_mixes_the_training_split_alone(tmp_path):
    source, generated = Digits(validation_size=100), written(tmp_path, 10)
    dataset, plain = WithGenerated(source=source, generated=generated).load(), source.load()
    assert len(dataset.train) == len(plain.train) + 30 and dataset.name == "digits, 0.7 of each batch generated"
    assert (dataset.validation.fingerprint, dataset.test.fingerprint) == (
        plain.validation.fingerprint,
        plain.test.fingerprint,
    )


def test_sources_that_would_lose_the_share_of_generated_images_are_refused():
    mixed = WithGenerated(source=Digits(validation_size=200), generated=Digits())
    for refused in (
        WithGenerated(source=mixed, generated=Digits()),
        WithGenerated(source=Digits(), generated=mixed),
        CornerDigits(source=mixed),
        MovingDigits(source=mixed),
    ):
        with pytest.raises(InputError, match=f"{type(refused).__name__} takes no source with generated images"):
            refused.load()

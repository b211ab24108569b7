"""IFND in the loop: whose features are clustered when, and that a run resumed gives the same bits."""

import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from faults import small_run

from conformance import methods as battery
from tfrobust.data.spec import ArrayExamples
from tfrobust.errors import StopRequested
from tfrobust.ops import randomness, schedules
from tfrobust.pairs.false_negatives import FNC, IFND
from tfrobust.training.pseudo_labels import refreshers

COUNT = small_run.BATCH * small_run.STEPS_PER_EPOCH


class Recorder(keras.callbacks.Callback):
    """Pseudo-labels after each epoch; a SIGTERM in the middle of some global step, counted from 1."""

    def __init__(self, stop_in=None):
        super().__init__()
        self.stop_in, self.labels = stop_in, []

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.step) + 1 == self.stop_in:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch, logs=None):
        self.labels.append(self.model.pseudo_labels.numpy())


def make_loop(directory, rule, **keywords):
    method = battery.build("simclr", false_negatives=rule, examples=COUNT)
    examples, recorder = ArrayExamples(*battery.data(COUNT)), Recorder(**keywords)
    callbacks = [*refreshers(method, examples, seed=5, batch_size=7), recorder]
    return small_run.make_loop(directory, method=method, callbacks=callbacks), recorder


def test_labels_are_clusters_of_the_features_at_their_epoch(tmp_path):
    rule = IFND(clusters=3, every=2, acceptance=schedules.LinearRamp(1.0, length=2 * small_run.LAST))
    loop, recorder = make_loop(tmp_path, rule)
    expected = []
    refresh = loop.callbacks[0].on_epoch_end

    def also_here(epoch, logs=None):
        refresh(epoch, logs)
        embedding = loop.method.embed(battery.data(COUNT)[0])
        seed = abs(int(randomness.make_key(5, "pseudo_labels", epoch)[0]))
        expected.append(rule.pseudo_labels(embedding, step=4 * (epoch + 1), seed=seed))

    loop.callbacks[0].on_epoch_end = also_here
    history = loop.run()
    before, after, still = recorder.labels
    assert np.all(before == -1) and np.array_equal(after, still)
    np.testing.assert_array_equal(after, expected[1])
    assert np.sum(after >= 0) == COUNT * 8 // 24  # as many as are accepted at step 8 of 24
    removed = np.add(history["false_negatives_found"], history["true_negatives_removed"])
    assert removed[0] == removed[1] == 0 < removed[2]


def test_a_resumed_run_gives_the_same_bits(tmp_path):
    tf.config.experimental.enable_op_determinism()
    rule = IFND(clusters=3, features="projection")
    uninterrupted, recorder = make_loop(tmp_path / "whole", rule)
    expected = small_run.outcome(uninterrupted, uninterrupted.run())
    with pytest.raises(StopRequested):
        make_loop(tmp_path / "parts", rule, stop_in=6)[0].run()
    resumed, again = make_loop(tmp_path / "parts", rule)
    assert small_run.outcome(resumed, resumed.run()) == expected
    np.testing.assert_array_equal(again.labels, recorder.labels[1:])
    assert np.all(recorder.labels[0] >= 0)


def test_methods_without_pseudo_labels_have_nothing_to_refresh():
    examples = ArrayExamples(*battery.data(COUNT))
    for method in (
        battery.build("supervised"),
        battery.build("simclr"),
        battery.build("simclr", false_negatives=FNC()),
    ):
        assert refreshers(method, examples, seed=0, batch_size=4) == []


def test_the_step_cancels_by_the_labels_of_its_images(tmp_path):
    """Two images with one pseudo-label, the others with none: of 6 images' 10 negatives each, theirs lose 2."""
    method = battery.build("simclr", false_negatives=IFND(), examples=COUNT)
    batch = next(iter(small_run.batches(0)))
    labels = np.full(COUNT, -1)
    labels[batch.index.numpy()[[1, 4]]] = 7
    method.pseudo_labels.assign(labels)
    views = [tf.random.stateless_normal([6, 5], [view, 1]) for view in (0, 1)]
    one_class = batch._replace(labels=tf.zeros([6], tf.int32))  # all of one class: all negatives are false
    _, observed = method.contrast(views, method.context(batch), one_class, features=views)
    np.testing.assert_allclose(observed["false_negatives_found"], 2 * 2 * 2 / (12 * 10), rtol=1e-6)


def test_the_acceptance_counts_updates_and_not_the_batches_that_one_gathers():
    """Four batches to an update: after one update an eighth of the examples is accepted, not half of them."""
    images, labels = battery.data(16)
    rule = IFND(clusters=2, every=1, acceptance=schedules.LinearRamp(1.0, length=8))
    method = battery.build("simclr", false_negatives=rule, examples=16, compiled=False)
    method.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4), jit_compile=False)
    (callback,) = refreshers(method, ArrayExamples(images, labels), seed=5, batch_size=7)
    method.fit(images, labels, batch_size=4, epochs=1, verbose=0, callbacks=[callback])
    assert int(method.step) == 4 and np.sum(method.pseudo_labels.numpy() >= 0) == 2

"""Check the contrastive methods together: false negatives, temperature, and the arguments they refuse."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import methods as battery
from conformance.contrast import COUNT, LABELS, contrast, projections
from tfrobust.keras.methods import FNC, IFND, AdaptiveFNC, SimCLR  # noqa: F401
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import randomness
from tfrobust.pairs import masks, selection
from tfrobust.structs import Batch, Context
from tfrobust.training.callbacks.negatives_warning import NegativesWarning


@pytest.mark.parametrize("features", ["projection", "embedding"])
def test_false_negatives_leave_the_denominator_and_are_counted(features):
    vectors = projections(2)
    near = np.stack([np.eye(4, dtype=np.float32)[LABELS]] * 2)  # same label: cosine 1, else 0
    compared = {"features": [tf.constant(z) for z in near]} if features == "embedding" else {}
    shown = vectors if compared else near
    rule = AdaptiveFNC(threshold=0.5, features=features)
    value, observed = contrast(SimCLR, shown, false_negatives=rule, **compared)
    stacked = tf.concat(list(shown), axis=0)
    tags = masks.join(*(masks.tag(tf.range(COUNT), view=view, label=LABELS) for view in (0, 1)))
    pairs = selection.sample_ids(tags, tags)
    filtered = pairs._replace(negative=pairs.negative & ~masks.same_label(tags, tags))
    by_hand = masked_contrastive(stacked, stacked, filtered, temperature=0.5)
    np.testing.assert_allclose(value, np.mean(np.split(by_hand, 2), axis=0), rtol=1e-6)
    assert not np.allclose(value, contrast(SimCLR, shown)[0])
    np.testing.assert_array_equal(observed["false_negatives_found"], 1.0)
    np.testing.assert_array_equal(observed["true_negatives_removed"], 0.0)
    counts = [2 * np.sum(LABELS != label) for label in LABELS]  # of the anchor's class none is left, in two views
    np.testing.assert_allclose(observed["negatives_left"], np.mean(counts), rtol=1e-6)


EQUAL = np.ones((2, COUNT, 5), np.float32)


@pytest.mark.parametrize("rule, remaining", stored.rows(globals(), "negatives_left_are_counted_without_labels_too"))
@pytest.mark.parametrize("labelled", [True, False])
def test_negatives_left_are_counted_without_labels_too(rule, remaining, labelled):
    _, observed = contrast(SimCLR, EQUAL, false_negatives=rule, labels=LABELS if labelled else None, probe=labelled)
    np.testing.assert_array_equal(observed["negatives_left"], np.full(COUNT, remaining))
    assert ("false_negatives_found" in observed) == labelled


def test_shares_by_labels_are_not_logged_without_labels():
    method = battery.build("simclr", false_negatives=AdaptiveFNC(threshold=0.5), probe=False)
    method.compile("sgd", run_eagerly=True)
    images, labels = battery.data(8)
    logs = [method.fit(images, batch_size=8, verbose=0, y=y).history for y in (None, labels)]
    shares = {"false_negatives_found", "true_negatives_removed"}
    assert logs[1].keys() - logs[0].keys() == shares and "negatives_left" in logs[0]


def test_one_warning_where_every_negative_is_cancelled(caplog):
    """The threshold falls to -1 in the second of three steps, so that the mean over the epoch is above 0."""
    falling = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [2.0, -1.0, 2.0])
    method = battery.build("simclr", false_negatives=AdaptiveFNC(threshold=falling))
    method.compile("sgd", jit_compile=False)
    watch, (images, labels) = NegativesWarning(), battery.data(24)
    logs = method.fit(images, labels, batch_size=8, epochs=2, verbose=0, callbacks=[watch], shuffle=False).history
    assert logs["negatives_left"] == pytest.approx([2 * 14 / 3, 14])
    (record,) = caplog.records
    assert "no negatives are left in step 2 of epoch 1" in record.getMessage() and watch.warned
    plain = battery.build("simclr")
    plain.compile("sgd", jit_compile=False)
    plain.fit(images, labels, batch_size=8, verbose=0, callbacks=[NegativesWarning()])
    assert len(caplog.records) == 1


def test_pseudo_labels_are_looked_up_by_the_index_of_the_image():
    method = SimCLR(battery.encoder(), LinearHead(4), false_negatives=IFND(clusters=2), examples=20)
    method.build((None, *battery.IMAGE_SHAPE))
    assert method.pseudo_labels.numpy().tolist() == [-1] * 20
    method.pseudo_labels.assign(np.arange(20) // 10)
    index = np.array([0, 19, 5, 12, 13, 1, 2])
    vectors = [tf.constant(z) for z in projections(4)]
    rows = tf.range(COUNT, dtype=tf.int64)
    batch = Batch(tf.zeros([COUNT, 8, 8, 1]), tf.constant((index // 10).astype(np.int32)), tf.constant(index), {})
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    _, observed = method.contrast(vectors, context, batch, features=vectors)
    np.testing.assert_array_equal(observed["false_negatives_found"], 1.0)
    np.testing.assert_array_equal(observed["true_negatives_removed"], 0.0)


def test_temperature_follows_a_schedule():
    vectors = projections(5)
    falling = keras.optimizers.schedules.PolynomialDecay(0.5, 10, end_learning_rate=0.1)
    np.testing.assert_allclose(
        contrast(SimCLR, vectors, temperature=falling)[0], contrast(SimCLR, vectors)[0], rtol=1e-6
    )

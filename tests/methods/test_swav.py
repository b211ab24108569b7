"""SwAV: the loss beside the released arithmetic in float64, the queue, unit prototypes, freezing, and collapse."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import momentum as oracle
from tfrobust.structs import Batch
from tfrobust.training.callbacks.collapse_warning import CollapseWarning


def lengths(method) -> np.ndarray:
    return np.linalg.norm(method.prototypes.kernel.numpy(), axis=0)


def represented(method, views) -> list:
    """Unit projections of each view: one pass per size, one through the projection."""
    sizes = [tf.concat([views["view_1"], views["view_2"]], axis=0), views.get("local_1")]
    with method.encoder.accepting_any_size():
        parts = [method.encoder(size, training=True) for size in sizes if size is not None]
    projected = method.projection(tf.concat(parts, axis=0), training=True)
    return [oracle.unit(rows) for rows in np.split(projected.numpy(), len(views))]


@pytest.mark.parametrize("row", ["swav", "swav_queue"])
def test_the_loss_is_the_paper_s(row):
    method = battery.build(row)
    if row == "swav_queue":
        queue = oracle.unit(np.random.default_rng(2).normal(size=(2, 8, 4)))
        method.queue.assign(queue)
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    kernel = method.prototypes.kernel.numpy().astype(np.float64)
    z = represented(method, views)
    scores = [rows @ kernel for rows in z]
    stacked = [np.concatenate([queue[i] @ kernel, scores[i]]) if row == "swav_queue" else scores[i] for i in (0, 1)]
    codes = [oracle.sinkhorn(rows, 0.05, 3)[-12:] for rows in stacked]
    np.testing.assert_allclose(terms["swapped_prediction"], oracle.swapped(codes, scores, 0.1), rtol=2e-4)


def test_prototypes_are_unit_after_each_step_and_unchanged_while_frozen():
    """Momentum alone would move them, if their gradients were only 0."""
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9, weight_decay=0.1)
    method = battery.build("swav_queue", optimizer=optimizer, frozen_steps=3)
    start = method.prototypes.kernel.numpy()
    data = tuple(map(tf.constant, battery.data()))
    step = tf.function(lambda: method.train_step(data), autograph=False)
    for number in range(5):
        step()
        np.testing.assert_allclose(lengths(method), 1.0, rtol=1e-5)
        # Scaling to 1 what is 1 already rounds.
        still = np.allclose(method.prototypes.kernel, start, rtol=0, atol=1e-6)
        assert still == (number < 3), number


def test_the_queue_keeps_the_newest_projections_first_and_starts_late():
    method = battery.build("swav_queue", frozen_steps=0, queue_length=16, queue_start=1)
    seen = []
    for number in range(3):
        batch, context = battery.prepared(method)
        views = method.make_views(batch, context)
        state = [(variable, variable.numpy()) for variable in method.variables]
        z = represented(method, views)
        for variable, value in state:
            variable.assign(value)
        method.train_step(Batch(batch.images, batch.labels, batch.index, views))
        if number >= 1:
            seen.insert(0, np.stack(z[:2]))
        expected = np.concatenate([*seen, np.zeros((2, 16, 4))], axis=1)[:, :16]
        np.testing.assert_allclose(method.queue, expected, atol=1e-5)


def test_a_queue_that_is_not_full_changes_nothing():
    method = battery.build("swav_queue", frozen_steps=0, queue_length=16)
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    plain, _ = method.loss_terms(views, batch, context)
    queue = np.zeros((2, 16, 4), np.float32)
    queue[:, :15] = oracle.unit(np.random.default_rng(3).normal(size=(2, 15, 4)))
    method.queue.assign(queue)
    partly, _ = method.loss_terms(views, batch, context)
    np.testing.assert_allclose(partly["swapped_prediction"], plain["swapped_prediction"], rtol=1e-5)
    queue[:, 15] = queue[:, 14]
    method.queue.assign(queue)
    full, _ = method.loss_terms(views, batch, context)
    assert not np.allclose(full["swapped_prediction"], plain["swapped_prediction"], rtol=1e-3)


@pytest.mark.parametrize(("iterations", "collapses"), [(3, False), (0, True)])
def test_the_assignments_collapse_without_balance(iterations, collapses, caplog):
    method = battery.build("swav", optimizer=keras.optimizers.Adam(0.02), iterations=iterations)
    images, labels = battery.data(240)
    watch = CollapseWarning(threshold=0.0)  # of the assignments alone
    method.fit(images, labels, batch_size=24, epochs=3, verbose=0, callbacks=[watch])
    assert watch.warned == collapses
    assert any("the assignments have collapsed" in record.getMessage() for record in caplog.records) == collapses

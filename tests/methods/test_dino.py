"""DINO: the loss beside the released arithmetic in float64, center, frozen layer, clipping, and the teacher."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import momentum as oracle
from tfrobust.keras.methods import DINO
from tfrobust.keras.models import LinearHead, ProjectionHead, Prototypes, ViT
from tfrobust.structs import Batch


def prepared(method) -> tuple:
    """A batch with views, and the context of its step."""
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    return Batch(batch.images, batch.labels, batch.index, views), context


def teacher_scores(method, views) -> list:
    """Scores of the global views, normalized by the statistics of both."""
    stacked = tf.concat([views["view_1"], views["view_2"]], axis=0)
    embedding = method.target_encoder(stacked, training=True)
    return tf.split(method.target_prototypes(method.target_projection(embedding, training=True)), 2)


@pytest.mark.first
def test_the_loss_is_the_paper_s_and_the_center_moves_by_a_tenth():
    method = battery.build("dino")
    method.teacher_temperature = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.3, 0.5])
    center = np.linspace(-0.5, 0.5, 7)
    method.center.assign(center)
    for teacher in (variable for _, layer in method.followed_parts for variable in layer.weights):
        if "moving" not in teacher.path:
            teacher.assign(1.5 * teacher + 0.1)  # at the start it equals the trained network
    batch, context = prepared(method)
    views = batch.extra
    terms, _ = method.loss_terms(views, batch, context)
    sizes = [tf.concat([views[a], views[b]], axis=0) for a, b in (("view_1", "view_2"), ("local_1", "local_2"))]
    embedding = tf.concat([method.encoder(size, training=True) for size in own_sizes(method, sizes)], axis=0)
    scores = tf.split(method.prototypes(method.projection(embedding, training=True)), 4)
    targets = teacher_scores(method, views)
    expected = oracle.dino(targets, scores, center, 0.3, method.temperature)
    np.testing.assert_allclose(terms["distillation"], expected, rtol=1e-4)
    method.train_step(batch)
    mean = np.concatenate(targets).mean(axis=0)
    np.testing.assert_allclose(method.center, 0.9 * center + 0.1 * mean, atol=1e-5)


def own_sizes(method, sizes):
    """The batches, while the encoder accepts them."""
    for size in sizes:
        with method.encoder.accepting_any_size():
            yield size


def test_a_frozen_layer_keeps_weights_and_state_of_the_optimizer():
    """Adam's means and count, and weight decay, begin with the first step that is not frozen."""
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    method = battery.build("dino", optimizer=optimizer, frozen_steps=2)
    frozen = method.prototypes.kernel
    index = [id(variable) for variable in method.trainable_variables].index(id(frozen))
    unfrozen = [variable for variable in method.trainable_variables if variable is not frozen]
    before, start = frozen.numpy(), [variable.numpy() for variable in unfrozen]
    data = tuple(map(tf.constant, battery.data()))
    step = tf.function(lambda: method.train_step(data), autograph=False)
    for number in range(3):
        step()
        slots = [optimizer._momentums[index].numpy(), optimizer._velocities[index].numpy()]
        still = number < 2
        assert np.array_equal(before, frozen.numpy()) == still
        assert all(np.all(slot == 0) == still for slot in slots)
    moved = [np.any(variable.numpy() != old) for variable, old in zip(unfrozen, start, strict=True)]
    assert all(moved)


def test_the_teacher_of_a_transformer_drops_no_paths():
    encoder = ViT(4, width=8, depth=2, heads=2, drop_path=0.5)
    method = DINO(encoder, LinearHead(3), projection=ProjectionHead((6,), dim=4), prototypes=Prototypes(5))
    method.build((None, 8, 8, 1))
    assert method.target_encoder.drop_path == 0.0 and encoder.drop_path == 0.5
    images = tf.constant(battery.data()[0])
    first, second = (method.target_encoder(images, training=True) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, encoder(images, training=False), atol=1e-6)  # equal at the start
    assert not np.allclose(first, encoder(images, training=True), atol=1e-3)


def test_the_encoder_handed_over_is_the_teacher_s():
    method = battery.build("dino")
    for _ in range(2):
        method.train_step(battery.data())
    images = tf.constant(battery.data()[0])
    student, teacher = method.embed(images), method.target_encoder(images, training=False)
    assert not np.allclose(student, teacher)
    method.finish()
    np.testing.assert_array_equal(method.embed(images), teacher)

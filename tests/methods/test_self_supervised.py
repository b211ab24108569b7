"""Check the pre-training methods together: views, projection, and a probe that trains the head alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust import saving, structs
from tfrobust.augment.noise import AddGaussian
from tfrobust.keras.methods import SimCLR, Supervised, Tikhonov
from tfrobust.methods.shared.self_supervised import embedding_deviation
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import randomness


def test_the_spread_of_embeddings():
    vectors = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
    assert float(embedding_deviation(tf.constant(vectors * 3.0))) == pytest.approx(1 / 4, rel=0.01)


def test_the_probe_teaches_the_head_alone():
    method = battery.build("simclr")
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    with tf.GradientTape(persistent=True) as tape:
        terms, _ = method.loss_terms(views, batch, context)
        sums = {name: tf.reduce_sum(terms[name]) for name in method.terms}
    parts = {"encoder": method.encoder, "projection": method.projection, "head": method.head}
    learns = {
        (term, name): any(g is not None for g in tape.gradient(value, part.trainable_variables))
        for term, value in sums.items()
        for name, part in parts.items()
    }
    assert {pair for pair, has in learns.items() if has} == {
        ("contrastive", "encoder"),
        ("contrastive", "projection"),
        ("probe", "head"),
    }


@pytest.mark.parametrize("mode", ["exact", "finite_difference"])
def test_a_penalty_does_not_teach_the_encoder_the_labels(mode):
    images, labels = battery.data()
    encoders = []
    for targets in (labels, labels[::-1].copy()):
        keras.utils.set_random_seed(0)
        penalty = Tikhonov(form="batch", mode=mode)
        method = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT, penalty=penalty)
        method.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        logs = method.train_step((images, targets))
        assert float(logs["tikhonov"]) > 0
        encoders.append(method.encoder.get_weights())
    assert not np.array_equal(labels, labels[::-1])
    for weight, other in zip(*encoders, strict=True):
        np.testing.assert_array_equal(weight, other)


@pytest.mark.parametrize("row", ["simclr", "byol", "acl"])
def test_clipping_does_not_teach_the_encoder_the_labels(row):
    """The probe's gradient is clipped by its own norm, everything else by another."""
    images, labels = battery.data()
    encoders, heads = [], []
    for targets in (labels, np.roll(labels, 1)):
        method = battery.build(row, optimizer=keras.optimizers.SGD(1.0), clip_norm=1e-3)
        probe = {id(variable) for variable in method.head.trainable_variables}
        before = [(variable, variable.numpy()) for variable in method.trainable_variables]
        method.train_step((images, targets))
        for chosen in (True, False):
            moves = [v.numpy() - old for v, old in before if (id(v) in probe) == chosen]
            assert np.sqrt(sum(np.sum(move**2) for move in moves)) == pytest.approx(1e-3, rel=1e-2)
        encoders.append([*method.encoder.get_weights(), *method.projection.get_weights()])
        heads.append(method.head.get_weights()[0])
    for weight, other in zip(*encoders, strict=True):
        np.testing.assert_array_equal(weight, other)
    assert not np.array_equal(*heads)


def test_without_a_probe_it_trains_without_labels(tmp_path):
    method = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT, probe=False)
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(keras.optimizers.SGD(0.05), metrics=["accuracy"], jit_compile=False)  # has no logits to measure
    images, _ = battery.data()
    head, encoder = method.head.get_weights(), method.encoder.get_weights()
    batch = structs.Batch(tf.constant(images), None, tf.range(len(images), dtype=tf.int64), {})
    logs = method.train_step(batch)
    assert set(logs) == {"loss", "contrastive", "embedding_deviation"} and method.terms == ("contrastive",)
    np.testing.assert_array_equal(head[0], method.head.get_weights()[0])
    assert not np.array_equal(encoder[0], method.encoder.get_weights()[0])
    saving.save(method, tmp_path / "method.keras")
    assert len(saving.load(tmp_path / "method.keras").trainable_variables) == len(method.trainable_variables)
    later = Supervised(method.encoder, method.head)
    later.build((None, *battery.IMAGE_SHAPE))
    assert set(map(id, method.head.variables)) <= set(map(id, later.trainable_variables))


def test_each_view_can_have_an_augmentation_of_its_own():
    views = (battery.SHIFT, AddGaussian(deviation=0.5))
    method = SimCLR(battery.encoder(), LinearHead(3), views=views)
    images, key = tf.constant(battery.data()[0]), randomness.make_key(3)
    host_views = method.host_views(images, key)
    for (name, view), augmentation in zip(host_views.items(), views, strict=True):
        np.testing.assert_array_equal(view, augmentation(images, randomness.fold(key, name)))
    shared = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT).host_views(images, key)
    assert not np.array_equal(shared["view_1"], shared["view_2"])  # two draws

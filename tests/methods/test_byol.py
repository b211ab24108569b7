"""BYOL: the loss against the paper's, the target network against a moving average by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import self_supervised as oracle
from oracles import tiny_network
from tfrobust.keras.models import LinearHead, ProjectionHead
from tfrobust.methods.byol import BYOL


def networks(method, kind: str) -> list[np.ndarray]:
    """The weights of the "online" or the "target" encoder and projection."""
    parts = [method.encoder, method.projection]
    if kind == "target":
        parts = [method.target_encoder, method.target_projection]
    return [weight.numpy() for part in parts for weight in part.weights]


def learned(method) -> list[bool]:
    """Which of `networks` are no moving statistics."""
    return [weight.trainable for part in (method.encoder, method.projection) for weight in part.weights]


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_the_loss_is_the_paper_s(forward):
    method = battery.build("byol")
    method.forward = forward
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    images = [views["view_1"], views["view_2"]]

    def through(encoder, projection):
        if forward == "joint":
            return tf.split(projection(encoder(tf.concat(images, 0), training=True), training=True), 2)
        return [projection(encoder(view, training=True), training=True) for view in images]

    online = through(method.encoder, method.projection)
    targets = through(method.target_encoder, method.target_projection)
    predictions = [method.prediction(z, training=True) for z in online]
    np.testing.assert_allclose(terms["regression"], oracle.byol(predictions, targets), rtol=1e-5)


def test_the_target_follows_the_online_network_by_the_scheduled_rate():
    """tau_t = 1 - (1 - tau_0) (cos(pi t / T) + 1) / 2, the online weights those after the update, as in the code."""
    steps, first = 2, 0.75
    rate = keras.optimizers.schedules.CosineDecay(1 - first, steps)
    parts = {"projection": ProjectionHead((4,), dim=3), "views": battery.SHIFT}
    method = tiny_network.build(BYOL, target_rate=rate, **parts)
    method.compile(keras.optimizers.SGD(0.5), jit_compile=False)
    batch, _ = tiny_network.batch()
    for t in range(steps + 1):
        before, old = networks(method, "online"), networks(method, "target")
        method.train_step((batch.images, batch.labels))
        tau = 1 - (1 - first) * (np.cos(np.pi * t / steps) + 1) / 2
        after = zip(networks(method, "online"), networks(method, "target"), learned(method), strict=True)
        for number, (online, target, moves) in enumerate(after):
            if moves:
                assert np.any(online != before[number])
                expected = tau * old[number] + (1 - tau) * online
                np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)
    assert tau == 1.0 and not np.allclose(networks(method, "target")[0], networks(method, "online")[0])


def test_the_target_learns_nothing_and_keeps_its_own_statistics():
    method = battery.build("byol")
    target = {id(weight) for part in (method.target_encoder, method.target_projection) for weight in part.weights}
    assert target and not target & {id(variable) for variable in method.trainable_variables}
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    with tf.GradientTape() as tape:
        watched = [
            weight.value for part in (method.target_encoder, method.target_projection) for weight in part.weights
        ]
        tape.watch(watched)
        terms, _ = method.loss_terms(views, batch, context)
    assert tape.gradient(terms["regression"], watched) == [None] * len(watched)
    method.target_rate = 0.0
    before, online = networks(method, "target"), networks(method, "online")
    method.train_step((batch.images, batch.labels))
    after, moved = networks(method, "target"), networks(method, "online")
    for number, moves in enumerate(learned(method)):
        assert np.array_equal(before[number], after[number]) == moves  # its statistics alone
        if not moves:
            assert not np.allclose(after[number], moved[number])  # of another network, so others than the online ones
    assert any(not np.array_equal(a, b) for a, b in zip(online, moved, strict=True))


def test_both_networks_start_from_draws_of_their_own_and_built_twice_is_built_once():
    method = battery.build("byol")
    online, target = networks(method, "online"), networks(method, "target")
    kernels = [number for number, weight in enumerate(online) if weight.ndim > 1]
    assert kernels and all(not np.allclose(online[number], target[number]) for number in kernels)
    method.build((None, *battery.IMAGE_SHAPE))
    for before, after in zip(target, networks(method, "target"), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_functional_encoder_is_copied_too():
    inputs = keras.Input(battery.IMAGE_SHAPE)
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(5)(keras.layers.Flatten()(inputs)))
    method = BYOL(keras.Model(inputs, hidden), LinearHead(3), projection=ProjectionHead((6,), dim=4))
    method.compile("sgd", run_eagerly=True)
    images, labels = battery.data()
    method.fit(images, labels, batch_size=6, verbose=0)
    assert int(method.step) == 2 and method.target_encoder is not method.encoder

"""BYOL: the loss against the paper's, the target network against a moving average by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import self_supervised as oracle
from tfrobust import saving
from tfrobust.methods.byol import BYOL
from tfrobust.models.heads import LinearHead
from tfrobust.models.projection import ProjectionHead
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context


def networks(method, kind: str) -> list[np.ndarray]:
    """The weights of the "online" or the "target" encoder and projection."""
    parts = [method.encoder, method.projection]
    if kind == "target":
        parts = [method.target_encoder, method.target_projection]
    return [weight.numpy() for part in parts for weight in part.weights]


def learned(method) -> list[bool]:
    """Which of `networks` are no moving statistics."""
    return [weight.trainable for part in (method.encoder, method.projection) for weight in part.weights]


def prepared(method):
    images, labels = (tf.constant(part) for part in battery.data())
    rows = tf.range(len(labels), dtype=tf.int64)
    batch, context = Batch(images, labels, rows, {}), Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    return method.make_views(batch, context), batch, context


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_the_loss_is_the_paper_s(forward):
    method = battery.build("byol")
    method.forward = forward
    views, batch, context = prepared(method)
    terms, _ = method.loss_terms(views, batch, context)
    images = [views["view_1"], views["view_2"]]

    def through(encoder, projection):
        if forward == "joint":
            return tf.split(projection(encoder(tf.concat(images, 0), training=True), training=True), 2)
        return [projection(encoder(one, training=True), training=True) for one in images]

    online = through(method.encoder, method.projection)
    targets = through(method.target_encoder, method.target_projection)
    predictions = [method.prediction(z, training=True) for z in online]
    np.testing.assert_allclose(terms["regression"], oracle.byol(predictions, targets), rtol=1e-5)


def test_the_target_follows_by_the_scheduled_rate_and_never_by_a_gradient():
    """tau_t = 1 - (1 - tau_0) (cos(pi t / T) + 1) / 2, the online weights those after the update, as in the code."""
    steps, first = 4, 0.8
    rate = keras.optimizers.schedules.CosineDecay(1 - first, steps)
    method = battery.build("byol")
    method.target_rate = rate
    images, labels = (tf.constant(part) for part in battery.data())
    step = tf.function(method.train_step, autograph=False)
    expected = networks(method, "target")
    for t in range(steps + 1):
        step((images, labels))
        tau = 1 - (1 - first) * (np.cos(np.pi * t / steps) + 1) / 2
        online = networks(method, "online")
        expected = [tau * old + (1 - tau) * new for old, new in zip(expected, online, strict=True)]
        for place, moves in enumerate(learned(method)):
            if moves:
                np.testing.assert_allclose(networks(method, "target")[place], expected[place], rtol=1e-5, atol=1e-7)
    assert tau == 1.0 and not np.allclose(networks(method, "target")[0], online[0])


def test_the_target_learns_nothing_and_keeps_its_own_statistics():
    method = battery.build("byol")
    target = {id(weight) for part in (method.target_encoder, method.target_projection) for weight in part.weights}
    assert target and not target & {id(variable) for variable in method.trainable_variables}
    views, batch, context = prepared(method)
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
    for place, moves in enumerate(learned(method)):
        assert np.array_equal(before[place], after[place]) == moves  # its statistics alone
        if not moves:
            assert not np.allclose(after[place], moved[place])  # of another network, so others than the online ones
    assert any(not np.array_equal(a, b) for a, b in zip(online, moved, strict=True))


def test_both_networks_start_from_draws_of_their_own_and_built_twice_is_built_once():
    method = battery.build("byol")
    online, target = networks(method, "online"), networks(method, "target")
    kernels = [place for place, weight in enumerate(online) if weight.ndim > 1]
    assert kernels and all(not np.allclose(online[place], target[place]) for place in kernels)
    method.build((None, *battery.IMAGE_SHAPE))
    for before, after in zip(target, networks(method, "target"), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_round_trip_keeps_the_target_and_its_rule(tmp_path):
    method = battery.build("byol")
    images, labels = (tf.constant(part) for part in battery.data())
    method.train_step((images, labels))
    saving.save(method, tmp_path / "method.keras")
    loaded = saving.load(tmp_path / "method.keras")
    assert len(loaded.trainable_variables) == len(method.trainable_variables)
    for before, after in zip(networks(method, "target"), networks(loaded, "target"), strict=True):
        np.testing.assert_array_equal(before, after)
    for each in (method, loaded):
        each.train_step((images, labels))
    for before, after in zip(networks(method, "target"), networks(loaded, "target"), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_functional_encoder_is_copied_too():
    inputs = keras.Input(battery.IMAGE_SHAPE)
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(5)(keras.layers.Flatten()(inputs)))
    method = BYOL(keras.Model(inputs, hidden), LinearHead(3), projection=ProjectionHead((6,), dim=4))
    method.compile("sgd", jit_compile=False)
    images, labels = battery.data()
    method.fit(images, labels, batch_size=6, verbose=0)
    assert int(method.step) == 2 and method.target_encoder is not method.encoder


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"target_rate": 1.5}, "BYOL.target_rate is 1.5"),
        ({"prediction": ProjectionHead(dim=3)}, "BYOL.prediction gives 3 features for a projection of 256"),
    ],
)
def test_wrong_arguments_are_named(keywords, message):
    with pytest.raises(ValueError, match=message):
        BYOL(battery.encoder(), LinearHead(3), **keywords).build((None, *battery.IMAGE_SHAPE))

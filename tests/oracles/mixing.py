"""Shared by the tests of the mixing methods: a staged network, the draws of a step, losses by loops."""

import keras
import numpy as np
import tensorflow as tf

from oracles import tiny_network
from tfrobust.keras.methods import NFM, Mixing
from tfrobust.keras.models import Encoder, LinearHead
from tfrobust.ops import randomness
from tfrobust.structs import Context

GROUP = 4
WIDTHS = (7, 5)


class Staged(Encoder):
    """Two stages, each one matrix and tanh; pixels are normalised before stage 0."""

    def __init__(self, **kwargs):
        super().__init__(pixel_mean=0.5, pixel_std=0.25, **kwargs)
        large = keras.initializers.RandomNormal(stddev=1.0, seed=4)
        first, second = (keras.layers.Dense(w, activation="tanh", kernel_initializer=large) for w in WIDTHS)
        self.compose([[keras.layers.Flatten(), first], [second]], [], dim=WIDTHS[1])


def staged(kind, **keywords):
    head = LinearHead(3, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0, seed=1))
    method = kind(Staged(), head, mixing=Mixing(group=GROUP), **keywords)
    method.build((None, *tiny_network.SHAPE))
    return method


def step(number, count=8):
    """(Batch, Context) of one step; the keys of two steps differ."""
    batch, _ = tiny_network.batch(count)
    rows = tf.range(count, dtype=tf.int64)
    return batch, Context(randomness.make_key(0, "train", number), tf.constant(number, tf.int64), rows)


def drawn(method, context, count=8):
    """The draw that a method makes in a step, as arrays: weights [b], partners [b]."""
    mix = method.mixing.draw(randomness.fold(context.key, "mixing"), count)
    return np.broadcast_to(mix.weight.numpy().astype(np.float64), count), mix.partner.numpy()


def mixed_entropy(logits, labels, weights, partner):
    """lambda CE(y) + (1 - lambda) CE(y'), one by one."""
    first_entropy = tiny_network.cross_entropy(logits, labels)
    second_entropy = tiny_network.cross_entropy(logits, labels[partner])
    return np.array([w * a + (1 - w) * b for w, a, b in zip(weights, first_entropy, second_entropy, strict=True)])


def mixed_by_rows(values, weights, partner):
    return np.stack([w * values[i] + (1 - w) * values[partner[i]] for i, w in enumerate(weights)])


def terms_of(method, batch, context):
    views = method.make_views(batch, context)
    terms, logits = method.loss_terms(views, batch, context)
    assert set(terms) == {"ce_mixed"}
    return views, terms["ce_mixed"].numpy(), logits.numpy()


def literal_forward(method, images, stage, change):
    """The network in NumPy, with `change` applied to the hidden states of one stage."""
    kernels = [np.asarray(variable, np.float64) for variable in (*method.encoder.weights, *method.head.weights)]
    hidden = (np.asarray(images, np.float64) - 0.5) / 0.25
    for index in range(3):
        if index:
            hidden = np.tanh(hidden.reshape(len(hidden), -1) @ kernels[2 * index - 2] + kernels[2 * index - 1])
        if index == stage:
            hidden = change(hidden)
    return hidden @ kernels[4] + kernels[5]


def stage_that_explains(method, batch, logits, changes):
    """The one stage at which a change gives these logits."""
    explaining = [
        stage
        for stage in range(3)
        if np.allclose(literal_forward(method, batch.images, stage, changes), logits, rtol=1e-3, atol=1e-4)
    ]
    assert len(explaining) == 1, explaining
    return explaining[0]


def check_stages(kind):
    """One drawn stage is mixed, every stage occurs, and the loss is weighted alike."""
    method = staged(kind, stages=(0, 1, 2))
    seen = set()
    for number in range(12):
        batch, context = step(number)
        weights, partner = drawn(method, context)
        if np.all(partner == np.arange(8)):
            continue

        def change(hidden, weights=weights, partner=partner, context=context):
            hidden = mixed_by_rows(hidden, weights, partner)
            if kind is NFM:
                noise = method.noise.draw(randomness.fold(context.key, "noise"), hidden.shape)
                hidden = hidden * noise["factor"].numpy() + noise["offset"].numpy()
            return hidden

        _, values, logits = terms_of(method, batch, context)
        seen.add(stage_that_explains(method, batch, logits, change))
        expected = mixed_entropy(logits, batch.labels.numpy(), weights, partner)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert seen == {0, 1, 2}

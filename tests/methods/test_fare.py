"""FARE: its loss against a loop over pixels, its maximum in closed form, and the copy of the encoder."""

import itertools

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import methods as battery
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel
from tfrobust.keras.methods import FARE, Adversary, FastAdversary  # noqa: F401
from tfrobust.keras.models import LinearHead

EPSILON = 0.1
ATTACK = PGD(ThreatModel(epsilon=EPSILON), steps=4)
IMAGES = np.array([[0.5, 0.4, 0.6], [0.3, 0.6, 0.5]], np.float32)
BATCH = tf.constant(IMAGES), tf.constant([0, 1])
START = np.array([[1.0, -1.0], [2.0, 0.5], [-1.0, 1.0]], np.float32)
# Far from the start, so that one corner of the cube is the largest along every way to it.
NOW = START + np.array([[6.0, 3.0], [3.0, 6.0], [3.0, 12.0]], np.float32)


def linear(attack=ATTACK, **keywords) -> FARE:
    """An encoder e(x) = x W that began as x W_0."""
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    method = FARE(encoder, LinearHead(3), attack=attack, **keywords)
    method.build((None, 3))
    encoder.set_weights([START])
    method.start()
    encoder.set_weights([NOW])
    return method


def views_of(method):
    batch = method.as_batch(BATCH)
    return method.make_views(batch, method.context(batch)), batch


def distances_by_loops(points) -> list[float]:
    """Return |x^a W - x W_0|^2 of each image, entry by entry."""
    results = []
    for point, image in zip(points, IMAGES, strict=True):
        total = 0.0
        for column in range(2):
            now = sum(float(point[row]) * NOW[row, column] for row in range(3))
            total += (now - sum(float(image[row]) * START[row, column] for row in range(3))) ** 2
        results.append(total)
    return results


def test_the_terms_are_those_of_a_loop():
    method = linear()
    views, batch = views_of(method)
    terms, logits = method.evaluate_terms(views, batch, method.context(batch))
    points = views["adversarial"].numpy()
    np.testing.assert_allclose(terms["distance"], distances_by_loops(points), rtol=1e-5)
    by_hand = points @ NOW @ method.head.get_weights()[0] + method.head.get_weights()[1]
    np.testing.assert_allclose(logits, by_hand, atol=1e-5)
    normalized = np.log(np.exp(by_hand).sum(-1)) - by_hand[np.arange(2), [0, 1]]
    np.testing.assert_allclose(terms["probe"], normalized, atol=1e-5)


def test_the_attack_finds_the_farthest_corner():
    """A convex function is largest at a corner of the cube, of which there are eight."""
    views, _ = views_of(linear())
    corners = [np.array(signs) * EPSILON for signs in itertools.product((-1, 1), repeat=3)]
    best = [max(distances_by_loops(IMAGES + corner)[row] for corner in corners) for row in range(2)]
    np.testing.assert_allclose(distances_by_loops(views["adversarial"].numpy()), best, rtol=1e-4)


def test_a_step_moves_the_encoder_towards_its_start_and_not_its_copy():
    method = linear(probe=False)
    method.compile(keras.optimizers.SGD(0.05), jit_compile=False)
    copy, head = method.original.get_weights(), method.head.get_weights()
    losses = [float(method.train_step(BATCH)["distance"]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    for now, before in ((method.original.get_weights(), copy), (method.head.get_weights(), head)):
        assert all(np.array_equal(a, b) for a, b in zip(now, before, strict=True))
    assert method.head.trainable_variables  # by another method


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_the_probe_does_not_train_the_encoder(clip_norm):
    changes = []
    for weight in (0.0, 100.0):
        method = linear(term_weights={"probe": weight}, clip_norm=clip_norm)
        assert method.differentiable_terms == ("distance",)  # of a penalty by finite differences
        method.compile(keras.optimizers.SGD(0.01), jit_compile=False)
        method.train_step(BATCH)
        changes.append(method.encoder.get_weights()[0] - NOW)
    np.testing.assert_allclose(*changes, atol=1e-6)


def test_the_copy_has_the_weights_that_the_encoder_was_given():
    method = FARE(battery.encoder(), LinearHead(3), attack=ATTACK)
    method.build((None, *battery.IMAGE_SHAPE))
    for variable in method.encoder.variables:
        variable.assign(np.full(variable.shape, 0.25))
    method.start()
    assert all(np.all(variable.numpy() == 0.25) for variable in method.original.variables)
    for trainable in (True, False, True):
        method.trainable = trainable
        assert not method.original.trainable_variables


@pytest.mark.parametrize("adversary, message", stored.rows(globals(), "another_objective_and_a_start_at_the_image_are"))
def test_another_objective_and_a_start_at_the_image_are_refused(adversary, message):
    with pytest.raises(ValueError, match=message):
        FARE(battery.encoder(), LinearHead(3), adversary=adversary)
    FARE(battery.encoder(), LinearHead(3), adversary=FastAdversary(attack=FGSM(ThreatModel(epsilon=0.1))))


def test_a_probe_needs_labels():
    method = linear()
    views, batch = views_of(method)
    with pytest.raises(ValueError, match="FARE has no labels for its probe"):
        method.loss_terms(views, batch._replace(labels=None), None)


@pytest.mark.parametrize("entrance", ["fit", "train_on_batch"])
def test_weights_given_after_build_are_those_to_stay_near(entrance):
    images, labels = battery.data()
    trained = battery.encoder()
    trained.build((None, *battery.IMAGE_SHAPE))
    distances = []
    for given_first in (True, False):
        method = FARE(battery.encoder(), LinearHead(3), attack=ATTACK)
        if given_first:
            method.encoder.build((None, *battery.IMAGE_SHAPE))
            method.encoder.set_weights(trained.get_weights())
        method.build((None, *battery.IMAGE_SHAPE))
        method.encoder.set_weights(trained.get_weights())
        method.compile(keras.optimizers.SGD(0.0), jit_compile=False)
        if entrance == "fit":
            distances.append(method.fit(images, labels, batch_size=len(images), verbose=0).history["distance"][0])
        else:
            distances.append(float(method.train_on_batch(images, labels, return_dict=True)["distance"]))
    assert distances[1] == pytest.approx(distances[0], rel=1e-4)

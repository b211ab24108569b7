"""RoCL against the released loss in NumPy, and its adversary against differences of what it raises."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import instances, tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import RandomShift
from tfrobust.keras.methods import AdaptiveFNC, InstanceAdversary, RoCL
from tfrobust.keras.models import ProjectionHead
from tfrobust.methods.rocl import ADVERSARIAL
from tfrobust.ops import distribution

SHIFT = RandomShift(fraction=0.6)
ATTACK = PGD(ThreatModel(epsilon=0.2), steps=5)
TEMPERATURE = 0.4


def build(**keywords):
    keras.utils.set_random_seed(2)
    keywords = {"adversary": InstanceAdversary(attack=ATTACK), **keywords}
    return tiny_network.build(
        RoCL, projection=ProjectionHead((), dim=4), views=SHIFT, temperature=TEMPERATURE, **keywords
    )


def projected(method, images):
    """By the written-out network and the one matrix of the projection, float64."""
    kernel, bias = (np.asarray(variable, np.float64) for variable in method.projection.weights)
    return tiny_network.forward(method, images)[0] @ kernel + bias


def terms_of(method):
    batch, views, terms, _ = tiny_network.run(method)
    return views, {name: value.numpy() for name, value in terms.items()}


@pytest.mark.parametrize("regularizer_pass", ["shared", "own"])
@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_the_terms_are_the_released_loss(forward, regularizer_pass):
    method = build(forward=forward, regularizer_pass=regularizer_pass)
    views, terms = terms_of(method)
    first, second, adversarial = (projected(method, views[name]) for name in ("view_1", "view_2", ADVERSARIAL))
    # The code adds both positives of an anchor up, this is their mean.
    released = instances.rocl([first, second, adversarial], TEMPERATURE)
    assert terms["contrastive"].mean() == pytest.approx(released / 2, rel=1e-4)
    assert terms["adversarial"].mean() == pytest.approx(instances.rocl([adversarial, second], TEMPERATURE), rel=1e-4)
    assert method.default_weights["adversarial"] == 1 / 256 and terms["contrastive"].shape == (9,)


def test_detached_keys_give_the_released_gradient():
    """O stopgrad(O)^T, row by row: the literal formula, differentiated by TensorFlow."""
    gradients = []
    for detached in (True, False):
        method = build(detached_keys=detached)
        batch, context = tiny_network.batch()
        views = method.make_views(batch, context)
        kernel = method.projection.weights[0]
        with tf.GradientTape(persistent=True) as tape:
            term = tf.reduce_mean(method.loss_terms(views, batch, context)[0]["contrastive"])
            stacked = tf.concat([views[name] for name in ("view_1", "view_2", ADVERSARIAL)], axis=0)
            unit = tf.math.l2_normalize(method.project(method.encoder(stacked)), axis=1)
            factor = tf.stop_gradient(unit) if detached else unit
            logits = tf.linalg.set_diag(unit @ tf.transpose(factor) / TEMPERATURE, tf.fill([27], -1e9))
            rows, losses = tf.range(27), -tf.nn.log_softmax(logits)
            literal = tf.reduce_mean([tf.gather(losses, (rows + 9 * n) % 27, batch_dims=1) for n in (1, 2)])
        np.testing.assert_allclose(term, literal, rtol=1e-5)
        slope, expected = tape.gradient(term, kernel), tape.gradient(literal, kernel)
        np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-6)
        gradients.append(slope.numpy())
    assert np.abs(gradients[0] - gradients[1]).max() > 0.1 * np.abs(gradients[1]).max()


@pytest.mark.parametrize("negatives", ["clean", "moving"])
def test_a_step_of_the_adversary_climbs_its_objective(negatives):
    """One L2 step without a random start goes along the gradient that differences of the oracle give."""
    attack = PGD(ThreatModel(norm="l2", epsilon=0.01), steps=1, step_size=0.01, random_start="none")
    method = build(adversary=InstanceAdversary(attack=attack, negatives=negatives))
    batch, context = tiny_network.batch()
    # Away from the edges of the box, which would bend the step.
    images = 0.2 + 0.6 * batch.images.numpy()
    second_views = 0.2 + 0.6 * np.roll(batch.images.numpy(), 1, axis=1)
    batch = batch._replace(extra={"view_1": tf.constant(images), "view_2": tf.constant(second_views)})
    step = (method.make_views(batch, context)[ADVERSARIAL].numpy() - images).reshape(9, -1)
    first, second = projected(method, images), projected(method, second_views)

    def losses(moved):
        # The clean view stands for the adversaries of the others, which start there.
        return instances.anchor_losses(projected(method, moved), second, [first, second], TEMPERATURE)

    gradient = np.zeros_like(step, dtype=np.float64)
    for pixel in range(step.shape[1]):
        sides = []
        for sign in (1, -1):
            moved = images.astype(np.float64).reshape(9, -1)
            moved[:, pixel] += sign * 1e-5
            sides.append(losses(moved.reshape(images.shape)))
        gradient[:, pixel] = (sides[0] - sides[1]) / 2e-5
    unit = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    np.testing.assert_allclose(step / 0.01, unit, atol=2e-3)


def test_moving_negatives_are_those_of_the_group():
    """With others in its group, an image's adversary is another one; with others outside of it, it stays."""
    batch, context = tiny_network.batch(8)
    adversaries = {}
    for name, changed in (("before", None), ("inside", 1), ("outside", 7)):
        first, second = (np.roll(batch.images.numpy(), shift, axis=1) for shift in (0, 1))
        if changed is not None:
            first[changed], second[changed] = 1 - first[changed], second[changed] ** 2
        extra = {"view_1": tf.constant(first), "view_2": tf.constant(second)}
        # Steps of a sign would not tell.
        attack = PGD(ThreatModel(norm="l2", epsilon=0.5), steps=2)
        method = build(adversary=InstanceAdversary(attack=attack, negatives="moving", group=4))
        adversaries[name] = method.make_views(batch._replace(extra=extra), context)[ADVERSARIAL].numpy()[0]
    np.testing.assert_array_equal(adversaries["outside"], adversaries["before"])
    assert np.abs(adversaries["inside"] - adversaries["before"]).max() > 1e-3


@pytest.mark.parametrize("search", ["against", "jointly"])
def test_groups_that_replicas_would_cut_are_refused(monkeypatch, search):
    monkeypatch.setattr(distribution, "replica", lambda: (2, 0))
    adversary, images = (
        InstanceAdversary(negatives="moving", group=3, attack=PGD(ThreatModel(epsilon=0.2), steps=10)),
        tf.zeros([4, 8, 8, 1]),
    )
    arguments = tf.range(4), tf.zeros([2], tf.int32)  # rows, key
    with pytest.raises(ValueError, match="group is 3, which does not divide the 4 rows"):
        if search == "against":
            adversary.against(None, images, (tf.zeros([4, 2]),) * 2, *arguments, temperature=1.0)
        else:
            adversary.jointly(None, (images, images), *arguments, temperature=1.0)


def test_false_negatives_leave_both_losses():
    """Augmented-RoCL: with a threshold that nobody passes nothing changes, with one that all pass no negative stays."""
    plain = terms_of(build())[1]
    unfiltered, emptied = (terms_of(build(false_negatives=AdaptiveFNC(threshold=value)))[1] for value in (1.1, -1.0))
    for name in ("contrastive", "adversarial"):
        np.testing.assert_allclose(unfiltered[name], plain[name], rtol=1e-5)
    # Only the positives are left below the line: none in the loss of a pair, two in that of three views.
    np.testing.assert_allclose(emptied["adversarial"], 0.0, atol=1e-6)
    assert np.all(emptied["contrastive"] < plain["contrastive"]) and emptied["contrastive"].min() > 0

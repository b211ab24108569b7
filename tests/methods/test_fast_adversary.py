"""The adversary of fast adversarial training: where its points lie, and which settings it refuses."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, FastAdversary

EPSILON = 0.1


def fast(norm="linf", **keywords):
    return FastAdversary(attack=FGSM(ThreatModel(norm=norm, epsilon=EPSILON)), **keywords)


def attacked(adversary):
    """The images and adversarial examples of one batch, float64, and how they were drawn."""
    method = tiny_network.build(AdversarialTraining, adversary=adversary)
    batch, context = tiny_network.batch()
    views = method.make_views(batch, context)
    return method, batch, views["images"].numpy(), views["adversarial"].numpy()


def test_without_noise_it_is_the_fast_gradient_sign_method():
    method, batch, images, adversarial = attacked(fast(noise=0.0, step=1.0))
    gradient = tiny_network.input_gradient(method, images, np.eye(3)[batch.labels])
    np.testing.assert_allclose(adversarial, np.clip(images + EPSILON * np.sign(gradient), 0, 1), atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_projected_points_lie_in_the_threat_set_and_others_up_to_three_radii_away(norm):
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    distances = {}
    for name, settings in {
        "rs": {},
        "noisy": {"noise": 2.0, "step": 1.0, "projected": False},
    }.items():
        _, _, images, adversarial = attacked(fast(norm, **settings))
        assert adversarial.min() >= 0.0 and adversarial.max() <= 1.0
        distances[name] = np.linalg.norm((adversarial - images).reshape(len(images), -1), ord=order, axis=1)
    assert np.all(distances["rs"] <= EPSILON * (1 + 1e-5)) and distances["rs"].max() > 0.9 * EPSILON
    assert np.all(distances["noisy"] <= 3 * EPSILON * (1 + 1e-5)) and distances["noisy"].max() > 1.2 * EPSILON


def test_the_start_is_cut_to_the_pixels_and_the_step_added_to_it(monkeypatch):
    """One pixel x = 0.5 with noise 0.2: 0.8 without the projection, 0.6 with it, as the loss rises from 0.6 on."""
    predict = lambda images, training: tf.reshape((images - 0.6) ** 2, [-1, 1]) * [[-9.0, 9.0]]  # noqa: E731
    inputs = tf.constant([0.5, 0.95], shape=[2, 1, 1, 1]), tf.zeros([2], tf.int32), tf.constant([0, 1])
    monkeypatch.setattr("tfrobust.ops.norms.random_in_ball", lambda key, like, *_: tf.fill(tf.shape(like), 0.2))
    for projected, expected in ((False, [0.8, 1.0]), (True, [0.6, 1.0])):
        adversary = fast(noise=2.0, step=1.0, projected=projected)
        np.testing.assert_allclose(tf.reshape(adversary.perturb(predict, *inputs), [-1]), expected, atol=1e-6)

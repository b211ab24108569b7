"""SmoothAdv and the consistency term in NumPy: losses, attack, and noise."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.losses import mixture_consistency, mixture_cross_entropy
from tfrobust.keras.methods import Adversary, NoiseConsistency, SmoothAdv


def literal(logits, labels):
    """Cross-entropy of the mean, mean divergence from the mean, and its entropy, one example at a time in float64."""
    rows = []
    for row, label in enumerate(labels):
        predictions = [tiny_network.probabilities(np.asarray(view, np.float64)[row : row + 1])[0] for view in logits]
        mean = sum(predictions) / len(predictions)
        divergence = np.mean(
            [sum(m * np.log(m / p) for m, p in zip(mean, prediction, strict=True)) for prediction in predictions]
        )
        rows.append((-np.log(mean[label]), divergence, -sum(m * np.log(m) for m in mean)))
    return np.array(rows).T


@pytest.mark.parametrize("views", [1, 2, 4])
def test_losses_are_those_of_a_literal_program(views):
    generator = np.random.default_rng(views)
    logits = [generator.normal(scale=3, size=(7, 5)) for _ in range(views)]
    labels = generator.integers(0, 5, 7)
    values = [mixture_cross_entropy(logits, labels), *mixture_consistency(logits)]
    np.testing.assert_allclose(values, literal(logits, labels), rtol=1e-4, atol=1e-5)


def test_confident_views_have_finite_losses_and_gradients():
    logits = tf.constant([[200.0, 0.0, -200.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = [mixture_cross_entropy([logits, -logits], [1]), *mixture_consistency([logits, -logits])]
        total = tf.add_n(values)
    assert np.isfinite(total.numpy()).all() and np.isfinite(tape.gradient(total, logits).numpy()).all()


@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_consistency_terms_are_those_of_the_noisy_copies(forward):
    method = tiny_network.build(NoiseConsistency, sigma=0.3, copies=3, forward=forward)
    batch, views, terms, logits = tiny_network.run(method)
    noises = [views[f"copy_{number}"] - batch.images for number in range(3)]
    assert len(views) == 3 and 0.25 < np.std(noises) < 0.35  # 162 values
    assert np.abs(noises[0] - noises[1]).min(initial=1) > 0 and np.max([*views.values()]) > 1  # not clipped
    copy_logits = [tiny_network.forward(method, view)[1] for view in views.values()]
    _, divergence, entropy = literal(copy_logits, batch.labels.numpy())
    ce = np.mean(
        [tiny_network.cross_entropy(logits_of_copy, batch.labels.numpy()) for logits_of_copy in copy_logits], axis=0
    )
    for name, expected in {"ce": ce, "kl": divergence, "entropy": entropy}.items():
        np.testing.assert_allclose(terms[name], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(logits, copy_logits[0], rtol=1e-4, atol=1e-4)
    assert method.default_weights == {"kl": 5.0, "entropy": 0.5} and method.passes_per_step == 3


@pytest.mark.parametrize("averaged", ["losses", "probabilities"])
def test_smooth_adv_ascends_the_loss_of_the_mean_with_fixed_noise(averaged):
    steps, epsilon, size = 3, 0.1, 0.06
    attack = PGD(ThreatModel(norm="l2", epsilon=epsilon), steps=steps, step_size=size, random_start="none")
    options = {} if averaged == "losses" else {"averaged": averaged}  # the default is that of the authors' code
    method = tiny_network.build(SmoothAdv, sigma=0.2, copies=2, adversary=Adversary(attack=attack), **options)
    batch, context = tiny_network.batch()
    batch = batch._replace(images=0.3 + 0.4 * batch.images)  # the box is out of reach
    noises = [noise.numpy().astype(np.float64) for noise in method.draw_noises(batch, context)]
    labels = batch.labels.numpy()
    clean = batch.images.numpy().astype(np.float64)
    truth, point = np.eye(3)[labels], clean.copy()
    for _ in range(steps):
        chosen = [
            tiny_network.probabilities(tiny_network.forward(method, point + noise)[1])[range(len(labels)), labels]
            for noise in noises
        ]
        shares = np.array(chosen) / np.sum(chosen, axis=0)
        gradient = sum(
            tiny_network.input_gradient(method, point + noise, truth * share[:, None])
            for noise, share in zip(noises, shares, strict=True)
        )
        flat = gradient.reshape(len(labels), -1)
        point = point + size * (flat / np.linalg.norm(flat, axis=1, keepdims=True)).reshape(clean.shape)
        moved = (point - clean).reshape(len(labels), -1)
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        point = clean + (moved * np.minimum(1, epsilon / length)).reshape(clean.shape)
    views = method.make_views(batch, context)
    for number, noise in enumerate(noises):
        np.testing.assert_allclose(views[f"copy_{number}"], point + noise, atol=2e-5)
    terms, _ = method.loss_terms(views, batch, context)
    copy_logits = [tiny_network.forward(method, view)[1] for view in views.values()]
    expected = {
        "losses": np.mean(
            [tiny_network.cross_entropy(logits_of_copy, labels) for logits_of_copy in copy_logits], axis=0
        ),
        "probabilities": literal(copy_logits, labels)[0],
    }
    assert np.abs(expected["losses"] - expected["probabilities"]).max() > 1e-3
    np.testing.assert_allclose(terms["ce_adv"], expected[averaged], rtol=1e-4, atol=1e-5)
    assert method.passes_per_step == 2 * (steps + 1)

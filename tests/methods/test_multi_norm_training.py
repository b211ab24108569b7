"""Training over several norms: the draw of E-AT and its counts, MAX and AVG, on a network written out in NumPy."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import tiny_network as tiny
from tfrobust import saving, structs
from tfrobust.attacks.shared.attack import facts_of
from tfrobust.evaluation.progress import attack_title
from tfrobust.keras.attacks import FGSM, MSD, ThreatModel
from tfrobust.keras.methods import Adversary, MultiNormTraining
from tfrobust.methods.multi_norm_training import draw_probabilities

LINF, L2, L1 = (ThreatModel(norm=norm, epsilon=radius) for norm, radius in (("linf", 0.1), ("l2", 0.3), ("l1", 0.6)))
ATTACKS = (FGSM(LINF), FGSM(L1))


def built(**keywords):
    method = tiny.build(MultiNormTraining, **{"attacks": ATTACKS} | keywords)
    method.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    return method


def attacked(method, attack, batch, context):
    """Return the points of one attack, and their cross-entropies in NumPy."""
    predict = lambda images, training: method.propagate(images, training=training)[1]  # noqa: E731
    adversary = Adversary(attack=attack, objective="cross_entropy")
    points = adversary.perturb(predict, batch.images, batch.labels, tf.constant([0, 0])).numpy()
    return points, tiny.cross_entropy(tiny.forward(method, points)[1], batch.labels.numpy())


def literal(correct, images):
    """Return 1 - accuracy of each attack over their sum; equal shares before each has images, and without errors."""
    if 0 in images:
        return [1 / len(images)] * len(images)
    errors = [1 - right / count for right, count in zip(correct, images, strict=True)]
    return [error / sum(errors) if sum(errors) else 1 / len(errors) for error in errors]


@pytest.mark.parametrize("correct, images", stored.rows(globals(), "probabilities_of_the_draw"))
def test_probabilities_of_the_draw(correct, images):
    counts = tf.constant(np.stack([correct, images], axis=1), tf.float32)
    probabilities = draw_probabilities(counts).numpy()
    np.testing.assert_allclose(probabilities, literal(correct, images), rtol=1e-6)


def test_attacks_are_drawn_so_often():
    method = built(attacks=(FGSM(LINF), FGSM(L2), FGSM(L1)))
    method.counts.assign([[50.0, 100.0], [20.0, 100.0], [90.0, 100.0]])
    batch, _ = tiny.batch()
    draws = []
    for step in range(600):
        method.step.assign(step)
        draws.append(int(method.drawn(method.context(batch))))
    shares = np.bincount(draws, minlength=3) / 600
    np.testing.assert_allclose(shares, np.array([0.5, 0.8, 0.1]) / 1.4, atol=0.06)


def test_a_batch_has_the_drawn_attack_whose_accuracy_it_counts():
    method, seen = built(), set()
    expected = np.zeros([2, 2])
    for seed in range(6):
        batch, _ = tiny.batch(seed=seed)
        batch = structs.Batch(*batch)
        context = method.context(batch)
        number = int(method.drawn(context))
        points, losses = attacked(method, ATTACKS[number], batch, context)
        right = tiny.forward(method, points)[1].argmax(axis=1) == batch.labels.numpy()
        expected[number] += right.sum(), len(right)
        method.reset_metrics()
        logs = method.train_step(batch)
        assert float(logs["ce_adv"]) == pytest.approx(losses.mean(), rel=1e-3)
        np.testing.assert_array_equal(method.counts, expected)
        seen.add(number)
    assert seen == {0, 1} and 0 < expected[:, 0].sum() < 54


@pytest.mark.parametrize("rule", ["worst", "average"])
def test_all_attacks_are_combined_image_by_image(rule):
    method = built(rule=rule, attacks=(FGSM(LINF), FGSM(L2), FGSM(L1)))
    batch, context = tiny.batch()
    batch = structs.Batch(*batch)
    losses = np.stack([attacked(method, attack, batch, context)[1] for attack in method.attacks])
    assert len(set(losses.argmax(axis=0))) > 1
    expected = losses.max(axis=0) if rule == "worst" else losses.mean(axis=0)
    terms, _ = method.loss_terms(method.make_views(batch, context), batch, context)
    np.testing.assert_allclose(terms["ce_adv"], expected, rtol=1e-3)


def test_the_counts_survive_saving(tmp_path):
    method, (batch, _) = built(), tiny.batch()
    method.train_step(structs.Batch(*batch))
    saving.save(method, tmp_path / "method.keras")
    loaded = saving.load(tmp_path / "method.keras")
    np.testing.assert_array_equal(loaded.counts, method.counts)
    assert float(method.counts[:, 1].numpy().sum()) == 9


def test_reports_describe_the_attacks():
    method = built(attacks=(MSD((LINF, L2), steps=3), FGSM(L1)))
    assert [threat.norm for threat in method.adversary.attack.threats] == ["linf", "l2", "l1"]
    assert attack_title(method.adversary.attack) == ("MSD FGSM", "Linf 0.1, L2 0.3, L1 0.6")
    assert facts_of(method.adversary.attack)["threats"] == ["linf 0.1", "l2 0.3", "l1 0.6"]
    assert method.adversary.attack.steps == 3 and method.passes_per_step == 5
    assert built(rule="worst").passes_per_step == 5 and built(rule="average").passes_per_step == 4

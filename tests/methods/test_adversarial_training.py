"""ADV: eq. 4 of Bui et al. 2021, how its adversaries are made, and what batch norm does meanwhile."""

import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, Adversary
from tfrobust.keras.models import LinearHead
from tfrobust.ops import randomness

EPSILON, STEP, STEPS = 0.1, 0.04, 4


def attack(**keywords):
    return PGD(ThreatModel(epsilon=EPSILON), steps=STEPS, step_size=STEP, **keywords)


def climbed(method, images, start, targets):
    """PGD written out: sign steps, clipped to the ball, then to the pixels; the last iterate."""
    point = start
    for _ in range(STEPS):
        point = point + STEP * np.sign(tiny_network.input_gradient(method, point, targets))
        point = np.clip(np.clip(point, images - EPSILON, images + EPSILON), 0, 1)
    return point


@pytest.mark.parametrize("objective", ["cross_entropy", "kl"])
def test_adversaries_climb_their_objective_from_their_own_start(objective):
    method = tiny_network.build(AdversarialTraining, adversary=Adversary(attack=attack(), objective=objective))
    batch, context = tiny_network.batch()
    views = method.make_views(batch, context)
    images = np.asarray(batch.images, np.float64)
    key = randomness.fold(context.key, "adversary", "start", 0)
    start = np.asarray(method.adversary.attack.threat.random_start(batch.images, key), np.float64)
    # KL( p || q ) and the cross-entropy of q under p differ by a constant: the same gradient.
    clean = tiny_network.probabilities(tiny_network.forward(method, images)[1])
    targets = np.eye(tiny_network.CLASSES)[batch.labels.numpy()] if objective == "cross_entropy" else clean
    expected = climbed(method, images, start, targets)
    np.testing.assert_allclose(views["adversarial"], expected, atol=1e-6)
    other = climbed(method, images, start, clean if objective == "cross_entropy" else np.eye(3)[batch.labels.numpy()])
    assert np.abs(expected - other).max() > STEP


@pytest.mark.parametrize("mode", ["inference", "batch"])
def test_a_method_itself_is_attacked_at_its_classifier(mode):
    method = tiny_network.build(AdversarialTraining)
    adversary = Adversary(attack=attack(), mode=mode)
    batch, _ = tiny_network.batch()
    adversarial, expected = (
        adversary.perturb(predict, batch.images, batch.labels, tf.constant([0, 1]))
        for predict in (method, lambda images, training: method.propagate(images, training=training)[1])
    )
    np.testing.assert_array_equal(adversarial, expected)


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_the_terms_are_those_of_eq_4(forward):
    method = tiny_network.build(AdversarialTraining, adversary=Adversary(attack=attack()), forward=forward)
    batch, views, terms, logits = tiny_network.run(method)
    for name, images in (("ce", views["images"]), ("ce_adv", views["adversarial"])):
        expected = tiny_network.cross_entropy(tiny_network.forward(method, images)[1], batch.labels.numpy())
        np.testing.assert_allclose(terms[name], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits, tiny_network.forward(method, batch.images)[1], rtol=1e-4, atol=1e-5)
    assert np.mean(terms["ce_adv"]) > np.mean(terms["ce"]) + 0.1
    assert set(terms) == {"ce", "ce_adv"} and not method.default_weights


@pytest.mark.parametrize("where", ["encoder", "head"])
def test_statistics_of_all_replicas_are_not_gathered_inside_the_attack(where):
    parts = battery.encoder(synchronized=where == "encoder"), LinearHead(3, batch_normalized=where == "head")
    method = AdversarialTraining(*parts, adversary=Adversary(attack=attack(), mode="train"))
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile("sgd", jit_compile=False)
    with pytest.raises(ValueError, match="Batch-norm mode 'train' cannot gather"):
        method.train_step(battery.data())


def moving(method):
    return [v.numpy() for v in method.non_trainable_variables if "moving" in v.path]


def attacked(mode):
    """(statistics before, after, adversaries) of one `make_views` in a batch-norm mode."""
    method = battery.build("adversarial_training", compiled=False)
    method.adversary = Adversary(attack=attack(), mode=mode)
    before = moving(method)
    views = method.make_views(*battery.prepared(method))
    return before, moving(method), views["adversarial"].numpy()


def test_only_the_train_mode_moves_statistics_and_only_inference_uses_them():
    results = {mode: attacked(mode) for mode in ("inference", "batch", "train")}
    for mode, (before, after, _) in results.items():
        assert before
        moved = [np.any(a != b) for a, b in zip(before, after, strict=True)]
        assert all(moved) if mode == "train" else not any(moved), mode
    examples = {mode: adversaries for mode, (_, _, adversaries) in results.items()}
    # In "train" and "batch" the gradients are the same; before any training the moving statistics are others.
    np.testing.assert_allclose(examples["train"], examples["batch"], atol=1e-6)
    assert np.abs(examples["inference"] - examples["batch"]).max() > STEP

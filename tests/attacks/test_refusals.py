"""Refusals of attacks, and their messages."""

import fractions

import keras
import pytest
import tensorflow as tf

from conformance.attacks import Linear, examples
from tfrobust.attacks import apgd, fab, gradient, noise, prox_log_barrier, square
from tfrobust.attacks.ensemble import AutoAttack, Ensemble, standard_member
from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared import modes, runner
from tfrobust.attacks.shared.threat import ThreatModel

PROX, FAB = prox_log_barrier.ProxLogBarrier, fab.FAB
L0 = ThreatModel(norm="l0", epsilon=2)
WITHOUT_L0 = [PGD, FGSM, gradient.MultiTargetedPGD, apgd.APGDCrossEntropy, apgd.APGDTargeted, FAB, fab.FABUntargeted]
WITHOUT_L0 += [square.Square, noise.UniformNoise, noise.GaussianNoise]
ARGUMENTS = [
    (ThreatModel, {"norm": "max"}, "'linf', 'l2', 'l1', 'l0'"),
    (ThreatModel, {"norm": "l0"}, "0.2.*counts changed values, a whole number >= 1: set EPSILON.*only ProxLogBarrier"),
    (ThreatModel, {"norm": "l0", "epsilon": 2.5}, "2.5.*whole number"),
    (ThreatModel, {"epsilon": 0}, "epsilon is 0"),
    (ThreatModel, {"epsilon": -0.1}, "> 0"),
    (ThreatModel, {"epsilon": float("nan")}, "> 0"),
    (ThreatModel, {"epsilon": fractions.Fraction(8, 255)}, "a number"),
    (ThreatModel, {"epsilon": True}, "a number"),
    (ThreatModel, {"bounds": (1.0, 0.0)}, "lowest, highest"),
    (ThreatModel, {"bounds": (0.0,)}, "lowest, highest"),
    (ThreatModel, {"l1_share": 2.0}, "from 0 to 1"),
    (ThreatModel, {"per_frame": 1}, "True or False"),
    (ThreatModel, {"max_frames": 0}, "max_frames is 0"),
    (ThreatModel, {"max_frames": 1.5}, "integer >= 1"),
    (square.Square, {"window_frames": "some"}, "'all', 'range'"),
    (PGD, {"steps": 0}, "PGD.steps is 0"),
    (PGD, {"steps": 2.5}, "integer"),
    (PGD, {"restarts": 0}, "restarts"),
    (PGD, {"step_size": 0.0}, "step_size"),
    (PGD, {"random_start": "yes"}, "'uniform', 'gaussian', 'none'"),
    (PGD, {"random_start": "none", "restarts": 2}, "the same"),
    (gradient.MomentumPGD, {"decay": -1}, "MomentumPGD.decay is -1"),
    (apgd.APGDTargeted, {"steps": 0}, "APGDTargeted.steps is 0"),
    (apgd.APGDTargeted, {"restarts": 1.5}, "integer"),
    (apgd.APGDTargeted, {"targets": 0}, "targets"),
    (apgd.APGDTargeted, {"expectation_samples": 0}, "expectation_samples"),
    (apgd.APGDTargeted, {"large_radii": True}, "norm 'l1'"),
    (FAB, {"steps": 0}, "steps.*integer >= 1"),
    (FAB, {"targets": 0}, "targets"),
    (FAB, {"restarts": True}, "restarts"),
    (FAB, {"alpha_max": 0.0}, "alpha_max"),
    (FAB, {"beta": 1.5}, "beta"),
    (FAB, {"eta": -1.0}, "eta"),
    (square.Square, {"steps": 0}, "Square.steps is 0"),
    (square.Square, {"restarts": 1.5}, "integer"),
    (square.Square, {"initial_share": 0.0}, "share of the pixels"),
    (square.Square, {"initial_share": 1.2}, "share of the pixels"),
    (noise.UniformNoise, {"draws": 0}, "UniformNoise.draws is 0"),
    (noise.GaussianNoise, {"draws": True}, "integer"),
    (noise.GaussianNoise, {"deviation": 0.0}, "GaussianNoise.deviation"),
    (PROX, {"outer_steps": 0}, "outer_steps is 0"),
    (PROX, {"inner_steps": 2.5}, "integer"),
    (PROX, {"step_size": 0.0}, "step_size"),
    (PROX, {"barrier": -1.0}, "barrier is"),
    (PROX, {"barrier_decay": 1.5}, "barrier_decay"),
    (PROX, {"backtracking": 1.0}, "backtracking"),
    (PROX, {"prox_parameter": 0.0}, "prox_parameter"),
    (PROX, {"noise_scale": float("inf")}, "noise_scale"),
    (Ensemble, {"attacks": (FGSM(ThreatModel(epsilon=0.2)),)}, "two or more"),
    (Ensemble, {"attacks": (FGSM(ThreatModel(epsilon=0.2)), PGD(ThreatModel(epsilon=0.1)))}, "one threat model"),
    (Ensemble, {"attacks": (PGD(ThreatModel(epsilon=0.2), steps=2), PGD(ThreatModel(epsilon=0.2), steps=3))}, "names"),
    (Ensemble, {"attacks": (FGSM(ThreatModel(epsilon=0.2)), AutoAttack(ThreatModel(epsilon=0.2)))}, "an ensemble"),
    (standard_member, {"name": "apgd"}, "apgd_ce"),
    (AutoAttack, {"version": "custom"}, "Ensemble"),
    *((kind, {"threat": L0}, f"{kind.__name__} .*'l0'.*prox_log_barrier") for kind in WITHOUT_L0),
]


@pytest.mark.parametrize(("make", "arguments", "message"), ARGUMENTS)
def test_an_argument_is_named(make, arguments, message):
    usual = {ThreatModel: {"epsilon": 0.2}, Ensemble: {}}.get(make, {"threat": ThreatModel(epsilon=0.2)})
    with pytest.raises(ValueError, match=message) as raised:
        make(**usual | arguments)
    assert len(str(raised.value)) <= 300


KEY, IMAGES, MODEL = tf.constant([0, 0]), examples(4), Linear()
LABELS = MODEL.labels(IMAGES)
RUNS = [
    (FGSM(ThreatModel(epsilon=0.2)), LABELS + 2, {}, "2 classes"),
    (FGSM(ThreatModel(epsilon=0.2)), LABELS, {"index": [1, 2]}, "one position per example"),
    (FGSM(ThreatModel(epsilon=0.2)), LABELS, {"batch_size": 0}, "batch_size"),
    (PGD(ThreatModel(epsilon=0.2), steps=2), LABELS, {"targets": LABELS}, "own label"),
    (PGD(ThreatModel(epsilon=0.2), steps=2), LABELS, {"targets": LABELS + 2}, "2 classes"),
    (
        gradient.MultiTargetedPGD(ThreatModel(epsilon=0.2), steps=2),
        LABELS,
        {"targets": 1 - LABELS},
        "use PGD with targets",
    ),
    (fab.FABUntargeted(ThreatModel(epsilon=0.2)), LABELS, {"targets": 1 - LABELS}, "use FAB"),
    (square.Square(ThreatModel(epsilon=0.2)), LABELS, {"inputs": IMAGES.reshape(4, -1)}, "h, w, c"),
]


@pytest.mark.parametrize(("attack", "labels", "arguments", "message"), RUNS)
def test_a_run_that_makes_no_sense_is_named(attack, labels, arguments, message):
    arguments = {"inputs": IMAGES, **arguments}
    with pytest.raises(ValueError, match=message):
        runner.run_attack(attack, MODEL, labels=labels, **arguments)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (square.Square(ThreatModel(epsilon=0.2)), "for evaluation"),
        (FAB(ThreatModel(epsilon=0.2)), "PGD"),
        (PROX(ThreatModel(epsilon=0.2)), "PGD"),
    ],
)
def test_an_attack_for_evaluation_only_says_so(attack, message):
    with pytest.raises(NotImplementedError, match=message):
        attack.perturb(MODEL, tf.constant(IMAGES), KEY)


def test_an_adaptive_search_takes_one_view():
    with pytest.raises(ValueError, match="nest"):
        apgd.APGDDLR(ThreatModel(epsilon=0.2)).perturb(lambda views: views["a"][:, 0], {"a": tf.zeros([1, 2])}, KEY)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: {"scores": x}, "named 'logits'"),
        (lambda x: x[:, :1], "k >= 2"),
        (lambda x: x[..., None], "b, k"),
        (3, "not int"),
        (keras.layers.Dense(2), "not built"),
    ],
)
def test_a_model_without_logits_is_named(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        modes.as_predict(model)(tf.ones([2, 3]))

"""Check the expected robustness against closed forms, a literal sum, and the curve whose area it is."""

import dataclasses

import numpy as np
import pytest
import stored
from evaluation.test_adversarial import Exact

from oracles import linear_model
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.adversarial import AccuracyCurve
from tfrobust.evaluation.evaluators.expected_robustness import ExpectedRobustness, trapezoid_weights
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.report import catalog, reading


@pytest.fixture(scope="module")
def model():
    """A setting, and the distance in Linf of each image from the plane that separates the classes."""
    predict, images, labels, margins, weights = linear_model.make(40)
    setting = Setting(predictor=from_function(predict, image_shape=linear_model.SHAPE), images=images, labels=labels)
    return setting, np.maximum(margins, 0) / np.abs(weights).sum(), weights


def literal(distances, radii):
    """Add the areas of the trapezoids one by one, and divide by the last radius."""
    accuracies = [sum(distance > radius for distance in distances) / len(distances) for radius in radii]
    area = 0.0
    for left in range(len(radii) - 1):
        area += (radii[left + 1] - radii[left]) * (accuracies[left] + accuracies[left + 1]) / 2
    return area / radii[-1]


@pytest.mark.parametrize("epsilons, radii", stored.rows(globals(), "it_is_the_area_by_trapezoids"))
def test_it_is_the_area_by_trapezoids(model, epsilons, radii):
    setting, distances, _ = model
    (measured,) = (
        ExpectedRobustness(attack=FGSM(ThreatModel(epsilon=0.04)), epsilons=epsilons).run(setting).measurements
    )
    assert measured.value == pytest.approx(literal(distances, radii)) and measured.n == 40
    assert measured.low < measured.value < measured.high and measured.settings["radii"] == pytest.approx(list(radii))


def test_a_minimal_attack_gives_the_area_in_closed_form(model, monkeypatch):
    """The integral of the share of distances above r, from 0 to epsilon, is the mean of min(distance, epsilon)."""
    setting, distances, weights = model
    attack = Exact(ThreatModel(epsilon=0.03), weights)
    (measured,) = ExpectedRobustness(attack=attack, limit=None).run(setting).measurements
    assert measured.value == pytest.approx(np.mean(np.minimum(distances, 0.03)) / 0.03, rel=1e-3)
    fine = np.linspace(0, 0.03, 3001)
    assert measured.value == pytest.approx(literal(distances, fine), rel=2e-3) and measured.settings["radii"] == "all"


def test_curve_and_area_share_their_searches(model, monkeypatch):
    setting, *_ = model
    setting, attack = dataclasses.replace(setting), FGSM(ThreatModel(epsilon=0.04))
    (curve,) = AccuracyCurve(attack=attack, epsilons=(0.0, 0.01, 0.04)).run(setting).series
    monkeypatch.delattr(searching.Engine, "run")
    (measured,) = ExpectedRobustness(attack=attack, epsilons=(0.01,)).run(setting).measurements
    area = np.trapezoid(curve.columns["accuracy"], curve.columns["epsilon"])
    assert measured.value == pytest.approx(area / 0.04)


def test_weights():
    np.testing.assert_allclose(trapezoid_weights([0.0, 1.0]), [0.5, 0.5])
    np.testing.assert_allclose(trapezoid_weights([0.0, 1.0, 4.0]), [0.125, 0.5, 0.375])


def test_it_is_a_headline_with_a_name_and_a_direction(model):
    evaluator = ExpectedRobustness(attack=FGSM(ThreatModel(epsilon=0.04)), label="mine")
    (measured,) = evaluator.run(model[0]).measurements
    assert (measured.id,) == evaluator.ids() == ("expected_robustness.mine_linf_0.04.accuracy",)
    entry = catalog.read(measured)
    assert entry.is_headline and entry.quantity.better == 1
    assert reading.label(measured) == "Expected robustness (mean over radii), mine, L∞ ε = 0.04"

"""Check the union of threat models against recorded outcomes, image by image."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.evaluation.engine import base, searching
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras.attacks import FGSM, PGD, Ensemble, Square, ThreatModel, UniformNoise
from tfrobust.keras.evaluators import AttackAccuracy, Union
from tfrobust.report import catalog, reading

SHAPE = (3, 4, 1)
RADII = {"linf": 0.02, "l2": 0.05, "l1": 0.08}
ATTACKS = tuple(FGSM(ThreatModel(norm=norm, epsilon=radius)) for norm, radius in RADII.items())
IDENTITY = "union.fgsm_linf_0.02_l2_0.05_l1_0.08.accuracy"


@pytest.fixture(scope="module")
def model():
    """A setting, and for each norm the images whose margin is above what its ball can take away, in closed form.

    The first pixel chooses one of two scores, of all other pixels or of one, so that neither Linf nor L1 is the
    stronger on every image.
    """
    generator = np.random.default_rng(0)
    weights = np.stack([generator.choice([-1.0, 1.0], 12), np.eye(12)[5] * 4.0]).astype(np.float32)
    weights[:, 0] = 0.0
    images = generator.uniform(0.4, 0.6, (60, *SHAPE)).astype(np.float32)
    flat = images.reshape(60, 12)
    kinds, bias = (flat[:, 0] > 0.5).astype(int), -0.5 * weights.sum(axis=1)

    def predict(pixels):
        pixels = tf.reshape(pixels, [-1, 12])
        scores = tf.matmul(pixels, tf.constant(weights.T)) + bias
        score = tf.where(pixels[:, 0] > 0.5, scores[:, 1], scores[:, 0])
        return tf.stack([tf.zeros_like(score), score], axis=-1)

    scores = np.take_along_axis(flat @ weights.T + bias, kinds[:, None], axis=1)[:, 0]
    duals = {"linf": np.abs(weights).sum(1), "l2": np.linalg.norm(weights, axis=1), "l1": np.abs(weights).max(1)}
    predictor = from_function(predict, image_shape=SHAPE)
    setting = base.Setting(predictor=predictor, images=images, labels=(scores > 0).astype(np.int32), batch_size=16)
    return setting, {norm: np.abs(scores) > radius * duals[norm][kinds] for norm, radius in RADII.items()}


def recorded(outcome) -> dict[str, int]:
    """Return the outcomes of each accuracy as one integer, whose bits are the images."""
    rows = {series.id: series.columns["right"][0] for series in outcome.series if series.id.startswith("outcomes.")}
    return {name.removeprefix("outcomes."): int(row, 2) for name, row in rows.items()}


@pytest.mark.parametrize("subset", [{}, {"first": 25}])
def test_it_is_the_conjunction_of_recorded_outcomes(model, subset):
    setting, _ = model
    singles = [AttackAccuracy(attack=attack, **subset) for attack in ATTACKS]
    outcome = run_evaluation([*singles, Union(members=ATTACKS, **subset)], setting)
    bits, values = recorded(outcome), {m.id: m for m in outcome.measurements}
    union, parts = bits.pop(IDENTITY), [*bits.values()]
    assert union == parts[0] & parts[1] & parts[2] and len(set(parts)) == 3
    count = subset.get("first", 60)
    assert values[IDENTITY].n == count and values[IDENTITY].value == union.bit_count() / count
    assert values[IDENTITY].value <= min(values[evaluator.ids()[0]].value for evaluator in singles)
    assert values[IDENTITY].settings.get("sample") == ("first 25" if subset else None)


def test_it_is_the_closed_form_of_a_linear_model(model):
    setting, robust = model
    (measured,) = Union(members=ATTACKS).run(setting).measurements
    expected = robust["linf"] & robust["l2"] & robust["l1"]
    assert measured.value == expected.mean() < min(rows.mean() for rows in robust.values()) - 1 / 60
    assert measured.low < measured.value < measured.high


def test_searches_of_the_same_images_are_used_and_of_others_are_not(model, monkeypatch):
    setting, _ = model
    for attack in ATTACKS:
        AttackAccuracy(attack=attack, first=25).run(setting)
    searched = []
    run = searching.Engine.run
    monkeypatch.setattr(
        searching.Engine, "run", lambda self, *a, **k: searched.append(k["index"]) or run(self, *a, **k)
    )
    assert Union(members=ATTACKS, first=25).run(setting).measurements[0].n == 25 and not searched
    assert Union(members=ATTACKS, limit=25).run(setting).measurements[0].n == 25
    assert [len(index) for index in searched] == [25, 25, 25] and len({index.tobytes() for index in searched}) == 1


def test_its_name_direction_and_settings(model):
    ensemble = Ensemble((FGSM(ThreatModel(epsilon=0.02)), PGD(ThreatModel(epsilon=0.02), steps=3)))
    evaluator = Union(members=(ensemble, ATTACKS[1], ATTACKS[1].with_epsilon(0.1)), label="mine")
    (measured,) = evaluator.run(model[0]).measurements
    assert (measured.id,) == evaluator.ids() == ("union.mine_linf_0.02_l2_0.05_l2_0.1.accuracy",)
    entry = catalog.read(measured)
    assert entry.is_headline and entry.quantity.better == 1
    assert reading.label(measured) == "Union of L∞ ε = 0.02, L2 ε = 0.05 and L2 ε = 0.1, mine"
    assert measured.settings["member_efforts"][1] == "linf 0.02: pgd (3 steps, 1 restart)"
    assert Union(members=(*ATTACKS, Square(ATTACKS[0].threat))).ids() == (IDENTITY.replace("fgsm", "fgsm_square"),)
    noise = tuple(UniformNoise(attack.threat) for attack in ATTACKS[::2])
    assert Union(members=noise).without_gradients() and not evaluator.without_gradients()


@pytest.mark.parametrize("arguments, message", stored.rows(globals(), "what_is_refused"))
def test_what_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Union(**arguments)


def test_a_radius_of_any_member_is_checked_before_the_search(model):
    far = Union(members=(ATTACKS[0], FGSM(ThreatModel(norm="l2", epsilon=255.0))))
    shifted = Union(members=(ATTACKS[0], FGSM(ThreatModel(norm="l2", epsilon=1.0, bounds=(-1.0, 1.0)))))
    for evaluator, message in ((far, "epsilon is 255"), (shifted, "pixel bounds")):
        with pytest.raises(InputError, match=message):
            run_evaluation([evaluator], model[0])

"""Pictures of an attack: those of the images it was run on, their difference amplified by the factor that is said."""

import dataclasses

import numpy as np
import pytest
import stored

from tfrobust.common import thumbnails
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.evaluators import examples
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.evaluators import AdversarialExamples, Calibration, Divergence

ATTACK = PGD(threat=ThreatModel(epsilon=0.03), steps=3)


def rows(series):
    return [dict(zip(series.columns, values, strict=True)) for values in zip(*series.columns.values(), strict=True)]


def test_pictures_are_the_images_before_and_after(setting):
    (series,) = AdversarialExamples(attack=ATTACK, label="pgd3", misclassified=3, correct=2).run(setting).series
    assert series.id == "attack.pgd3_linf_0.03.examples" and series.settings["difference_factor"] == 16.0
    shown = rows(series)
    attacked = searching.perturbed(setting, ATTACK, np.array([row["position"] for row in shown]))
    for row, adversary in zip(shown, attacked, strict=True):
        size = [row[name] for name in ("height", "width", "channels")]
        image = setting.images[row["position"]]
        assert tuple(size) == image.shape and row["label"] == setting.labels[row["position"]]
        for name, picture in (
            ("image", image),
            ("adversarial", adversary),
            ("difference", 0.5 + 16 * (adversary - image)),
        ):
            np.testing.assert_allclose(thumbnails.decode(row[name], *size), picture, atol=0.51 / 255)
        logits = setting.predict(np.stack([image, adversary]))
        assert [row["clean_class"], row["attacked_class"]] == logits.argmax(-1).tolist()
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        np.testing.assert_allclose([row["clean_confidence"], row["attacked_confidence"]], 1 / odds.sum(-1), atol=1e-5)
    fallen = [row["attacked_class"] != row["label"] for row in shown]
    assert fallen == [True] * 3 + [False] * 2 and all(row["clean_class"] == row["label"] for row in shown)
    assert len({row["position"] for row in shown}) == 5


def test_the_seed_draws_and_little_is_shown_whole(setting):
    evaluator = AdversarialExamples(attack=ATTACK, misclassified=100, correct=0)
    every = [row["position"] for row in rows(evaluator.run(setting).series[0])]
    brought_down = setting.clean_correct & searching.search(setting, ATTACK, np.arange(30)).success
    assert sorted(every) == np.flatnonzero(brought_down).tolist()
    single = dataclasses.replace(evaluator, misclassified=1)
    drawn = {rows(single.run(dataclasses.replace(setting, seed=seed)).series[0])[0]["position"] for seed in range(3)}
    assert len(drawn) > 1 and single.run(setting) == single.run(setting)
    all_wrong = dataclasses.replace(setting, labels=1 - setting.clean_logits.argmax(-1).astype(np.int32))
    assert AdversarialExamples(attack=ATTACK).run(all_wrong).series == []


def test_images_come_from_as_many_classes_as_possible():
    labels = np.array([8, 8, 8, 5, 3, 8, 5])
    assert examples._class_by_class(10 * np.arange(7), labels).tolist() == [0, 30, 40, 10, 60, 20, 50]


@pytest.mark.parametrize("largest, factor", stored.rows(globals(), "the_factor_uses_the_whole_range"))
def test_the_factor_uses_the_whole_range(largest, factor):
    assert examples._factor(float(largest)) == factor


def test_who_needs_last_points_shares_one_attack(setting, monkeypatch):
    attacks = []
    real = searching.perturbed
    monkeypatch.setattr(searching, "perturbed", lambda *arguments: attacks.append(arguments[1]) or real(*arguments))
    fresh = dataclasses.replace(setting)
    evaluators = (
        Divergence(attack=ATTACK, epsilons=(0.03,)),
        Calibration(attack=ATTACK, rms_bin_size=5),
        AdversarialExamples(attack=ATTACK),
    )
    together = run_evaluation(evaluators, fresh)
    assert attacks == [ATTACK]
    alone = [evaluator.run(dataclasses.replace(setting)) for evaluator in evaluators]
    assert len(attacks) == 4
    assert together.series == [series for outcome in alone for series in outcome.series]
    assert together.measurements[:-1] == [measured for outcome in alone for measured in outcome.measurements]

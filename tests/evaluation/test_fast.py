"""The fast ensemble: when Square joins it; passes in settings; and images that a certificate spares."""

import dataclasses
import json
import pathlib
import time
import unittest.mock

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import flawed_models
from tfrobust import errors, structs
from tfrobust.commands import evaluate, train
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor.certificates import check_certificates
from tfrobust.evaluation.engine.chunks import SearchResult, Shard
from tfrobust.evaluation.runner import run_evaluation, run_shard
from tfrobust.keras.attacks import MALT, PGD, PMA, AutoAttack, Ensemble, Square, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CertifiedAccuracy, FastAccuracy
from tfrobust.runs import attachment

THREAT = ThreatModel(epsilon=flawed_models.EPSILON)
FAST = FastAccuracy(
    attack=Ensemble((PMA(THREAT, steps=20), MALT(THREAT, steps=10, targets=2), Square(THREAT, steps=100))), label="fast"
)


@pytest.mark.parametrize("predict,verdict,reason", stored.rows(globals(), "square_takes_all_where_the_checks_see"))
def test_square_takes_all_where_the_checks_see_masked_gradients(predict, verdict, reason):
    outcome = FAST.run(flawed_models.setting(predict, votes=(1, 1)))
    (finding,) = outcome.findings
    assert (finding.check, finding.verdict) == ("masked_gradients", verdict) and reason in finding.evidence
    assert [m.id for m in outcome.measurements] == list(FAST.ids())
    total, _, *members = (m.settings | {"value": m.value} for m in outcome.measurements)
    before, last = members[-2:]
    assert total["black_box"] == ("all remaining" if verdict == "warn" else "nearest 0.1 of the remaining")
    assert total["value"] == last["value"] <= before["value"]
    assert last["backward_passes"] == pytest.approx(before["backward_passes"] + 9 * before["value"])
    # Of those that remain, each takes the clean image, the start, 100 steps and the candidate, unless one succeeds.
    attacked = np.ceil((1 if verdict == "warn" else 0.1) * round(150 * before["value"])) / 150
    passes = last["forward_passes"] - before["forward_passes"] - before["value"]  # one ranks the remaining images
    assert (last["value"] - before["value"] + attacked) * 103 - 1e-6 <= passes <= attacked * 103 + 1e-6


def test_many_successes_among_the_nearest_are_a_reason_too(monkeypatch):
    # The gradient is that of another network, which no check is asked about.
    monkeypatch.setattr("tfrobust.evaluation.doctor.fast.doctor_model.check_ascent", lambda *_: None)
    setting = flawed_models.setting(flawed_models.decoy)
    (finding,) = FAST.run(setting).findings
    assert finding.verdict == "warn" and "checks do not pass" not in finding.evidence


@pytest.mark.parametrize(
    ("climbed", "hits", "reason"),
    [
        (False, True, "ended the search before successes of Square could reveal"),
        (True, False, "ended the search before successes of Square could reveal"),
        (True, True, "Square succeeds on"),
    ],
)
def test_a_search_that_the_time_budget_ends_says_nothing_about_masked_gradients(monkeypatch, climbed, hits, reason):
    budgets = []

    def searched(setting, attack, positions, *, seconds):
        budgets.append(seconds)
        time.sleep(0.05)
        success, members = np.full(len(positions), hits and len(budgets) > 1), np.full(len(positions), -1)
        return SearchResult(success, np.zeros(len(positions), np.float32), climbed and len(budgets) < 2, members)

    monkeypatch.setattr("tfrobust.evaluation.doctor.fast.search", searched)
    setting = flawed_models.setting()
    outcome = dataclasses.replace(FAST, seconds=100.0).run(setting)
    finding, cut = outcome.findings[::-1]
    assert (finding.check, finding.verdict, cut.check) == ("masked_gradients", "warn", "complete_search")
    assert reason in finding.evidence and "it ran on all" not in finding.evidence
    assert 100 >= budgets[0] > budgets[1] + 0.04 and len(budgets) == 2  # they share the time
    assert outcome.measurements[0].settings["black_box"] == "nearest 0.1 of the remaining"


def test_the_nearest_images_are_those_of_the_oracle():
    kernel = np.random.default_rng(1).normal(size=(64, 10)).astype(np.float32)
    setting = flawed_models.setting(lambda pixels: tf.reshape(pixels, [-1, 64]) @ kernel, batch_size=7)
    remaining = np.flatnonzero(setting.clean_correct)
    nearest = FAST._nearest(setting, remaining)
    differences = kernel[:, None, :] - kernel[:, :, None]  # [pixel, label, other]
    slopes = np.abs(differences).sum(axis=0) + np.eye(10)
    logits, labels = setting.clean_logits[remaining], setting.labels[remaining]
    gaps = logits[np.arange(len(labels)), labels][:, None] - logits + 1e9 * np.eye(10)[labels]
    distances = (gaps / slopes[labels]).min(axis=1)
    assert len(remaining) > 5 and len(nearest) == np.ceil(0.1 * len(remaining))
    np.testing.assert_array_equal(nearest, np.sort(remaining[np.argsort(distances)[: len(nearest)]]))


@pytest.mark.parametrize("changes,message", stored.rows(globals(), "refusals"))
def test_refusals(changes, message):
    with pytest.raises(errors.InputError, match=message):
        dataclasses.replace(FAST, **changes)


class _Certificates(CertifiedAccuracy):
    """Certificates that a test makes up."""

    def _measured(self, setting):
        certified = np.arange(len(setting.images)) % 3 > 0
        digits = "".join("01"[value] for value in certified.astype(int))
        identity = "certified.linf_0.03.accuracy"
        series = structs.Series(f"outcomes.{identity}", "", {"right": [digits]})
        bound = {"norm": "linf", "epsilon": 0.03, "method": "ibp"}
        measured = structs.Measurement(identity, 0.6, n=len(digits), settings=bound)
        return type(OUTCOME)([measured], [series]), np.flatnonzero(certified)


OUTCOME = AttackAccuracy(attack=PGD(ThreatModel(epsilon=0.03), steps=2)).run(flawed_models.setting())


def test_certified_images_are_spared_but_for_a_sample(setting, monkeypatch):
    monkeypatch.setattr("tfrobust.evaluation.evaluators.adversarial._ATTACKED_CERTIFIED", 4)
    attack = Ensemble((PGD(ThreatModel(epsilon=0.03), steps=2), Square(ThreatModel(epsilon=0.03), steps=3)))
    certified = _Certificates(threat=ThreatModel(epsilon=0.03))
    evaluator = AttackAccuracy(attack=attack, label="x", spare_certified=certified)
    ((_, positions),) = evaluator.searches(setting)
    spared = sorted(set(range(30)) - set(positions.tolist()))
    assert len(spared) == 20 - 4 and all(number % 3 for number in spared)
    outcome, unspared = evaluator.run(setting), dataclasses.replace(evaluator, spare_certified=None).run(setting)
    rows = [np.array(list(o.series[-1].columns["right"][0])) == "1" for o in (outcome, unspared)]
    np.testing.assert_array_equal(rows[0], rows[1] | np.isin(np.arange(30), spared))
    settings, unspared_settings = outcome.measurements[0].settings, unspared.measurements[0].settings
    assert settings["spared"] == 16 and "spared" not in unspared_settings and outcome.measurements[0].n == 30
    assert settings["forward_passes"] < unspared_settings["forward_passes"]
    # The sample is attacked, so that a certificate that is wrong is contradicted.
    outcome.extend(certified.run(setting))
    finding = check_certificates(outcome)
    wrong = ~rows[0] & (np.arange(30) % 3 > 0)
    assert finding.verdict == ("fail" if wrong.any() else "pass")


def test_certificates_that_an_attack_on_drawn_images_left_out_are_not_called_checked(setting, monkeypatch):
    monkeypatch.setattr("tfrobust.evaluation.evaluators.adversarial._ATTACKED_CERTIFIED", 4)
    attack, certified = PGD(ThreatModel(epsilon=0.03), steps=2), _Certificates(threat=ThreatModel(epsilon=0.03))
    outcome = AttackAccuracy(attack=attack, spare_certified=certified, limit=20).run(setting)
    outcome.extend(certified.run(setting))
    finding = check_certificates(outcome)
    assert finding.verdict == "warn" and "certified images out" in finding.evidence


L2_OF_FRAMES = ThreatModel(norm="l2", epsilon=1.0, per_frame=True)  # several frames exceed 1


@pytest.mark.parametrize(
    ("attacked", "certified"),
    [
        (ThreatModel(epsilon=0.03), ThreatModel(epsilon=0.02)),
        (ThreatModel(epsilon=0.03), ThreatModel(norm="l2", epsilon=1.0)),
        (L2_OF_FRAMES, ThreatModel(norm="l2", epsilon=1.0)),
        (L2_OF_FRAMES, ThreatModel(norm="l2", epsilon=1.0, max_frames=1)),
    ],
)
def test_certificates_of_another_ball_spare_nothing(attacked, certified):
    with pytest.raises(errors.InputError, match=r"certifies within .*, which says nothing about"):
        AttackAccuracy(attack=PGD(attacked), spare_certified=CertifiedAccuracy(threat=certified))


def test_certificates_are_computed_in_the_run_alone_and_attached_numbers_cover_the_spared_images(setting, tmp_path):
    calls, threat = [], ThreatModel(epsilon=0.03)
    setting = dataclasses.replace(setting, predictor=dataclasses.replace(setting.predictor, weights_sha256="of a test"))

    class Counted(_Certificates):
        def _measured(self, setting):
            calls.append(setting.store)
            return super()._measured(setting)

    attack = PGD(threat, steps=2)
    evaluator = AttackAccuracy(attack=attack, spare_certified=Counted(threat=threat))
    with unittest.mock.patch("tfrobust.evaluation.evaluators.adversarial._ATTACKED_CERTIFIED", 4):
        assert attachment._asked(evaluator, setting)["images"] == 30 and not calls
        outcomes = [run_evaluation([evaluator], setting, cache_directory=tmp_path / "alone") for _ in range(2)]
        assert len(calls) == 1 and calls[0] is not None  # with the store, so that an interrupted search resumes
        for number in (1, 2):
            run_shard([evaluator], setting, Shard(number, 2), cache_directory=tmp_path / "shared")
        with unittest.mock.patch("tfrobust.evaluation.engine.searching._engine", side_effect=AssertionError("stored")):
            outcomes.append(run_evaluation([evaluator], setting, cache_directory=tmp_path / "shared"))
    assert [o.measurements[0].settings["spared"] for o in outcomes] == [16] * 3
    assert outcomes[0].series == outcomes[1].series == outcomes[2].series


def test_nothing_is_spared_where_no_bound_applies(setting):
    threat = ThreatModel(epsilon=0.02)
    evaluator = AttackAccuracy(attack=PGD(threat), spare_certified=CertifiedAccuracy(threat=threat))
    assert setting.predictor.network is None and evaluator.run(setting).measurements[0].settings["spared"] == 0


MASKED = [
    flaw for flaw in flawed_models.FLAWS if flaw.check in ("gradients", "ascent", "deterministic", "batch_independent")
]


@pytest.mark.rest
@pytest.mark.parametrize("flaw", MASKED, ids=lambda flaw: flaw.name)
def test_no_planted_mask_is_passed_over(flaw):
    setting = flaw.make()
    if isinstance(doctor_model.gradients(setting), str):
        (alone,) = FAST.without_gradients()
        assert alone.attack is FAST.attack.members[-1]
        return
    outcome = dataclasses.replace(FAST, limit=64).run(setting)
    assert [(finding.check, finding.verdict) for finding in outcome.findings] == [("masked_gradients", "warn")]


@pytest.mark.rest
@pytest.mark.parametrize(
    "name",
    [
        *("saturated logits", "quantised input", "shattered gradient"),
        *("gradient of another network", "input moved at random"),
    ],
)
def test_it_exceeds_autoattack_by_two_points_only_where_a_finding_says_so(name):
    (flaw,) = [flaw for flaw in MASKED if flaw.name == name]
    members = Ensemble((PMA(THREAT), MALT(THREAT, targets=3), Square(THREAT)))
    fast, reference = (
        run_evaluation([evaluator], dataclasses.replace(flaw.make(), limit=100))
        for evaluator in (FastAccuracy(attack=members, label="fast"), AttackAccuracy(attack=AutoAttack(THREAT)))
    )
    assert {finding.check for finding in fast.findings if finding.verdict != "pass"} & {"masked_gradients", "white_box"}
    # Square takes all images then, so that the excess is small in any case.
    assert fast.measurements[0].value - reference.measurements[0].value <= 0.05


@pytest.mark.rest
def test_a_training_on_bounds_spares_its_certified_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = [f"fast/{name}.steps={steps}" for name, steps in (("PMA", 10), ("MALT", 5), ("Square", 20))]
    flags = [f"--gin_param={param}" for param in ("EPSILON=0.02", *short)]
    params = ["EPOCHS=8", "SmoothedRamp.length=4", "train.validation=None", "NAME='bounded'"]
    params += ["EVALUATORS=[@CertifiedAccuracy(), @fast/FastAccuracy()]"]
    files = ["--gin_file=gin/ibp.gin", "--gin_file=gin/eval/fast.gin"]
    assert train.main([*files, *flags, *(f"--gin_param={param}" for param in params)]) == 0
    # The layers of an export are made again for `CertifiedAccuracy` itself, not to spare images.
    flags += ["--model=exported/bounded", "--output=unspared", "--gin_param=EVALUATORS=[@fast/FastAccuracy()]"]
    assert evaluate.main([files[1], *flags]) == 0
    sparing, unspared = (
        {
            item["id"]: item
            for item in json.loads(pathlib.Path(folder, "robustness_report.json").read_text())["measurements"]
        }
        for folder in ("exported/bounded/1/assets.extra", "unspared")
    )
    certified, fast = sparing["certified.linf_0.02.accuracy"]["value"], "attack.fast_linf_0.02.accuracy"
    settings, unspared_settings = (report[fast]["settings"] for report in (sparing, unspared))
    assert settings["spared"] == round(360 * certified) - 100 > 50 and unspared_settings["spared"] == 0
    assert sparing[fast]["value"] == unspared[fast]["value"] >= certified
    assert settings["forward_passes"] < 0.9 * unspared_settings["forward_passes"]

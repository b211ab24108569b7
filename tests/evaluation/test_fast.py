"""The fast ensemble: when Square joins it; passes in settings; and images that a certificate spares."""

import dataclasses

import numpy as np
import pytest

from oracles import flawed_models
from tfrobust.attacks.ensemble import Ensemble
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.malt import MALT
from tfrobust.attacks.pma import PMA
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.attacks.square import Square
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor.certificates import check_certificates
from tfrobust.evaluation.doctor.fast import FastAccuracy
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.evaluation.evaluators.certified import CertifiedAccuracy
from tfrobust.structs import Measurement, Series

THREAT = ThreatModel(epsilon=flawed_models.EPSILON)
FAST = FastAccuracy(
    attack=Ensemble((PMA(THREAT, steps=20), MALT(THREAT, steps=10, targets=2))),
    label="fast",
    black_box=Square(THREAT, steps=300),
    probe=Square(THREAT, steps=100),
)


@pytest.mark.parametrize(
    "predict,verdict,reason",
    [
        (flawed_models.robust, "pass", "left out"),
        (flawed_models.decoy, "warn", "Checks that do not pass: ascent"),
        (flawed_models.drawn_input, "warn", "deterministic"),
    ],
)
def test_square_joins_where_the_checks_see_masked_gradients(predict, verdict, reason):
    outcome = FAST.run(flawed_models.setting(predict))
    (finding,) = [finding for finding in outcome.findings if finding.check == "masked_gradients"]
    assert (finding.verdict, reason in finding.evidence) == (verdict, True), finding
    values = {m.id: m for m in outcome.measurements}
    total, square = values["attack.fast_linf_0.1.accuracy"], values.get("attack.fast_linf_0.1.square.accuracy")
    assert (square is not None) == (verdict == "warn") and set(values) <= set(FAST.ids())
    passes = [m.settings["forward_passes"] for m in outcome.measurements if m.settings.get("cumulative")]
    assert passes == sorted(passes) and 1 < passes[0] < total.settings["forward_passes"] + 1e-9
    assert total.settings["backward_passes"] == pytest.approx(outcome.measurements[3].settings["backward_passes"])


def test_the_probe_finds_what_the_checks_of_gradients_do_not():
    # Half of the images have a flat ensemble, whose gradient is that of another network: the median check passes.
    setting = flawed_models.setting(flawed_models.decoy)
    evaluator = dataclasses.replace(FAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfrobust.evaluation.doctor.fast.doctor_model.check_ascent", lambda *_: None)
        outcome = evaluator.run(setting)
    (finding,) = outcome.findings
    assert finding.verdict == "warn" and finding.evidence.startswith("Square with 100 steps succeeds on ")
    probed = outcome.measurements[0].settings["forward_passes"] - outcome.measurements[4].settings["forward_passes"]
    assert 0 < probed <= 64 * 102 / len(setting.images)


class _Certificates(CertifiedAccuracy):
    """Certificates that a test makes up."""

    def run(self, setting):
        digits = "".join("01"[number % 3 > 0] for number in range(len(setting.images)))
        identity = "certified.linf_0.03.accuracy"
        series = Series(f"outcomes.{identity}", "", {"right": [digits]})
        bound = {"norm": "linf", "epsilon": 0.03, "method": "ibp"}
        return type(OUTCOME)([Measurement(identity, 0.6, n=len(digits), settings=bound)], [series])


OUTCOME = AttackAccuracy(attack=PGD(ThreatModel(epsilon=0.03), steps=2)).run(flawed_models.setting())


def test_certified_images_are_spared_but_for_a_sample(setting, monkeypatch):
    monkeypatch.setattr("tfrobust.evaluation.evaluators.adversarial._ATTACKED_CERTIFIED", 4)
    attack = Ensemble((PGD(ThreatModel(epsilon=0.03), steps=2), Square(ThreatModel(epsilon=0.03), steps=3)))
    certified = _Certificates(threat=ThreatModel(epsilon=0.03))
    evaluator = AttackAccuracy(attack=attack, label="x", spare_certified=certified)
    ((_, positions),) = evaluator.attacks(setting)
    spared = sorted(set(range(30)) - set(positions.tolist()))
    assert len(spared) == 20 - 4 and all(number % 3 for number in spared)
    outcome, whole = evaluator.run(setting), dataclasses.replace(evaluator, spare_certified=None).run(setting)
    rows = [np.array(list(o.series[-1].columns["right"][0])) == "1" for o in (outcome, whole)]
    np.testing.assert_array_equal(rows[0], rows[1] | np.isin(np.arange(30), spared))
    settings, other = outcome.measurements[0].settings, whole.measurements[0].settings
    assert settings["spared"] == 16 and "spared" not in other and outcome.measurements[0].n == 30
    assert settings["forward_passes"] < other["forward_passes"]
    # The sample is attacked, so that a certificate that is wrong is contradicted.
    outcome.extend(certified.run(setting))
    finding = check_certificates(outcome)
    wrong = ~rows[0] & (np.arange(30) % 3 > 0)
    assert finding.verdict == ("fail" if wrong.any() else "pass")


@pytest.mark.parametrize("certified", [ThreatModel(epsilon=0.02), ThreatModel(norm="l2", epsilon=1.0)])
def test_certificates_of_another_ball_spare_nothing(certified):
    with pytest.raises(InputError, match=r"certifies within .*, which says nothing about"):
        AttackAccuracy(attack=PGD(ThreatModel(epsilon=0.03)), spare_certified=CertifiedAccuracy(threat=certified))


def test_nothing_is_spared_where_no_bound_applies(setting):
    threat = ThreatModel(epsilon=0.02)
    evaluator = AttackAccuracy(attack=PGD(threat), spare_certified=CertifiedAccuracy(threat=threat))
    assert setting.predictor.network is None and evaluator.run(setting).measurements[0].settings["spared"] == 0

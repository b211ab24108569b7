"""The advice on a fine-tuning: each rule on a planted configuration, silence on good ones, and the finding after it."""

import types

import keras
import numpy as np
import pytest
import stored

from tfrobust.evaluation.doctor.fine_tuning import FineTuning, check_fine_tuning
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import TRADES, AdversarialTraining, Adversary, Supervised  # noqa: F401
from tfrobust.keras.models import CNN, LinearHead
from tfrobust.keras.schedules import LinearRamp  # noqa: F401
from tfrobust.runs.fine_tuning import advice_lines, fine_tuning

GOOD = {"origin": "plain", "elsewhere": True, "frozen": False, "ramped": True, "epochs": 40}
GOOD |= {"trades": True, "batch_normalized": False}
FROZEN, FULL, NORM = "The backbone is frozen", "The radius is whole from the first of", "has batch normalization"


@pytest.mark.parametrize("changes, texts", stored.rows(globals(), "a_planted_configuration_is_named_and_a_good_one"))
def test_a_planted_configuration_is_named_and_a_good_one_is_not(changes, texts):
    facts = GOOD | changes
    pairs = FineTuning(**facts).advice()
    assert len(pairs) == len(texts)
    for (expected, remedy), text in zip(pairs, texts, strict=True):
        assert text in expected and "https://" in expected and remedy
    for share, verdict in ((0.05, "warn"), (0.1, None)):
        robust = np.arange(100) < 100 * share
        finding = check_fine_tuning(types.SimpleNamespace(fine_tuning=facts, examples="images"), robust)
        assert (finding and finding.verdict) == (verdict if texts else None)
        assert finding is None or finding.evidence.startswith("5.0% of 100 images remain")
    assert check_fine_tuning(types.SimpleNamespace(fine_tuning=None, examples="images"), robust) is None
    assert check_fine_tuning(types.SimpleNamespace(fine_tuning=facts, examples="images"), None) is None


def stage(kind=TRADES, *, frozen=None, norm=True, ramp=None, epochs=3):
    encoder = CNN(((4,),), dense=(), batch_normalization=norm)
    attack = PGD(ThreatModel(epsilon=0.1), steps=2)
    parts = {} if kind is Supervised else {"adversary": Adversary(attack=attack, ramp=ramp)}
    method = kind(encoder, LinearHead(3), **parts)
    method.build((None, 8, 8, 1))
    return types.SimpleNamespace(method=method, frozen=frozen, epochs=epochs)


PLAIN, ROBUST = {"pretrained": {"robust": False}}, {"pretrained": {"robust": True}}


@pytest.mark.parametrize("main, first, origin, texts", stored.rows(globals(), "a_run_knows_what_the_advice_needs"))
def test_a_run_knows_what_the_advice_needs(main, first, origin, texts):
    keras.backend.clear_session()
    lines = advice_lines(fine_tuning(main, first, origin))
    assert len(lines) == len(texts) and all(text in line for text, line in zip(texts, lines, strict=True))
    assert all(line.startswith("advice      ") for line in lines)

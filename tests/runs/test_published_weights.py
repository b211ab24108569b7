"""The weights that a run publishes come from the callback that keeps them."""

import pytest

from tfrobust.errors import InputError
from tfrobust.runs.published_weights import choose_weights
from tfrobust.training.callbacks.averaged_weights import AveragedWeights
from tfrobust.training.callbacks.best_weights import BestWeights


def watcher(kind, state):
    return type(kind.__name__, (kind,), {"__init__": lambda self: None, "restore": lambda self: state})()


def test_best_and_averaged_weights_are_those_of_their_callbacks():
    watchers = [watcher(AveragedWeights, {"kind": "ema"}), watcher(BestWeights, {"step": 3, "value": 0.5})]
    for order in (watchers, watchers[::-1]):
        best = {"weights": "best", "on": "validation", "epoch": 3, "value": 0.5}
        assert choose_weights("best", order) == best
        assert choose_weights("averaged", order) == {"weights": "averaged", "on": "last", "kind": "ema"}
    assert choose_weights("last", []) == {"weights": "last", "on": "last"}
    with pytest.raises(InputError, match="no epoch was validated"):
        choose_weights("best", [watcher(BestWeights, None)])

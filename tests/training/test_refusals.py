"""Refusals of optimizers, callbacks and strategies, and their messages."""

import types

import pytest
import refusals

from tfrobust.training import strategy

REPLICAS = types.SimpleNamespace(num_replicas_in_sync=1)


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, strategy=strategy, REPLICAS=REPLICAS)

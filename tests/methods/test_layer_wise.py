"""Eqs 4 and 5 of Campbell et al. 2020: NT-Xent at every stage, each with its own regulariser."""

import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import instances


@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_each_layer_s_term_is_the_contrastive_loss_of_its_pooled_output(forward):
    method = battery.build("layer_wise", forward=forward)
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    # The hidden states by a second way: the stages' layers called one after the other.
    stacked = [views["view_1"], views["view_2"]]
    parts = [tf.concat(stacked, 0)] if forward == "joint" else stacked
    for stage in (1, 2):
        pooled = []
        for hidden in parts:
            for layers in method.encoder.stage_layers[:stage]:
                for layer in layers:
                    branched = getattr(layer, "branched", False)
                    hidden = layer(hidden, training=True) if branched else layer(hidden)
            pooled.append(hidden.numpy().mean(axis=(1, 2)))
        first, second = np.split(np.concatenate(pooled), 2)
        expected = instances.rocl([first, second], 0.5)
        assert float(tf.reduce_mean(terms[f"layer_{stage}"])) == pytest.approx(expected, rel=1e-4)
    assert method.terms == ("contrastive", "layer_1", "layer_2", "probe")


def test_the_loss_adds_up_equations_4_and_5():
    method = battery.build("layer_wise")
    assert method.penalty.betas == {"layer_1": 0.1, "contrastive": 1.0}
    images, labels = (tf.constant(part) for part in battery.data())
    logs = {name: float(value) for name, value in method.train_step((images, labels)).items()}
    expected = logs["contrastive"] + 0.1 * logs["layer_2"] + 0.01 * logs["layer_1"] + logs["probe"]
    penalty = 0.1 * logs["tikhonov_layer_1"] + logs["tikhonov_contrastive"]
    assert logs["loss"] == pytest.approx(expected + penalty, rel=1e-5) and penalty > 1e-5

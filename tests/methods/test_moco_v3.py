"""MoCo v3: the loss beside the released arithmetic in float64, and the momentum network's start."""

import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import momentum as oracle
from tfrobust.methods.moco_v3 import MoCoV3
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.heads.projection import ProjectionHead


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_the_loss_is_the_paper_s(temperature):
    method = battery.build("moco_v3", compiled=False)
    method.temperature = temperature
    for part in (method.target_encoder, method.target_projection):
        for place, weight in enumerate(part.weights):  # or keys and queries would come from equal networks
            weight.assign(weight + 0.1 * np.cos(place + np.arange(weight.numpy().size)).reshape(weight.shape))
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    images = [views["view_1"], views["view_2"]]
    queries = [
        method.prediction(method.projection(method.encoder(one, training=True), training=True), training=True)
        for one in images
    ]
    keys = [method.target_projection(method.target_encoder(one, training=True), training=True) for one in images]
    expected = oracle.moco_v3(queries, keys, temperature)
    np.testing.assert_allclose(terms["contrastive"], expected, rtol=1e-5)


def test_orthogonal_keys_have_the_loss_of_the_formula():
    """<q_i, k_j> = 1 if i = j, else 0: 2 t log(1 + (n - 1) exp(-1 / t)) for each direction."""
    method = battery.build("moco_v3", compiled=False)
    method.temperature = 0.5
    _, context = battery.prepared(method)
    rows = tf.eye(12)
    value = method.compare(3.0 * rows, 5.0 * rows, context)
    np.testing.assert_allclose(value, np.log(1 + 11 * np.exp(-2.0)), rtol=1e-5)


def test_the_momentum_network_starts_equal_and_stays_so_at_rate_0():
    method = battery.build("moco_v3")
    method.target_rate = 0.0
    pairs = [(method.encoder, method.target_encoder), (method.projection, method.target_projection)]
    start = [weight.numpy() for _, target in pairs for weight in target.weights]
    for own, target in pairs:
        for one, other in zip(own.weights, target.weights, strict=True):
            np.testing.assert_array_equal(one, other)
    method.train_step(battery.data())
    after = [weight for _, target in pairs for weight in target.weights]
    for before, weight in zip(start, after, strict=True):
        assert np.array_equal(before, weight.numpy()) == ("moving" not in weight.path)


def test_the_heads_are_those_of_the_papers_resnet():
    method = MoCoV3(battery.encoder(), LinearHead(3))
    assert (method.projection.hidden, method.projection.dim, method.projection.normalization) == (
        (4096,),
        256,
        "standardized",
    )
    assert method.prediction.normalization == "hidden" and method.temperature == 1.0
    small = MoCoV3(battery.encoder(), LinearHead(3), projection=ProjectionHead((6,), dim=4, use_bias=False))
    assert small.prediction.hidden == (6,) and small.prediction.use_bias is False


def test_the_last_norm_of_a_standardized_head_has_no_weights():
    head = ProjectionHead((6,), dim=4, normalization="standardized", use_bias=False, output_bias=False)
    found = head(tf.random.stateless_normal([32, 5], (0, 1)), training=True).numpy()
    assert [weight.shape for weight in head.trainable_variables] == [(5, 6), (6,), (6,), (6, 4)]
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0), 1.0, atol=1e-2)

"""MoCo v3: the loss beside the released arithmetic in float64, and the momentum network's start."""

import dataclasses

import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import methods as battery
from oracles import momentum as oracle
from tfrobust.keras.methods import FNC, IFND, AdaptiveFNC, MoCoV3  # noqa: F401
from tfrobust.keras.models import LinearHead, ProjectionHead


@pytest.mark.parametrize(("row", "temperature"), [("moco_v3", 1.0), ("moco_v3", 0.2), ("moco_v3_adaptive_fnc", 0.2)])
def test_the_loss_is_the_paper_s(row, temperature):
    method = battery.build(row, compiled=False)
    method.temperature = temperature
    for part in (method.target_encoder, method.target_projection):
        for number, weight in enumerate(part.weights):  # or keys and queries would come from equal networks
            weight.assign(weight + 0.1 * np.cos(number + np.arange(weight.numpy().size)).reshape(weight.shape))
    batch, context = battery.prepared(method)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    images = [views["view_1"], views["view_2"]]
    embeddings = [method.encoder(view, training=True) for view in images]
    queries = [
        method.prediction(method.projection(embedding, training=True), training=True) for embedding in embeddings
    ]
    seen = [method.target_encoder(view, training=True) for view in images]
    keys = [method.target_projection(embedding, training=True) for embedding in seen]
    false_negatives = (
        () if row == "moco_v3" else (oracle.similar_keys(embeddings, seen, method.false_negatives.threshold),)
    )
    expected = oracle.moco_v3(queries, keys, temperature, *false_negatives)
    np.testing.assert_allclose(terms["contrastive"], expected, rtol=1e-5)
    if false_negatives:
        assert 0 < np.mean(terms["negatives_left"]) < len(keys[0]) - 1


def compared(method, queries, keys, labels=None):
    """The term of both directions and the observations of the first, of vectors that are embeddings, too."""
    batch, context = battery.prepared(method)
    batch = batch._replace(labels=labels)
    queries, keys = ([(vectors, vectors) for vectors in map(tf.constant, views)] for views in (queries, keys))
    first, observed = method.compare(queries, keys[1], context, batch)
    return first + method.compare(queries[::-1], keys[0], context, batch)[0], observed


@pytest.mark.parametrize("rule, removed", stored.rows(globals(), "removed_keys_leave_the_denominator_of_their"))
@pytest.mark.parametrize("features", ["projection", "embedding"])
def test_removed_keys_leave_the_denominator_of_their_direction(rule, removed, features):
    method = battery.build("moco_v3", compiled=False)
    method.false_negatives = dataclasses.replace(rule, features=features)
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 12, 4)).astype(np.float32)
    term, _ = compared(method, queries, keys)
    expected = oracle.moco_v3(queries, keys, method.temperature, removed(queries, keys))
    np.testing.assert_allclose(term, expected, rtol=1e-5)
    assert np.all(expected < oracle.moco_v3(queries, keys, method.temperature))


def test_a_key_of_the_anchor_s_class_is_a_false_negative():
    """Two classes of equal vectors: every anchor has 5 keys of its class, which are all removed, and 6 others."""
    method = battery.build("moco_v3_adaptive_fnc", compiled=False)
    labels = np.arange(12) % 2
    rows = np.eye(2, dtype=np.float32)[labels]
    term, observed = compared(method, [rows, rows], [rows, rows], tf.constant(labels))
    fractions = {name: float(value[0]) for name, value in observed.items()}
    assert fractions == {"false_negatives_found": 1.0, "true_negatives_removed": 0.0, "negatives_left": 6.0}
    np.testing.assert_allclose(term, 4.0 * np.log(1 + 6 / np.e), rtol=1e-5)


def test_pseudo_labels_remove_the_same_images_in_both_directions():
    method = battery.build("moco_v3", compiled=False, false_negatives=IFND(), examples=12)
    method.pseudo_labels.assign([5, 5, *[-1] * 10])
    queries, keys = np.random.default_rng(1).normal(size=(2, 2, 12, 4)).astype(np.float32)
    term, _ = compared(method, queries, keys)
    twins = {0: {1}, 1: {0}}
    expected = oracle.moco_v3(queries, keys, method.temperature, lambda _, row: twins.get(row, ()))
    np.testing.assert_allclose(term, expected, rtol=1e-5)


def test_the_momentum_network_starts_equal_and_stays_so_at_rate_0():
    method = battery.build("moco_v3")
    method.target_rate = 0.0
    pairs = [(method.encoder, method.target_encoder), (method.projection, method.target_projection)]
    start = [weight.numpy() for _, target in pairs for weight in target.weights]
    for online, target in pairs:
        for source, other in zip(online.weights, target.weights, strict=True):
            np.testing.assert_array_equal(source, other)
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
    outputs = head(tf.random.stateless_normal([32, 5], (0, 1)), training=True).numpy()
    assert [weight.shape for weight in head.trainable_variables] == [(5, 6), (6,), (6,), (6, 4)]
    np.testing.assert_allclose(outputs.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(outputs.std(axis=0), 1.0, atol=1e-2)

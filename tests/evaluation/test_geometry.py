"""Divergences against the paper's sums written out, closed forms, and the two evaluators on a tiny model."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from oracles import geometry as oracle
from tfrobust.evaluation.evaluators import geometry
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.ops.divergences import batched_divergences, divergences


def _case(count, classes, seed=0):
    generator = np.random.default_rng(seed)
    clean, adversarial = generator.normal(size=(2, count, 6)).astype(np.float32)
    return clean, adversarial, generator.integers(0, classes, count)


@pytest.mark.parametrize(("count", "classes"), [(20, 3), (9, 8), (2, 1)])
def test_divergences_equal_the_loop(count, classes):
    clean, adversarial, labels = _case(count, classes)
    if classes == 1:
        assert all(np.isnan(divergences(clean, adversarial, labels)[:3]))
        return
    values = divergences(clean, adversarial, labels)
    np.testing.assert_allclose(values, oracle.divergences(clean, adversarial, labels), rtol=1e-5)


def test_divergences_closed_form():
    # Two classes on two orthogonal axes: within a class distance 0, across 1, so R-DIV 0; adversaries turned
    # to the other axis make half of each set swap: intra = (0 + 1) / 2 = inter, so R-DIV 1.
    axes, labels = np.eye(2, dtype=np.float32)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    np.testing.assert_allclose(divergences(axes, axes, labels), (0, 0, 1, 4), atol=1e-6)
    swapped = axes[:, ::-1].copy()
    np.testing.assert_allclose(divergences(axes, swapped, labels), (1, 0.5, 0.5, 4), atol=1e-6)
    # The own adversary is in neither set: alone it may be anywhere.
    np.testing.assert_allclose(divergences(axes[1:], axes[1:], labels[1:]), (0, 0, 1, 2), atol=1e-6)


def test_divergences_in_a_graph_with_constant_features():
    compiled = tf.function(divergences)
    r_div, intra, inter, anchors = compiled(tf.ones([4, 3]), tf.ones([4, 3]), tf.constant([0, 0, 1, 1]))
    assert np.isnan(r_div) and max(intra, inter) < 1e-6 and float(anchors) == 4


def test_batches_are_averaged_by_their_anchors():
    clean, adversarial, labels = _case(50, 3)
    parts = [
        oracle.divergences(clean[s], adversarial[s], labels[s]) for s in (slice(0, 20), slice(20, 40), slice(40, 50))
    ]
    expected = np.average([part[:3] for part in parts], axis=0, weights=[part[3] for part in parts])
    values = batched_divergences(clean, adversarial, labels, 20)
    np.testing.assert_allclose(values[:3], expected, rtol=1e-5)
    assert values.anchors == sum(part[3] for part in parts)


ATTACK = PGD(threat=ThreatModel(norm="linf", epsilon=0.1), steps=3)


def test_divergence_evaluator(setting):
    outcome = geometry.Divergence(attack=ATTACK, epsilons=(0.0, 0.05, 0.1), batch_size=30).run(setting)
    assert tuple(m.id for m in outcome.measurements) == geometry.Divergence(attack=ATTACK).ids()
    columns = outcome.series[0].columns
    assert outcome.series[0].id == "geometry.divergence_curve"
    assert list(columns) == ["epsilon", "r_div", "intra", "inter", "accuracy"]
    clean = np.asarray(setting.predictor.embedding(setting.images))
    expected = oracle.divergences(clean + 1e-12, clean + 1e-12, setting.labels)
    assert columns["r_div"][0] == pytest.approx(expected[0], rel=1e-4)
    assert columns["accuracy"][0] == setting.clean_correct.mean()
    assert outcome.measurements[0].value == columns["r_div"][2]
    assert outcome.measurements[0].settings["epsilon"] == 0.1
    assert columns["r_div"][0] < columns["r_div"][1] < columns["r_div"][2]


def test_feature_map(setting):
    evaluator = geometry.FeatureMap(attack=ATTACK, natural=20, adversarial=8)
    first, second = evaluator.run(setting), evaluator.run(setting)
    columns = first.series[0].columns
    assert first.series[0].id == "geometry.feature_map" and columns == second.series[0].columns
    assert {len(column) for column in columns.values()} == {28}
    assert columns["adversarial"] == [0] * 20 + [1] * 8
    assert columns["label"][20:] == columns["label"][:8]
    assert 0 <= min(columns["entropy"]) and max(columns["entropy"]) <= np.log(2) + 1e-6


def test_images_whose_features_overflow_are_left_out_of_the_map(setting):
    bright = setting.images.max(axis=(1, 2, 3)) > np.median(setting.images.max(axis=(1, 2, 3)))

    def embedding(images):
        factor = tf.where(
            tf.reduce_max(images, [1, 2, 3]) > np.median(setting.images.max(axis=(1, 2, 3))), np.inf, 1e25
        )
        return setting.predictor.embedding(images) * factor[:, None]

    broken = dataclasses.replace(setting, predictor=dataclasses.replace(setting.predictor, embedding=embedding))
    (series,) = geometry.FeatureMap(natural=len(bright)).run(broken).series
    assert len(series.columns["x"]) == len(bright) - bright.sum() and np.isfinite(series.columns["x"]).all()
    everything = dataclasses.replace(
        setting, predictor=dataclasses.replace(setting.predictor, embedding=lambda images: np.inf * embedding(images))
    )
    assert not geometry.FeatureMap(natural=20).run(everything).series

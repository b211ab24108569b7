"""Class separation, alignment and uniformity against pairs written out, SciPy, closed forms and coverage."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist, squareform

from oracles import embedding as oracle
from tfrobust.augment.noise import AddGaussian
from tfrobust.evaluation.evaluators import embedding, geometry
from tfrobust.evaluation.evaluators.embedding import (
    EmbeddingGeometry,
    alignment,
    inter_intra_ratio,
    on_sphere,
    uniformity,
)


def drawn(count=13, classes=3, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    return (generator.normal(size=(count, 4)) + labels[:, None]).astype(np.float32), labels


@pytest.mark.parametrize("distance", embedding.DISTANCES)
@pytest.mark.parametrize("block", [2**22, 13 * 5])
def test_ratio_and_its_interval_are_the_loops(distance, block, monkeypatch):
    monkeypatch.setattr(embedding, "_BLOCK_ELEMENTS", block)
    features, labels = drawn()
    ratios = inter_intra_ratio(features, labels, distance=distance)
    expected = oracle.inter_intra(features, labels, distance)
    for number, name in enumerate(("inter_intra_ratio", "inter", "intra")):
        value, low, high = ratios[name]
        half = oracle.jackknife(
            lambda rows, p=number: oracle.inter_intra(features[rows], labels[rows], distance)[p], 13
        )
        np.testing.assert_allclose((value, high - value, value - low), (expected[number], half, half), rtol=1e-9)


def test_ratio_is_scipy_s():
    features, labels = drawn(200, 7, seed=1)
    distances, same_label = squareform(pdist(on_sphere(features))), labels[:, None] == labels
    expected = distances[~same_label].mean() / distances[same_label & ~np.eye(200, dtype=bool)].mean()
    assert inter_intra_ratio(features, labels)["inter_intra_ratio"][0] == pytest.approx(expected, rel=1e-6)
    cosine = cdist(features, features, "cosine")
    expected = cosine[~same_label].mean() / cosine[same_label & ~np.eye(200, dtype=bool)].mean()
    ratio = inter_intra_ratio(features, labels, distance="cosine")["inter_intra_ratio"][0]
    assert ratio == pytest.approx(expected, rel=1e-6)


def test_closed_forms():
    # Two classes of two images, 60 degrees wide each, at right angles: |f_i - f_j| = 2 sin(angle / 2).
    angles = np.deg2rad([0, 60, 90, 150])
    features = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    chord = lambda degrees: 2 * np.sin(np.deg2rad(degrees) / 2)  # noqa: E731
    inter = (chord(90) + chord(150) + chord(30) + chord(90)) / 4
    ratios = inter_intra_ratio(features, [0, 0, 1, 1])
    assert ratios["intra"][0] == pytest.approx(1) and ratios["inter_intra_ratio"][0] == pytest.approx(inter)
    # Two points at opposite ends; all in one place.
    assert uniformity([[1.0, 0], [-1.0, 0]], sharpness=2.0)[0] == pytest.approx(-8)
    assert uniformity(np.ones([4, 3]))[0] == pytest.approx(0)
    np.testing.assert_allclose(alignment([[2.0, 0], [0, 3.0]], [[0, 1.0], [0, 1.0]]), [2, 0], atol=1e-12)
    np.testing.assert_allclose(alignment([[2.0, 0]], [[-1.0, 0]], power=1.0), [2])


def test_uniformity_and_alignment_are_the_loops():
    (first, _), (second, _) = drawn(), drawn(seed=5)
    assert alignment(first, second, power=3.0).mean() == pytest.approx(oracle.alignment(first, second, 3.0))
    value, low, high = uniformity(first, sharpness=0.7)
    half = oracle.jackknife(lambda rows: oracle.uniformity(first[rows], 0.7), 13)
    expected = oracle.uniformity(first, 0.7)
    np.testing.assert_allclose((value, high - value, value - low), (expected, half, half), rtol=1e-9)


def test_no_pairs_no_number():
    features, _ = drawn(4)
    one_class, all_different = inter_intra_ratio(features, [0] * 4), inter_intra_ratio(features, range(4))
    assert np.isnan(one_class["inter_intra_ratio"][0]) and not np.isnan(one_class["intra"][0])
    assert np.isnan(all_different["inter_intra_ratio"][0]) and not np.isnan(all_different["inter"][0])
    assert np.isnan(inter_intra_ratio(np.ones([4, 2]), [0, 0, 1, 1])["inter_intra_ratio"][0])
    assert np.isnan(uniformity(features[:1])[0])


def test_intervals_cover():
    """The intervals of about 95 % of 200 samples of 60 images contain the ratio and the uniformity of all 4,000."""
    features, labels = drawn(4000, 3, seed=9)
    truth = inter_intra_ratio(features, labels)["inter_intra_ratio"][0], uniformity(features)[0]
    generator, covered = np.random.default_rng(2), np.zeros(2)
    for _ in range(200):
        rows = generator.integers(0, 4000, 60)
        intervals = inter_intra_ratio(features[rows], labels[rows])["inter_intra_ratio"], uniformity(features[rows])
        covered += [low <= value <= high for value, (_, low, high) in zip(truth, intervals, strict=True)]
    assert np.all((0.88 <= covered / 200) & (covered / 200 <= 0.99)), covered


def test_evaluator(setting):
    evaluator = EmbeddingGeometry(views=AddGaussian(deviation=0.1), sharpness=1.5)
    outcome = evaluator.run(setting)
    measurements = {m.id.removeprefix("geometry."): m for m in outcome.measurements}
    assert tuple(m.id for m in outcome.measurements) == evaluator.ids()
    features = np.asarray(setting.predictor.embedding(setting.images))
    ratio, inter, intra = oracle.inter_intra(features + 1e-12, setting.labels)
    values = [
        measurements[name].value for name in ("inter_intra_ratio", "inter_class_distance", "intra_class_distance")
    ]
    np.testing.assert_allclose(values, (ratio, inter, intra), rtol=1e-5)
    assert measurements["uniformity"].value == pytest.approx(oracle.uniformity(features + 1e-12, 1.5), rel=1e-5)
    assert all(m.low < m.value < m.high and m.n == 30 for m in outcome.measurements)
    assert measurements["alignment"].settings["views"] == "AddGaussian"
    again = {m.id: m.value for m in evaluator.run(setting).measurements}
    assert again["geometry.alignment"] == measurements["alignment"].value


def test_alignment_compares_two_draws_of_each_image(setting):
    """Nearly still images align nearly perfectly; the stronger the noise, the worse."""
    values = []
    for deviation in (1e-6, 0.05, 0.5):
        outcome = EmbeddingGeometry(views=AddGaussian(deviation=deviation), limit=20).run(setting)
        values.append(outcome.measurements[-1].value)
        assert outcome.measurements[-1].n == 20
    assert values[0] == pytest.approx(0, abs=1e-8) and values[0] < values[1] < values[2]


def test_without_views_no_alignment(setting):
    assert "geometry.alignment" not in EmbeddingGeometry().ids()
    assert [m.id for m in EmbeddingGeometry().run(setting).measurements] == list(EmbeddingGeometry().ids())


def test_feature_map_without_an_attack_shows_natural_images(setting):
    (series,) = geometry.FeatureMap(natural=20).run(setting).series
    assert series.columns["adversarial"] == [0] * 20 and len(series.columns["x"]) == 20

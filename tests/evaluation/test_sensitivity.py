"""The evaluator against its parts put together by hand; exact and projected; what it says without an embedding."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from oracles import linear_model
from oracles import sensitivity as oracle
from tfrobust.common import thumbnails
from tfrobust.evaluation.engine import base, statistics
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.sensitivity import Sensitivity
from tfrobust.ops import sensitivity_maps as maps

WIDTH = 20
KERNEL = tf.constant(np.random.default_rng(2).normal(size=(12, WIDTH)), tf.float32)
HEAD = tf.constant(np.random.default_rng(3).normal(size=(WIDTH, 2)), tf.float32)


def embed(pixels):
    return tf.nn.tanh(tf.matmul(tf.reshape(pixels, [-1, 12]) - 0.5, KERNEL))


def predict(pixels):
    return embed(pixels) @ HEAD


@pytest.fixture(scope="module")
def setting():
    _, images, labels, _, _ = linear_model.make(30)
    predictor = from_function(predict, image_shape=linear_model.SHAPE, embedding=embed)
    return base.Setting(predictor=predictor, images=images, labels=labels, batch_size=8)


def _by_hand(setting):
    images = tf.constant(setting.images)
    return oracle.utility(predict, images, setting.labels).numpy(), oracle.sensitivity(embed, images).numpy()


def test_the_numbers_are_means_over_all_images(setting):
    steps = []
    outcome = Sensitivity().run(dataclasses.replace(setting, progress=lambda *step: steps.append(step)))
    calls = [step[1:] for step in steps if step[0] == "utility and sensitivity"]
    assert calls == sorted(calls) and calls[-1] == (4 * (1 + WIDTH), 4 * (1 + WIDTH))
    utility, sensitivity = _by_hand(setting)
    agreement = [
        scipy.stats.spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(utility, sensitivity, strict=True)
    ]
    by_hand = [maps.concentration(utility).numpy(), maps.concentration(sensitivity).numpy(), np.array(agreement)]
    assert [m.id for m in outcome.measurements] == list(Sensitivity().ids()[:3]) and not outcome.findings
    for measured, values in zip(outcome.measurements, by_hand, strict=True):
        assert measured.value == pytest.approx(values.mean(), rel=1e-4) and measured.n == 30
        assert (measured.low, measured.high) == pytest.approx(statistics.mean_interval(values), rel=1e-3)
    settings = outcome.measurements[1].settings
    assert settings["sensitivity"] == "exact" and settings["embedding_dimensions"] == WIDTH
    assert "sensitivity" not in outcome.measurements[0].settings


def test_projections_above_the_limit(setting):
    exact = Sensitivity(exact_limit=WIDTH * 12).run(setting)
    outcome = Sensitivity(exact_limit=WIDTH * 12 - 1, projections=10).run(setting)
    settings = outcome.measurements[2].settings
    assert exact.measurements[2].settings["sensitivity"] == "exact"
    assert settings["sensitivity"] == "random projections" and settings["projections"] == 10
    assert settings["relative_error_of_squares"] == maps.projection_error(WIDTH, 10)
    assert outcome.measurements[0] == exact.measurements[0]
    assert 0 < abs(outcome.measurements[1].value - exact.measurements[1].value) < 0.1
    # More projections than dimensions would cost more than the exact map.
    assert Sensitivity(exact_limit=0, projections=WIDTH).run(setting) == exact


def test_pictures_show_the_maps(setting):
    (series,) = Sensitivity(pictures=2, classes=0).run(setting).series
    columns = {name: np.array(values) for name, values in series.columns.items()}
    assert series.id == Sensitivity().ids()[-1] and {len(values) for values in columns.values()} == {24}
    assert list(columns) == ["picture", "label", "row", "column", "channel_0", "utility", "sensitivity"]
    utility, sensitivity = _by_hand(setting)
    for number in (0, 1):
        picture = {name: values[columns["picture"] == number] for name, values in columns.items()}
        (which,) = np.flatnonzero(np.abs(setting.images.reshape(30, -1) - picture["channel_0"]).max(axis=1) < 1e-3)
        assert set(picture["label"]) == {setting.labels[which]}
        np.testing.assert_array_equal(picture["row"] * 4 + picture["column"], np.arange(12))
        np.testing.assert_allclose(picture["utility"], utility[which].ravel(), rtol=6e-3)
        np.testing.assert_allclose(picture["sensitivity"], sensitivity[which].ravel(), rtol=6e-3)
    assert Sensitivity(pictures=0, classes=0).run(setting).series == []


def test_classes_are_means_over_their_images(setting):
    (series,) = Sensitivity(pictures=0).run(setting).series
    utility, _ = _by_hand(setting)
    assert series.id == "sensitivity.classes" and series.columns["label"] == [0, 1]
    assert series.title == "Utility averaged over the images of each class"
    for row in (0, 1):
        of_class, columns = setting.labels == row, {name: values[row] for name, values in series.columns.items()}
        assert columns["images"] == of_class.sum() and (columns["height"], columns["width"], columns["channels"]) == (
            3,
            4,
            1,
        )
        means = utility[of_class].mean(axis=0)
        assert columns["largest_utility"] == pytest.approx(means.max(), rel=1e-5)
        image = thumbnails.decode(columns["image"], 3, 4, 1)
        np.testing.assert_allclose(image, setting.images[of_class].mean(axis=0), atol=0.51 / 255)
        np.testing.assert_allclose(thumbnails.decode(columns["utility"], 3, 4, 1), means / means.max(), atol=0.51 / 255)


def test_many_classes_are_cut_and_many_pixels_stay_small():
    generator = np.random.default_rng(0)
    images, labels = generator.random((25, 70, 70, 3)).astype(np.float32), np.arange(25)
    weights = tf.constant(generator.normal(size=(70 * 70 * 3, 25)), tf.float32)
    predictor = from_function(lambda x: tf.reshape(x, [-1, weights.shape[0]]) @ weights, image_shape=(70, 70, 3))
    outcome = Sensitivity().run(base.Setting(predictor=predictor, images=images, labels=labels))
    shown = {series.id: series for series in outcome.series}
    assert shown["sensitivity.classes"].columns["label"] == list(range(20))
    assert shown["sensitivity.classes"].title.endswith("of each class: the first 20 of 25")
    sizes = {name: len(json.dumps(series.columns)) for name, series in shown.items()}
    assert sizes["sensitivity.classes"] < 20 * 6000 and sizes["sensitivity.maps"] < 3 * 50_000


def test_an_image_without_a_finite_utility_is_no_part_of_a_mean(setting):
    bad = setting.images[10:15, 0, 0, 0]
    broken = lambda x: predict(x) * tf.where(tf.reduce_any(x[:, :1, 0, 0] == bad, 1, True), np.nan, 1.0)  # noqa: E731
    predictor = from_function(broken, image_shape=linear_model.SHAPE)
    (series,) = Sensitivity(pictures=0).run(dataclasses.replace(setting, predictor=predictor)).series
    labels = np.delete(setting.labels, np.s_[10:15])
    assert series.columns["images"] == [int((labels == label).sum()) for label in (0, 1)]
    assert np.isfinite(series.columns["largest_utility"]).all()


@pytest.mark.parametrize(("shape", "shown"), [((100, 70, 3), (25, 17)), ((40, 2, 1), (20, 1))])
def test_large_pictures_are_averaged(shape, shown):
    generator = np.random.default_rng(0)
    images, labels = generator.random((4, *shape)).astype(np.float32), np.arange(4) % 2
    weights = tf.constant(generator.normal(size=(int(np.prod(shape)), 2)), tf.float32)
    predictor = from_function(lambda x: tf.reshape(x, [-1, weights.shape[0]]) @ weights, image_shape=shape)
    outcome = Sensitivity(pictures=1).run(base.Setting(predictor=predictor, images=images, labels=labels))
    columns = outcome.series[-1].columns
    assert (max(columns["row"]) + 1, max(columns["column"]) + 1) == shown
    side = -(-max(shape[:2]) // 32)
    first = columns["channel_0"][0]
    assert any(abs(first - image[:side, :side, 0].mean()) < 2e-3 for image in images)


@pytest.mark.parametrize("count", [12, 30])
def test_images_whose_maps_are_not_finite_are_left_out_and_counted(setting, count):
    broken = setting.images[:count]

    def embedded(pixels):
        is_broken = tf.reduce_any(tf.reduce_all(pixels[:, None] == broken, axis=(2, 3, 4)), axis=1)
        zero = tf.where(is_broken, 0.0, 1.0)[:, None] * tf.reduce_sum(pixels, axis=(1, 2, 3))[:, None]
        return embed(pixels) + 1e-30 * tf.sqrt(zero)  # its derivative at 0 is infinite, and 0 times that is NaN

    predictor = from_function(predict, image_shape=linear_model.SHAPE, embedding=embedded)
    outcome = Sensitivity(pictures=40).run(dataclasses.replace(setting, predictor=predictor))
    utility, *sensitivities = outcome.measurements
    assert utility.n == 30 and "images_with_maps_not_finite" not in utility.settings
    for measured in sensitivities:
        assert (measured.n, measured.settings["images_with_maps_not_finite"]) == (30 - count, count)
        assert count < 30 or measured.settings["reason"] == "the maps of all 30 images are constant or not finite"
    json.dumps([dataclasses.asdict(part) for part in outcome.measurements + outcome.series], allow_nan=False)
    if count < 30:
        finite = dataclasses.replace(setting, images=setting.images[count:], labels=setting.labels[count:])
        for measured, expected in zip(sensitivities, Sensitivity().run(finite).measurements[1:], strict=True):
            assert measured.value == pytest.approx(expected.value, rel=1e-4)
        assert set(outcome.series[-1].columns["picture"]) == set(range(30 - count))


def test_no_embedding_leaves_the_utility(setting):
    bare = from_function(predict, image_shape=linear_model.SHAPE)
    outcome = Sensitivity().run(dataclasses.replace(setting, predictor=bare))
    assert outcome.measurements[0] == Sensitivity().run(setting).measurements[0]
    assert "sensitivity" not in outcome.series[-1].columns


def test_vanished_gradients_are_counted_not_averaged(setting):
    """Half of the images have logits so far apart that the loss is 0 in float32, and its gradient too."""
    sure = lambda x: predict(x) * tf.where(x[:, :1, 0, 0] > 0.5, 1e6, 1.0)  # noqa: E731
    predictor = from_function(sure, image_shape=linear_model.SHAPE, embedding=embed)
    measured = Sensitivity().run(dataclasses.replace(setting, predictor=predictor)).measurements
    constant_count = measured[0].settings["images_with_constant_maps"]
    assert 0 < constant_count < 30 and measured[0].n == measured[2].n == 30 - constant_count and measured[1].n == 30
    constant = from_function(lambda x: 0.0 * predict(x), image_shape=linear_model.SHAPE, embedding=embed)
    (first, *_) = Sensitivity().run(dataclasses.replace(setting, predictor=constant)).measurements
    assert (first.value, first.low, first.n) == (None, None, 0)

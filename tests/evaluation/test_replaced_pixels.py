import numpy as np
import pytest

from tfrobust.common import thumbnails
from tfrobust.evaluation.engine import base, predictor
from tfrobust.evaluation.evaluators.replaced_pixels import (
    ReplacedPixels,
    replace_pixels,
    replacement_probabilities,
    replacement_weights,
)

SHAPE = (10, 8, 3)


def _images(count=50, seed=0):
    return np.random.default_rng(seed).uniform(0.4, 0.6, (count, *SHAPE)).astype(np.float32)


def _replaced(images, noisy):
    return (noisy != images).any(-1)


def test_exactly_the_share_is_replaced_by_uniform_grey():
    images = _images()
    noisy = replace_pixels(images, np.random.default_rng(1), share=0.15)
    where = _replaced(images, noisy)
    assert np.all(where.sum((1, 2)) == 12) and noisy.dtype == np.float32
    levels = noisy[where]
    assert np.all(levels == levels[:, :1])  # grey
    assert abs(levels[:, 0].mean() - 0.5) < 0.06 and 0.26 < levels[:, 0].std() < 0.32
    assert np.all(np.abs(where.mean(0) - 0.15) < 5 * np.sqrt(0.15 * 0.85 / 50))


def test_channels_may_have_levels_of_their_own():
    images = _images(5)
    noisy = replace_pixels(images, np.random.default_rng(1), share=0.5, levels="channel")
    levels = noisy[_replaced(images, noisy)]
    assert np.all(levels[:, 0] != levels[:, 1])


def test_each_pixel_by_itself_has_the_share_as_its_mean():
    images = _images(400)
    weights = np.linspace(1, 3, 80).reshape(10, 8)
    where = _replaced(images, replace_pixels(images, np.random.default_rng(2), weights=weights, count="bernoulli"))
    expected = 0.15 * weights / weights.mean()
    assert np.all(np.abs(where.mean(0) - expected) < 5 * np.sqrt(expected * (1 - expected) / 400))
    assert len(set(where.sum((1, 2)).tolist())) > 3


def test_likely_pixels_are_replaced_first():
    """Drawing without putting back: the first of two pixels of weights 3 and 1 is the heavy one three times in four."""
    images = np.full((4000, 1, 2, 1), 2.0, np.float32)
    where = _replaced(
        images, replace_pixels(images, np.random.default_rng(3), share=0.5, weights=np.array([[3.0, 1.0]]))
    )
    assert np.all(where.sum((1, 2)) == 1)
    assert abs(where[:, 0, 0].mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4000)


def test_weights_are_inverse_to_the_deviation_over_training_images():
    images = np.random.default_rng(4).uniform(size=(30, 4, 5, 3)).astype(np.float32) * np.linspace(0.1, 1, 5)[:, None]
    images[:, 0, 0] = 0.0  # never varies
    deviation = np.sqrt(np.var(images.astype(np.float64), axis=0).mean(-1))
    deviation[0, 0] = 1 / 255
    expected = 1 / deviation
    np.testing.assert_allclose(replacement_weights(images), expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("count", ["exact", "bernoulli"])
@pytest.mark.parametrize("share", [0.15, 0.5])
def test_probabilities_are_how_often_pixels_are_replaced(count, share):
    weights = np.exp(np.random.default_rng(6).normal(0, 1.5, (8, 8)))
    weights /= weights.sum()
    images = np.full((8000, 8, 8, 1), 2.0, np.float32)
    often = _replaced(
        images, replace_pixels(images, np.random.default_rng(7), share=share, weights=weights, count=count)
    ).mean(0)
    expected = replacement_probabilities(weights, share=share, count=count)
    assert often.max() > 0.7 and np.all((expected >= 0) & (expected <= 1))
    # Drawing without putting back has its limit for many pixels; 64 are a hundredth from it.
    bound = 5 * np.sqrt(np.maximum(expected * (1 - expected), 1e-3) / 8000) + (0.012 if count == "exact" else 0.0)
    assert np.all(np.abs(often - expected) < bound)
    if count == "exact":
        assert expected.sum() == pytest.approx(round(share * 64))


def test_probabilities_of_equal_weights_are_the_share():
    for share in (0.001, 0.25, 0.999):
        even = replacement_probabilities(np.full((10, 10), 0.01), share=share)
        np.testing.assert_allclose(even, round(share * 100) / 100, rtol=1e-9, atol=1e-12)


def _setting(train):
    """A model that is right where the first pixel is what it was: 0.5, and below 0.1 or above 0.9 never."""

    def logits(images):
        import tensorflow as tf

        unchanged = tf.cast(tf.abs(images[:, 0, 0, 0] - 0.5) < 1e-6, tf.float32)
        return tf.stack([unchanged, 1 - unchanged], axis=-1)

    images = np.full((300, 4, 4, 1), 0.5, np.float32)
    judged = predictor.from_function(logits, class_count=2, image_shape=(4, 4, 1), name="first pixel")
    return base.Setting(predictor=judged, images=images, labels=np.zeros(300, np.int64), train_images=train)


def test_both_sets_are_measured():
    train = np.random.default_rng(5).uniform(size=(50, 4, 4, 1)).astype(np.float32)
    train[:, 0, 0] = 0.5  # constant in training: replaced nearly always
    outcome = ReplacedPixels().run(_setting(train))
    values = {measurement.id: measurement.value for measurement in outcome.measurements}
    assert values["noise.uniform.accuracy"] == pytest.approx(1 - 2 / 16, abs=0.06)
    assert values["noise.non_uniform.accuracy"] < 0.05
    assert (*values, *(series.id for series in outcome.series)) == ReplacedPixels().ids() and not outcome.findings
    assert outcome.measurements[0].n == 300 and outcome.measurements[0].settings["share"] == 0.15


def test_the_pictures_are_of_the_images_judged():
    train = np.random.default_rng(5).uniform(size=(50, 4, 4, 1)).astype(np.float32)
    setting = _setting(train)
    object.__setattr__(setting, "images", np.random.default_rng(6).uniform(size=(300, 4, 4, 1)).astype(np.float32))
    judged = []
    object.__setattr__(setting, "predict", lambda images, task: judged.append(images) or np.zeros((300, 2)))
    examples, chances = ReplacedPixels(pictures=2).run(setting).series
    columns = examples.columns
    assert columns["label"] == [0, 0] and columns["height"] == columns["width"] == [4, 4]
    for row in (0, 1):
        clean = np.array(thumbnails.decode(columns["clean"][row], 4, 4, 1))
        (which,) = np.flatnonzero(np.abs(setting.images - clean).max(axis=(1, 2, 3)) < 0.51 / 255)
        for name, images in zip(("uniform", "non_uniform"), judged, strict=True):
            np.testing.assert_allclose(thumbnails.decode(columns[name][row], 4, 4, 1), images[which], atol=0.51 / 255)
    expected = replacement_probabilities(replacement_weights(train))
    (largest,) = chances.columns["largest_probability"]
    shown = largest * np.squeeze(thumbnails.decode(chances.columns["probability"][0], 4, 4, 1))
    np.testing.assert_allclose(shown, expected, atol=0.51 / 255)
    assert ReplacedPixels(pictures=0).run(setting).series == []


def test_without_training_images_there_is_no_non_uniform_set():
    outcome = ReplacedPixels().run(_setting(None))
    assert [measurement.id for measurement in outcome.measurements] == ["noise.uniform.accuracy"]
    (examples,) = outcome.series
    assert "uniform" in examples.columns and "non_uniform" not in examples.columns
    assert [(finding.check, finding.verdict) for finding in outcome.findings] == [("training_images", "warn")]

"""The check of the pixel range: which range it names, and what it makes of a model's first normalization layer."""

import dataclasses

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import flawed_models
from tfrobust.evaluation.doctor.pixels import check_pixel_range, compare_ranges, refuse_other_range
from tfrobust.evaluation.engine.normalization import first_normalization

IMAGES = np.random.default_rng(0).uniform(size=(6, 4, 4, 3)).astype(np.float32)


def of_flaw(name):
    (flaw,) = [flaw for flaw in flawed_models.FLAWS if flaw.name == name]
    return flaw.make()


@pytest.mark.parametrize("name, pixels, code", stored.rows(globals(), "the_range_is_named"))
def test_the_range_is_named(name, pixels, code):
    finding = check_pixel_range(of_flaw(name))
    assert pixels in finding.evidence and code in finding.remedy


def test_the_wrapper_of_the_remedy_repairs_the_model():
    setting = of_flaw("made for ImageNet's normalization")
    best = compare_ranges(setting).best
    layer = eval(best.code)  # as a reader would paste it
    np.testing.assert_allclose(layer(setting.images), best.convert(setting.images), rtol=1e-2, atol=5e-2)
    repaired = flawed_models.setting(lambda x: setting.predictor.logits(layer(x)), images=setting.images)
    assert repaired.clean_correct.mean() > 0.9 and check_pixel_range(repaired).verdict == "pass"


@pytest.mark.parametrize(("name", "code"), [("made for Caffe's bytes", "preprocess_input"), ("made for BGR", "::-1")])
def test_a_clear_case_is_refused(name, code):
    with pytest.raises(ValueError, match=r"expects pixels in .* of 150 images it classifies \d+% .* 98% in") as caught:
        refuse_other_range(of_flaw(name))
    assert code in str(caught.value) and len(str(caught.value)) < 400


def _coded(unit_share, centered_share, count=200):
    """A model that is right for the first images: `unit_share` of them in [0, 1], `centered_share` in [-1, 1]."""
    labels = np.arange(count) % 10
    images = np.zeros((count, 2, 2, 1), np.float32)
    images[:, 0, 0, 0], images[:, 1, 1, 0] = (np.arange(count) + 0.5) / count, 1

    def logits(pixels):
        lowest, first = tf.reduce_min(pixels, axis=[1, 2, 3]), pixels[:, 0, 0, 0]
        unit = tf.where(lowest < 0, (first + 1) / 2, first)
        share = tf.where(lowest < 0, centered_share, unit_share)
        usual = (tf.reduce_max(pixels, axis=[1, 2, 3]) == 1) & ((lowest == 0) | (lowest == -1))
        label = tf.gather(labels, tf.cast(unit * count, tf.int32) % count)
        return tf.one_hot(tf.where(usual & (unit < share), label, (label + 1) % 10), 10, 5.0, -5.0)

    return flawed_models.setting(logits, images=images, labels=labels, train_images=None)


@pytest.mark.parametrize("unit_share, centered_share, verdict", stored.rows(globals(), "how_much_a_range_must_gain"))
def test_how_much_a_range_must_gain(unit_share, centered_share, verdict):
    setting = _coded(unit_share, centered_share)
    finding, text = check_pixel_range(setting), f"{unit_share:.1%} are correctly classified in [0, 1]"
    assert finding.verdict == verdict and text in finding.evidence
    assert (f"{centered_share:.1%} in [-1, 1]" in finding.evidence) == (unit_share < 0.9)
    if centered_share - unit_share < 0.3:
        refuse_other_range(setting)


def test_a_model_that_refuses_other_pixels_is_not_made_for_them():
    def strict(pixels):
        with tf.control_dependencies([tf.debugging.assert_non_negative(pixels), tf.debugging.assert_less(pixels, 2.0)]):
            return -flawed_models.sound(pixels)

    finding = check_pixel_range(flawed_models.setting(strict))
    assert finding.verdict == "pass" and "no other range" in finding.evidence


# ------------------------------------------------------------------------------------------- normalization layers


def _adapted(mean, variance):
    layer = keras.layers.BatchNormalization(epsilon=0.0)
    layer.build((None, 4, 4, 3))
    layer.moving_mean.assign(np.full(3, mean))
    layer.moving_variance.assign(np.full(3, variance))
    return layer


def test_the_first_layer_in_the_order_of_calls_is_observed():
    fresh, second, first = keras.layers.BatchNormalization(), _adapted(0.5, 4.0), _adapted(2.0, 9.0)

    class Backwards(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [second, first, fresh]

        def call(self, images, training=None):
            return second(first(fresh(3.0 * images)))

    model = Backwards()
    model(IMAGES)
    received = first_normalization(model)(IMAGES)
    assert received.layer == first.name
    np.testing.assert_allclose(received.values, 3 * IMAGES.reshape(-1, 3) / np.sqrt(1.001), rtol=1e-5)
    np.testing.assert_array_equal(received.mean, [2.0] * 3)
    np.testing.assert_array_equal(received.std, [3.0] * 3)
    assert "call" not in vars(first) and model(IMAGES).shape == IMAGES.shape


def test_initial_statistics_are_none():
    layers = [keras.layers.BatchNormalization(), keras.layers.Normalization(mean=0.0, variance=1.0)]
    assert first_normalization(keras.Sequential([keras.Input((4, 4, 3)), *layers])) is None
    model = keras.Sequential(
        [keras.Input((4, 4, 3)), keras.layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[4.0] * 3)]
    )
    received = first_normalization(model)(IMAGES)
    np.testing.assert_allclose(received.mean, [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(received.std, [2.0] * 3)


def test_a_layer_that_suits_no_range_is_not_mentioned():
    setting = of_flaw("normalization for [0, 255]")
    predictor = setting.predictor

    def odd(images):
        received = predictor.normalization(images)
        return received._replace(std=received.std * 40)

    changed = dataclasses.replace(setting, predictor=dataclasses.replace(predictor, normalization=odd))
    assert check_pixel_range(changed).verdict == "pass"

import os
import subprocess
import sys

import keras
import numpy as np
import stored
import tensorflow as tf

from tfrobust import keras as robust

IMAGES = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype("float32")


def shifted(seed=0, **keywords):
    return robust.layers.Augment(robust.augment.RandomShift(fraction=0.3), seed=seed, **keywords)


def test_each_image_and_each_call_has_its_own_draw_and_the_seed_repeats_them():
    repeated = np.repeat(IMAGES[:1], 6, axis=0)
    layer, twin = shifted(), shifted()
    first, second = layer(repeated, training=True).numpy(), layer(repeated, training=True).numpy()
    assert len({image.tobytes() for image in [*first, *second]}) == 12
    np.testing.assert_array_equal(twin(repeated, training=True), first)
    assert np.abs(shifted(seed=1)(repeated, training=True) - first).max() > 0.01
    assert int(layer.calls) == 2


def test_two_layers_without_a_seed_draw_different_numbers_which_the_global_seed_repeats():
    def draws():
        layers = [robust.layers.Augment(robust.augment.ContrastiveViews()) for _ in range(2)]
        twin = type(layers[0]).from_config(layers[0].get_config())
        return [layer(IMAGES, training=True).numpy() for layer in (*layers, twin)]

    keras.utils.set_random_seed(3)
    first, second, twin = draws()
    assert np.abs(first - second).max() > 0.01
    np.testing.assert_array_equal(first, twin)
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(draws()[0], first)


def test_inference_is_the_identity_and_moves_nothing():
    layer = shifted()
    for training in (None, False):
        np.testing.assert_array_equal(layer(IMAGES, training=training), IMAGES)
    assert int(layer.calls) == 0 and layer.trainable_variables == []


def test_a_saved_model_goes_on_with_fresh_draws(tmp_path):
    model = keras.Sequential([keras.Input((8, 8, 1)), shifted()])
    first = model(IMAGES, training=True).numpy()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    second = again(IMAGES, training=True).numpy()
    np.testing.assert_array_equal(second, model(IMAGES, training=True))
    assert np.abs(second - first).max() > 0.01


def test_in_a_graph_every_step_draws_anew_and_pixels_keep_their_precision():
    layer = shifted(dtype="mixed_float16")
    step = tf.function(lambda images: layer(images, training=True), input_signature=[tf.TensorSpec([None, 8, 8, 1])])
    first, second = step(IMAGES), step(IMAGES)
    assert first.dtype == tf.float32 and np.abs(first - second).max() > 0.01
    np.testing.assert_array_equal(first, shifted()(IMAGES, training=True))


REPLICAS = stored.text(globals(), "replicas")


def test_two_replicas_draw_what_one_would():
    done = subprocess.run([sys.executable, "-c", REPLICAS], env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# ------------------------------------------------------------------------------------------------- Corrupt


def test_a_corruption_layer_draws_anew_in_training_and_the_same_otherwise():
    layer = robust.layers.Corrupt("gaussian_noise", severity=5, seed=1)
    images = np.full((3, 8, 8, 1), 0.5, np.float32)
    first, second = (layer(images, training=True).numpy() for _ in range(2))
    assert np.any(first != second) and np.any(first[0] != first[1])
    quiet = [layer(images, training=False).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*quiet)
    np.testing.assert_array_equal(quiet[0], first)  # call 0
    assert int(layer.calls) == 2
    again = robust.layers.Corrupt.from_config(layer.get_config())
    np.testing.assert_array_equal(again(images), quiet[0])
    assert layer(images.astype("float16")).dtype == "float16"


# -------------------------------------------------------------------------------------------------- AugMix


def test_the_augmix_layer_is_the_augmentation_while_training():
    arguments = {"width": 2, "severity": 5.0, "all_operations": True}
    layer = robust.layers.AugMix(**arguments, seed=3)
    augment = robust.layers.Augment(robust.augment.AugMix(**arguments), seed=3)
    images = np.random.default_rng(0).random((4, 8, 8, 3), np.float32)
    calls = [layer(images, training=True).numpy() for _ in range(2)]
    assert np.all(np.any(calls[0] != calls[1], axis=(1, 2, 3))) and int(layer.calls) == 2
    for call in calls:
        np.testing.assert_array_equal(augment(images, training=True), call)
    np.testing.assert_array_equal(layer(images), images)


def test_utility_perturbation_works_in_a_functional_model_and_comes_back(tmp_path):
    """The caller says what is useful: here the brighter a pixel, the more."""
    images, utility = keras.Input((8, 8, 1)), keras.Input((8, 8, 1))
    least, most = robust.layers.UtilityPerturbation(count=4, seed=2)(images, utility)
    model = keras.Model([images, utility], [least, most])
    for copy in model([IMAGES, IMAGES]):
        np.testing.assert_array_equal(copy, IMAGES)
    order = np.argsort(IMAGES.reshape(6, -1), axis=1)

    def changed(outputs):
        return [[set(np.flatnonzero(row)) for row in (copy - IMAGES).numpy().reshape(6, -1)] for copy in outputs]

    first = model([IMAGES, IMAGES], training=True)
    expected = [[set(row) for row in part] for part in (order[:, :4], order[:, -4:])]
    assert changed(first) == expected
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)([IMAGES, IMAGES], training=True)
    assert changed(again) == expected and np.abs(again[0] - first[0]).max() > 0.01  # drawn anew

"""Every corruption against the benchmark's own libraries, given the same random numbers; and what all must keep."""

import cv2
import numpy as np
import pytest
import tensorflow as tf
from corruptions.pictures import KEYS, as_images, check_whole_range, pictures

from oracles import corruption_constants
from oracles import corruptions as oracle
from tfrobust import corruptions
from tfrobust.corruptions import digital, registry

ALL = (*corruptions.NAMES, *corruptions.EXTRA_NAMES)


def by_oracle(pixels, name, severity, drawn):
    constants = corruption_constants.at(name, severity, min(pixels.shape[1:3]))
    corrupted = []
    for number, image in enumerate(pixels):
        image_draw = {key: value[number].numpy() for key, value in drawn.items()}
        corrupted.append(getattr(oracle, name)(image, image_draw, constants))
    return np.stack(corrupted)


def check_equal(pixels, name, severity, corrupt=corruptions.corrupt):
    """Stored, nowhere off by more than a level; before it, by a fiftieth of one hardly anywhere.

    Bytes inside a corruption may be cut so.
    """
    images, keys = as_images(pixels), KEYS[: len(pixels)]
    drawn = corruptions.draw(images, name, severity, keys)
    expected = by_oracle(pixels, name, severity, drawn)
    corrupted = corrupt(images, name, severity, keys).numpy() * 255
    np.testing.assert_allclose(corrupted, np.round(corrupted), atol=1e-3)
    stored = np.abs(np.round(corrupted) - oracle.bytes_of(expected).astype(float))
    assert stored.max() <= 1 and stored.mean() < 0.01, (stored.max(), stored.mean())
    applied = np.clip(corruptions.apply(images, name, severity, drawn), 0, 1)
    exact = np.abs(255 * applied - np.clip(expected, 0, 255))
    assert np.mean(exact > 0.02) < 0.02, np.mean(exact > 0.02)


# Severity 1 of small images leaves out the blur of elastic_transform; 4, below, lays on mud instead of water.
@pytest.mark.parametrize(("shape", "severity"), [((32, 32, 3, 2), 1), ((96, 88, 3, 1), 2), ((96, 88, 3, 1), 5)])
@pytest.mark.parametrize("name", ALL)
def test_equals_the_benchmark_s_libraries(name, shape, severity):
    check_equal(pictures(*shape), name, severity)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("brightness", "saturate", "spatter")])
def test_equals_them_on_small_grey_images(name):
    pixels = pictures(8, 11, 1, 3)
    if name in ("pixelate", "jpeg_compression"):
        images = as_images(pixels)
        constants = corruption_constants.at(name, 3, 8)
        expected = np.stack([getattr(oracle, name)(image[..., 0], {}, constants) for image in pixels])[..., None]
        corrupted = corruptions.corrupt(images, name, 3, KEYS).numpy() * 255
        assert np.abs(np.round(corrupted) - expected).max() <= 1
        return
    check_equal(pixels, name, 3)


@pytest.mark.parametrize("name", ["brightness", "saturate", "spatter"])
def test_grey_images_are_what_grey_colours_become(name):
    """Equal channels stay equal, or become a tint whose brightness is the grey result."""
    images = as_images(pictures(16, 16, 1, 3))
    grey = corruptions.corrupt(images, name, 1, KEYS, quantised=False)
    if name == "saturate":
        np.testing.assert_array_equal(grey, images)
        return
    drawn = corruptions.draw(images, name, 1, KEYS)
    colour = corruptions.apply(tf.repeat(images, 3, axis=-1), name, 1, drawn)
    weights = [0.299, 0.587, 0.114]
    np.testing.assert_allclose(grey[..., 0], np.clip(colour.numpy() @ weights, 0, 1), atol=1e-5)


def test_the_affine_change_is_opencv_s():
    """On a smooth image, where the fineness of OpenCV's weights does not show."""
    slope = np.linspace(0, 255, 48)
    pixels = np.stack([*np.meshgrid(slope, slope), np.full([48, 48], 90.0)], axis=-1)
    images = tf.constant(pixels[None] / 255, tf.float32)
    drawn = corruptions.draw(images, "elastic_transform", 1, KEYS[:1])
    changed = digital.elastic_transform(images, drawn, (0, 0, 4.0))[0].numpy() * 255
    matrix = oracle.affine(pixels.shape, drawn["corners"][0].numpy(), 4.0)
    expected = cv2.warpAffine(
        pixels.astype(np.float32), matrix, (48, 48), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )
    assert np.abs(changed - expected).max() < 1 and np.abs(changed - pixels).max() > 5


# --------------------------------------------------------------------------------------------- what all must keep


@pytest.mark.parametrize("name", ALL)
def test_in_a_graph_too_and_an_image_follows_from_itself_and_its_key_alone(name):
    pixels = pictures(32, 32, 3, 3)
    compiled = tf.function(lambda x, keys: corruptions.corrupt(x, name, 4, keys), autograph=False)
    traced = compiled.get_concrete_function(tf.TensorSpec([None, 32, 32, 3]), tf.TensorSpec([None, 2], tf.int32))
    check_equal(pixels, name, 4, lambda images, name, severity, keys: traced(images, keys))
    images = as_images(pixels)
    together = traced(images, KEYS).numpy()
    check_whole_range(together, images.shape)
    np.testing.assert_allclose(traced(images[1:2], KEYS[1:2])[0], together[1], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in ALL if registry.CORRUPTIONS[name].draw])
def test_keys_and_severities_draw_anew(name):
    images = tf.repeat(as_images(pictures(16, 16, 3)), 2, axis=0)
    drawn = corruptions.draw(images, name, 4, KEYS[:2])
    again = corruptions.draw(images, name, 4, KEYS[:2])
    other = corruptions.draw(images, name, 5, KEYS[:2])
    for key, value in drawn.items():
        np.testing.assert_array_equal(value, again[key])
        assert np.any(value[0] != value[1]) and (value.shape != other[key].shape or np.any(value != other[key]))
    corrupted = corruptions.corrupt(images, name, 4, KEYS[:2])
    assert np.any(corrupted[0] != corrupted[1]) and np.any(corrupted[0] != images[0])


def test_in_a_pipeline():
    images = as_images(pictures(8, 8, 1, 3))
    data = tf.data.Dataset.from_tensor_slices((images, KEYS)).batch(2)
    data = data.map(lambda x, keys: corruptions.corrupt(x, "snow", 2, keys))
    corrupted = np.concatenate(list(data.as_numpy_iterator()))
    np.testing.assert_allclose(corrupted, corruptions.corrupt(images, "snow", 2, KEYS), atol=1.1 / 255)


@pytest.mark.parametrize("name", ALL)
def test_any_size(name):
    for shape in ((1, 1, 1), (2, 3, 3), (33, 7, 1)):
        images = as_images(np.random.default_rng(0).integers(0, 256, (1, *shape), dtype=np.uint8))
        check_whole_range(corruptions.corrupt(images, name, 5, KEYS[:1]).numpy(), images.shape)


def test_not_quantised():
    images = as_images(pictures(8, 8, 3, 3))
    fine = corruptions.corrupt(images, "gaussian_noise", 3, KEYS, quantised=False)
    coarse = corruptions.corrupt(images, "gaussian_noise", 3, KEYS)
    # The cast cuts: always downwards, by less than a level.
    assert np.all(fine - coarse < 1.01 / 255) and np.all(fine - coarse > -1e-4) and np.any(fine != coarse)


def test_names_and_groups():
    assert len(set(corruptions.NAMES)) == 15
    assert corruptions.EXTRA_NAMES[:4] == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert corruptions.SEVERITIES == (1, 2, 3, 4, 5)
    assert list(map(len, corruptions.GROUPS.values())) == [3, 4, 4, 4]
    assert not set(corruptions.NAMES) & set(corruptions.EXTRA_NAMES)

"""Contrastive views beside a literal one: one image at a time, with colorsys, scipy and `tf.image`."""

import colorsys

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import pytest
import scipy.ndimage
import stored
import tensorflow as tf

from tfrobust.augment import resampling
from tfrobust.augment import views as color
from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.augment.views import ORDERS, ContrastiveViews
from tfrobust.ops import randomness

IMAGES = np.random.default_rng(0).random((6, 11, 8, 3), np.float32)
AMOUNT = np.array([0.0, 0.3, 1.0, 1.4, 0.7, 1.8], np.float32)
LUMA, MEAN = np.array([0.2989, 0.5870, 0.1140]), np.array([1, 1, 1]) / 3


def grey(image, weights):
    return image if image.shape[-1] == 1 else np.repeat((image @ weights)[..., None], 3, axis=-1)


def in_hsv(image, change):
    if image.shape[-1] == 1:
        return image
    return np.array([[colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in row] for row in image])


def blend(origin, image, amount):
    return origin + amount * (image - origin)


def literal_changes(colors):
    weights = MEAN if colors == "mean" else LUMA
    plain = {
        "brightness": lambda x, a: x * a if colors != "additive" else x + a - 1,
        "contrast": lambda x, a: blend(x.mean(axis=(0, 1)), x, a),
        "saturation": lambda x, a: in_hsv(x, lambda h, s, v: (h, min(1.0, s * a), v)),
        "hue": lambda x, a: in_hsv(x, lambda h, s, v: ((h + a) % 1.0, s, v)),
    }
    if colors in ("torchvision", "mean"):
        plain["contrast"] = lambda x, a: blend(grey(x, weights)[..., 0].mean(), x, a)
        plain["saturation"] = lambda x, a: x if x.shape[-1] == 1 else blend(grey(x, weights), x, a)
    return {name: lambda x, a, f=function: np.clip(f(x, a), 0, 1) for name, function in plain.items()}


def literal_blur(image, sigma):
    radius = max(1, len(image) // 10 // 2)
    taps = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    for axis in (0, 1):
        image = scipy.ndimage.correlate1d(image, taps / taps.sum(), axis, mode="constant")
    return image


def literal_part(image, box, interpolation, size=None):
    top, left, tall, wide = box
    part = tf.constant(image[top : top + tall, left : left + wide], tf.float32)
    # Antialiased: the kernels of Pillow and torchvision, whose bicubic one has a = -1/2 as well.
    return np.clip(tf.image.resize(part, size or image.shape[:2], interpolation, antialias=True), 0, 1)


def literal_view(image, draw, views):
    """One view as the papers describe it, by a draw of one image."""
    changes = list(literal_changes(views.colors).values())
    for step in ORDERS[views.order]:
        if step == "crop":
            size = (views.size, views.size) if views.size else None
            image = literal_part(image, draw["box"], views.interpolation, size)
        if step == "jitter":
            for number in draw["operation"]:
                image = image if number == 4 else changes[number](image, draw["amount"][number])
        if step == "flip" and draw["flip"]:
            image = image[:, ::-1]
        if step == "grey" and draw["grey"]:
            image = grey(image, MEAN if views.colors == "mean" else LUMA)
        if step == "blur" and draw["sigma"] > 0:
            image = literal_blur(image, draw["sigma"])
        if step == "solarize" and draw["solarize"]:
            image = np.where(image < 0.5, image, 1 - image)
    return image


OPERATIONS = stored.table(globals(), "operations")


@pytest.mark.parametrize("name", OPERATIONS)
def test_colours_beside_loops_over_pixels(name):
    operation, colors = OPERATIONS[name]
    literal = literal_changes(colors)[{"added": "brightness"}.get(name, name.split("_")[0])]
    amount = AMOUNT / 2 - 0.45 if name == "hue" else AMOUNT
    flat = np.where(np.arange(8)[:, None] < 4, IMAGES[..., :1], IMAGES)  # half of the pixels have no colour
    for images in (IMAGES, flat, IMAGES[..., :1], np.zeros_like(IMAGES)):
        result = operation(tf.constant(images), tf.constant(amount))
        expected = [literal(image.astype(float), strength) for image, strength in zip(images, amount, strict=True)]
        np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.parametrize("operation, peer", stored.rows(globals(), "torchvision_s_colours_are_pillow_s"))
def test_torchvision_s_colours_are_pillow_s(operation, peer):
    """Which cuts down to whole levels, and rounds the grey ones."""
    pixels = (IMAGES * 255).astype(np.uint8)
    result = operation(tf.constant(pixels / np.float32(255)), tf.constant(AMOUNT))
    expected = [
        np.asarray(peer(PIL.Image.fromarray(image)).enhance(by)) for image, by in zip(pixels, AMOUNT, strict=True)
    ]
    assert np.abs(result * 255 - np.array(expected, np.float32)).max() < 1.5


def test_grey_and_solarize():
    np.testing.assert_allclose(
        color.to_gray(IMAGES), tf.image.rgb_to_grayscale(IMAGES).numpy().repeat(3, -1), atol=1e-6
    )
    np.testing.assert_allclose(color.to_gray(IMAGES, color.MEAN)[..., 0], IMAGES.mean(-1), atol=1e-6)
    levels = tf.reshape([0.0, 0.25, 0.5, 1.0], [1, 2, 2, 1])
    assert np.ravel(color.solarize(levels)).tolist() == [0.0, 0.25, 0.5, 0.0]


@pytest.mark.parametrize("size", [(40, 60), (9, 30), (8, 8)])
def test_blur_beside_scipy(size):
    images = np.random.default_rng(1).random((3, *size, 2), np.float32)
    sigma = np.array([0.1, 0.8, 2.0], np.float32)
    expected = [literal_blur(image, deviation) for image, deviation in zip(images, sigma, strict=True)]
    np.testing.assert_allclose(resampling.blur(tf.constant(images), tf.constant(sigma)), expected, atol=2e-6)


@pytest.mark.parametrize("size", [None, 3, 8, 20])
@pytest.mark.parametrize("interpolation", resampling.INTERPOLATIONS)
def test_parts_of_a_batch_are_those_of_single_images(interpolation, size):
    images = np.random.default_rng(2).random((12, 13, 17, 3), np.float32)
    boxes = RandomResizedCrop().draw(tf.constant([3, 4]), images.shape)["box"].numpy()
    boxes[:3] = [[0, 0, 13, 17], [12, 16, 1, 1], [5, 0, 1, 17]]
    crops = resampling.resized_parts(tf.constant(images), tf.constant(boxes), interpolation, size)
    sides = (size, size) if size else None
    expected = [literal_part(image, box, interpolation, sides) for image, box in zip(images, boxes, strict=True)]
    np.testing.assert_allclose(crops, expected, atol=3e-6)


PAPERS = stored.table(globals(), "papers")


@pytest.mark.parametrize(
    "paper, channels", [*((paper, 3) for paper in PAPERS), ("simclr_imagenet", 1), ("byol_second", 1), ("acl", 1)]
)
def test_views_beside_literal_ones(paper, channels):
    views, images = PAPERS[paper], np.random.default_rng(5).random((16, 12, 9, channels), np.float32)
    draw = views.draw(randomness.make_key(7), images.shape)
    result = views.apply(tf.constant(images), draw).numpy()
    for row, image in enumerate(images):
        of_one = {name: value.numpy()[row] for name, value in draw.items()}
        np.testing.assert_allclose(result[row], literal_view(image.astype(float), of_one, views), atol=1e-5)


def test_draws_have_the_probabilities_and_ranges_they_say():
    views = ContrastiveViews(
        flip=0.3, jitter=(1.2, 0.5, 0.0, 0.25), jitter_probability=0.7, grey=0.15, blur=0.4, solarize=0.6
    )
    count = 20_000
    draw = {name: value.numpy() for name, value in views.draw(randomness.make_key(1), (count, 32, 32, 3)).items()}
    jittered = draw["operation"][:, 0] < 4
    shares = [draw["flip"], jittered, draw["grey"], draw["sigma"] > 0, draw["solarize"]]
    np.testing.assert_allclose(np.mean(shares, axis=1), [0.3, 0.7, 0.15, 0.4, 0.6], atol=0.015)
    assert np.abs(np.corrcoef(np.array(shares, float)) - np.eye(5)).max() < 0.03  # drawn apart
    low, high = [0.0, 0.5, 1.0, -0.25], [2.2, 1.5, 1.0, 0.25]
    np.testing.assert_allclose(draw["amount"].min(0), low, atol=1e-3)
    np.testing.assert_allclose(draw["amount"].max(0), high, atol=1e-3)
    np.testing.assert_allclose(draw["amount"].mean(0), np.add(low, high) / 2, atol=0.02)
    sigma = draw["sigma"][draw["sigma"] > 0]
    assert 0.1 <= sigma.min() < 0.11 and 1.99 < sigma.max() <= 2 and sigma.mean() == pytest.approx(1.05, abs=0.02)
    orders, times = np.unique(draw["operation"][jittered], axis=0, return_counts=True)
    assert len(orders) == 24 and np.all(np.sort(orders, axis=1) == np.arange(4))
    assert np.all(draw["operation"][~jittered] == 4)
    np.testing.assert_allclose(times / jittered.sum(), 1 / 24, atol=0.008)
    additive = ContrastiveViews(jitter=(1.2, 0.5, 0.0, 0.25), colors="additive").draw(
        randomness.make_key(1), (count, 8, 8, 3)
    )
    assert additive["amount"].numpy()[:, 0].min() == pytest.approx(-0.2, abs=1e-3)


def test_a_view_without_chances_is_a_part_of_the_image():
    views = ContrastiveViews(crop=(1.0, 1.0), aspect=(1.0, 1.0), flip=0.0, jitter_probability=0.0, grey=0.0)
    assert np.array_equal(views(tf.constant(IMAGES[:, :8]), randomness.make_key(0)), IMAGES[:, :8])

"""Every perturbation sequence against the benchmark's own libraries, given the same draws; noise by its law."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from corruptions.pictures import KEYS, as_images, check_whole_range, pictures

from oracles import corruptions as corruption_oracle
from oracles import sequences as oracle
from tfrobust import corruptions
from tfrobust.corruptions import draws, sequences, spatter, weather

ALL = (*corruptions.SEQUENCES, *corruptions.EXTRA_SEQUENCES)
NOISE = [name for name in ALL if "noise" in name]
CHANGES = [name for name in ALL if "noise" not in name]
# At 32 pixels.
FRAMES = dict.fromkeys(ALL, 31) | {"motion_blur": 21, "translate": 16}


def compiled(name, shape, **keywords):
    function = tf.function(lambda x, keys: corruptions.sequence(x, name, keys, **keywords), autograph=False)
    return function.get_concrete_function(tf.TensorSpec([None, *shape]), tf.TensorSpec([None, 2], tf.int32))


def drawn(name, images, keys):
    """Return the draws of the random changes for the first image."""
    keys = draws.fold(keys, f"{name} sequence", 1)
    if name == "snow":
        return {"flakes": weather.draw_snow(keys, images, None)["flakes"][0].numpy()}
    return {"drops": spatter.draw_spatter(keys, images, None)["drops"][0].numpy()} if name == "spatter" else {}


def check_off(frames, expected):
    """Nowhere by more than a level, and that hardly anywhere: whole levels, which Pillow's sums miss from below."""
    expected = np.stack([corruption_oracle.bytes_of(frame) for frame in expected]).astype(float)
    off = np.abs(np.round(255 * frames) - expected)
    assert frames.shape == expected.shape and off.max() <= 1 and off.mean() < 0.01, (off.max(), off.mean())


def check_alone(traced, images, name):
    """An image's frames are whole levels that follow from itself and its key alone."""
    together = traced(images, KEYS).numpy()
    check_whole_range(together, (3, FRAMES[name], *images.shape[1:]))
    np.testing.assert_allclose(together * 255, np.round(together * 255), atol=1e-3)
    np.testing.assert_allclose(traced(images[1:2], KEYS[1:2]).numpy()[0], together[1], atol=1e-6)
    again = traced(tf.repeat(images[:1], 2, axis=0), KEYS[:2]).numpy()
    np.testing.assert_allclose(again[0], together[0], atol=1e-6)
    assert np.any(again[0] != again[1]) == (name in (*NOISE, "snow", "spatter"))


@pytest.mark.parametrize("size", [(32, 32, 3), (224, 224, 1)])
@pytest.mark.parametrize("name", CHANGES)
def test_equals_the_benchmark_s_libraries(name, size, monkeypatch):
    """With the constants of CIFAR-P and, in grey, of ImageNet-P; in a graph that knows no batch size."""
    small = size[0] == 32
    pixels, count = pictures(*size, count=3 if small else 1), FRAMES[name]
    images = as_images(pixels)
    if not small:  # its first frames: each takes up to half a second
        count = 3 if name == "spatter" else 8
        monkeypatch.setitem(sequences._LARGE, name, sequences._LARGE[name]._replace(frames=count))
    traced = compiled(name, size)
    frames = traced(images[:1], KEYS[:1]).numpy()[0]
    assert len(frames) == count
    check_off(frames, getattr(oracle, name)(pixels[0], drawn(name, images[:1], KEYS[:1]))[:count])
    if small:
        check_alone(traced, images, name)
    if name == "tilt":
        check_off(frames, oracle.tilt_by_opencv(pixels[0], {})[:count])


@pytest.mark.parametrize("name", ["rotate", "shear", "tilt", "scale", "translate", "zoom_blur"])
def test_changes_of_places_on_any_rectangle(name):
    """The oracles know no constants of other sizes: turned off is the identity, and the middle stays in the middle."""
    images = as_images(pictures(20, 41, 1))
    frames = corruptions.sequence(images, name, KEYS[:1]).numpy()[0]
    still = {"translate": 7, "zoom_blur": 0}.get(name, 15)
    if name != "tilt":  # its plane lies a pixel deep
        np.testing.assert_allclose(frames[still], images[0], atol=1e-6)
    assert all(np.any(frame != frames[still]) for frame in (frames[1], frames[-1]))


# ------------------------------------------------------------------------------------------------------- noise


def probabilities(name, strength, pixel):
    """The law of a frame's grey level at a pixel of this level, float64 [256], the cut to whole levels included."""
    levels = np.arange(257) - 1e-4
    if name == "shot_noise":
        below = scipy.stats.poisson(pixel / 255 * strength).cdf(np.ceil(levels / 255 * strength) - 1)
    else:
        deviation = strength * 255 * (pixel / 255 if name == "speckle_noise" else 1)
        below = scipy.stats.norm(pixel, deviation).cdf(levels)
    below[0], below[256] = 0, 1
    return np.diff(below)


STRENGTHS = {
    "gaussian_noise": ((0.02, 0.04, 0.06), (0.03, 0.05, 0.08)),
    "shot_noise": ((700, 400, 200), (300, 120, 60)),
    "speckle_noise": ((0.05, 0.07, 0.1), (0.05, 0.1, 0.15)),
}


@pytest.mark.parametrize(("side", "level"), [(16, 1), (16, 3), (90, 2)])
@pytest.mark.parametrize("name", NOISE)
def test_noise_has_its_law(name, side, level):
    """Seeds are fixed, so this is no gamble: a right sampler was seen to pass, a wrong one would not."""
    pixel, count = 140, 3 if side == 16 else 1
    images = tf.fill([count, side, side, 1], np.float32(pixel) / np.float32(255))
    pixels = np.round(255 * corruptions.sequence(images, name, KEYS[:count], level=level).numpy()).astype(int)
    assert np.all(pixels[:, 0] == pixel) and pixels.shape[1] == 31
    expected = probabilities(name, STRENGTHS[name][side == 90][level - 1], pixel) * pixels[:, 1:].size
    observed = np.bincount(pixels[:, 1:].ravel(), minlength=256)
    common = expected > 8
    ends = [(values[common].tolist() + [values[~common].sum()]) for values in (observed, expected)]
    assert scipy.stats.chisquare(*ends).pvalue > 1e-3
    # Frames, images and neighbours have nothing in common (54 such tests are made).
    flat = pixels[:, 1:].reshape(count, 30, -1) - pixels[:, 1:].mean()
    for first, second in ((flat[:, 1:], flat[:, :-1]), (flat[..., 1:], flat[..., :-1]), (flat[:1], flat[-1:, ::-1])):
        assert scipy.stats.pearsonr(first.ravel(), second.ravel()).pvalue > 1e-4


# ------------------------------------------------------------------------------------------ what all must keep


@pytest.mark.parametrize("name", NOISE)
def test_noise_follows_from_an_image_and_its_key_alone(name):
    check_alone(compiled(name, (8, 11, 3)), as_images(pictures(8, 11, 3, count=3)), name)


@pytest.mark.parametrize("name", ALL)
def test_any_size(name):
    for shape in ((1, 1, 1), (33, 7, 3)):
        images = as_images(np.random.default_rng(0).integers(0, 256, (1, *shape), dtype=np.uint8))
        frames = corruptions.sequence(images, name, KEYS[:1]).numpy()
        check_whole_range(frames, (1, FRAMES[name], *shape))


def test_a_translation_goes_on_by_whole_pixels_of_its_share():
    """An image of 8 pixels moves a quarter as far as one of 32, one of 112 half as far as one of 224."""
    for side, first, last in ((8, -2, 2), (16, -3, 4), (112, -10, 10)):
        picture = np.zeros([1, 1, side, 1], np.uint8)
        picture[0, 0, side // 2] = 255
        frames = corruptions.sequence(as_images(np.repeat(picture, side, axis=1)), "translate", KEYS[:1]).numpy()
        places = frames[0, :, 0, :, 0].argmax(axis=1) - side // 2
        assert (places[0], places[-1]) == (first, last) and np.all(np.diff(places) >= 0)
        np.testing.assert_array_equal(frames[0].sum(axis=(1, 2, 3)), side)


def test_the_rule_of_constants():
    def more(name, side):
        return sequences.constants(name, side, side + 18).more

    assert [more("motion_blur", side) for side in (8, 32, 64)] == [(3, 0.9), (6, 1.8), (12, 3.6)]
    assert more("snow", 8) == (0.05, 0.3, 2.0, 0.5, 5, 1, 0.85)
    assert [more("spatter", side)[2] for side in (8, 448)] == [1.75, 7.4]
    assert sequences.constants("gaussian_blur", 64, 64)[1:3] == (0.6, 0.03)
    assert [sequences.constants("brightness", side, side).step for side in (84, 85)] == [0.015, 0.02]


def test_names():
    assert len(set(corruptions.SEQUENCES)) == 10 and len(set(corruptions.EXTRA_SEQUENCES)) == 4
    assert [name for name in ALL if sequences.is_noise(name)] == NOISE and len(NOISE) == 3

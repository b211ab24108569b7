"""The section on random pixels: its pictures, their numbers, and the page without them."""

import numpy as np
import pytest
from report.synthetic import extended, fraction, images, written

from tfrobust.common import thumbnails
from tfrobust.report.sections.noise import Noise
from tfrobust.structs import Series

HEIGHT, WIDTH = 4, 6


def examples(channels=1, count=2, sets=("clean", "uniform", "non_uniform"), seed=0):
    drawn = np.random.default_rng(seed).integers(0, 256, (len(sets), count, HEIGHT, WIDTH, channels)) / 255
    sizes = {"height": HEIGHT, "width": WIDTH, "channels": channels}
    columns = {"label": list(range(count)), **{name: [size] * count for name, size in sizes.items()}}
    columns |= {name: [thumbnails.encode(image) for image in batch] for name, batch in zip(sets, drawn, strict=True)}
    return Series("noise.examples", "Images", columns), drawn


def replacement():
    chances = np.linspace(0.05, 0.4, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1)
    columns = {"height": HEIGHT, "width": WIDTH, "probability": thumbnails.encode(chances, 0.4)}
    columns |= {"least_probability": 0.05, "largest_probability": 0.4}
    return Series("noise.replacement", "Chances", {name: [value] for name, value in columns.items()})


def report(*series, numbers=True):
    numbers_of_noise = [
        fraction(f"noise.{name}.accuracy", v, share=0.15) for name, v in (("uniform", 0.7), ("non_uniform", 0.8))
    ]
    return extended(numbers_of_noise if numbers else (), series)


@pytest.mark.parametrize("channels", [1, 3])
def test_each_picture_at_its_place(channels):
    shown, expected = examples(channels)
    lead, body = written(Noise, report(shown, replacement()))
    assert "15 %" in lead and "5 % to 40 %" in body
    *drawn, chances = images(body)
    assert len(drawn) == 6
    for number, picture in enumerate(drawn):
        expected_picture = np.broadcast_to(expected[number % 3, number // 3], (HEIGHT, WIDTH, 3))
        np.testing.assert_allclose(picture / 255, expected_picture, atol=1.1 / 255)
    brightness = (chances.astype(float) @ [0.2126, 0.7152, 0.0722]).ravel()
    assert np.all(np.diff(brightness) > 0) and brightness[-1] > 240


def test_parts_may_be_missing():
    shown, _ = examples(sets=("clean", "uniform"))
    _, body = written(Noise, report(shown))
    assert len(images(body)) == 4 and "uniform (UN)" in body and "non-uniform" not in body
    _, body = written(Noise, report())
    assert not images(body) and "Non-uniform noise (NUN), accuracy" in body
    assert written(Noise, report(examples()[0], numbers=False)) is not None


@pytest.mark.parametrize("wrong", [{"clean": ["AAAA", "%"]}, {"height": [None, 9]}, {"label": [None, "<b>"]}])
def test_what_is_no_picture_is_left_out(wrong):
    shown, _ = examples()
    broken = Series(shown.id, shown.title, {**shown.columns, **wrong})
    _, body = written(Noise, report(broken))
    assert len(images(body)) == (6 if "label" in wrong else 0) and "<b>" not in body

import base64

import numpy as np
import pytest

from tfrobust.common import thumbnails


@pytest.mark.parametrize("shape", [(3, 5, 1), (4, 2, 3)])
@pytest.mark.parametrize("largest", [1.0, 0.02, 30.0])
def test_what_is_read_is_what_was_written_to_half_a_level(shape, largest):
    values = np.random.default_rng(0).uniform(0, largest, shape)
    text = thumbnails.encode(values, largest)
    assert len(base64.b64decode(text)) == values.size
    np.testing.assert_allclose(thumbnails.decode(text, *shape), values / largest, atol=0.5001 / 255)


def test_extremes():
    assert thumbnails.decode(thumbnails.encode(np.array([[[0.0], [1.0], [2.0]]])), 1, 3, 1) == [[[0.0], [1.0], [1.0]]]
    assert thumbnails.decode(thumbnails.encode(np.zeros((1, 1, 1)), 0.0), 1, 1, 1) == [[[0.0]]]


@pytest.mark.parametrize(
    "picture",
    [("AAAA", 1, 4, 1), ("no text at all", 1, 3, 1), (None, 1, 3, 1), (5, 1, 3, 1), ("AAAA", 0, 3, 1), ("é", 1, 3, 1)]
    + [("AAAA", None, 3, 1), ("AAAA", "x", 3, 1), ("", 0, 0, 0), ("AAAA", -1, -3, 1)],
)
def test_what_is_no_picture_is_none(picture):
    assert thumbnails.decode(*picture) is None


@pytest.mark.parametrize(("shape", "shown"), [((100, 70, 3), (25, 17, 3)), ((32, 32, 1), (32, 32, 1))])
def test_large_pictures_are_averaged(shape, shown):
    image = np.random.default_rng(1).random(shape)
    small, side = thumbnails.shrunk(image), -(-shape[0] // 32)
    farthest, part = (
        thumbnails.extremes(image - 0.5),
        (image - 0.5)[2 * side : 3 * side, 3 * side : 4 * side, 0].ravel(),
    )
    assert farthest.shape == shown and farthest[2, 3, 0] == part[np.abs(part).argmax()]
    assert small.shape == shown
    np.testing.assert_allclose(small[2, 3], image[2 * side : 3 * side, 3 * side : 4 * side].mean(axis=(0, 1)))

"""Small pictures as compact text, for the series of a report."""

import base64
import binascii

# Pictures in a report have at most this many pixels per side.
LONGEST_SIDE = 32
# Frames of a clip in a report.
MOST_FRAMES = 8


def shrunk(image):
    """Average an image [h, w, c] over squares of pixels, so that no side is too long; remaining pixels are cut off."""
    return _squares(image).mean(axis=(1, 3))


def extremes(image):
    """Shrink as `shrunk` does, but keep each square's value farthest from 0: means of differences would cancel."""
    squares = _squares(image)
    low, high = squares.min(axis=(1, 3)), squares.max(axis=(1, 3))
    return high + (low - high) * (-low > high)


def frames_shown(count: int) -> list[int]:
    """Return the positions of the frames that stand for a clip of `count` frames: evenly spread, with both ends."""
    most = min(count, MOST_FRAMES)
    return [round(number * (count - 1) / max(most - 1, 1)) for number in range(most)]


def strip(clip, shrink=shrunk):
    """Return a clip [t, h, w, c] as one picture [h, n w, c]: `frames_shown`, each shrunk, from left to right."""
    frames = clip[frames_shown(len(clip))]
    count, height, width, channels = frames.shape
    # The frames as channels, since all are shrunk alike.
    small = shrink(frames.transpose(1, 2, 0, 3).reshape(height, width, count * channels))
    height, width, _ = small.shape
    return small.reshape(height, width, count, channels).transpose(0, 2, 1, 3).reshape(height, count * width, channels)


def _squares(image):
    side = -(-max(image.shape[:2]) // LONGEST_SIDE)
    height, width = (max(1, size // side) for size in image.shape[:2])
    image = image[: height * side, : width * side]
    return image.reshape(height, min(side, image.shape[0]), width, min(side, image.shape[1]), -1)


def encode(values, largest: float = 1.0) -> str:
    """Encode a picture as base64 with one byte per value, 0 for 0 and 255 for `largest`.

    Args:
        values: array [h, w, c] of finite numbers in [0, largest].
        largest: >= 0; if it is 0, every byte is 0.

    Returns:
        Text of h w c bytes, row by row, the channels of a pixel together.
    """
    shares = (values / (largest or 1.0)).clip(0.0, 1.0)
    return base64.b64encode((255 * shares).round().astype("uint8").tobytes()).decode("ascii")


def decode(text: str, height: int, width: int, channels: int) -> list | None:
    """Decode the output of `encode` as nested lists [h][w][c] of shares in [0, 1]; None for any other text."""
    try:
        data = base64.b64decode(text, validate=True)
        sizes = [int(size) for size in (height, width, channels)]
    except (binascii.Error, TypeError, ValueError):
        return None
    height, width, channels = sizes
    if min(sizes) < 1 or len(data) != height * width * channels:
        return None
    pixels = [[value / 255 for value in data[start : start + channels]] for start in range(0, len(data), channels)]
    return [pixels[start : start + width] for start in range(0, len(pixels), width)]

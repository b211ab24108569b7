"""The table of corruptions, and the rule that scales their constants from 32 and 224 pixels to any image size.

Let S be the shorter side.

- S = 32 and S = 224: the constants of CIFAR-10-C and ImageNet-C, as in their code (`small` and `large`).
- Other S: the constants of 32 below 84.7 pixels (the geometric mean of both), those of 224 from there on. Lengths in
  pixels (the width of a blur, the range of glass blur, the size of snowflakes and drops, the length of a streak) scale
  with S / 32 or S / 224. So do the distances of the elastic transform, which are fractions of S. Strengths (noise,
  contrast, weights, JPEG quality) are constant.
- S < 32: no blur is narrower than a pixel, so lengths are those of 32 pixels. Distances of the elastic transform are
  fractions of S here, too, and the streaks of motion blur and snow, which are many pixels long, scale with the square
  root of S / 32. Corruptions of small images are thus stronger, relative to their content, than at 32 pixels.

64 x 64 pixels (Tiny ImageNet-C) follow the rule: lengths are twice those of 32 pixels.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

SEVERITIES = (1, 2, 3, 4, 5)


class Scale(NamedTuple):
    """The size of an image relative to the benchmark's.

    Attributes:
        reference: 32 or 224, the benchmark size whose constants apply.
        image: shorter side / reference.
        length: factor of lengths in pixels.
        streak: factor of the streaks of motion blur and snow.
        side: the shorter side, in pixels.
    """

    reference: int
    image: float
    length: float
    streak: float
    side: int


class Corruption(NamedTuple):
    """Functions and constants of one corruption.

    Attributes:
        apply: (images, draw, constants) -> images.
        draw: (keys, images, constants) -> tensors by name; None if nothing is random.
        small: constants of severity 1 to 5 at 32 pixels, each a number or a tuple, which `apply` documents.
        large: the same at 224 pixels.
        scaled: (constants, scale) -> constants at another size; None if they are the same at every size.
    """

    apply: Callable
    draw: Callable | None
    small: tuple
    large: tuple
    scaled: Callable | None


# Name -> corruption; `corruption` adds to it.
CORRUPTIONS: dict[str, Corruption] = {}


def corruption(*, small: tuple, large: tuple, draw: Callable | None = None, scaled: Callable | None = None) -> Callable:
    """Register the decorated function, (images, draw, constants) -> images, as the corruption of its name.

    The arguments are the attributes of `Corruption`.
    """

    def register(apply: Callable) -> Callable:
        CORRUPTIONS[apply.__name__] = Corruption(apply, draw, small, large, scaled)
        return apply

    return register


def reference_side(side: int) -> int:
    """Return 32 or 224, the benchmark size whose constants apply to images of this shorter side."""
    return 32 if side * side < 32 * 224 else 224


def scales(height: int, width: int) -> Scale:
    """Return the size of an image relative to the benchmark's."""
    side = min(height, width)
    reference = reference_side(side)
    scale = side / reference
    if reference == 32 and scale < 1:
        return Scale(reference, scale, 1.0, math.sqrt(scale), side)
    return Scale(reference, scale, scale, scale, side)


def constants(name: str, severity: int, height: int, width: int):
    """Return the constants of a corruption for an image size: one number, or a tuple for its function."""
    size, record = scales(height, width), CORRUPTIONS[name]
    values = (record.small if size.reference == 32 else record.large)[severity - 1]
    return values if record.scaled is None else record.scaled(values, size)

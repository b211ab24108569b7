"""The benchmark's constants for 32 and 224 pixels, and the rule that scales them to any image size.

Let S be the shorter side.

- S = 32 and S = 224: the constants of CIFAR-10-C and ImageNet-C, as in their code.
- Other S: the constants of 32 below 84.7 pixels (the geometric mean of both), those of 224 from there on. Lengths in
  pixels (the width of a blur, the range of glass blur, the size of snowflakes and drops, the length of a streak) scale
  with S / 32 or S / 224. So do the distances of the elastic transform, which are fractions of S. Strengths (noise,
  contrast, weights, JPEG quality) are constant.
- S < 32: no blur is narrower than a pixel, so lengths are those of 32 pixels. Exceptions are the streaks of motion blur
  and snow, which are many pixels long: they scale with the square root of S / 32. Corruptions of small images are thus
  stronger, relative to their content, than at 32 pixels.

64 x 64 pixels (Tiny ImageNet-C) follow the rule: lengths are twice those of 32 pixels.
"""

import math

SEVERITIES = (1, 2, 3, 4, 5)

# Name -> constants of severity 1 to 5; the function of the corruption documents them.
_SMALL = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1, 1.06, 0.01), (1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.01), (1, 1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}
_LARGE = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": (60, 25, 12, 5, 3),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": (1, 2, 3, 4, 6),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.02), (1, 1.26, 0.02), (1, 1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": (25, 18, 15, 10, 7),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}
# The ImageNet code takes fractions of 244 pixels, a mistake with which the published files were made.
_ELASTIC_LARGE = 244 / 224


def reference_side(side: int) -> int:
    """Return 32 or 224, the benchmark size whose constants apply to images of this shorter side."""
    return 32 if side * side < 32 * 224 else 224


def scales(height: int, width: int) -> tuple[int, float, float, float]:
    """Return the reference side, the image's size relative to it, and the factors of lengths and of streaks."""
    side = min(height, width)
    reference = reference_side(side)
    scale = side / reference
    if reference == 32 and scale < 1:
        return reference, scale, 1.0, math.sqrt(scale)
    return reference, scale, scale, scale


def constants(name: str, severity: int, height: int, width: int):
    """Return the constants of a corruption for an image size: one number, or a tuple for its function.

    Args:
        name: name of the corruption.
        severity: 1 to 5.
        height: pixels.
        width: pixels.
    """
    reference, _, length, streak = scales(height, width)
    values = (_SMALL if reference == 32 else _LARGE)[name][severity - 1]
    if name == "gaussian_blur":
        return values * length
    if name == "glass_blur":
        return values[0] * length, max(1, round(values[1] * length)), values[2]
    if name == "defocus_blur":
        return values[0] * length, values[1]
    if name == "motion_blur":
        return max(1, round(values[0] * streak)), values[1] * streak
    if name == "snow":
        radius, sigma = max(1, round(values[4] * streak)), values[5] * streak
        return *values[:2], max(1.0, values[2] * length), values[3], radius, sigma, values[6]
    if name == "spatter":
        location, deviation, sigma, threshold, weight, mud = values
        # For mud the weight is the width of a blur.
        return location, deviation, sigma * length, threshold, weight * (length if mud else 1), mud
    if name == "elastic_transform":
        pixels = min(height, width) * (1 if reference == 32 else _ELASTIC_LARGE)
        return tuple(value * pixels for value in values)
    return values

"""The constants of CIFAR-10-C and ImageNet-C, typed from the two published scripts, and their rule for other sizes.

Source: github.com/hendrycks/robustness, ImageNet-C/create_c/make_cifar_c.py and make_imagenet_c.py, the list `c` of
each function. The order of the numbers is that of the scripts.
"""

import math

import stored

CIFAR = stored.table(globals(), "cifar")
IMAGENET = stored.table(globals(), "imagenet")

# Positions of lengths in pixels, which grow with the image; "streak": the radius and sigma of a motion blur.
_LENGTHS = {"gaussian_blur": [0], "glass_blur": [0, 1], "defocus_blur": [0], "snow": [2], "spatter": [2]}
_STREAKS = {"motion_blur": [0, 1], "snow": [4, 5]}
_PIXEL_COUNTS = {"glass_blur": [1], "motion_blur": [0], "snow": [4]}  # counts of pixels


def at(name: str, severity: int, side: int):
    """Return the constants for images whose shorter side has `side` pixels, by the rule that the library documents."""
    size, table = (32, CIFAR) if side < math.sqrt(32 * 224) else (224, IMAGENET)
    values = table[name][severity - 1]
    if side == size:
        return values
    constants = list(values) if isinstance(values, tuple) else [values]
    lengths = _LENGTHS.get(name, [])
    if name == "elastic_transform":
        constants = [value * side / size for value in constants]
    if name == "spatter" and values[5] == 1:
        lengths = [*lengths, 4]  # the blur of mud; of water a weight
    for index in lengths:
        constants[index] *= max(1, side / size) if size == 32 else side / size
    for index in _STREAKS.get(name, []):
        constants[index] *= math.sqrt(side / size) if side < 32 else side / size
    for index in _PIXEL_COUNTS.get(name, []):
        constants[index] = max(1, round(constants[index]))
    if name == "snow":
        constants[2] = max(1, constants[2])
    return tuple(constants) if isinstance(values, tuple) else constants[0]

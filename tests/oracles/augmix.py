"""AugMix with Pillow, one image at a time, as the authors call it.

Written after the description of the procedure in Hendrycks et al. (2020), not copied from their code.
Pixels are uint8 [h, w, c] with c = 1 or 3.
"""

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import stored

BILINEAR = PIL.Image.Resampling.BILINEAR


def picture(pixels):
    return PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def pixels_of(image):
    array = np.asarray(image)
    return array[..., None] if array.ndim == 2 else array


def _affine(*coefficients):
    return lambda image: image.transform(image.size, PIL.Image.Transform.AFFINE, coefficients, resample=BILINEAR)


def _enhance(kind):
    return lambda image, factor: kind(image).enhance(factor)


# (image, parameter) -> image. The parameter of the first two does nothing.
OPERATIONS = stored.table(globals(), "operations")


def parameter(name, level, negative, size):
    """Return an operation's parameter for a level from 0.1 to severity; `size` is (height, width)."""
    sign = -1 if negative else 1
    if name == "posterize":
        return 4 - int(level * 4 / 10)
    if name == "solarize":
        return 256 - int(level * 256 / 10)
    if name == "rotate":
        return sign * int(level * 30 / 10)
    if name.startswith("shear"):
        return sign * level * 0.3 / 10
    if name.startswith("translate"):
        return sign * int(level * (size[name == "translate_x"] / 3) / 10)
    return level * 1.8 / 10 + 0.1


def augmix(pixels, chains, weights, mix):
    """float [h, w, c] in [0, 1]; chains: for each a list of (name, parameter)."""
    total = np.zeros(pixels.shape)
    for weight, chain in zip(weights, chains, strict=True):
        image = picture(pixels)
        for name, value in chain:
            image = OPERATIONS[name](image, value)
        total += weight * pixels_of(image) / 255.0
    return (1 - mix) * pixels / 255.0 + mix * total

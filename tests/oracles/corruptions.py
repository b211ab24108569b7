"""The corruptions with the libraries of the benchmark (OpenCV, SciPy, Pillow), one image at a time.

Written after the description of the algorithms in Hendrycks and Dietterich's code, not copied from it. Each takes
pixels uint8 [h, w, c], the random numbers that the library under test drew for this image, and the constants; each
gives floating grey levels 0 .. 255, which the benchmark clips and casts to uint8.
"""

import colorsys
import io
import math

import cv2
import numpy as np
import PIL.Image
import scipy.ndimage

from oracles import corruption_constants


def beyond_the_benchmark(small, large):
    """Note the constants of the decorated corruption, of severity 1 to 5 at 32 and at 224 pixels."""

    def noted(levels):
        corruption_constants.CIFAR[levels.__name__] = small
        corruption_constants.IMAGENET[levels.__name__] = large
        return levels

    return noted


def bytes_of(levels):
    """Return the bytes that the benchmark stores: clipped, then rounded down by the cast.

    A whole level stays one where a sum in another order comes out a trifle below it.
    """
    return np.clip(levels + 1e-4, 0, 255).astype(np.uint8)


def gaussian_noise(pixels, draw, deviation):
    return 255 * (pixels / 255.0 + deviation * draw["noise"])


def speckle_noise(pixels, draw, deviation):
    x = pixels / 255.0
    return 255 * (x + x * deviation * draw["noise"])


def shot_noise(pixels, draw, photons):
    return 255 * (draw["counts"] / float(photons))


def impulse_noise(pixels, draw, amount):
    out = pixels / 255.0
    flipped, salted = draw["place"] < amount, draw["place"] < amount / 2
    out[flipped & salted] = 1
    out[flipped & ~salted] = 0
    return 255 * out


def _gaussian(x, sigma):
    """skimage.filters.gaussian of an image with channels: SciPy's filter, nearest, cut at 4 sigma."""
    channels = [scipy.ndimage.gaussian_filter(x[..., c], sigma, mode="nearest", truncate=4) for c in range(x.shape[2])]
    return np.stack(channels, axis=-1)


def gaussian_blur(pixels, draw, sigma):
    return 255 * _gaussian(pixels / 255.0, sigma)


def glass_blur(pixels, draw, constants):
    sigma, delta, iterations = constants
    x = bytes_of(255 * _gaussian(pixels / 255.0, sigma))
    height, width = x.shape[:2]
    for iteration in range(iterations):
        for h in range(height - delta, delta, -1):
            for w in range(width - delta, delta, -1):
                down, across = draw["offsets"][iteration, h, w]
                x[h, w], x[h + down, w + across] = x[h + down, w + across], x[h, w]  # views: the second changes nothing
    return 255 * _gaussian(x / 255.0, sigma)


def disk(radius, alias):
    reach, width = (8, 3) if radius <= 8 else (math.ceil(radius), 5)
    across, down = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1))
    kernel = np.array(across**2 + down**2 <= radius**2, dtype=np.float32)
    return cv2.GaussianBlur(kernel / kernel.sum(), ksize=(width, width), sigmaX=alias)


def defocus_blur(pixels, draw, constants):
    kernel = disk(*constants)
    return 255 * np.stack([cv2.filter2D(pixels[..., c] / 255.0, -1, kernel) for c in range(pixels.shape[2])], axis=-1)


def _shift(image, right, down):
    if right < 0:
        shifted = np.roll(image, shift=image.shape[1] + right, axis=1)
        shifted[:, right:] = shifted[:, right - 1 : right]
    elif right > 0:
        shifted = np.roll(image, shift=right, axis=1)
        shifted[:, :right] = shifted[:, right : right + 1]
    else:
        shifted = image.copy()
    if down < 0:
        shifted = np.roll(shifted, shift=image.shape[0] + down, axis=0)
        shifted[down:] = shifted[down - 1 : down]
    elif down > 0:
        shifted = np.roll(shifted, shift=down, axis=0)
        shifted[:down] = shifted[down : down + 1]
    return shifted


def streaks(x, angle, radius, sigma):
    count = 2 * radius + 1
    weights = np.exp(-(np.arange(count) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    blurred = np.zeros_like(x, dtype=np.float64)
    for i in range(count):
        # Exact halves go down, where the rounding of a sine would decide.
        down = -math.ceil(round(i * math.sin(math.radians(angle)) - 0.5, 9))
        across = -math.ceil(round(i * math.cos(math.radians(angle)) - 0.5, 9))
        if abs(down) >= x.shape[0] or abs(across) >= x.shape[1]:
            break
        blurred += weights[i] * _shift(x, across, down)
    return blurred


def motion_blur(pixels, draw, constants):
    return np.round(streaks(pixels.astype(np.float64), float(draw["angle"]), *constants))


def _clipped_zoom(x, factor):
    zoomed = x
    for axis in (0, 1):
        size = x.shape[axis]
        middle_size = int(np.ceil(size / factor))
        first = (size - middle_size) // 2
        middle = np.take(zoomed, range(first, first + middle_size), axis=axis)
        scale = [factor if other == axis else 1 for other in range(zoomed.ndim)]
        stretched = scipy.ndimage.zoom(middle, scale, order=1)
        trim = (stretched.shape[axis] - size) // 2
        zoomed = np.take(stretched, range(trim, trim + size), axis=axis)
    return zoomed


def zoom_blur(pixels, draw, constants):
    x = pixels / 255.0
    factors = np.arange(*constants)
    total = np.zeros_like(x)
    for factor in factors:
        total += _clipped_zoom(x, factor)
    return 255 * (x + total) / (len(factors) + 1)


def snow(pixels, draw, constants):
    location, scale, zoom, threshold, radius, sigma, blend = constants
    layer = _clipped_zoom(location + scale * draw["flakes"].astype(np.float64), zoom)[..., 0]
    layer[layer < threshold] = 0
    layer = bytes_of(255 * np.clip(layer, 0, 1))
    layer = np.round(streaks(layer.astype(np.float64), float(draw["angle"]), radius, sigma))[..., None] / 255.0
    x = np.float32(pixels) / 255.0
    grey = x if x.shape[2] == 1 else cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None]
    x = blend * x + (1 - blend) * np.maximum(x, grey * 1.5 + 0.5)
    return 255 * (x + layer + np.rot90(layer, k=2))


def frost(pixels, draw, constants):
    return constants[0] * pixels + constants[1] * 255.0 * draw["frost"]


def plasma(field, decay):
    """Point by point on the wrapped grid."""
    size = len(field)
    heights = np.full([size, size], np.nan)
    heights[0, 0] = 0
    step, wibble = size, 100.0
    while step >= 2:
        half = step // 2
        for rows, columns, around in (
            (range(half, size, step), range(half, size, step), ((-1, -1), (-1, 1), (1, -1), (1, 1))),
            (range(0, size, step), range(half, size, step), ((-1, 0), (1, 0), (0, -1), (0, 1))),
            (range(half, size, step), range(0, size, step), ((-1, 0), (1, 0), (0, -1), (0, 1))),
        ):
            for row in rows:
                for column in columns:
                    near = [heights[(row + half * r) % size, (column + half * c) % size] for r, c in around]
                    heights[row, column] = sum(near) / 4 + wibble * wibble * field[row, column]
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(pixels, draw, constants):
    amount, decay = constants
    x = pixels / 255.0
    largest = x.max()
    x = x + amount * plasma(draw["field"].astype(np.float64), decay)[: x.shape[0], : x.shape[1], None]
    return 255 * np.clip(x * largest / (largest + amount), 0, 1)


def spatter(pixels, draw, constants):
    location, deviation, sigma, threshold, weight, mud = constants
    x = np.array(pixels, dtype=np.float32) / 255.0
    layer = location + deviation * draw["drops"][..., 0].astype(np.float64)
    layer = scipy.ndimage.gaussian_filter(layer, sigma, mode="nearest", truncate=4)
    layer[layer < threshold] = 0
    if mud:
        mask = np.where(layer > threshold, 1, 0).astype(np.float32)
        mask = scipy.ndimage.gaussian_filter(mask, weight, mode="nearest", truncate=4)
        mask[mask < 0.8] = 0
        return 255 * (x * (1 - mask[..., None]) + mask[..., None] * np.array([63, 42, 20]) / 255)
    return water(pixels, layer, weight)


def water(pixels, layer, weight):
    x = np.array(pixels, dtype=np.float32) / 255.0
    layer = bytes_of(255 * layer)
    distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
    _, distance = cv2.threshold(distance, 20, 20, cv2.THRESH_TRUNC)
    distance = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
    distance = cv2.filter2D(distance, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    distance = cv2.blur(distance, (3, 3)).astype(np.float32)
    mask = layer * distance
    mask = weight * mask / max(mask.max(), 1e-9)
    colour = np.array([175, 238, 238]) / 255
    if pixels.shape[2] == 1:
        colour = colour @ [0.299, 0.587, 0.114]
    return 255 * (x + mask[..., None] * colour)


def brightness(pixels, draw, shift):
    return _in_hsv(pixels, lambda h, s, v: (h, s, min(1.0, v + shift)))


def saturate(pixels, draw, constants):
    gain, shift = constants
    return _in_hsv(pixels, lambda h, s, v: (h, min(1.0, max(0.0, s * gain + shift)), v))


def _in_hsv(pixels, change):
    out = np.empty(pixels.shape)
    for pixel in np.ndindex(pixels.shape[:2]):
        out[pixel] = colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*(pixels[pixel] / 255.0))))
    return 255 * out


def contrast(pixels, draw, factor):
    x = pixels / 255.0
    means = np.mean(x, axis=(0, 1), keepdims=True)
    return 255 * ((x - means) * factor + means)


def pixelate(pixels, draw, ratio):
    image = PIL.Image.fromarray(pixels)
    small = image.resize((int(image.width * ratio), int(image.height * ratio)), PIL.Image.BOX)
    return np.asarray(small.resize(image.size, PIL.Image.BOX)).astype(float)


def jpeg_compression(pixels, draw, quality):
    output = io.BytesIO()
    PIL.Image.fromarray(pixels).save(output, "JPEG", quality=quality)
    return np.asarray(PIL.Image.open(output)).astype(float)


def affine(shape, corners_draw, jitter):
    """The 2 x 3 matrix of the benchmark's affine change, from OpenCV."""
    middle = np.float32([shape[1] // 2, shape[0] // 2])
    square = min(shape[:2]) // 3
    corners = np.float32([middle + square, [middle[0] + square, middle[1] - square], middle - square])
    return cv2.getAffineTransform(corners, corners + np.float32(jitter * corners_draw))


def elastic_transform(pixels, draw, constants):
    """Both interpolations by SciPy: OpenCV's warpAffine is as fine as its tables of weights."""
    alpha, sigma, jitter = constants
    height, width, channels = pixels.shape
    back = cv2.invertAffineTransform(affine(pixels.shape, draw["corners"], jitter).astype(np.float64))
    rows, columns = np.indices([height, width]).astype(float)
    source = back @ np.stack([columns.ravel(), rows.ravel(), np.ones(height * width)])
    places = np.stack([source[1], source[0]])
    x = _at(pixels / 255.0, places, "mirror")
    across, down = (
        scipy.ndimage.gaussian_filter(draw["field"][..., axis].astype(float), sigma, mode="reflect", truncate=3) * alpha
        if sigma
        else draw["field"][..., axis] * alpha
        for axis in (0, 1)
    )
    return 255 * _at(x, np.stack([(rows + down).ravel(), (columns + across).ravel()]), "reflect")


def _at(x, places, border):
    channels = [
        scipy.ndimage.map_coordinates(x[..., c], places, order=1, mode=border).reshape(x.shape[:2])
        for c in range(x.shape[2])
    ]
    return np.stack(channels, axis=-1)

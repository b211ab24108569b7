"""The perturbation sequences with the libraries of the benchmark (OpenCV, Pillow, SciPy), one image at a time.

Written after the description of the algorithms in Hendrycks and Dietterich's code, not copied from it, each formula as
it stands there, with the constants of CIFAR-P for 32 pixels and of ImageNet-P for all others. Each takes pixels uint8
[h, w, c] and the random numbers that the library under test drew for this image; each gives floating grey levels
0 .. 255 [frames, h, w, c], which are clipped and cast to uint8.
"""

import math

import cv2
import numpy as np
import PIL.Image
import scipy.ndimage

from oracles import corruptions


def _small(pixels):
    return pixels.shape[0] == 32


def motion_blur(pixels, draw):
    if _small(pixels):
        return [corruptions.motion_blur(pixels, {"angle": (i - 20) * 9}, (6, 1.8)) for i in range(21)]
    return [corruptions.motion_blur(pixels, {"angle": (i - 30) * 4}, (10, 3)) for i in range(31)]


def snow(pixels, draw):
    zoom, radius, sigma = (2, 10, 2) if _small(pixels) else (3, 14, 4)
    constants = (0.05, 0.3, zoom, 0.5, radius, sigma, 0.85)
    return [corruptions.snow(pixels, draw | {"angle": i * 4 - 150}, constants) for i in range(31)]


def brightness(pixels, draw):
    shifts = [(i - 15) * (1.5 if _small(pixels) else 2) / 100 for i in range(31)]
    if pixels.shape[2] == 1:  # the value of a grey pixel is the pixel
        return [255 * np.clip(pixels / 255 + shift, 0, 1) for shift in shifts]
    return [corruptions.brightness(pixels, {}, shift) for shift in shifts]


def gaussian_blur(pixels, draw):
    first, step, truncate = (0.3, 0.015, 7) if _small(pixels) else (0.25, 0.035, 6)
    keywords = {"mode": "nearest", "truncate": truncate}
    frames = []
    for i in range(31):
        planes = np.moveaxis(pixels / 255, -1, 0)
        blurred = [scipy.ndimage.gaussian_filter(plane, first + step * i, **keywords) for plane in planes]
        frames.append(255 * np.stack(blurred, axis=-1))
    return frames


def affine(pixels, angle=0.0, translate=(0, 0), scale=1.0, shear=0.0, resample=PIL.Image.NEAREST):
    """torchvision 0.2's functional.affine: M^-1 = C RSS^-1 C^-1 T^-1 about C = (w / 2 + 1/2, h / 2 + 1/2)."""
    height, width = pixels.shape[:2]
    a, s = math.radians(angle), math.radians(shear)
    rss = np.array([[math.cos(a), -math.sin(a + s), 0], [math.sin(a), math.cos(a + s), 0], [0, 0, 1]])
    rss[:2, :2] *= scale
    centre = np.array([[1, 0, width * 0.5 + 0.5], [0, 1, height * 0.5 + 0.5], [0, 0, 1]])
    shift = np.array([[1, 0, translate[0]], [0, 1, translate[1]], [0, 0, 1]])
    inverse = centre @ np.linalg.inv(rss) @ np.linalg.inv(centre) @ np.linalg.inv(shift)
    image = PIL.Image.fromarray(pixels.squeeze())
    transformed = image.transform(image.size, PIL.Image.Transform.AFFINE, inverse[:2].ravel().tolist(), resample)
    return np.asarray(transformed).reshape(pixels.shape).astype(float)


def translate(pixels, draw):
    first, frames = (-7, 16) if _small(pixels) else (-20, 41)
    return [affine(pixels, translate=(first + i, 0)) for i in range(frames)]


def rotate(pixels, draw):
    return [affine(pixels, angle=i - 15, resample=PIL.Image.BILINEAR) for i in range(31)]


def shear(pixels, draw):
    return [affine(pixels, shear=i - 15, resample=PIL.Image.BILINEAR) for i in range(31)]


def scale(pixels, draw):
    factors = [(i * 2 + 70) / 100 if _small(pixels) else (i * 2.5 + 40) / 100 for i in range(31)]
    return [affine(pixels, scale=factor, resample=PIL.Image.BILINEAR) for factor in factors]


def zoom_blur(pixels, draw):
    total = pixels.astype(float)
    frames = [total]
    for i in range(1, 31):
        total = total + affine(pixels, scale=1 + 0.004 * i, resample=PIL.Image.BILINEAR)
        frames.append(total / (i + 1))
    return frames


def perspective(shape, degrees):
    """The 3 x 3 matrix of the benchmark's tilt."""
    h, w = shape[:2]
    phi = theta = np.deg2rad(degrees)
    f = np.sqrt(w**2 + h**2)
    p1 = np.array([[1, 0, -w / 2], [0, 1, -h / 2], [0, 0, 1], [0, 0, 1]])
    about_x = np.eye(4)
    about_x[1:3, 1:3] = [[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]]
    about_y = np.eye(4)
    about_y[np.ix_([0, 2], [0, 2])] = [[np.cos(phi), -np.sin(phi)], [np.sin(phi), np.cos(phi)]]
    away = np.eye(4)
    away[2, 3] = f
    p2 = np.array([[f, 0, w / 2, 0], [0, f, h / 2, 0], [0, 0, 1, 0]])
    return p2 @ away @ about_x @ about_y @ p1


def tilt(pixels, draw):
    """Interpolated by SciPy: OpenCV's warpPerspective is as fine as its tables of weights; `tilt_by_opencv`."""
    rows, columns = np.indices(pixels.shape[:2])
    frames = []
    for degrees in _tilts(pixels):
        across, down, depth = np.einsum(
            "ij,jhw->ihw", np.linalg.inv(perspective(pixels.shape, degrees)), np.stack([columns, rows, rows * 0 + 1])
        )
        places = np.stack([down / depth, across / depth])
        planes = [
            scipy.ndimage.map_coordinates(plane.astype(float), places, order=1, mode="grid-constant")
            for plane in np.moveaxis(pixels, -1, 0)
        ]
        frames.append(np.round(np.stack(planes, axis=-1)))
    return frames


def tilt_by_opencv(pixels, draw):
    h, w = pixels.shape[:2]
    frames = [cv2.warpPerspective(pixels, perspective(pixels.shape, degrees), (w, h)) for degrees in _tilts(pixels)]
    return [frame.reshape(pixels.shape).astype(float) for frame in frames]


def _tilts(pixels):
    return [(0.75 if _small(pixels) else 1) * (i - 15) for i in range(31)]


def spatter(pixels, draw):
    location, deviation, sigma, threshold, taps = (0.6, 0.265, 1.75, 0.7, [0.2, 0.8])
    if not _small(pixels):
        location, deviation, sigma, threshold, taps = (0.65, 0.27, 3.7, 0.69, [0.05, 0.1, 0.15, 0.7])
    layer = location + deviation * draw["drops"][..., 0].astype(np.float64)
    layer = scipy.ndimage.gaussian_filter(layer, sigma, mode="nearest", truncate=4)
    layer[layer < threshold] = 0
    frames = []
    for _ in range(31):
        frames.append(corruptions.water(pixels, layer, 0.6))
        layer = np.apply_along_axis(lambda column: np.convolve(column, taps, mode="same"), axis=0, arr=layer)
    return frames


def flip_probability(videos, noise):
    """The benchmark's flip probability of predictions [videos][frames], one by one."""
    result = 0.0
    for predictions in videos:
        flips, reference = [], predictions[0]
        for prediction in predictions[1:]:
            flips.append(int(reference != prediction))
            if not noise:
                reference = prediction
        result += np.mean(flips) / len(videos)
    return result

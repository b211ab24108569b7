"""The Square attack as its paper and AutoAttack describe it: one image at a time, slices and loops, float64."""

import math

import numpy as np

from oracles.projections import project


def share(step, initial=0.8):
    """Return the share of the pixels in the window at a step of the schedule for 10,000 steps."""
    halvings = [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000]
    return initial / 2 ** sum(step > threshold for threshold in halvings)


def side(step, height, width, kind):
    """Return the side of the window at a step."""
    length = int(round(math.sqrt(share(step) * height * width)))
    if kind == "linf":
        length = max(length, 1)
    else:
        length = max(length, 3)
        length += 1 if length % 2 == 0 else 0
    return min(length, height, width)


def pattern(length, kind):
    """The filling of a window, upright: two halves, each a sum of boxes around its middle."""
    power = 2 if kind == "l2" else 4
    order = 2 if kind == "l2" else 1

    def half(height):
        values = np.zeros([height, length])
        for i in range(height):
            for j in range(length):
                # Box k reaches k places in all directions.
                nearest = max(abs(i - height // 2), abs(j - length // 2))
                last = max(height // 2, length // 2)
                values[i, j] = sum(1 / (k + 1) ** power for k in range(nearest, last + 1))
        return values / np.linalg.norm(values.ravel(), order)

    upper = half(length // 2) if length > 1 else np.zeros([0, length])
    full = np.concatenate([upper, -half(length - length // 2)])
    return full / np.linalg.norm(full.ravel(), order)


def linf_step(image, best, epsilon, length, corner, signs):
    """The proposal from the best point, float [h, w, c]; signs +-1 [c]."""
    row, column = corner
    change = np.zeros_like(best)
    change[row : row + length, column : column + length] = 2 * epsilon * np.asarray(signs)
    return np.clip(np.clip(best + change, image - epsilon, image + epsilon), 0, 1)


def window_step(image, best, epsilon, length, corners, signs, turned, kind):
    """The L2 or L1 proposal: corners (row, column) of the window filled and of the one emptied into it."""
    order, channels = (2 if kind == "l2" else 1), image.shape[-1]
    change = best - image
    total = np.linalg.norm(change.ravel(), order)
    first, second = (np.s_[row : row + length, column : column + length] for row, column in corners)
    either = np.zeros(image.shape[:2], bool)
    either[first] = either[second] = True
    filling = pattern(length, kind)
    filling = filling.T if turned else filling
    new = np.zeros([length, length, channels])
    for c in range(channels):
        content = change[first][..., c]
        filled = signs[c] * filling + content / (1e-12 + np.linalg.norm(content.ravel(), order))
        given_up = np.linalg.norm(change[either][:, c], order)
        if kind == "l2":
            size = math.sqrt(max(epsilon**2 - total**2, 0) / channels + given_up**2)
        else:
            size = (max(epsilon - total, 0) / channels + given_up) * channels
        new[..., c] = filled / (1e-12 + np.linalg.norm(filled.ravel(), order)) * size
    change[second] = 0
    change[first] = new
    return bounded(image, change, epsilon, kind)


def bounded(image, change, epsilon, kind):
    """The image with a change brought to size: L2 scaled and clipped, L1 projected."""
    if kind == "l2":
        return np.clip(image + epsilon * change / (np.linalg.norm(change.ravel()) + 1e-12), 0, 1)
    return project(image.ravel(), (image + change).ravel(), "l1", epsilon, 0, 1).reshape(image.shape)


def tiled(image, epsilon, signs, turned, kind):
    """The L2 or L1 start of a square image: signs +-1 [n, n, c], turned [n, n]."""
    height, width, _ = image.shape
    length, change = max(min(height, width) // 5, 1), np.zeros_like(image)
    before = max((min(height, width) - 5 * length) // 2, 0)
    for i in range(signs.shape[0]):
        for j in range(signs.shape[1]):
            filling = pattern(length, kind).T if turned[i, j] else pattern(length, kind)
            row, column = before + i * length, before + j * length
            change[row : row + length, column : column + length] = filling[..., None] * signs[i, j]
    return bounded(image, change, epsilon, kind)

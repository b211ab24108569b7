"""FMN as algorithm 1 of Pintor et al. 2021, literally, and a quadric whose boundary is known; float64, one vector."""

import numpy as np

from oracles import projections


def fmn(margin, x, kind, steps, first_step=1.0, first_change=0.05):
    """The distance of the nearest misclassified point met (margin > 0); margin: z -> (value, gradient); box [0, 1].

    With the three differences that the library's class states: r >= 1 in L0, no lengthening in L2, and an estimate of
    the distance of the boundary that is exceeded by the change of the radius, of coordinates that can move.
    """
    order, dual = {"linf": (np.inf, 1), "l2": (2, 2), "l1": (1, np.inf), "l0": (0, None)}[kind]
    farthest = np.linalg.norm(np.maximum(x, 1 - x), order)
    point, best, radius = x.copy(), np.inf, 1.0 if kind == "l0" else np.inf
    for k in range(steps):
        cosine = (1 + np.cos(np.pi * k / steps)) / 2
        step = first_step * (0.01 + 0.99 * cosine)
        change = 0.001 + (first_change - 0.001) * cosine
        value, gradient = margin(point)
        gradient = np.where(np.where(gradient > 0, point < 1, point > 0), gradient, 0)
        length = np.linalg.norm(point - x, order)
        if value > 0:
            best = min(best, length)
            lower = min(radius - 1, np.floor(radius * (1 - change))) if kind == "l0" else radius * (1 - change)
            radius = min(lower, best)
        elif kind == "l0":
            radius = max(radius + 1, np.floor(radius * (1 + change)))
        elif best < np.inf:
            radius *= 1 + change
        else:
            radius = (length + abs(value) / np.linalg.norm(gradient, dual)) * (1 + change)
        radius = min(max(radius, 1), farthest) if kind == "l0" else min(radius, farthest)
        moved = point + step * gradient / np.linalg.norm(gradient)
        if kind == "l0":
            largest = np.argsort(-np.abs(moved - x), kind="stable")[: int(radius)]
            kept = np.isin(np.arange(len(x)), largest)
            point = np.clip(np.where(kept, moved, x), 0, 1)
        else:
            point = np.clip(projections.project(x, moved, kind, radius), 0, 1)
    return best


def leaving_a_ball(x, radius, kind):
    """The least distance from x to |z - c|_2 = radius, c the center of the box [0, 1]^d, x inside of the ball.

    The ends of the box must be out of reach but in L0, where a value goes to the end that is farther from c.
    """
    offsets = np.abs(x - 0.5)
    missing = radius**2 - np.sum(offsets**2)
    if kind == "l2":
        return radius - np.sqrt(np.sum(offsets**2))
    if kind == "linf":  # sum (|d_j| + e)^2 = radius^2
        half, size = np.sum(offsets), len(x)
        return (-half + np.sqrt(half**2 + size * missing)) / size
    if kind == "l1":  # all on the value that is farthest out
        return -np.max(offsets) + np.sqrt(np.max(offsets) ** 2 + missing)
    return 1 + np.argmax(np.cumsum(np.sort(0.25 - offsets**2)[::-1]) > missing)

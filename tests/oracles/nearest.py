"""The least distance at which a linear model with two classes is wrong, box included; NumPy float64, one image."""

import numpy as np

from oracles import projections


def linear_distance(weights, bias, x, kind):
    """min |z - x| over z in [0, 1]^d with sign(<w, z> + c) other than at x; infinite where there is none.

    L0: the values in the order of what each can contribute inside the box. The others by bisection over the
    radius, the best point of a ball being known.
    """
    score = np.dot(weights, x) + bias
    away = -np.sign(score) * np.asarray(weights, np.float64)
    gains = np.sort(np.where(away > 0, away * (1 - x), -away * x))[::-1]
    if gains.sum() <= abs(score):
        return np.inf
    if kind == "l0":
        return 1.0 + np.argmax(np.cumsum(gains) > abs(score))
    small, large = 0.0, float(x.size)
    for _ in range(60):
        middle = (small + large) / 2
        best = projections.linear_maximiser(away, x, kind, middle, 0, 1)
        small, large = (small, middle) if np.dot(away, best - x) > abs(score) else (middle, large)
    return large

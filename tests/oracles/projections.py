"""Slow NumPy float64 answers about {z : |z - x| <= epsilon, low <= z <= high}, one vector at a time."""

import itertools

import numpy as np


def measure(vector, kind):
    """The norm, by its definition."""
    vector = np.abs(np.asarray(vector, np.float64))
    return {"linf": np.max, "l1": np.sum, "l2": lambda v: np.sqrt(np.sum(v * v)), "l0": np.count_nonzero}[kind](vector)


def project(x, candidate, kind, epsilon, low=-np.inf, high=np.inf):
    """The nearest point of the set, by bisection on the multiplier of the ball's constraint.

    For a multiplier t >= 0 the box-constrained minimiser of |z - c|^2 / 2 + t * (|z - x| as L1, or |z - x|^2 / 2)
    is separable: soft threshold (L1) or shrink by 1 / (1 + t) (L2), then clip. t is the smallest feasible one.
    """
    x, candidate = np.asarray(x, np.float64), np.asarray(candidate, np.float64)

    def at(multiplier):
        d = candidate - x
        d = d / (1 + multiplier) if kind == "l2" else np.sign(d) * np.maximum(np.abs(d) - multiplier, 0)
        return np.clip(x + d, low, high)

    if kind == "linf":
        return np.clip(np.clip(candidate, x - epsilon, x + epsilon), low, high)
    if measure(at(0.0) - x, kind) <= epsilon:
        return at(0.0)
    small, large = 0.0, 1.0
    while measure(at(large) - x, kind) > epsilon:
        large *= 2
    for _ in range(200):
        middle = (small + large) / 2
        small, large = (middle, large) if measure(at(middle) - x, kind) > epsilon else (small, middle)
    return at(large)


def linear_maximiser(direction, x, kind, epsilon, low=-np.inf, high=np.inf):
    """The point z of the set that maximises <direction, z>: what a perfect attack on a linear model finds.

    Linf: every coordinate as far as it may. L1: fill the coordinates in the order of |direction|. L2: the
    limit of projecting x + t * direction for t -> infinity, by bisection on the scale.
    """
    x, direction = np.asarray(x, np.float64), np.asarray(direction, np.float64)
    room = np.where(direction > 0, high - x, np.where(direction < 0, x - low, 0.0))
    if kind == "linf":
        return x + np.sign(direction) * np.minimum(room, epsilon)
    if kind == "l1":
        budget, move = epsilon, np.zeros_like(x)
        for j in np.argsort(-np.abs(direction)):
            move[j] = np.sign(direction[j]) * min(room[j], budget)
            budget -= abs(move[j])
        return x + move
    magnitude = np.abs(direction)
    if measure(np.where(magnitude > 0, room, 0.0), "l2") <= epsilon:
        return x + np.sign(direction) * room
    small, large = 0.0, 1.0
    while measure(np.minimum(large * magnitude, room), "l2") < epsilon:
        large *= 2
    for _ in range(200):
        middle = (small + large) / 2
        inside = measure(np.minimum(middle * magnitude, room), "l2") < epsilon
        small, large = (middle, large) if inside else (small, middle)
    return x + np.sign(direction) * np.minimum(small * magnitude, room)


def project_frames(x, candidate, kind, epsilon, chosen, per_frame=False, low=-np.inf, high=np.inf):
    """The nearest point that differs from the clip x [t, d] in the chosen frames; `per_frame`: each in its ball."""
    x, candidate = np.asarray(x, np.float64), np.asarray(candidate, np.float64)
    nearest, groups = x.copy(), [[frame] for frame in chosen] if per_frame else [list(chosen)]
    for group in groups:
        point = project(x[group].ravel(), candidate[group].ravel(), kind, epsilon, low, high)
        nearest[group] = point.reshape(x[group].shape)
    return nearest


def maximise_frames(direction, x, kind, epsilon, count, per_frame=False, low=-np.inf, high=np.inf):
    """The largest <direction, z - x> over clips z [t, d] that differ from x in `count` frames, by trying all."""
    best = -np.inf
    for chosen in itertools.combinations(range(len(x)), count):
        gain, groups = 0.0, [[frame] for frame in chosen] if per_frame else [list(chosen)]
        for group in groups:
            z = linear_maximiser(direction[group].ravel(), x[group].ravel(), kind, epsilon, low, high)
            gain += direction[group].ravel() @ (z - x[group].ravel())
        best = max(best, gain)
    return best

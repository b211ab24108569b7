"""Slow NumPy float64 answers about the shortest move onto {z : <w, z> = b} inside a box, one vector at a time."""

import numpy as np


def move(point, normal, offset, kind, low=0.0, high=1.0):
    """The move m of smallest norm with <w, t + m> = b; as far as the box allows where it does not reach.

    Linf, L2: |m_j| = min(s, room_j) or min(s |w_j|, room_j), by bisection on s. L1: coordinate by coordinate.
    """
    point, normal = np.asarray(point, np.float64), np.asarray(normal, np.float64)
    excess = point @ normal - np.float64(offset)
    direction = -np.sign(normal) * (1 if excess >= 0 else -1)
    room = np.where(direction > 0, high - point, np.where(direction < 0, point - low, 0.0))
    weight, needed = np.abs(normal), abs(excess)
    if weight @ room <= needed:
        return direction * room
    if kind == "l1":
        return direction * _one_after_the_other(weight, room, needed)
    speed = weight if kind == "l2" else np.ones_like(weight)
    small, large = 0.0, 1.0
    while weight @ np.minimum(large * speed, room) < needed:
        large *= 2
    for _ in range(200):
        middle = (small + large) / 2
        enough = weight @ np.minimum(middle * speed, room) >= needed
        small, large = (small, middle) if enough else (middle, large)
    return direction * np.minimum(large * speed, room)


def _one_after_the_other(weight, room, needed):
    length = np.zeros_like(room)
    for j in np.argsort(-weight, kind="stable"):
        length[j] = min(room[j], needed / weight[j]) if weight[j] > 0 else 0.0
        needed -= weight[j] * length[j]
    return length


def fab_step(image, point, excess, normal, kind, alpha_max, eta):
    """One step of FAB from f and its gradient at the point; all vectors."""
    image, point, normal = (np.asarray(vector, np.float64) for vector in (image, point, normal))
    offset = normal @ point - excess
    onto, from_image = move(point, normal, offset, kind), move(image, normal, offset, kind)
    order = {"linf": np.inf, "l2": 2, "l1": 1}[kind]
    near, far = (max(np.linalg.norm(vector, order), 1e-8) for vector in (onto, from_image))
    pull = min(near / (near + far), alpha_max)
    return np.clip((1 - pull) * (point + eta * onto) + pull * (image + eta * from_image), 0, 1)

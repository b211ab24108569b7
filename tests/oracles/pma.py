"""PMA and MALT's order, literally: probabilities, their gradients and the steps in float64, for one image at a time."""

import numpy as np
from scipy.special import softmax

# Derivatives are central differences of this width.
WIDTH = 1e-6


def loss(logits, label, step, steps, run):
    """Return the function that step 0, 1, ... of run 0, 1, ... maximizes."""
    p = softmax(logits)
    largest_other = np.delete(p, label).max()
    if step == 0:
        return p[label]
    if step < steps // 2:
        return [-p[label], largest_other][run % 2]
    return largest_other - p[label]


def slope(function, x):
    """The gradient of a function of x by central differences."""
    shifts = WIDTH * np.eye(x.size).reshape(-1, *x.shape)
    return np.array([(function(x + shift) - function(x - shift)) / (2 * WIDTH) for shift in shifts]).reshape(x.shape)


def step_length(epsilon, step, steps):
    """2 epsilon (1 + cos pi t) / 2; t grows from 0 to 1 before the change of the loss, and again after it."""
    change = steps // 2
    t = (step - 1 if step < change else step - change - 1) / (steps - change)
    return 2 * epsilon * (1 + np.cos(np.pi * t)) / 2


def run_from(start, image, model, label, epsilon, steps, run):
    """All points of a run, the start first, as long as the model is right."""
    points = [start]
    for step in range(steps):
        here = points[-1]
        if model(here).argmax() != label:
            break
        gradient = slope(lambda x: loss(model(x), label, step, steps, run), here)  # noqa: B023 - called at once
        moved = here + step_length(epsilon, step, steps) * np.sign(gradient)
        points.append(np.clip(np.clip(moved, image - epsilon, image + epsilon), 0, 1))
    return points


def malt_order(image, model, label, order):
    """The wrong classes by their distance (z_y - z_j) / |grad (z_j - z_y)|; `order` is that of the norm, dual."""
    logits, distances = model(image), {}
    for other in range(len(logits)):
        if other != label:
            gradient = slope(lambda x: model(x)[other] - model(x)[label], image)  # noqa: B023 - called at once
            distances[other] = (logits[label] - logits[other]) / np.linalg.norm(gradient.ravel(), order)
    return sorted(distances, key=distances.get)

"""Plain networks of `drawn_networks`, bounded by every method, attacked, and decided by a mixed-integer program."""

import collections

import keras
import numpy as np
import tensorflow as tf

from oracles import drawn_networks, mixed_integer, projections
from tfrobust.certification import certify, network

# Methods in the order of the margins that they certify.
ORDER = ("ibp", "crown_ibp", "crown", "alpha_crown")
# Images of a network, of which the last has a wrong label; and seconds of branch and bound for each.
_IMAGES, _SECONDS = 3, 3.0
# Integer variables of the programs; and how far, relative, their solutions may lie from the smallest margin.
_SWITCHES, _TOLERANCE = 40, 1e-4
_STEPS, _RESTARTS = 20, 16


def examine_all(count: int, seed: int) -> tuple[collections.Counter, list[str]]:
    """Draw different networks and examine them; return the number of images by the outcome, and all contradictions."""
    outcomes, contradictions = collections.Counter(), []
    tf.config.run_functions_eagerly(True)  # tracing takes longer than the search of a small network
    try:
        for number, drawn in enumerate(drawn_networks.sample(count, seed, plain=True)):
            contradictions += examine(drawn, outcomes)
            if number % 20 == 19:
                keras.backend.clear_session(free_memory=False)
    finally:
        tf.config.run_functions_eagerly(False)
    return outcomes, contradictions


def examine(drawn, outcomes: collections.Counter) -> list[str]:
    """Bound a network by every method; count its images by the outcome, and return what contradicts a bound."""
    generator = np.random.default_rng(drawn.seed + 1)
    images = generator.uniform(size=(_IMAGES, *drawn.shape)).astype(np.float32)
    images[1] = images[1].round()
    try:
        model = drawn_networks.build(drawn)
        labels = drawn_networks.outputs(model, images).argmax(1)
        walked = network.walk(model)
    except (network.NoBoundsError, ValueError) as error:
        outcomes[f"refused, {type(error).__name__}"] += 1
        return []
    labels[-1] = (labels[-1] + 1) % 3
    ball = {"epsilon": drawn.epsilon, "norm": drawn.norm}
    decisions = certify.decide(walked, images, labels, **ball, seconds=_SECONDS)
    margins = {method: certify.certified_margins(walked, images, labels, **ball, method=method) for method in ORDER}
    faults = []
    for first, second in zip(ORDER, ORDER[1:], strict=False):
        if np.any(margins[first] > margins[second]):
            faults.append(f"{second} is below {first}: {margins}")
    margins["complete"] = decisions.margins
    if np.any(certify.certified(margins["alpha_crown"]) & ~certify.certified(decisions.margins)):
        faults.append(f"alpha_crown certifies images that branch and bound does not: {margins}")
    if drawn.norm == "l2":
        try:
            margins["lipschitz"] = certify.certified_margins(walked, images, labels, **ball, method="lipschitz")
        except network.NoBoundsError:
            outcomes["no Lipschitz constant"] += 1
    for index, label in enumerate(labels):
        of_image = {method: values[index] for method, values in margins.items()}
        faults += _searched(drawn, model, images[index], label, of_image, generator)
        broken = decisions.broken[index]
        if broken:
            faults += _not_broken(drawn, model, images[index], label, decisions.counterexamples[index])
        verdict = "certified" if certify.certified(of_image["complete"]) else "broken" if broken else "undecided"
        if broken and verdict == "certified":
            faults.append("an image is certified and broken")
        outcomes[verdict] += 1
        faults += _against_program(drawn, model, images[index], label, of_image, verdict, outcomes)
    return [f"{fault}, of {drawn}" for fault in faults]


def _searched(drawn, model, image, label: int, margins: dict, generator) -> list[str]:
    """Return the bounds that are above the margin of an image of the ball."""
    points = _points(drawn, model, image, label, generator)
    logits = drawn_networks.outputs(model, points)
    least = (logits[:, label] - np.delete(logits, label, axis=1).max(1)).min()
    bounds = {method: margin for method, margin in margins.items() if np.isfinite(margin)}
    if not np.isfinite(logits).all():
        return [f"{method} bounds what is not finite" for method in bounds]
    contradicted = [
        method for method, margin in bounds.items() if least <= 0 < margin or (margin > least and not drawn.softmax)
    ]
    return [f"{method} bounds the margin by {bounds[method]}, and the attack leaves {least}" for method in contradicted]


def _points(drawn, model, image, label: int, generator) -> np.ndarray:
    """Return images of the ball: corners, uniform ones, and where the margin falls most by gradient steps."""
    epsilon, shape = drawn.epsilon, (_RESTARTS, *image.shape)
    single = np.eye(image.size).reshape(-1, *image.shape)
    starts = np.concatenate(
        [generator.choice([-1.0, 1.0], size=(64, *image.shape)), generator.uniform(-1, 1, size=shape), single, -single]
    )
    points = [_pulled(drawn, image, epsilon * starts)]
    moves = epsilon * generator.uniform(-1, 1, size=shape)
    for step in range(_STEPS):
        points.append(_pulled(drawn, image, moves))
        moves = points[-1] - image
        gradient = _gradient(model, points[-1], label)
        size = 2 * epsilon * (1 - step / _STEPS)
        if drawn.norm == "linf":
            moves = moves - size * np.sign(gradient)
        else:
            lengths = np.sqrt((gradient**2).sum(tuple(range(1, gradient.ndim)), keepdims=True))
            moves = moves - size * gradient / np.maximum(lengths, 1e-12)
    return np.concatenate([*points, _pulled(drawn, image, moves)])


def _pulled(drawn, image, moves) -> np.ndarray:
    """Return the image after moves, each cut to the ball, then to the pixel box."""
    epsilon = drawn.epsilon
    if drawn.norm == "linf":
        moves = np.clip(moves, -epsilon, epsilon)
    else:
        sizes = np.array([projections.measure(move.ravel(), drawn.norm) for move in moves])
        moves = moves * np.minimum(1.0, epsilon / np.maximum(sizes, 1e-12)).reshape(-1, *[1] * image.ndim)
    return np.clip(image + moves, 0.0, 1.0).astype(np.float32)


def _gradient(model, points, label: int) -> np.ndarray:
    points = tf.constant(points)
    with tf.GradientTape() as tape:
        tape.watch(points)
        logits = model(points, training=False)
        rival = tf.reduce_max(tf.where(tf.range(3) == label, -np.inf, logits), 1)
        margin = logits[:, label] - rival
    gradient = tape.gradient(margin, points, unconnected_gradients="zero")
    return np.nan_to_num(gradient.numpy())


def _not_broken(drawn, model, image, label: int, point) -> list[str]:
    """Return what is wrong with a counterexample."""
    faults, size = [], projections.measure((point.astype(float) - image).ravel(), drawn.norm)
    if size > drawn.epsilon or point.min() < 0 or point.max() > 1:
        faults.append(f"a counterexample at the distance {size}, or outside the pixel box")
    logits = drawn_networks.outputs(model, point[None])[0]
    # In float32 the margin can be above 0 by its rounding.
    margin = logits[label] - np.delete(logits, label).max()
    if margin > 1e-5 * (1 + np.abs(logits).max()):
        faults.append(f"a counterexample with the margin {margin}")
    return faults


def _against_program(drawn, model, image, label: int, margins: dict, verdict: str, outcomes) -> list[str]:
    """Return the bounds and verdicts that contradict the exact margin, in L∞ if there is one."""
    if drawn.norm != "linf":
        return []
    image = image[None].astype(float)
    lower, upper = np.maximum(image - drawn.epsilon, 0.0), np.minimum(image + drawn.epsilon, 1.0)
    try:
        exact = mixed_integer.smallest_margin_of_model(model, lower, upper, label, _SWITCHES)
    except mixed_integer.UnsolvedError:
        return []
    outcomes["solved exactly"] += 1
    tolerance = _TOLERANCE * (1 + abs(exact))
    faults = [
        f"{method} bounds the margin {exact} by {margin}"
        for method, margin in margins.items()
        if margin > exact + tolerance
    ]
    if abs(exact) > tolerance:
        if verdict == "undecided":
            outcomes["undecided, solved exactly"] += 1
        elif (verdict == "certified") != (exact > 0):
            faults.append(f"the margin {exact} is {verdict}")
    return faults

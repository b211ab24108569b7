"""APGD as a plain loop over one batch of vectors in NumPy float64, after the papers and the facts of their code.

No early end: the search goes on after a point is misclassified, so that all iterates can be compared.
"""

import math

import numpy as np

from oracles import projections


def start(images, noise, norm, epsilon):
    """A start made of noise, inside the unit box."""
    rows = []
    for x, n in zip(images, noise, strict=True):
        if norm == "l1":
            rows.append(projections.project(x, x + n, "l1", epsilon, 0, 1))
        else:
            rows.append(x + epsilon * n / (projections.measure(n, norm) + 1e-12))
    return np.clip(np.array(rows), 0, 1)


def search(images, points, function, norm, epsilon, steps, *, informed=False):
    """One phase of APGD from given starts.

    Args:
        images, points: [b, d], the centres and the starts.
        function: points [b, d] -> (losses [b], gradients [b, d]).
        norm, epsilon, steps: as in the attack.
        informed: L1: the first steps are as sparse as the starts are.

    Returns:
        dict: iterates [steps + 1, b, d], losses [steps + 1, b], step_sizes [steps, b], shares [steps, b] (L1),
        best [b, d].
    """
    runs = []
    for row in range(len(images)):

        def single(point, row=row):
            batch = np.array(images)
            batch[row] = point
            losses, gradients = function(batch)
            return losses[row], gradients[row]

        run = _sparse if norm == "l1" else _momentum
        more = {"informed": informed} if norm == "l1" else {"norm": norm}
        runs.append(run(images[row], points[row], single, epsilon, steps, **more))
    return {name: np.stack([result[name] for result in runs], axis=0 if name == "best" else 1) for name in runs[0]}


def phases(images, noise, function, epsilon, steps):
    """The L1 attack through three radii; returns the phases' dicts."""
    lengths = [math.ceil(0.3 * steps), math.ceil(0.3 * steps)]
    lengths.append(steps - sum(lengths))
    points, results = start(images, noise, "l1", 3 * epsilon), []
    for factor, length in zip((3, 2, 1), lengths, strict=True):
        points = [projections.project(x, p, "l1", factor * epsilon, 0, 1) for x, p in zip(images, points, strict=True)]
        results.append(search(images, np.array(points), function, "l1", factor * epsilon, length, informed=True))
        points = results[-1]["best"]
    return results


def checkpoints(steps):
    """(after which steps, over how many) for Linf and L2: a counter that runs up to k, and k that shrinks."""
    k, least, less = (max(int(share * steps), 1) for share in (0.22, 0.06, 0.03))
    checks, counter = [], 0
    for i in range(1, steps + 1):
        counter += 1
        if counter == k:
            checks.append((i, k))
            k, counter = max(k - less, least), 0
    return checks


def _momentum(x, point, single, epsilon, steps, norm):
    windows = dict(checkpoints(steps))

    def limit(z):
        if norm == "linf":
            return np.clip(np.clip(z, x - epsilon, x + epsilon), 0, 1)
        length = np.linalg.norm(z - x)
        return np.clip(x + (z - x) / (length + 1e-12) * min(epsilon, length), 0, 1)

    loss, gradient = single(point)
    best, best_loss, best_gradient = point, loss, gradient
    iterates, losses, sizes = [point], [loss], []
    size, old, last_best, just_halved = 2 * epsilon, point, loss, True
    buffer = np.zeros(steps)  # of the losses of the steps: index -1 is still 0 at the first look back
    for i in range(steps):
        sizes.append(size)
        direction = np.sign(gradient) if norm == "linf" else gradient / (np.linalg.norm(gradient) + 1e-12)
        momentum, old = point - old, point
        z, a = limit(point + size * direction), 0.75 if i > 0 else 1.0
        point = limit(point + a * (z - point) + (1 - a) * momentum)
        loss, gradient = single(point)
        iterates.append(point)
        losses.append(loss)
        buffer[i] = loss
        if loss > best_loss:
            best, best_loss, best_gradient = point, loss, gradient
        k = windows.get(i + 1)
        if k:
            rises = sum(buffer[i - j] > buffer[i - j - 1] for j in range(k))
            halve = rises <= 0.75 * k or (not just_halved and last_best >= best_loss)
            just_halved, last_best = halve, best_loss
            if halve:
                size, point, gradient = size / 2, best, best_gradient
    return {"iterates": np.array(iterates), "losses": np.array(losses), "step_sizes": np.array(sizes), "best": best}


def _sparse(x, point, single, epsilon, steps, informed):
    d, every = len(x), max(int(0.04 * steps), 1)
    loss, gradient = single(point)
    best, best_loss, best_gradient = point, loss, gradient
    iterates, losses, sizes, shares = [point], [loss], [], []
    size = epsilon
    support = np.count_nonzero(np.abs(point - x) > 1e-6) if informed else d
    share = support / d / 1.5 if informed else 0.2
    for i in range(steps):
        sizes.append(size)
        shares.append(share)
        rank = int(np.clip(np.float32(1 - np.float32(share)) * np.float32(d), 0, d - 1))
        chosen = np.sign(gradient) * (np.abs(gradient) >= np.sort(np.abs(gradient))[rank])
        point = projections.project(x, point + size * chosen / (np.abs(chosen).sum() + 1e-10), "l1", epsilon, 0, 1)
        loss, gradient = single(point)
        iterates.append(point)
        losses.append(loss)
        if loss > best_loss:
            best, best_loss, best_gradient = point, loss, gradient
        if (i + 1) % every == 0:
            now = np.count_nonzero(np.abs(best - x) > 1e-6)
            if now / support < 0.95:
                size, point, gradient = epsilon, best, best_gradient
            else:
                size = np.clip(size / 1.5, epsilon / 10, epsilon)
            share, support = now / d / 1.5, now
    return {
        "iterates": np.array(iterates),
        "losses": np.array(losses),
        "step_sizes": np.array(sizes),
        "shares": np.array(shares),
        "best": best,
    }

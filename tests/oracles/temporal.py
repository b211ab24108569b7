"""The losses between parts of videos written out in loops, in float64."""

import itertools
import math

import numpy as np

from oracles.self_supervised import cosine


def instances(vectors, temperature: float, pairs) -> np.ndarray:
    """vectors [m, s, d]; pairs of sets (x, y). For each video the mean over the pairs of -log of its share."""
    count = len(vectors)
    losses = np.zeros(count)
    for i, (x, y) in itertools.product(range(count), pairs):
        total = sum(math.exp(cosine(vectors[i, x], vectors[k, x]) / temperature) for k in range(count) if k != i)
        total += sum(math.exp(cosine(vectors[i, x], vectors[k, y]) / temperature) for k in range(count))
        losses[i] -= math.log(math.exp(cosine(vectors[i, x], vectors[i, y]) / temperature) / total) / len(pairs)
    return losses


def local_local(first, second, temperature: float) -> float:
    """Two augmentations [n, d] of the clips of one video."""
    loss = 0.0
    for anchors, keys in ((first, second), (second, first)):
        for p in range(len(first)):
            rest = [anchors[k] for k in range(len(anchors)) if k != p] + list(keys)
            total = sum(math.exp(cosine(anchors[p], vector) / temperature) for vector in rest)
            loss -= math.log(math.exp(cosine(anchors[p], keys[p]) / temperature) / total)
    return loss / (2 * len(first))


def global_local(slices, clips, temperature: float) -> float:
    """Slices [n, d] of a long clip, and the short clips [n, d] of one video."""
    loss = 0.0
    for anchors, keys in ((slices, clips), (clips, slices)):
        for p in range(len(anchors)):
            total = sum(math.exp(cosine(anchors[p], vector) / temperature) for vector in keys)
            loss -= math.log(math.exp(cosine(anchors[p], keys[p]) / temperature) / total)
    return loss / (2 * len(slices))

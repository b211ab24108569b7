"""The losses between parts of videos written out in loops, in float64."""

import itertools
import math

import numpy as np


def cosine(first, second) -> float:
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return float(first @ second / math.sqrt((first @ first) * (second @ second)))


def instances(vectors, temperature: float, pairs) -> np.ndarray:
    """vectors [m, s, d]; pairs of sets (x, y). For each video the mean over the pairs of -log of its share."""
    count = len(vectors)
    found = np.zeros(count)
    for i, (x, y) in itertools.product(range(count), pairs):
        total = sum(math.exp(cosine(vectors[i, x], vectors[k, x]) / temperature) for k in range(count) if k != i)
        total += sum(math.exp(cosine(vectors[i, x], vectors[k, y]) / temperature) for k in range(count))
        found[i] -= math.log(math.exp(cosine(vectors[i, x], vectors[i, y]) / temperature) / total) / len(pairs)
    return found


def local_local(first, second, temperature: float) -> float:
    """Two augmentations [n, d] of the clips of one video."""
    found = 0.0
    for one, other in ((first, second), (second, first)):
        for p in range(len(first)):
            rest = [one[k] for k in range(len(one)) if k != p] + list(other)
            total = sum(math.exp(cosine(one[p], each) / temperature) for each in rest)
            found -= math.log(math.exp(cosine(one[p], other[p]) / temperature) / total)
    return found / (2 * len(first))


def global_local(slices, clips, temperature: float) -> float:
    """Slices [n, d] of a long clip, and the short clips [n, d] of one video."""
    found = 0.0
    for one, other in ((slices, clips), (clips, slices)):
        for p in range(len(one)):
            total = sum(math.exp(cosine(one[p], each) / temperature) for each in other)
            found -= math.log(math.exp(cosine(one[p], other[p]) / temperature) / total)
    return found / (2 * len(slices))

"""Distances on the unit sphere pair by pair, in float64 and without NumPy's broadcasting."""

import numpy as np


def unit(vector):
    vector = np.asarray(vector, np.float64)
    return vector / np.sqrt(sum(value * value for value in vector))


def distance(first, second, kind):
    if kind == "cosine":
        return 1 - sum(a * b for a, b in zip(unit(first), unit(second), strict=True))
    return np.sqrt(sum((a - b) ** 2 for a, b in zip(unit(first), unit(second), strict=True)))


def inter_intra(embeddings, labels, kind="euclidean"):
    inter, intra = [], []
    for i in range(len(labels)):
        for j in range(i):
            (intra if labels[i] == labels[j] else inter).append(distance(embeddings[i], embeddings[j], kind))
    return np.mean(inter) / np.mean(intra), np.mean(inter), np.mean(intra)


def uniformity(embeddings, sharpness):
    pairs = [(i, j) for i in range(len(embeddings)) for j in range(i)]
    values = [np.exp(-sharpness * distance(embeddings[i], embeddings[j], "euclidean") ** 2) for i, j in pairs]
    return np.log(np.mean(values))


def alignment(first, second, power):
    return np.mean([distance(a, b, "euclidean") ** power for a, b in zip(first, second, strict=True)])


def jackknife(compute, count):
    """Half the 95 % interval, each image really left out: compute(rows) -> number."""
    left_out = [compute([row for row in range(count) if row != left_row]) for left_row in range(count)]
    return 1.959963984540054 * np.sqrt((count - 1) / count * sum((x - np.mean(left_out)) ** 2 for x in left_out))

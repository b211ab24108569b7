"""The losses of MoCo v3, DINO and SwAV in float64, loop by loop as their codes compute them; nothing is shared."""

import numpy as np
from scipy.special import softmax


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def moco_v3(queries, keys, temperature, removed=lambda direction, row: ()):
    """2 t (CE(q_1 k_2 / t) + CE(q_2 k_1 / t)), each image's own key being its class; float64 [n].

    `removed` gives the images whose keys are left out for the query of a row in a direction.
    """
    losses = np.zeros(len(keys[0]))
    for direction, (query, key) in enumerate(((queries[0], keys[1]), (queries[1], keys[0]))):
        for row, vector in enumerate(unit(query)):
            rows = [row, *(j for j in range(len(key)) if j != row and j not in removed(direction, row))]
            logits = np.array([vector @ unit(key[j]) for j in rows]) / temperature
            losses[row] -= 2 * temperature * np.log(softmax(logits)[0])
    return losses


def similar_keys(queries, keys, threshold):
    """Which other images' keys are above the threshold, seen from the query of a direction; for `removed`."""

    def removed(direction, row):
        vector, key = unit(queries[direction])[row], unit(keys[1 - direction])
        return {j for j in range(len(key)) if j != row and vector @ key[j] > threshold}

    return removed


def nearest_keys(queries, keys, count):
    """The `count` keys with the largest cosine with either view of the image; for `removed`."""

    def removed(direction, row):
        key = unit(keys[1 - direction])
        scores = {j: max(unit(query)[row] @ key[j] for query in queries) for j in range(len(key)) if j != row}
        return set(sorted(scores, key=lambda j: -scores[j])[:count])

    return removed


def swapped(assignments, scores, temperature):
    """The mean over the pairs (i, v), v != i, of the cross-entropy; float64 [n]."""
    scores = np.asarray(scores, np.float64)
    pairs = [(i, v) for i in range(len(assignments)) for v in range(len(scores)) if v != i]
    terms = [-(assignments[i] * np.log(softmax(scores[v] / temperature, axis=-1))).sum(axis=-1) for i, v in pairs]
    return np.mean(terms, axis=0)


def sinkhorn(scores, temperature, iterations):
    """SwAV's listing: prototypes are rows, samples are columns; returned as [n, k]."""
    q = np.exp(np.asarray(scores, np.float64) / temperature).T
    q /= q.sum()
    count, samples = q.shape
    for _ in range(iterations):
        for row in range(count):
            q[row] /= q[row].sum() * count
        for column in range(samples):
            q[:, column] /= q[:, column].sum() * samples
    return (q * samples).T


def dino(teacher, student, center, teacher_temperature, temperature):
    """DINO's loss of the teacher's global views and the student's views; float64 [n]."""
    targets = [softmax((np.asarray(part, np.float64) - center) / teacher_temperature, axis=-1) for part in teacher]
    return swapped(targets, student, temperature)

"""False-negative rules pair by pair in float64. An anchor is (i, view), a key (j, other); j != i."""

import numpy as np

from oracles.self_supervised import cosine


def pairs(z, i):
    """All keys that are negatives of an image without labels."""
    return [(j, other) for j in range(len(z[0])) if j != i for other in range(len(z))]


def fnc(z, i, view, threshold, top_k, combine):
    """google-research/fnc: a row's score is the largest cosine with any view of the image."""
    scores = {(j, other): max(cosine(view_keys[i], z[other][j]) for view_keys in z) for j, other in pairs(z, i)}
    ranked = sorted(scores, key=lambda key: -scores[key])
    nearest, above = set(ranked[:top_k]), {key for key in scores if scores[key] > threshold}
    return above & nearest if combine == "intersection" else above | nearest


def adaptive(z, i, view, threshold, key_views):
    """Gupta et al. 2023: above the threshold, seen from this view of the anchor alone."""
    suspects = set()
    for j, other in pairs(z, i):
        cosines = [cosine(z[view][i], keys[j]) for keys in z]
        similarity = {"each": cosines[other], "any": max(cosines), "all": min(cosines)}[key_views]
        if similarity > threshold:
            suspects.add((j, other))
    return suspects


def ifnd(z, i, view, pseudo_labels):
    return {(j, other) for j, other in pairs(z, i) if pseudo_labels[j] == pseudo_labels[i] != -1}


def attracting_loss(z, i, view, suspects, temperature):
    """google-research/fnc, objective.py: suspects are positives, and everything but the anchor is below."""
    logit = lambda key: cosine(z[view][i], z[key[1]][key[0]]) / temperature  # noqa: E731
    positives = [(i, other) for other in range(len(z)) if other != view]
    attracted = sum(logit(key) for key in positives) + sum(logit(key) for key in suspects)
    total = np.log(sum(np.exp(logit(key)) for key in [*positives, *pairs(z, i)]))
    return -attracted / (len(z) - 1 + len(suspects)) + total


def cancelling_loss(z, i, view, suspects, temperature):
    """Gupta et al. 2023, eq 4 as its text has it: two views, suspects gone from the denominator."""
    weight = lambda key: np.exp(cosine(z[view][i], z[key[1]][key[0]]) / temperature)  # noqa: E731
    positive = weight((i, 1 - view))
    return -np.log(positive / (positive + sum(weight(key) for key in pairs(z, i) if key not in suspects)))


def detection(labels, views, suspects_of):
    """(share of the false negatives found, of the true ones removed, negatives left), over all anchors together."""
    detected = alike = removed = unlike = 0
    for i in range(len(labels)):
        for view in range(views):
            suspects = suspects_of(i, view)
            for j, other in ((j, other) for j in range(len(labels)) if j != i for other in range(views)):
                if labels[j] == labels[i]:
                    alike, detected = alike + 1, detected + ((j, other) in suspects)
                else:
                    unlike, removed = unlike + 1, removed + ((j, other) in suspects)
    remaining = alike + unlike - detected - removed
    return detected / alike, removed / unlike, remaining / (len(labels) * views)

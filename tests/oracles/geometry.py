"""Bui et al. 2021 (ASCL), section 2, written out sample by sample."""

import numpy as np


def cosine_distance(first, second):
    lengths = np.sqrt(np.sum(first * first)) * np.sqrt(np.sum(second * second))
    return 1.0 - np.sum(first * second) / lengths


def divergences(clean, adversarial, labels):
    """(r_div, intra, inter, anchors): the sets X_i^+ and X_i^- built as lists of vectors."""
    clean, adversarial = np.asarray(clean, np.float64), np.asarray(adversarial, np.float64)
    intra, inter = [], []
    for i in range(len(labels)):
        positive, negative = [], []
        for j in range(len(labels)):
            if j == i:
                continue
            if labels[j] == labels[i]:
                positive += [clean[j], adversarial[j]]
            else:
                negative += [clean[j], adversarial[j]]
        if not positive or not negative:
            continue
        intra.append(sum(cosine_distance(clean[i], x) for x in positive) / len(positive))
        inter.append(sum(cosine_distance(clean[i], x) for x in negative) / len(negative))
    intra_mean, inter_mean = sum(intra) / len(intra), sum(inter) / len(inter)
    return intra_mean / inter_mean, intra_mean, inter_mean, len(intra)

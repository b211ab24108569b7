"""TRADES, VAT, MART and ADR, pair by pair and class by class, in float64."""

import numpy as np


def softmax(row):
    exponentials = np.exp(np.asarray(row, np.float64) - np.max(row))
    return exponentials / exponentials.sum()


def kl(p_logits, q_logits):
    """ASCL eq 5 and TRADES eq 5, one value per row."""
    values = []
    for p_row, q_row in zip(p_logits, q_logits, strict=True):
        p, q = softmax(p_row), softmax(q_row)
        values.append(sum(p[k] * (np.log(p[k]) - np.log(q[k])) for k in range(len(p))))
    return np.array(values)


def boosted(logits, labels):
    """MART's boosted cross-entropy, one value per row."""
    values = []
    for row, label in zip(logits, labels, strict=True):
        p = softmax(row)
        strongest = max(p[k] for k in range(len(p)) if k != label)
        values.append(-np.log(p[label]) - np.log(1 + 1e-4 - strongest))
    return np.array(values)


def doubted(clean_logits, adversarial_logits, labels):
    """MART's divergence times one minus the clean probability of the label, one value per row."""
    doubts = [1 - softmax(row)[label] for row, label in zip(clean_logits, labels, strict=True)]
    return kl(clean_logits, adversarial_logits) * np.array(doubts)


def soft_cross_entropy(target, logits):
    q = softmax(logits)
    return -sum(target[k] * np.log(q[k]) for k in range(len(q)))


def adr(clean, adversarial, labels, scale=0.99):
    """The reference's five scalars: means over images, or over all N x N pairs (i adversarial, j clean)."""
    (z, logits), (z_a, logits_a) = clean, adversarial
    count = len(labels)
    own_gap = [np.mean(np.abs(z[i] - z_a[i])) for i in range(count)]
    own_cross = [soft_cross_entropy(softmax(logits[i]), logits_a[i]) for i in range(count)]
    gaps, crosses = [], []
    for i in range(count):
        for j in range(count):
            distance = 0.0 if labels[i] == labels[j] else 1.0
            weight = (scale - distance) / scale
            gaps.append(weight * np.mean(np.abs(z[j] - z_a[i])))
            crosses.append(weight * soft_cross_entropy(softmax(logits[j]), logits_a[i]))
    return {
        "local_compactness": np.mean(own_gap),
        "local_smoothness": np.mean(own_cross),
        "global_compactness": np.mean(gaps),
        "global_smoothness": np.mean(crosses),
        "confidence": np.mean([soft_cross_entropy(softmax(row), row) for row in logits_a]),
    }

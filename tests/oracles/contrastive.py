"""ASCL's contrastive loss and selections, sample by sample as the paper prints them, in float64.

Nothing here is shared with tfrobust: two views per image, an anchor is a pair (i, view).
"""

import numpy as np


def similarity(first, second, kind):
    gap = np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64))
    if kind == "cosine":
        lengths = np.linalg.norm(first) * np.linalg.norm(second)
        return float(np.dot(first, second) / lengths) if lengths else 0.0
    if kind == "dot":
        return float(np.dot(np.asarray(first, np.float64), second))
    if kind == "lkinf":
        return -float(np.sort(gap)[-10:].mean())
    return -float(np.linalg.norm(gap, {"l1": 1, "l2": 2, "linf": np.inf}[kind]))


def table_1(strategy, labels, predictions, i, view):
    """The sets of anchor (i, view) as lists of (j, view of j); the counterpart is in neither (j != i)."""
    positives, negatives = [], []
    y_i, p_i = labels[i], predictions[view][i]
    for j in range(len(labels)):
        if j == i:
            continue
        for other in (0, 1):
            y_j, p_j = labels[j], predictions[other][j]
            if y_j == y_i:
                if strategy != "leaked" or p_j == p_i:
                    positives.append((j, other))
            elif (
                strategy == "global"
                or (strategy == "hard" and p_j == y_i)
                or (strategy in ("soft", "leaked") and p_j == p_i)
            ):
                negatives.append((j, other))
    return positives, negatives


def anchor_loss(z, i, view, positives, negatives, temperature, kind):
    """Eqs 1 (view 0) and 2 (view 1): the counterpart is always one positive more."""
    attracted = [*positives, (i, 1 - view)]
    candidates = [*attracted, *negatives]

    def weight(j, other):
        return np.exp(similarity(z[other][j], z[view][i], kind) / temperature)

    denominator = sum(weight(*candidate) for candidate in candidates)
    total = sum(np.log(weight(*positive) / denominator) for positive in attracted)
    return -total / (len(positives) + 1)


def ascl(z, labels, predictions, strategy, temperature, kind):
    """Eq 3's summands: per image the clean anchor's loss plus the adversarial anchor's; float64 [N]."""
    return np.array(
        [
            sum(
                anchor_loss(z, i, view, *table_1(strategy, labels, predictions, i, view), temperature, kind)
                for view in (0, 1)
            )
            for i in range(len(labels))
        ]
    )


def masked(anchors, keys, positive, negative, temperature, kind):
    """The core by its definition, for any masks: 0 for an anchor without positives; float64 [n]."""
    values = []
    for i, anchor in enumerate(anchors):
        scores = {j: similarity(anchor, key, kind) / temperature for j, key in enumerate(keys)}
        attracted = [j for j in scores if positive[i][j]]
        candidates = [j for j in scores if positive[i][j] or negative[i][j]]
        if not attracted:
            values.append(0.0)
            continue
        largest = max(scores[j] for j in candidates)
        log_total = largest + np.log(sum(np.exp(scores[j] - largest) for j in candidates))
        values.append(float(np.mean([log_total - scores[j] for j in attracted])))
    return np.array(values)

"""Prediction sets class by class, and detection pair by pair."""

import math


def threshold(scores, level_per_mille):
    """The smallest score that (n + 1) level or more of the n scores do not exceed; infinity without one."""
    needed = (len(scores) + 1) * level_per_mille
    for score in sorted(scores):
        if 1000 * sum(other <= score for other in scores) >= needed:
            return score
    return math.inf


def least_ambiguous(row, limit):
    """Sadinle et al. 2019: the classes with 1 - p_k of at most a limit."""
    return {k for k, p in enumerate(row) if 1 - p <= limit}


def adaptive(row, u, limit):
    """Romano et al. 2020, eqs. 3 to 5: the largest classes until their sum reaches the limit, the last at random."""
    order = sorted(range(len(row)), key=lambda k: (-row[k], k))
    total = 0.0
    for count, k in enumerate(order, start=1):
        total += row[k]
        if total >= limit:
            excess = (total - limit) / row[k]
            return set(order[:count]) if u <= 1 - excess else set(order[: count - 1])
    return set(order)


def auroc(inside, outside):
    wins = sum((a > b) + 0.5 * (a == b) for a in inside for b in outside)
    return wins / (len(inside) * len(outside))


def false_positive_rate(inside, outside):
    """The smallest share of outer scores at or above a threshold that 95 % of the inner ones reach."""
    rates = []
    for limit in {*inside, *outside}:
        if 100 * sum(a >= limit for a in inside) >= 95 * len(inside):
            rates.append(sum(b >= limit for b in outside) / len(outside))
    return min(rates)

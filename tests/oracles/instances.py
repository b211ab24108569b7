"""NT-Xent as the released codes of RoCL and ACL spell it, in float64; nothing here is shared with tfrobust."""

import numpy as np


def cosines(outputs):
    """[n, n]."""
    outputs = np.asarray(outputs, np.float64)
    unit = outputs / (np.linalg.norm(outputs, axis=1, keepdims=True) + 1e-8)
    return unit @ unit.T


def rocl(views, temperature):
    """The sum of the diagonals of all ordered pairs of views, over the number of rows (src/loss.py)."""
    count, rows = len(views[0]), len(views) * len(views[0])
    powers = np.exp(cosines(np.concatenate(views)) / temperature)
    powers *= 1 - np.eye(rows)
    losses = -np.log(powers / (powers.sum(1, keepdims=True) + 1e-8) + 1e-8)
    total = 0.0
    for first in range(len(views)):
        for second in range(len(views)):
            if first != second:
                block = losses[first * count : (first + 1) * count, second * count : (second + 1) * count]
                total += np.trace(block)
    return total / rows


def acl(first, second, temperature):
    """The views interleaved, the denominator a column's sum without the similarity of 1 (utils.py)."""
    interleaved = np.stack([first, second], axis=1).reshape(2 * len(first), -1)
    powers = np.exp(cosines(interleaved) / temperature)
    partner = np.arange(len(powers)) ^ 1
    values = powers[partner].diagonal() / (powers.sum(0) - np.exp(1 / temperature))
    return -np.log(values).mean()


def anchor_losses(moved, target, groups, temperature):
    """-log( e_ii / (e_ii + all of another image) ) of each row of `moved` against its row of `target`.

    groups: arrays [n, d] whose row j belongs to image j; `target` is one of them.
    """
    values = []
    for i, anchor in enumerate(np.asarray(moved, np.float64)):

        def power(key, anchor=anchor):
            return np.exp(anchor @ key / np.linalg.norm(anchor) / np.linalg.norm(key) / temperature)

        own_power = power(np.asarray(target, np.float64)[i])
        rest = sum(power(keys[j]) for keys in np.asarray(groups, np.float64) for j in range(len(keys)) if j != i)
        values.append(-np.log(own_power / (own_power + rest)))
    return np.array(values)

"""Eq. 6 of Kim et al. 2021 in loops."""

import numpy as np

from oracles.self_supervised import cosine


def contrast(clean, least, most, usable, temperature):
    """Eq. 6, one image after the other; `most` None or not usable: no own negative."""
    values = []
    for i, anchor in enumerate(clean):
        positive = np.exp(cosine(anchor, least[i]) / temperature)
        total = positive + sum(np.exp(cosine(anchor, other) / temperature) for j, other in enumerate(clean) if j != i)
        if most is not None and usable[i]:
            total += np.exp(cosine(anchor, most[i]) / temperature)
        values.append(-np.log(positive / total))
    return np.array(values)

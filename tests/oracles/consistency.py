"""The Jensen-Shannon term of the released AugMix and NoisyMix code, number by number in float64."""

import numpy as np


def jensen_shannon(views, clip=1e-7):
    """views: [v, b, k] logits. Returns [b]; x log x is 0 at x = 0."""
    views = np.asarray(views, np.float64)
    values = []
    for row in range(views.shape[1]):
        powers = [np.exp(view[row] - view[row].max()) for view in views]
        p = [power / power.sum() for power in powers]
        total = 0.0
        for prediction in p:
            for k, share in enumerate(prediction):
                mixture = min(max(sum(other[k] for other in p) / len(p), clip), 1.0)
                total += share * (np.log(share) - np.log(mixture)) if share else 0.0
        values.append(total / len(p))
    return np.array(values)

"""NT-Xent, SupCon and BYOL, pair by pair as the papers print them, in float64. Nothing is shared with tfrobust."""

import numpy as np


def cosine(first, second):
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def contrastive(views, positives, temperature, with_itself=False):
    """The loss of each anchor (view, image): float64 [v, n].

    views: [v, n, d]. positives: (view, image), (view, image) -> whether the second is one of the first.
    """
    count, images = len(views), len(views[0])
    everything = [(view, image) for view in range(count) for image in range(images)]
    losses = np.zeros((count, images))
    for anchor in everything:
        weights = {}
        for key in everything:
            if key != anchor or with_itself:
                weights[key] = np.exp(cosine(views[anchor[0]][anchor[1]], views[key[0]][key[1]]) / temperature)
        attracted = [key for key in everything if key != anchor and positives(anchor, key)]
        losses[anchor] = np.mean([-np.log(weights[key] / sum(weights.values())) for key in attracted])
    return losses


def nt_xent(views, temperature, with_itself=False):
    """SimCLR, eq 1: the other view of the same image is the one positive; in Campbell et al. 2020 the anchor, too."""
    return contrastive(views, lambda anchor, key: anchor[1] == key[1], temperature, with_itself)


def sup_con(views, labels, temperature):
    """SupCon, eq 2: all views of the same class are positives."""
    return contrastive(views, lambda anchor, key: labels[anchor[1]] == labels[key[1]], temperature)


def byol(predictions, targets):
    """Eq 2 and its mirror image: 2 - 2 cos of each prediction and the other view's target; float64 [n]."""
    pairs = [(predictions[0], targets[1]), (predictions[1], targets[0])]
    return np.array([sum(2 - 2 * cosine(q[i], z[i]) for q, z in pairs) for i in range(len(targets[0]))])

"""Consistency regularization for smoothed classifiers (Jeong and Shin, 2020)."""

import keras
import tensorflow as tf

from tfrobust.losses import classification
from tfrobust.losses.consistency import mixture_consistency
from tfrobust.methods.shared.noisy_copies import NoisyCopiesMethod


@keras.saving.register_keras_serializable(package="tfrobust")
class NoiseConsistency(NoisyCopiesMethod):
    """Cross-entropy of noisy copies, and the divergence of their predictions from the mean prediction.

    L = ce + lambda kl + eta entropy. ce is the mean cross-entropy of the copies x + sigma n_i. kl = 1/m sum_i KL( M ||
    h(x + sigma n_i) ) and entropy = H(M), with M the mean of the m predictions; lambda = term weight `kl` = 5, eta =
    term weight `entropy` = 0.5. With both weights 0 and one copy it is the Gaussian augmentation of Cohen et al. 2019.

    Terms: `ce`, `kl`, `entropy`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.NoiseConsistency(*parts, sigma=0.25, term_weights={"kl": 10.0})
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'entropy', 'kl', 'loss']

    Args:
        encoder, head: as in `Method`.
        **kwargs: as in `NoisyCopiesMethod`: sigma, copies, forward.

    Source:
        Jeong and Shin 2020, https://arxiv.org/abs/2006.04062, eq. 8; jh-jeong/smoothing-consistency @ a11954aa: m = 2,
        eta = 0.5, lambda 5 to 20.
    """

    terms = ("ce", "kl", "entropy")
    default_weights = {"kl": 5.0, "entropy": 0.5}

    def loss_terms(self, views, batch, context):
        """Compute the three terms, and the logits of the first copy."""
        logits = self.logits_of_copies(views)
        entropies = [classification.cross_entropy(copy_logits, batch.labels) for copy_logits in logits]
        divergence, entropy = mixture_consistency(logits)
        return {"ce": tf.add_n(entropies) / len(entropies), "kl": divergence, "entropy": entropy}, logits[0]

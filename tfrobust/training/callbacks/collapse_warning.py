"""A warning of collapsed embeddings or assignments in self-supervised training."""

import logging
import math

import keras

_log = logging.getLogger(__name__)


class CollapseWarning(keras.callbacks.Callback):
    """A callback that warns once when the embeddings of a self-supervised method, or its assignments, collapse.

    The embeddings count as collapsed into one point if `embedding_deviation`, the spread of the projections on the unit
    sphere, is below a tenth of 1 / sqrt(d), its value for d isotropic features. The assignments to prototypes count as
    collapsed into few if `assignment_entropy`, the entropy of their mean as a share of its maximum, is below 0.1 after
    the first epoch. A run adds this callback automatically.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.SimCLR(robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10))
        >>> method.compile("adam")
        >>> watch = robust.callbacks.CollapseWarning()
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> _ = method.fit(images, labels, verbose=0, callbacks=[watch])
        >>> watch.warned
        False

    Args:
        threshold: lower limit of `embedding_deviation`; None is 0.1 / sqrt(d).
        least_entropy: lower limit of `assignment_entropy`, in [0, 1].

    Source:
        Chen and He 2021 (SimSiam), https://arxiv.org/abs/2011.10566, section 4.1; for the collapse into one prototype
        Caron et al. 2021 (DINO), https://arxiv.org/abs/2104.14294, section 5.3.
    """

    def __init__(self, threshold: float | None = None, *, least_entropy: float = 0.1):
        super().__init__()
        self.threshold = threshold
        self.least_entropy = least_entropy
        self.warned = False

    def on_epoch_end(self, epoch, logs=None):
        """Warn if the embeddings or the assignments have collapsed in this epoch."""
        deviation, entropy = ((logs or {}).get(name) for name in ("embedding_deviation", "assignment_entropy"))
        if deviation is None or self.warned:
            return
        # Not in the first epoch, in which DINO's center is still close to its start.
        if epoch and entropy is not None and entropy < self.least_entropy:
            self.warned = True
            _log.warning(
                "the assignments have collapsed in epoch %d: assignment_entropy is %.2g, below %.2g, so that few "
                "prototypes are used. Try a lower learning rate, larger batches, or another temperature.",
                epoch + 1,
                entropy,
                self.least_entropy,
            )
            return
        threshold = 0.1 / math.sqrt(self.model.projected_dim) if self.threshold is None else self.threshold
        if deviation < threshold:
            self.warned = True
            _log.warning(
                "the embeddings have collapsed in epoch %d: embedding_deviation is %.2g, below %.2g. Try a lower "
                "learning rate, larger batches, or another temperature or target rate.",
                epoch + 1,
                deviation,
                threshold,
            )

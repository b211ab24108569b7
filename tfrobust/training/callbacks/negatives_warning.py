"""A warning of a step in which every negative of every anchor was cancelled."""

import logging

import keras

from tfrobust.pairs.false_negatives import REMAINING

_log = logging.getLogger(__name__)


class NegativesWarning(keras.callbacks.Callback):
    """A callback that warns once when a step has cancelled every negative of every anchor.

    Nothing then repels, and the contrastive term teaches only that all views are alike. The logs do not show the step,
    because they are means over the steps of an epoch. A run adds this callback automatically.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.SimCLR(*parts, false_negatives=robust.methods.AdaptiveFNC(threshold=-1.0))
        >>> method.compile("adam")
        >>> watch = robust.callbacks.NegativesWarning()
        >>> _ = method.fit(np.random.rand(20, 8, 8, 1), np.arange(20) % 10, verbose=0, callbacks=[watch])
        >>> watch.warned
        True
    """

    def __init__(self):
        super().__init__()
        self.warned = False
        self._before = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        """Record the epoch and the sum of `negatives_left` at its start."""
        # `fit` builds a subclassed model, and with it the sum, only in its first step.
        self._epoch, self._before = epoch, self._total() or 0.0

    def on_train_batch_end(self, batch, logs=None):
        """Warn if the step added nothing to the sum of `negatives_left`."""
        total = self._total()
        if total is None or self.warned:
            return
        if total == self._before:
            self.warned = True
            _log.warning(
                "no negatives are left in step %d of epoch %d: every one was cancelled or attracted as a false "
                "negative. Use a higher threshold, a smaller top_k, or larger batches.",
                batch + 1,
                self._epoch + 1,
            )
        self._before = total

    def _total(self) -> float | None:
        """Return the sum of `negatives_left` in this epoch so far; None for a method that does not observe it."""
        mean = getattr(self.model, "means", {}).get(REMAINING)
        return None if mean is None else float(mean.total)

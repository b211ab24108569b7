"""The weights of the epoch with the highest value of a validation log."""

import math
import pathlib

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.training.callbacks.deployable import deployable_variables
from tfrobust.training.checkpoint import CheckpointStore

# The ends of log names of Keras's losses and of this library's metrics; `r_div` is `RobustAccuracy`'s.
_LOWER_IS_BETTER = ("loss", "error", "brier_score", "negative_log_likelihood", "r_div")


class BestWeights(keras.callbacks.Callback):
    """A callback that keeps on disk the weights of the epoch with the highest value of a validation log.

    Example:
        >>> import tempfile
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> images, labels = np.random.rand(16, 8, 8, 1).astype("float32"), np.arange(16) % 4
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        >>> best = robust.callbacks.BestWeights(tempfile.mkdtemp(), monitor="val_accuracy")
        >>> _ = model.fit(images, labels, validation_data=(images, labels), verbose=0, callbacks=[best])
        >>> best.restore()["step"]  # the epoch, counted from 1
        1

    Args:
        directory: folder of the checkpoint. A training from the first epoch on replaces what it holds; one that goes on
            keeps it until a higher value.
        monitor: a log name; epochs without it do not count. Higher is better.

    Raises:
        ValueError: `monitor` is a loss, an error or a divergence, for which lower is better.
    """

    def __init__(self, directory, monitor: str = "val_robust_accuracy"):
        super().__init__()
        if monitor.endswith(_LOWER_IS_BETTER):
            raise InputError(
                f"BestWeights keeps the highest value, and the best {monitor!r} is the lowest: monitor 'val_accuracy' "
                "or 'val_robust_accuracy', or use keras.callbacks.ModelCheckpoint(..., save_best_only=True)."
            )
        self.directory = pathlib.Path(directory)
        self.monitor = monitor
        self.best: float | None = None
        self.best_epoch = 0
        self.has_watched = False  # an epoch of this process

    def set_model(self, model):
        """Attach the model; the best value of another model is discarded."""
        if self.model is not None and self.model is not model:
            self.best, self.best_epoch = None, 0
        super().set_model(model)

    def on_epoch_begin(self, epoch, logs=None):
        """Take up the best value that the folder holds if the training goes on after an epoch."""
        if self.best is None and epoch:
            state = self._store().newest_state() or {}
            if state.get("monitor") == self.monitor and state["step"] <= epoch:
                self.best, self.best_epoch = float(state["value"]), state["step"]

    def on_epoch_end(self, epoch, logs=None):
        """Save the weights if the monitored value exceeds the best so far."""
        self.has_watched = True
        value = (logs or {}).get(self.monitor)
        if value is None or math.isnan(value) or (self.best is not None and value <= self.best):
            return
        self.best, self.best_epoch = float(value), epoch + 1
        self._store().save(epoch + 1, {"monitor": self.monitor, "value": self.best})

    def restore(self) -> dict | None:
        """Assign the best weights to the model.

        Returns:
            {"step": the epoch, counted from 1, "monitor", "value"}, or None if no epoch was saved.
        """
        state = self._store().newest_state() or {}
        # The folder may hold the best epoch of another training, and this one have had no value at all.
        if state.get("monitor") != self.monitor or (self.has_watched and self.best is None):
            return None
        return self._store().restore()

    def _store(self) -> CheckpointStore:
        variables = [v.value for v in deployable_variables(self.model)]
        return CheckpointStore(self.directory, tf.train.Checkpoint(variables=variables), keep=1)

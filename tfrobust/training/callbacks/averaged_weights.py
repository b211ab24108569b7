"""A running average of the weights."""

import keras
import tensorflow as tf

from tfrobust.common.settings import require_choice, require_share
from tfrobust.errors import InputError
from tfrobust.methods.shared import updates
from tfrobust.ops import keras_private
from tfrobust.training.callbacks.deployable import deployable_variables


class AveragedWeights(keras.callbacks.Callback):
    """A callback that keeps a running average of the deployable weights, including batch-norm statistics.

    "ema": average <- decay * average + (1 - decay) * weights after every update of the weights: with an optimizer that
    accumulates gradients once in so many steps. "swa": the mean of the weights at the
    ends of the epochs from `start_epoch` on. Its batch-norm statistics are the mean of theirs and are not estimated
    again. The adversarial training of today uses kind="ema", decay=0.995, ramp=True, statistics="copied". Keras's
    `BackupAndRestore` does not keep the average: a resumed `fit` starts it from the restored weights.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> images, labels = np.random.rand(16, 8, 8, 1).astype("float32"), np.arange(16) % 4
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> average = robust.callbacks.AveragedWeights(kind="ema", decay=0.9)
        >>> _ = model.fit(images, labels, verbose=0, callbacks=[average])
        >>> average.restore()  # the model now has the average
        {'kind': 'ema'}

    Args:
        kind: "ema" or "swa".
        decay: decay of the exponential average, in [0, 1).
        start_epoch: the first epoch (counted from 1) whose weights enter the average; before it the average equals the
            weights.
        ramp: True: the decay of the t-th average, t from 0 on, is min(decay, (1 + t) / (10 + t)), so that the first one
            is 1/10. The code of Rade counts from 1: its first decay is 2/11, and every later one that of the next t.
        statistics: of batch norm, and other variables that are not trained: "averaged", or "copied" from the weights.

    Raises:
        ValueError: a value out of its range; when training begins, "ema" of a model with `steps_per_execution` > 1, of
            which Keras shows the weights once per execution only.

    Source:
        Izmailov et al. 2018, https://arxiv.org/abs/1803.05407 (SWA); Gowal et al. 2020,
        https://arxiv.org/abs/2010.03593, and the code of Rade (imrahulr/hat @ 3177a4f8) for `ramp` and "copied".
    """

    def __init__(
        self,
        *,
        kind: str = "ema",
        decay: float = 0.999,
        start_epoch: int = 1,
        ramp: bool = False,
        statistics: str = "averaged",
    ):
        super().__init__()
        if kind not in ("ema", "swa"):
            raise InputError(f"AveragedWeights.kind is {kind!r}; it is 'ema' or 'swa'.")
        require_share(decay, "AveragedWeights.decay")
        if ramp and kind != "ema":
            raise InputError("AveragedWeights.ramp is a schedule of the decay, which kind 'swa' does not have.")
        self.kind, self.decay, self.start_epoch, self.ramp = kind, decay, start_epoch, ramp
        self.statistics = require_choice(statistics, "AveragedWeights.statistics", ("averaged", "copied"))
        self.variables: list = []
        self._started = False

    def on_train_begin(self, logs=None):
        """Refuse a model whose steps are not all visible."""
        steps = getattr(self.model, "steps_per_execution", 1)
        if self.kind == "ema" and steps != 1:
            raise InputError(
                f"AveragedWeights(kind='ema') averages after every step, and steps_per_execution={steps} shows one of "
                f"{steps}: compile with steps_per_execution=1, or take kind='swa'."
            )

    def set_model(self, model):
        """Attach the model, and start the average if the model is built; that of another model is discarded."""
        if self.model is not None and self.model is not model:
            self.variables, self._started = [], False
        super().set_model(model)
        # `fit` builds a subclassed model only in its first step.
        if model.built:
            self._begin()
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Record the epoch, counted from 1."""
        self._epoch = epoch + 1

    def on_train_batch_begin(self, batch, logs=None):
        """Start from the weights before the first step, which another callback may have restored since `set_model`."""
        if self.variables and not self._started and not int(self.count.numpy()):
            self._follow(tf.constant(1.0))
        self._started = True

    def on_train_batch_end(self, batch, logs=None):
        """Update the average after a step: copy the weights before `start_epoch`, else apply "ema"."""
        self._begin()
        if not self._has_updated():
            return
        if self._epoch < self.start_epoch:
            self._follow(tf.constant(1.0))
            self.count.assign(0)  # of an earlier training
        elif self.kind == "ema":
            count = float(self.count.numpy())
            decay = min(self.decay, (1.0 + count) / (10.0 + count)) if self.ramp else self.decay
            self._follow(tf.constant(1.0 - decay))
            self.count.assign_add(1)

    def on_epoch_end(self, epoch, logs=None):
        """Update the "swa" average."""
        if self.kind == "swa" and self._epoch >= self.start_epoch:
            self.count.assign_add(1)
            self._follow(1.0 / tf.cast(self.count.value, tf.float32))

    def restore(self) -> dict:
        """Assign the averages to the model's variables; return {"kind": kind}.

        Raises:
            ValueError: there is no average yet.
        """
        if not self.variables:
            raise InputError("AveragedWeights has no average yet: pass the callback to fit before restore().")
        for variable, average in zip(deployable_variables(self.model), self.averages, strict=True):
            variable.assign(average)
        return {"kind": self.kind}

    def _has_updated(self) -> bool:
        """Return False if the last step only accumulated gradients."""
        optimizer = getattr(self.model, "optimizer", None)
        batches = updates.batches_per_update(optimizer)
        return batches == 1 or int(keras_private.batches_seen(updates.inner(optimizer))) % batches == 0

    def _begin(self):
        if self.variables:
            return
        # NumPy copies, because a keras.Variable made from a tf.Variable shares its storage.
        self.averages = [
            keras.Variable(v.numpy(), dtype=v.dtype, trainable=False) for v in deployable_variables(self.model)
        ]
        self.count = keras.Variable(0, dtype="int64", trainable=False)
        self.variables = [*self.averages, self.count]
        self._follow = tf.function(self._move, autograph=False)

    def _move(self, share):
        for variable, average in zip(deployable_variables(self.model), self.averages, strict=True):
            is_averaged = self.statistics == "averaged" or variable.trainable
            if is_averaged and variable.dtype.startswith(("float", "bfloat")):
                average.assign_add(tf.cast(share, average.dtype) * (variable.value - average.value))
            else:
                average.assign(variable.value)

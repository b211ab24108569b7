"""Callbacks for robust training: validation under attack, best weights, averaged weights, and warnings."""

import logging
import math
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM
from tfrobust.attacks.shared import checks, modes, objectives, runner
from tfrobust.attacks.shared.attack import Attack, required_attack
from tfrobust.common import console
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.methods.shared import updates
from tfrobust.methods.shared.method import Method
from tfrobust.ops import divergences, finite, gradients, overfitting, probabilities, randomness
from tfrobust.pairs.false_negatives import REMAINING
from tfrobust.training.checkpoint import CheckpointStore

_log = logging.getLogger(__name__)
_SILENCE = 15.0  # seconds of an attack until a line says how far it is, and between two such lines


class RobustAccuracy(keras.callbacks.Callback):
    """Validation accuracy, clean and under attack, in the logs every few epochs.

    It adds `val_clean_accuracy` and `val_robust_accuracy` and, for a model with a method `embed`, `val_r_div`, the
    relative intra-class divergence under the attack (paper 003, Fig. 2b).

    It monitors robust overfitting. Never give it test images: data that select a model cannot evaluate it. Later
    callbacks in the list see its logs: `keras.callbacks.ModelCheckpoint(path, monitor="val_robust_accuracy",
    mode="max")`. For a model with several named outputs it uses `logits`.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> images, labels = np.random.rand(16, 8, 8, 1).astype("float32"), np.arange(16) % 4
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.1))
        >>> watch = robust.callbacks.RobustAccuracy(images, labels, attack=attack)
        >>> history = model.fit(images, labels, verbose=0, callbacks=[watch]).history
        >>> history["val_robust_accuracy"] <= history["val_clean_accuracy"]
        True

    Args:
        images: float [n, h, w, c] in the bounds of the attack, [0, 1] by default; or a finite `tf.data.Dataset`
            or `keras.utils.PyDataset` of batches (images, labels), or of dicts with `images` and `labels`.
        labels: int [n], or one-hot [n, k]; None with a dataset.
        attack: the attack, single or an ensemble, with its radius; PGD with 10 steps is usual.
        every: number of epochs between evaluations; the first is after the `every`-th epoch.
        seed: seed of the attack's random starts.
        batch_size: examples per call.
        from_logits: True if the model returns logits; False for probabilities p, which are attacked as log(p), those of
            sigmoids as log(p / (1 - p)).

    Raises:
        ValueError: a data set that never ends; the images are empty, not floats, or out of bounds, or the labels are
            neither ids nor one-hot. When training begins (at the first evaluation if the model is not built yet): the
            model's output contradicts `from_logits`, or the model has no class for a label.
    """

    def __init__(
        self,
        images,
        labels=None,
        *,
        attack: Attack | None = None,
        every: int = 1,
        seed: int = 0,
        batch_size: int = 128,
        from_logits: bool = True,
    ):
        super().__init__()
        if every < 1:
            raise InputError(f"RobustAccuracy.every is {every}; it counts epochs, from 1 on.")
        images, labels = finite.arrays_of(images, labels, type(self).__name__)
        self.attack = required_attack(attack, type(self).__name__)
        self.images = checks.check_images(images, *self.attack.threat.bounds)
        self.labels = checks.label_ids(labels, len(self.images))
        self.every, self.seed, self.batch_size = every, seed, batch_size
        self.from_logits = from_logits

    def on_train_begin(self, logs=None):
        """Compile the attack, and check labels and outputs if the model is built."""
        model = self.model

        def outputs(images):
            return tf.cast(modes.logits_of(model(images, training=False)), tf.float32)

        def predict(images):
            return outputs(images) if self.from_logits else probabilities.INVERSES[self._kind](outputs, images)

        self._predict = predict

        def perturb(images, labels, keys):
            return self.attack.perturb(objectives.cross_entropy(objectives.ranged(predict), labels), images, keys)

        self._engine = runner.compile_attack(self.attack, predict)
        self._outputs = tf.function(outputs, autograph=False)
        self._perturb = tf.function(perturb, autograph=False)
        embed = getattr(model, "embed", None)
        # A layer named `embed` is not a function of images.
        has_embedding = callable(embed) and not isinstance(embed, keras.Layer)
        self._embed = tf.function(embed, autograph=False) if has_embedding else None
        if model.built:
            classes = self._clean(self.images[: self.batch_size]).shape[-1]
            if self.labels.max() >= classes:
                raise InputError(
                    f"RobustAccuracy has a label {self.labels.max()}, but the model has {classes} classes (ids 0 to "
                    f"{classes - 1})."
                )

    def on_epoch_end(self, epoch, logs=None):
        """Add the accuracies and the divergence to `logs` after every `every`-th epoch."""
        if (epoch + 1) % self.every or logs is None:
            return
        clean = self._clean(self.images).argmax(axis=-1)
        live, name = console.Live(interval=_SILENCE), f"RobustAccuracy, {self.attack.name}"

        def progress(done: int, total: int, remaining: int) -> None:
            live.show(f"{name}: {remaining} of {len(self.labels)} examples left", done, total)

        options = {"seed": self.seed, "batch_size": self.batch_size, "progress": progress}
        result = self._engine.run(self.images, self.labels, **options)
        logs["val_clean_accuracy"] = float(np.mean(clean == self.labels))
        # A minimal-norm attack has no bound on the distance; beyond epsilon it does not count as success.
        near = result.distance <= self.attack.threat.epsilon * (1 + 1e-6) if self.attack.minimal else True
        logs["val_robust_accuracy"] = float(np.mean(~(result.success & near)))
        if self._embed is not None:
            try:
                logs["val_r_div"] = self._divergence()
            except NotImplementedError:  # an attack for evaluation only, without `perturb`
                self._embed = None

    def _divergence(self) -> float:
        keys = randomness.example_keys(randomness.make_key(self.seed, "r_div"), tf.range(len(self.labels)))
        # Includes images that are already misclassified: the paper's divergence leaves none out.
        attacked = self._in_batches(self._perturb, self.images, self.labels, keys.numpy())
        embeddings = [self._in_batches(self._embed, images) for images in (self.images, attacked)]
        return float(divergences.batched_divergences(*embeddings, self.labels, self.batch_size).r_div)

    def _clean(self, images: np.ndarray) -> np.ndarray:
        """Compute the model's outputs for clean images [n, k].

        Raises InputError if they are probabilities although `from_logits` is True, or the reverse.
        """
        outputs = self._in_batches(self._outputs, images)
        kind = probabilities.kind_of_outputs(outputs)
        # Before training, sigmoids may look like small logits, which must not raise either.
        wrong = ("softmax", "sigmoid") if self.from_logits else ("logits",)
        self._kind = "softmax" if kind == "softmax" else "sigmoid"
        if np.all(np.isfinite(outputs)) and kind in wrong:
            raise InputError(
                "RobustAccuracy(from_logits=True) watches a model that returns probabilities, which hide their "
                "gradients: pass from_logits=False, or let the model return logits (no softmax)."
                if self.from_logits
                else "RobustAccuracy(from_logits=False) watches a model that returns logits: omit from_logits."
            )
        return outputs

    def _in_batches(self, function: Callable, *columns: np.ndarray) -> np.ndarray:
        """Apply a function to columns [n, ...] in batches of one static size; first rows fill up the last batch."""
        count = len(columns[0])
        size = min(self.batch_size, count)
        padded = [np.concatenate([column, column[: -count % size]]) for column in columns]
        parts = []
        for start in range(0, len(padded[0]), size):
            parts.append(function(*(tf.constant(column[start : start + size]) for column in padded)).numpy())
        return np.concatenate(parts)[:count]


class OverfittingWarning(RobustAccuracy):
    """`RobustAccuracy` that also warns once of catastrophic overfitting, to the single step of fast training.

    A network that has overfitted withstands the attack of its training, FGSM, and no other. Besides the logs of
    `RobustAccuracy` it adds `val_fgsm_accuracy`, and `val_gradient_cosine`: the mean cosine between the input gradients
    at an image and at a random point of its ball, without images whose gradient is 0. It warns if

        FGSM leaves over 0.2 more accuracy than the attack, or
        the cosine is below 0.3, or
        the accuracy under attack is less than half of its best, and more than 0.1 below it.

    These limits hold at the epsilon of the training: a larger one opens the gap without overfitting.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> images, labels = np.random.rand(16, 8, 8, 1).astype("float32"), np.arange(16) % 4
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.01), steps=10)
        >>> watch = robust.callbacks.OverfittingWarning(images, labels, attack=attack)
        >>> history = model.fit(images, labels, verbose=0, callbacks=[watch]).history
        >>> watch.warned, {"val_fgsm_accuracy", "val_gradient_cosine"} <= set(history)
        (False, True)

    Args:
        images, labels, **kwargs: as in `RobustAccuracy`; a few hundred images are enough.
        attack: an attack of several steps with the threat model of the training. Defaults to PGD with 10 steps.

    Source:
        Wong et al. 2020, https://arxiv.org/abs/2001.03994, section 5; Andriushchenko and Flammarion 2020,
        https://arxiv.org/abs/2007.02617, section 3, for the cosine. The limits are this library's.
    """

    def __init__(self, images, labels=None, *, attack: Attack | None = None, **kwargs):
        super().__init__(images, labels, attack=attack, **kwargs)
        self.warned = False
        self.best = 0.0  # restored when a training resumes

    def on_train_begin(self, logs=None):
        """Compile FGSM, and the attack as `RobustAccuracy`."""
        super().on_train_begin(logs)
        threat = self.attack.threat
        self._single = runner.compile_attack(FGSM(threat), self._predict)

        def cosines(images, labels, keys):
            objective = objectives.cross_entropy(objectives.ranged(self._predict), labels)
            return gradients.cosines(objective, images, threat.random_start(images, keys))

        self._cosines = tf.function(cosines, autograph=False)

    def on_epoch_end(self, epoch, logs=None):
        """Add the logs after every `every`-th epoch, and warn."""
        super().on_epoch_end(epoch, logs)
        if (epoch + 1) % self.every or logs is None:
            return
        single = self._single.run(self.images, self.labels, seed=self.seed, batch_size=self.batch_size)
        keys = randomness.example_keys(randomness.make_key(self.seed, "cosine"), tf.range(len(self.labels)))
        cosines = self._in_batches(self._cosines, self.images, self.labels, keys.numpy())
        logs["val_fgsm_accuracy"] = float(np.mean(~single.success))
        # 1 if no image has two gradients: nothing then has turned.
        logs["val_gradient_cosine"] = float(np.nanmean(cosines)) if np.isfinite(cosines).any() else 1.0
        robust, self.best = logs["val_robust_accuracy"], max(self.best, logs["val_robust_accuracy"])
        signs = overfitting.signs(logs["val_fgsm_accuracy"], robust, logs["val_gradient_cosine"])
        if robust < 0.5 * self.best and self.best - robust > 0.1:
            signs.append(f"the accuracy under attack was {self.best:.1%} before")
        if signs and not self.warned:
            self.warned = True
            _log.warning(
                "catastrophic overfitting in epoch %d: %s. The network withstands FGSM alone. Use GradAlign, N-FGSM, a "
                "smaller step, or several steps.",
                epoch + 1,
                "; ".join(signs),
            )


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
        directory: folder of the checkpoint.
        monitor: a log name; epochs without it do not count. Higher is better.

    Raises:
        ValueError: `monitor` ends with "loss", for which lower is better.
    """

    def __init__(self, directory, monitor: str = "val_robust_accuracy"):
        super().__init__()
        if monitor.endswith("loss"):
            raise InputError(
                f"BestWeights keeps the highest value, and the best {monitor!r} is the lowest: monitor 'val_accuracy' "
                "or 'val_robust_accuracy', or use keras.callbacks.ModelCheckpoint(..., save_best_only=True)."
            )
        self.directory = pathlib.Path(directory)
        self.monitor = monitor
        self.best = None
        self.best_epoch = 0

    def on_epoch_end(self, epoch, logs=None):
        """Save the weights if the monitored value exceeds the best so far."""
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
        return self._store().restore()

    def _store(self) -> CheckpointStore:
        variables = [v.value for v in deployable_variables(self.model)]
        return CheckpointStore(self.directory, tf.train.Checkpoint(variables=variables), keep=1)


class AveragedWeights(keras.callbacks.Callback):
    """A callback that keeps a running average of the deployable weights, including batch-norm statistics.

    "ema": average <- decay * average + (1 - decay) * weights after every update of the weights: with an optimizer that
    accumulates gradients once in so many steps. "swa": the mean of the weights at the
    ends of the epochs from `start_epoch` on. Its batch-norm statistics are the mean of theirs and are not estimated
    again. The adversarial training of today uses kind="ema", decay=0.995, ramp=True, statistics="copied".

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
        if not 0 <= decay < 1:
            raise InputError(f"AveragedWeights.decay is {decay}; it lies in [0, 1).")
        if ramp and kind != "ema":
            raise InputError("AveragedWeights.ramp is a schedule of the decay, which kind 'swa' does not have.")
        self.kind, self.decay, self.start_epoch, self.ramp = kind, decay, start_epoch, ramp
        self.statistics = require_choice(statistics, "AveragedWeights.statistics", ("averaged", "copied"))
        self.variables: list = []

    def on_train_begin(self, logs=None):
        """Refuse a model whose steps are not all visible."""
        steps = getattr(self.model, "steps_per_execution", 1)
        if self.kind == "ema" and steps != 1:
            raise InputError(
                f"AveragedWeights(kind='ema') averages after every step, and steps_per_execution={steps} shows one of "
                f"{steps}: compile with steps_per_execution=1, or take kind='swa'."
            )

    def set_model(self, model):
        """Attach the model, and start the average if the model is built."""
        super().set_model(model)
        # `fit` builds a subclassed model only in its first step.
        if model.built:
            self._begin()
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Record the epoch, counted from 1."""
        self._epoch = epoch + 1

    def on_train_batch_end(self, batch, logs=None):
        """Update the average after a step: copy the weights before `start_epoch`, else apply "ema"."""
        self._begin()
        if not self._has_updated():
            return
        if self._epoch < self.start_epoch:
            self._follow(tf.constant(1.0))
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
        """Assign the averages to the model's variables; return {"kind": kind}."""
        for variable, average in zip(deployable_variables(self.model), self.averages, strict=True):
            variable.assign(average)
        return {"kind": self.kind}

    def _has_updated(self) -> bool:
        """Return False if the last step only accumulated gradients."""
        optimizer = getattr(self.model, "optimizer", None)
        batches = updates.batches_per_update(optimizer)
        return batches == 1 or int(updates.inner(optimizer)._iterations) % batches == 0

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


def deployable_variables(model) -> list:
    """Return the variables of a method's encoder and head, or all variables of any other model."""
    if isinstance(model, Method):
        return [*model.encoder.variables, *model.head.variables]
    return list(model.variables)

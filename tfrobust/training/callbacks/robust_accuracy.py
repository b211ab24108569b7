"""Validation accuracy, clean and under attack, in the logs of a training."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks, modes, objectives, runner
from tfrobust.attacks.shared.attack import Attack, required_attack
from tfrobust.common import console
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.ops import divergences, finite, probabilities, randomness

_SILENCE = 15.0  # seconds of an attack until a line says how far it is, and between two such lines


class RobustAccuracy(keras.callbacks.Callback):
    """Validation accuracy, clean and under attack, in the logs every few epochs.

    It adds `val_clean_accuracy` and `val_robust_accuracy` and, for a model with a method `embed`, `val_r_div`, the
    relative intra-class divergence under the attack (Bui et al. 2021, Fig. 2b).

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
        images, labels = finite.arrays_of(images, labels, type(self).__name__)
        self.attack = required_attack(attack, type(self).__name__)
        self.images = checks.check_images(images, *self.attack.threat.bounds)
        self.labels = checks.label_ids(labels, len(self.images))
        self.every, self.seed, self.batch_size = require_whole(every, "RobustAccuracy.every"), seed, batch_size
        self.from_logits = from_logits

    def on_train_begin(self, logs=None):
        """Compile the attack, and check labels and outputs if the model is built."""
        model = self.model

        def outputs(images):
            return modes.checked_logits(model(images, training=False))

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

        result = self._engine.run(
            self.images, self.labels, seed=self.seed, batch_size=self.batch_size, progress=progress
        )
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
        clean, adversarial = (self._in_batches(self._embed, images) for images in (self.images, attacked))
        return float(divergences.batched_divergences(clean, adversarial, self.labels, self.batch_size).r_div)

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

"""Refresh of the pseudo-labels that identify false negatives (`pairs.false_negatives.IFND`)."""

import keras
import tensorflow as tf

from tfrobust.data.pipeline import of_all
from tfrobust.data.spec import Examples
from tfrobust.ops import randomness


class PseudoLabels(keras.callbacks.Callback):
    """A callback that clusters the training images' features every few epochs into the method's `pseudo_labels`.

    Images are not augmented and features are computed in inference mode, so that the labels depend only on the weights,
    the seed and the epoch. They are kept in a variable of the method, which checkpoints include.

    Args:
        examples: the training split.
        seed: seed of the clusterings, from which each epoch derives its own.
        batch_size: images per call.
    """

    def __init__(self, examples: Examples, *, seed: int = 0, batch_size: int = 128):
        super().__init__()
        self.examples, self.seed, self.batch_size = examples, seed, batch_size

    def on_train_begin(self, logs=None):
        """Compile the features that the method's rule clusters."""
        method = self.model

        def features(index):
            embedding = method.embed(self.examples.fetch(index))
            if method.false_negatives.features == "projection":
                embedding = method.project(embedding, training=False)
            return tf.cast(embedding, tf.float32)

        self._features = tf.function(features, autograph=False, reduce_retracing=True)

    def on_epoch_end(self, epoch, logs=None):
        """Assign new pseudo-labels after every `every`-th epoch of the method's rule."""
        rule = self.model.false_negatives
        if (epoch + 1) % rule.every:
            return
        features = of_all(self._features, len(self.examples), self.batch_size)
        key = randomness.make_key(self.seed, "pseudo_labels", epoch)
        seed = abs(int(key[0]))
        labels = rule.pseudo_labels(features, step=int(self.model.update_number()), seed=seed)
        self.model.pseudo_labels.assign(labels)


def refreshers(method: keras.Model, examples: Examples, *, seed: int, batch_size: int) -> list[PseudoLabels]:
    """Return the callback that refreshes a method's pseudo-labels, or no callback if it needs none."""
    needs = getattr(getattr(method, "false_negatives", None), "needs_pseudo_labels", False)
    return [PseudoLabels(examples, seed=seed, batch_size=batch_size)] if needs else []

"""Plain training, the baseline of every table."""

import keras

from tfrobust.losses import classification
from tfrobust.methods.base import Method


@keras.saving.register_keras_serializable(package="tfrobust")
class Supervised(Method):
    """Cross-entropy on the images as they come.

    Terms: `ce`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.Supervised(robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10))
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'loss']
    """

    terms = ("ce",)

    def loss_terms(self, views, batch, context):
        _, logits = self.propagate(views["images"])
        return {"ce": classification.cross_entropy(logits, batch.labels)}, logits

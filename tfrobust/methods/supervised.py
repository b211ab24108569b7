"""Plain training, the baseline of every table."""

import keras

from tfrobust.losses import classification
from tfrobust.methods.base import Method


@keras.saving.register_keras_serializable(package="tfrobust")
class Supervised(Method):
    """Cross-entropy on the images as they come.

    Terms: `ce`. Needs: labels.
    """

    terms = ("ce",)

    def loss_terms(self, views, batch, context):
        _, logits = self.propagate(views["images"])
        return {"ce": classification.cross_entropy(logits, batch.labels)}, logits

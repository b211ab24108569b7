"""Goals of an attack: any wrong class, or a given one."""

from typing import NamedTuple

import tensorflow as tf

from tfrobust.attacks.shared import objectives
from tfrobust.losses import classification


class Goal(NamedTuple):
    """Labels to be left and, for a targeted attack, classes to be reached.

    Attributes:
        labels: int32 [b].
        targets: int32 [b], each different from the label, or None: any other class counts. Targeted attacks succeed
            only where the target itself is predicted.
    """

    labels: tf.Tensor
    targets: tf.Tensor | None = None

    def reached(self, logits: tf.Tensor) -> tf.Tensor:
        """Return where the logits reach the goal.

        The predicted class is the first among equal largest logits. Logits that are not all finite count as
        misclassified, and never as a target.

        Args:
            logits: float32 [b, k].

        Returns:
            bool [b].
        """
        predicted = tf.argmax(logits, axis=-1, output_type=self.labels.dtype)
        broken = ~tf.reduce_all(tf.math.is_finite(logits), axis=-1)
        if self.targets is None:
            return (predicted != self.labels) | broken
        return (predicted == self.targets) & ~broken

    def unseen(self) -> "Goal":
        """Return the same goal for a search on another model, whose logits do not show if it is reached."""
        return _Unseen(*self)

    def margin(self, logits: tf.Tensor) -> tf.Tensor:
        """Return how far the logits are beyond the decision boundary; positive where the goal is reached.

        Untargeted: the largest other logit minus the label's. Targeted: the target's minus the largest other.

        Args:
            logits: float32 [b, k].

        Returns:
            float32 [b], in units of logits.
        """
        if self.targets is None:
            return classification.margin(logits, self.labels)
        return -classification.margin(logits, self.targets)

    def cross_entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the label's cross-entropy, or minus the target's, which rises towards the goal; float32 [b]."""
        if self.targets is None:
            return objectives.cross_entropy_of(logits, self.labels)
        return -classification.cross_entropy(logits, self.targets)


class _Unseen(Goal):
    """Goal that no logits reach."""

    def reached(self, logits):
        return tf.zeros_like(self.labels, tf.bool)

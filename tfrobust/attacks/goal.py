"""What an attack is after: any wrong class, or a given one."""

from typing import NamedTuple

import tensorflow as tf

from tfrobust.losses import classification


class Goal(NamedTuple):
    """The labels to be left and, for a targeted attack, the classes to be reached.

    labels: int32 [b]. targets: int32 [b], none of them the label, or None: any other class will do. Targeted
    runs count as successful only where the target itself is predicted.
    """

    labels: tf.Tensor
    targets: tf.Tensor | None = None

    def reached(self, logits: tf.Tensor) -> tf.Tensor:
        """Whether float32 logits [b, k] are what is wanted, bool [b]; the first among equal largest counts.

        An answer with NaN in it is no right answer, though argmax would call it class 0, and no target either.
        """
        predicted = tf.argmax(logits, axis=-1, output_type=self.labels.dtype)
        broken = tf.reduce_any(tf.math.is_nan(logits), axis=-1)
        if self.targets is None:
            return (predicted != self.labels) | broken
        return (predicted == self.targets) & ~broken

    def margin(self, logits: tf.Tensor) -> tf.Tensor:
        """How far float32 logits [b, k] are past the boundary, [b]: > 0 where the goal is reached.

        Untargeted: the largest other logit minus the label's. Targeted: the target's minus the largest other.
        """
        if self.targets is None:
            return classification.margin(logits, self.labels)
        return -classification.margin(logits, self.targets)

    def cross_entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """What rises towards the goal, [b]: the label's cross-entropy, or minus the target's."""
        if self.targets is None:
            return classification.cross_entropy(logits, self.labels)
        return -classification.cross_entropy(logits, self.targets)

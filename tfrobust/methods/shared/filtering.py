"""Base class of the methods with negatives, from which false negatives are removed."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared.self_supervised import SelfSupervised
from tfrobust.pairs import masks
from tfrobust.pairs.false_negatives import REMAINING, SHARES, FalseNegatives, FilteredMasks, detection
from tfrobust.structs import Batch, Context, Tags


class FilteringMethod(SelfSupervised):
    """Base of the methods that repel all other images of the batch, except those that `false_negatives` removes.

    Args:
        encoder, head: as in `Method`.
        false_negatives: changes the pairs of each anchor (`FNC`, `IFND`, `AdaptiveFNC`); None leaves them unchanged.
        examples: images in the training split, for false negatives by pseudo-labels; `runs.experiment.train` sets it.
            Pseudo-labels are looked up by the batch's `index`, which a plain `fit` does not know.
        **kwargs: as in `SelfSupervised`.

    Raises:
        ValueError: when built, missing `examples`.
    """

    least_batch = 2  # a single image has no negatives

    def __init__(
        self,
        encoder,
        head,
        *,
        false_negatives: FalseNegatives | None = None,
        examples: int | None = None,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.false_negatives = false_negatives
        self.examples = examples
        self.pseudo_labels = None

    @property
    def observations(self):
        """`embedding_deviation`; with `false_negatives` also their detection rates and the negatives left."""
        return (*super().observations, *((*SHARES, REMAINING) if self.false_negatives is not None else ()))

    def build_parts(self, example_shape, embedding_dim):
        """Build the projection and, if needed, the pseudo-labels of the training images."""
        super().build_parts(example_shape, embedding_dim)
        if self.false_negatives is None or not self.false_negatives.needs_pseudo_labels:
            return
        if self.examples is None:
            rule = type(self.false_negatives).__name__
            raise InputError(
                f"{rule} needs a pseudo-label of each training image: set examples to the number of training images."
            )
        self.false_negatives.check_count(self.examples)
        self.pseudo_labels = self.add_weight(
            name="pseudo_labels",
            shape=(self.examples,),
            dtype="int32",
            initializer=keras.initializers.Constant(-1),
            trainable=False,
        )

    def tags(self, context: Context, batch: Batch, *, view: int) -> Tags:
        """Return the tags of one view of the batch, with its labels and pseudo-labels as far as they are known."""
        predicted = None if self.pseudo_labels is None else tf.gather(self.pseudo_labels, batch.index)
        return masks.tag(context.rows, view=view, label=batch.labels, prediction=predicted)

    def detection_logs(self, pairs: FilteredMasks, context: Context, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the observations of `pairs`, float32 [b] each; without labels only the negatives left."""
        seen = {name: tf.fill(tf.shape(context.rows), value) for name, value in detection(pairs).items()}
        return seen if batch.labels is not None else {REMAINING: seen[REMAINING]}

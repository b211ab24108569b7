"""Base class of SimCLR, SupCon, RoCL and ACL: contrasted views, with cancellation of false negatives."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.methods.shared.filtering import FilteringMethod
from tfrobust.methods.shared.self_supervised import embedding_deviation
from tfrobust.ops import distribution
from tfrobust.pairs import masks, selection
from tfrobust.pairs.false_negatives import FilteredMasks
from tfrobust.structs import Batch, Context, PairMasks, Tags

SCALES = ("mean", "sum")


class NTXentMethod(FilteringMethod):
    """Base of the contrastive methods: NT-Xent over all views of the global batch, by sample ids.

    l_i = -mean over the other views j of i's image of log( exp(s_ij / t) / sum_(k != i) exp(s_ik / t) ), s the cosine
    of the projections. Negatives are all other images of the batch, on all replicas, except those that
    `false_negatives` removes. A subclass with other pairs overrides `pairs`.

    Args:
        encoder, head: as in `Method`.
        temperature: t > 0, a number or a schedule of the step.
        scale: "mean" over all anchors (SimCLR's paper: over 2N). "sum" over the anchors of an image, then the mean over
            images (SimCLR's code: twice as large).
        self_in_denominator: let k run over i, too: eq 1 of Campbell et al. 2020 as printed. Its code and SimCLR leave
            i out.
        **kwargs: as in `FilteringMethod`.

    Raises:
        ValueError: a temperature that is not above 0, or an unknown scale; when built, missing `examples`.
    """

    # If true, gradients flow through anchors only, not through keys.
    detached_keys = False

    def __init__(
        self,
        encoder,
        head,
        *,
        temperature=0.5,
        scale: str = "mean",
        self_in_denominator: bool = False,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.temperature = temperature
        self.scale = scale
        self.self_in_denominator = self_in_denominator
        if isinstance(temperature, (int, float)) and not temperature > 0:
            raise InputError(f"{type(self).__name__}.temperature is {temperature}; it must be > 0.")
        require_choice(scale, f"{type(self).__name__}.scale", SCALES)

    def pairs(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the positives and negatives before false negatives are removed (hook).

        Args:
            anchors: int32 [n] each.
            keys: int32 [m] each.

        Returns:
            Masks, bool [n, m] each.
        """
        return selection.sample_ids(anchors, keys)

    def temperature_at(self, step: tf.Tensor):
        """Return the temperature at a step, a number or a float32 scalar."""
        return self.temperature(step) if callable(self.temperature) else self.temperature

    def contrast(
        self, embeddings: Sequence, context: Context, batch: Batch, *, features: Sequence | None = None
    ) -> tuple[tf.Tensor, dict]:
        """Compute the contrastive term of each image over all views given.

        Args:
            embeddings: the compared vectors, one float [b, d] per view: projections. Keys are gathered over the
                replicas.
            context: key, step and rows of this step.
            batch: its labels, if there are any, are the class ids of `pairs` and of the logs.
            features: the encoder's embeddings, one float [b, e] per view, for false negatives that are detected in
                them. None if they are detected in `embeddings`.

        Returns:
            The term, float32 [b], and the observations, float32 [b] each.
        """
        count = len(embeddings)
        tags = [self.tags(context, batch, view=view) for view in range(count)]
        anchors, anchor_tags = tf.concat(embeddings, axis=0), masks.join(*tags)
        keys, key_tags = distribution.gather((anchors, anchor_tags))
        if self.detached_keys:
            keys = tf.stop_gradient(keys)
        observed = {"embedding_deviation": tf.fill(tf.shape(context.rows), embedding_deviation(keys))}
        pairs = masks.ByRows(self.pairs, anchor_tags, key_tags)
        if self.false_negatives is not None:
            compared = tf.concat(features, axis=0) if self.false_negatives.features == "embedding" else anchors
            everything = distribution.gather(tf.stop_gradient(compared))
            arguments = (anchor_tags, key_tags, compared, everything, context.step)
            pairs = FilteredMasks(self.pairs, self.false_negatives, *arguments, views=count)
            observed |= self.detection_logs(pairs, context, batch)
        if self.self_in_denominator:
            pairs = _with_themselves(pairs, anchor_tags, key_tags)
        values = masked_contrastive(anchors, keys, pairs, temperature=self.temperature_at(context.step))
        term = tf.add_n(tf.split(values, count))
        return (term if self.scale == "sum" else term / count), observed


def _with_themselves(pairs: Callable, anchor_tags: Tags, key_tags: Tags) -> Callable:
    """Add each anchor to its own negatives, in pairs computed by rows."""

    def wider(rows):
        positive, negative = pairs(rows)
        return PairMasks(positive, negative | masks.same_embedding(masks.take(anchor_tags, rows), key_tags))

    return wider

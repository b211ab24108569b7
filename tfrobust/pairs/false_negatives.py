"""False negatives: keys of the anchor's class that are repelled because labels are missing.

A mask transformer takes a rule's `PairMasks` and detects false negatives. They are cancelled (in no mask) or attracted
(made positives, so that they stay in the denominator).
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import is_whole, require_choice
from tfrobust.errors import InputError
from tfrobust.ops import distribution
from tfrobust.ops.similarity import normalize
from tfrobust.pairs import masks as relations
from tfrobust.structs import PairMasks, Tags

FEATURES = ("projection", "embedding")
ACTIONS = ("cancel", "attract")
COMBINATIONS = ("intersection", "union")
KEY_VIEWS = ("each", "any", "all")
# Names of the values of `detection`; the shares need labels.
SHARES = ("false_negatives_found", "true_negatives_removed")
REMAINING = "negatives_left"

# Below every cosine.
_NEVER = -2.0

Schedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule


class FalseNegatives(Configured):
    """Base of mask transformers; subclasses are frozen dataclasses that define which negatives are suspected.

    Attributes of a subclass:
        features: source of the cosine similarities, "projection" or the encoder's "embedding".
        action: "cancel" or "attract".
        over_views: True if that cosine is the largest over all views of the anchor's image.
        needs_pseudo_labels: True if `Tags.prediction` must hold pseudo-labels (-1: none).
    """

    features: str = "projection"
    action: str = "cancel"
    over_views: ClassVar[bool] = False
    needs_pseudo_labels: ClassVar[bool] = False

    def __post_init__(self):
        for name, valid in (("features", FEATURES), ("action", ACTIONS)):
            require_choice(getattr(self, name), f"{type(self).__name__}.{name}", valid)

    def _check_threshold(self, threshold: float | Schedule) -> None:
        if isinstance(threshold, (int, float)) and not threshold >= -1:
            name = type(self).__name__
            raise InputError(f"{name}.threshold is {threshold}; it is on a cosine, in [-1, 1] or above.")

    def __call__(
        self, masks: PairMasks, similarity: tf.Tensor, anchors: Tags, keys: Tags, step: tf.Tensor
    ) -> PairMasks:
        """Return the masks without the suspected negatives.

        Args:
            masks: bool [r, m] each, of a rule such as `pairs.selection.sample_ids`. Only negatives are changed, and
                never other views of the anchor's own image.
            similarity: float32 [r, m] in [-1, 1], cosine of `features`, gradients stopped.
            anchors: tags of r embeddings.
            keys: tags of m embeddings.
            step: int64 scalar, for schedules.

        Returns:
            bool [r, m] each.
        """
        candidates = masks.negative & ~relations.same_sample(anchors, keys)
        suspected = candidates & self.suspects(similarity, candidates, anchors, keys, step)
        positive = masks.positive | suspected if self.action == "attract" else masks.positive
        return PairMasks(positive, masks.negative & ~suspected)

    def check_count(self, images: int) -> None:
        """Raise ValueError if the number of training images is too small; a hook that does nothing by default."""

    def suspects(self, similarity, candidates, anchors: Tags, keys: Tags, step) -> tf.Tensor:
        """Return the suspected false negatives, bool [r, m]; values outside `candidates` (bool [r, m]) are ignored."""
        raise NotImplementedError(f"{type(self).__name__} must define `suspects`.")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FNC(FalseNegatives):
    """False negative cancellation (Huynh et al., 2022): a fixed threshold and the k most similar keys.

    A key's score is its largest cosine with any view of the anchor's image.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.pairs import masks, selection
        >>> tags = masks.tag(tf.range(4), view=0)
        >>> pairs = selection.sample_ids(tags, tags)
        >>> similarity = tf.constant([[1.0, 0.9, 0.8, 0.1]] * 4)
        >>> filtered = robust.methods.FNC(threshold=0.7, top_k=1)(pairs, similarity, tags, tags, 0)
        >>> filtered.positive[0].numpy().tolist(), filtered.negative[0].numpy().tolist()
        ([False, True, False, False], [False, False, True, True])

    Attributes:
        threshold: on the score, in [-1, 1] or above (no key passes).
        top_k: number of most similar negatives of the anchor, >= 0; ties are all included.
        combine: "intersection": keys that pass both tests are suspected; "union": keys that pass one. To use one test
            alone, set top_k = 0 in a union, or a threshold of -1 in an intersection.
        action: "attract" or "cancel".
        features: "projection" or "embedding".

    Raises:
        ValueError: an unknown option, a negative top_k, a threshold below -1.

    Source:
        Huynh et al. 2022, https://arxiv.org/abs/2011.11765; google-research/fnc, objective.py, uses the intersection,
        attraction, threshold 0.7 and k = 10, on features of a momentum encoder with a memory, which this implementation
        does not have. Gupta et al. 2023 describes a union that cancels.
    """

    threshold: float = 0.7
    top_k: int = 10
    combine: str = "intersection"
    action: str = "attract"
    features: str = "projection"

    over_views: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.combine not in COMBINATIONS or not is_whole(self.top_k, 0):
            valid = f"combine one of {list(COMBINATIONS)}, a whole top_k >= 0"
            raise InputError(f"FNC has combine {self.combine!r} and top_k {self.top_k}; it takes {valid}.")
        object.__setattr__(self, "top_k", int(self.top_k))
        self._check_threshold(self.threshold)

    def suspects(self, similarity, candidates, anchors, keys, step):
        """Return keys above the threshold and (or) among the `top_k`; see `FalseNegatives.suspects`."""
        score = tf.where(candidates, similarity, _NEVER)
        above = score > self.threshold
        count = keys.sample.shape[0]
        nearest_count = tf.minimum(self.top_k, tf.shape(score)[1]) if count is None else min(self.top_k, count)
        if self.top_k:
            nearest = score >= tf.math.top_k(score, nearest_count).values[:, -1:]
        else:
            nearest = tf.zeros_like(candidates)
        return above | nearest if self.combine == "union" else above & nearest


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveFNC(FalseNegatives):
    """Adaptive false negative cancellation: negatives above a threshold that decreases with the step are cancelled.

    Example:
        >>> import keras
        >>> from tfrobust import keras as robust
        >>> falling = keras.optimizers.schedules.PolynomialDecay(0.99, decay_steps=1000, end_learning_rate=0.7)
        >>> robust.methods.AdaptiveFNC(threshold=falling).action
        'cancel'

    Attributes:
        threshold: rho on the cosine, in [-1, 1] or above (no key passes), a number or a schedule of the step. The
            paper's best one runs from 0.99 to 0.7; the paper does not state if linearly (`PolynomialDecay`) or as a
            cosine (`CosineDecay`).
        key_views: "each": a key is cancelled by its own cosine. "any": all views of an image are cancelled if one of
            them is above the threshold; "all": only if all are. The paper does not specify it.
        features: "projection" or "embedding"; "feature space" in the paper.

    Raises:
        ValueError: an unknown option, a threshold below -1.

    Source:
        Gupta et al. 2023, section 5.1 and eq 4. As printed, eq 4 has the selected keys among the positives; the text
        avoids attraction, and this implementation follows the text.
    """

    threshold: float | Schedule = 0.9
    key_views: str = "each"
    features: str = "projection"

    def __post_init__(self):
        super().__post_init__()
        require_choice(self.key_views, "AdaptiveFNC.key_views", KEY_VIEWS)
        self._check_threshold(self.threshold)

    def suspects(self, similarity, candidates, anchors, keys, step):
        """Return keys above the threshold of the step; see `FalseNegatives.suspects`."""
        if self.key_views != "each":
            reduce = tf.math.unsorted_segment_max if self.key_views == "any" else tf.math.unsorted_segment_min
            # Rows of the global batch: they are fewer than the keys.
            of_images = reduce(tf.transpose(similarity), keys.sample, tf.shape(similarity)[1])
            similarity = tf.transpose(tf.gather(of_images, keys.sample))
        return similarity > value_at(self.threshold, step)


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class IFND(FalseNegatives):
    """Incremental false negative detection (Chen et al., 2022): images of one cluster are not negatives of each other.

    Every few epochs the features of all training images are clustered (k-means on the unit sphere). An image's
    confidence is the softmax, over its cosines with the centroids, of its own cluster. The most confident share
    `acceptance` keeps its cluster as pseudo-label; the other images have none. The callback is
    `training.pseudo_labels.PseudoLabels`.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> features = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.7, 0.7]])
        >>> labels = robust.methods.IFND(clusters=2, acceptance=0.8).pseudo_labels(features, step=0, seed=0)
        >>> bool(labels[0] == labels[1] != labels[2] == labels[3]), int(labels[4])
        (True, -1)

    Attributes:
        clusters: k, >= 2.
        every: epochs between two clusterings, >= 1; before the first, no key is suspected.
        acceptance: share of images with a pseudo-label, in [0, 1], a number or a schedule of the step, such as
            `LinearRamp`, which rises with the epochs.
        temperature: tau > 0 of the softmax.
        action: "cancel" or "attract".
        features: the features to cluster, "embedding" or "projection".

    Raises:
        ValueError: an argument out of its range.

    Source:
        Chen et al. 2022, Incremental False Negative Detection for Contrastive Learning (ICLR). No code of the authors
        was found. Choices of this implementation: one number of clusters instead of a hierarchy, k-means++ with one
        initialization, confidences ranked over all images together, the softmax as confidence, centroids from
        images without augmentation.
    """

    clusters: int = 10
    every: int = 1
    acceptance: float | Schedule = 1.0
    temperature: float = 0.1
    action: str = "cancel"
    features: str = "embedding"

    needs_pseudo_labels: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if not is_whole(self.clusters, 2) or not is_whole(self.every) or not self.temperature > 0:
            numbers = f"clusters {self.clusters}, every {self.every}, temperature {self.temperature}"
            raise InputError(f"IFND has {numbers}; it takes whole clusters >= 2, every >= 1, and temperature > 0.")
        if isinstance(self.acceptance, (int, float)) and not 0 <= self.acceptance <= 1:
            raise InputError(f"IFND.acceptance is {self.acceptance}; it is a share, in [0, 1].")

    def check_count(self, images):
        """Raise ValueError for fewer images than clusters."""
        if images < self.clusters:
            raise InputError(f"IFND has {self.clusters} clusters for {images} images; it needs as many images.")

    def suspects(self, similarity, candidates, anchors, keys, step):
        """Return keys with the anchor's pseudo-label; see `FalseNegatives.suspects`."""
        return relations.same_prediction(anchors, keys) & (anchors.prediction >= 0)[:, None]

    def pseudo_labels(self, features, *, step: int, seed: int) -> np.ndarray:
        """Cluster the features of the training images and return their pseudo-labels.

        Args:
            features: float [n, d], n >= clusters.
            step: the step at which `acceptance` is evaluated.
            seed: of k-means.

        Returns:
            int32 [n]: the cluster, or -1 where the confidence is not among the accepted share.

        Raises:
            ValueError: fewer images than clusters.
        """
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        features = normalize(features).numpy()
        self.check_count(len(features))
        # One thread: with several, the order of summation would show in the last bits.
        with threadpool_limits(1):
            clustering = KMeans(self.clusters, n_init=1, random_state=seed).fit(features)
            logits = features @ normalize(clustering.cluster_centers_).numpy().T / self.temperature
        own_logit = np.take_along_axis(logits, clustering.labels_[:, None], axis=1)
        confidence = -np.log(np.exp(logits - own_logit).sum(axis=1))
        accepted = round(min(max(float(value_at(self.acceptance, step)), 0.0), 1.0) * len(features))
        labels = np.full(len(features), -1, np.int32)
        chosen = np.argsort(-confidence, kind="stable")[:accepted]
        labels[chosen] = clustering.labels_[chosen]
        return labels


@dataclasses.dataclass(frozen=True, eq=False)
class FilteredMasks:
    """Masks without false negatives, as `masks.ByRows` for the requested anchors only: nothing n x m is held.

    Attributes:
        rule: (anchors, keys) -> `PairMasks`.
        false_negatives: the transformer.
        anchors: `Tags` of n embeddings, view by view: of all `anchor_features`, or of their first n.
        keys: `Tags` of m embeddings.
        anchor_features: float [>= n, d], `views` stacks of the same images in the same order, the features named by
            `false_negatives.features`; gradients are stopped.
        key_features: float [m, d], likewise.
        step: int64 scalar.
        views: number of views in `anchor_features`.
    """

    rule: Callable[[Tags, Tags], PairMasks]
    false_negatives: FalseNegatives
    anchors: Tags
    keys: Tags
    anchor_features: tf.Tensor
    key_features: tf.Tensor
    step: tf.Tensor
    views: int

    def __post_init__(self):
        for name in ("anchor_features", "key_features"):
            object.__setattr__(self, name, normalize(tf.stop_gradient(getattr(self, name))))

    def __call__(self, rows: tf.Tensor) -> PairMasks:
        """Return the transformed masks [r, m] of the anchors at int32 [r]."""
        return self.both(rows)[1]

    def both(self, rows: tf.Tensor) -> tuple[PairMasks, PairMasks]:
        """Return the rule's masks [r, m] of the anchors at int32 [r], and the transformed ones."""
        anchors = relations.take(self.anchors, rows)
        before = self.rule(anchors, self.keys)
        return before, self.false_negatives(before, self._similarity(rows), anchors, self.keys, self.step)

    def _similarity(self, rows):
        places, count = [rows], tf.shape(self.anchor_features)[0]
        if self.false_negatives.over_views:
            places = [(rows + view * (count // self.views)) % count for view in range(self.views)]
        cosines = [
            tf.matmul(tf.gather(self.anchor_features, row), self.key_features, transpose_b=True) for row in places
        ]
        # Rounding can put the cosine of equal vectors slightly above 1, where it would exceed a threshold of 1.
        return tf.clip_by_value(tf.reduce_max(tf.stack(cosines), axis=0), -1.0, 1.0)


def detection(filtered: FilteredMasks) -> dict[str, tf.Tensor]:
    """Measure the detection of false negatives by the labels in the tags; for logs only.

        false_negatives_found = negatives of the anchor's class that were removed / all negatives of its class
        true_negatives_removed = negatives of other classes that were removed / all negatives of other classes
        negatives_left = negatives that were not removed / anchors

    Each is over all anchors of all replicas together, since a single anchor may have no negative of its class.

    Returns:
        The three names -> float32 scalar, of which the first two lie in [0, 1]; 0 where the denominator is 0.
    """
    count, width = tf.shape(filtered.anchors.sample)[0], tf.shape(filtered.keys.sample)[0]

    def counts(rows):
        before, after = filtered.both(rows)
        alike = relations.same_label(relations.take(filtered.anchors, rows), filtered.keys)
        removed = before.negative & ~after.negative
        kinds = (removed & alike, before.negative & alike, removed & ~alike, before.negative & ~alike, after.negative)
        return tf.stack([tf.reduce_sum(tf.cast(kind, tf.float32), axis=1) for kind in kinds], axis=1)

    blocks = relations.in_blocks(counts, count, width * filtered.views, columns=5)
    sums = tf.concat([tf.reduce_sum(blocks, axis=0), [tf.cast(count, tf.float32)]], axis=0)
    detected, alike, lost, unlike, remaining, anchors = tf.unstack(distribution.global_sum(sums))
    quotients = ((detected, alike), (lost, unlike), (remaining, anchors))
    return {name: tf.math.divide_no_nan(*pair) for name, pair in zip((*SHARES, REMAINING), quotients, strict=True)}


def value_at(number, step):
    """Return a number, or the value of a schedule at a step."""
    return number(step) if callable(number) else number

"""Selections: rules that choose which keys attract and which repel an anchor (ASCL's four, class ids, sample ids).

A rule is called with two `Tags` and returns `PairMasks`. No rule ever selects the anchor itself.
"""

import dataclasses
from typing import Literal

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.errors import InputError
from tfrobust.pairs import masks as relations
from tfrobust.structs import PairMasks, Tags

PAIR_COUNTS = ("positives_clean", "positives_adversarial", "negatives_clean", "negatives_adversarial")


def class_ids(anchors: Tags, keys: Tags) -> PairMasks:
    """Return SupCon's pairs: keys of the same label attract, keys of another label repel.

    Args:
        anchors: tags of n embeddings.
        keys: tags of m embeddings.

    Returns:
        bool [n, m] each.
    """
    alike = relations.same_label(anchors, keys)
    return PairMasks(positive=alike & ~relations.same_embedding(anchors, keys), negative=~alike)


def sample_ids(anchors: Tags, keys: Tags) -> PairMasks:
    """Return SimCLR's pairs: the other views of the same image attract, every other image repels.

    Args:
        anchors: tags of n embeddings.
        keys: tags of m embeddings.

    Returns:
        bool [n, m] each.
    """
    one_image = relations.same_sample(anchors, keys)
    return PairMasks(positive=relations.counterparts(anchors, keys), negative=~one_image)


class Selection(Configured):
    """A rule that picks the positives and negatives of each anchor; subclasses are frozen dataclasses."""

    def __call__(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the masks, bool [n, m] each, from tags of n and m embeddings."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(anchors, keys).")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalSelection(Selection):
    """The whole batch: positives y_j = y_i, negatives y_j != y_i.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.pairs.masks import tag
        >>> tags = tag(tf.range(4), view=0, label=[0, 0, 1, 1], prediction=[0, 1, 0, 1])
        >>> masks = robust.methods.GlobalSelection()(tags, tags)
        >>> masks.negative[1].numpy().tolist()  # of image 1: the other class
        [False, False, True, True]

    Source: Bui et al. 2021 (ASCL), arXiv:2101.10027, Table 1, row Global; "all" in the released code.
    """

    def __call__(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the masks, bool [n, m] each, from tags of n and m embeddings."""
        return class_ids(anchors, keys)


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSelection(Selection):
    """Negatives that are predicted as the anchor's class: y_j != y_i and p_j = y_i; positives y_j = y_i.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.pairs.masks import tag
        >>> tags = tag(tf.range(4), view=0, label=[0, 0, 1, 1], prediction=[0, 1, 0, 1])
        >>> masks = robust.methods.HardSelection()(tags, tags)
        >>> masks.negative[1].numpy().tolist()  # of image 1: image 2 is predicted as its class
        [False, False, True, False]

    Source: Bui et al. 2021 (ASCL), arXiv:2101.10027, Table 1, row Hard-LS.
    """

    def __call__(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the masks, bool [n, m] each, from tags of n and m embeddings."""
        positive, negative = class_ids(anchors, keys)
        return PairMasks(positive, negative & relations.predicted_as_anchor(anchors, keys))


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftSelection(Selection):
    """Negatives with the anchor's prediction: y_j != y_i and p_j = p_i; positives y_j = y_i.

    An adversarial anchor and a clean anchor each use their own prediction.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.pairs.masks import tag
        >>> tags = tag(tf.range(4), view=0, label=[0, 0, 1, 1], prediction=[0, 1, 0, 1])
        >>> masks = robust.methods.SoftSelection()(tags, tags)
        >>> masks.negative[1].numpy().tolist()  # of image 1: image 3 has its prediction
        [False, False, False, True]

    Source: Bui et al. 2021 (ASCL), arXiv:2101.10027, Table 1, row Soft-LS.
    """

    def __call__(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the masks, bool [n, m] each, from tags of n and m embeddings."""
        positive, negative = class_ids(anchors, keys)
        return PairMasks(positive, negative & relations.same_prediction(anchors, keys))


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class LeakedSelection(Selection):
    """Only keys with the anchor's prediction: positives y_j = y_i, negatives y_j != y_i, both with p_j = p_i.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.pairs.masks import tag
        >>> tags = tag(tf.range(4), view=0, label=[0, 0, 1, 1], prediction=[0, 0, 0, 1])
        >>> masks = robust.methods.LeakedSelection()(tags, tags)
        >>> masks.positive[0].numpy().tolist(), masks.negative[3].numpy().tolist()
        ([False, True, False, False], [False, False, False, False])

    Args:
        counterpart: "paper": an image and its own adversarial example are always a positive pair. "code", as released:
            only where their predictions agree (else the pair is in neither mask).

    Raises:
        ValueError: unknown counterpart.

    Source:
        Bui et al. 2021 (ASCL), arXiv:2101.10027, Table 1, row Leaked-LS, and section 3.2; released code:
        tuananhbui89/ASCL @ ca78d7b, contrastive_losses_v2.py, "leaking".
    """

    counterpart: Literal["paper", "code"] = "paper"

    def __post_init__(self):
        if self.counterpart not in ("paper", "code"):
            raise InputError(f"counterpart is {self.counterpart!r}; it must be 'paper' or 'code'.")

    def __call__(self, anchors: Tags, keys: Tags) -> PairMasks:
        """Return the masks, bool [n, m] each, from tags of n and m embeddings."""
        positive, negative = class_ids(anchors, keys)
        agreeing = relations.same_prediction(anchors, keys)
        if self.counterpart == "code":
            return PairMasks(positive & agreeing, negative & agreeing)
        # A counterpart has the same label already; the explicit mask also holds where labels were changed per view.
        always = relations.counterparts(anchors, keys)
        return PairMasks((positive & agreeing) | always, negative & agreeing & ~always)


def count_pairs(masks: PairMasks | relations.ByRows, key_view: tf.Tensor, *, clean_views: int = 1) -> dict:
    """Count the positives and negatives of each anchor, separately for clean and adversarial keys.

    Args:
        masks: `PairMasks` of bool [n, m], or `ByRows`, which are counted in blocks.
        key_view: int32 [m], the views of the keys (`Tags.view`).
        clean_views: views below this number are clean, the others adversarial.

    Returns:
        positives_clean, positives_adversarial, negatives_clean, negatives_adversarial -> float32 [n].

    Source:
        Bui et al. 2021 (ASCL), arXiv:2101.10027, Figure 3: the averages over anchors.
    """
    clean = key_view < clean_views
    kinds = tf.cast(tf.stack([clean, ~clean], axis=1), tf.float32)  # [m, 2]
    if isinstance(masks, relations.ByRows):
        count, width = tf.shape(masks.anchors.sample)[0], tf.shape(kinds)[0]
        counts = relations.in_blocks(lambda rows: _count(masks(rows), kinds), count, width, columns=4)
    else:
        counts = _count(masks, kinds)
    names = [f"{sign}_{kind}" for sign in ("positives", "negatives") for kind in ("clean", "adversarial")]
    return dict(zip(names, tf.unstack(counts, num=4, axis=1), strict=True))


def _count(masks, kinds):
    """Return [r, 4]: counts of positives and negatives, each by the columns of kinds [m, 2]."""
    return tf.concat([tf.matmul(tf.cast(mask, tf.float32), kinds) for mask in masks], axis=1)

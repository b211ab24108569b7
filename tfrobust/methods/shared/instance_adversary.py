"""Adversarial examples for contrastive methods, made without labels: views that differ from their own image."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.shared import modes, objectives
from tfrobust.common.settings import is_whole, require_choice
from tfrobust.errors import InputError
from tfrobust.methods.shared.ramped_adversary import RampedAdversary
from tfrobust.ops import distribution
from tfrobust.pairs import masks
from tfrobust.structs import PairMasks

NEGATIVES = ("clean", "moving")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceAdversary(RampedAdversary):
    """Instance-wise attack: it maximizes the contrastive loss of an image's views, each inside its own ball.

    `against`: one view is perturbed, the other one is fixed (RoCL). `jointly`: all views of the batch are perturbed
    (ACL). False negatives are not removed: images similar to the anchor are where an adversarial example should go.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=8 / 255), steps=5, step_size=2 / 255)
        >>> robust.methods.InstanceAdversary(attack=attack, group=64).attack.steps
        5

    Attributes:
        attack: the attack, with its threat model.
        mode: batch norm of encoder and projection during the attack, as in `Adversary`.
        ramp: schedule of the step from 0 to 1 by which the radius is multiplied, as in `RampedAdversary`, or None.
        negatives: for `against`. "clean": the two clean views of every other image, on all replicas, embedded once.
            "moving": the other images' fixed views and current adversarial views (gradients stopped), of this group
            alone, as in the released RoCL code.
        group: examples perturbed together are compared within fixed groups of so many adjacent rows of the global
            batch, so that results do not depend on the number of replicas. With several replicas it divides the rows of
            each replica. None: all rows of a replica.

    Source:
        Kim et al. 2020 (RoCL), https://arxiv.org/abs/2006.07589, section 3.2; Jiang et al. 2020 (ACL),
        https://arxiv.org/abs/2010.13337, section 3.
    """

    negatives: str = "clean"
    group: int | None = None

    def __post_init__(self):
        super().__post_init__()
        require_choice(self.negatives, "InstanceAdversary.negatives", NEGATIVES)
        if self.group is None:
            return
        if not is_whole(self.group, 2):
            raise InputError(f"InstanceAdversary.group is {self.group}; it is a whole number >= 2 of rows, or None.")
        object.__setattr__(self, "group", int(self.group))

    def against(self, embed: Callable, images, fixed: tuple, rows, key, *, temperature, step=None) -> tf.Tensor:
        """Return adversarial images of one view against the other, with gradients stopped.

        Args:
            embed: (images, training=bool) -> projections [b, d] of the perturbed view.
            images: float32 [b, h, w, c], that view.
            fixed: projections float32 [b, d] of that view itself and of the other one, both clean.
            rows: int64 [b], in the global batch.
            key: int32 [2].
            temperature: t > 0.
            step: number of updates so far, for the `ramp`; None: the whole radius.

        Returns:
            float32 [b, h, w, c].
        """
        original, other, moved = (masks.tag(rows, view=view) for view in range(3))
        if self.negatives == "clean":
            embeddings = tf.stop_gradient(tf.concat(fixed, axis=0))
            keys, tags = distribution.gather((embeddings, masks.join(original, other)))
            negative = ~masks.same_sample(moved, tags)
        else:
            self._check_group(images)
            target, tags = tf.stop_gradient(fixed[1]), masks.join(other, moved)
            keys = lambda embeddings: tf.concat([target, tf.stop_gradient(embeddings)], axis=0)  # noqa: E731
            negative = ~masks.same_sample(moved, tags) & self._same_group(moved, tags)
        positive = masks.same_sample(moved, tags) & (tags.view == 1)[None]
        pairs = PairMasks(positive, negative)
        objective = objectives.contrastive(self._forward(embed), keys, pairs, temperature=temperature)
        return self.search(objective, images, key, step)

    def jointly(self, embed: Callable, views: tuple, rows, key, *, temperature, step=None) -> tuple:
        """Return adversarial images of all views, perturbed together, with gradients stopped.

        Args:
            embed: (images, training=bool) -> projections [n, d].
            views: float32 [b, h, w, c] each.
            rows: int64 [b], in the global batch.
            key: int32 [2].
            temperature: t > 0.
            step: number of updates so far, for the `ramp`; None: the whole radius.

        Returns:
            As `views`.
        """
        self._check_group(views[0])
        tags = masks.join(*(masks.tag(rows, view=view) for view in range(len(views))))
        negative = ~masks.same_sample(tags, tags) & self._same_group(tags, tags)
        pairs = PairMasks(masks.counterparts(tags, tags), negative)
        objective = objectives.joint_contrastive(self._forward(embed), pairs, temperature=temperature)
        return tuple(self.search(objective, tuple(views), key, step))

    def _forward(self, embed):
        return objectives.ranged(modes.forward_in_mode(embed, self.mode), per_example=self.mode == "inference")

    def _check_group(self, images):
        replicas, _ = distribution.replica()
        count = images.shape[0]
        if self.group is not None and replicas > 1 and count is not None and count % self.group:
            raise InputError(
                f"InstanceAdversary.group is {self.group}, which does not divide the {count} rows of a replica's batch."
            )

    def _same_group(self, anchors, keys):
        if self.group is None:
            return tf.ones([], tf.bool)
        return tf.equal(anchors.sample[:, None] // self.group, keys.sample[None] // self.group)

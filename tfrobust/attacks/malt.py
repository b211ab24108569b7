"""MALT: targeted Auto-PGD whose targets are ordered by the distance to each class under a linear model."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.apgd import APGDTargeted
from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops import norms
from tfrobust.ops.gradients import linearized


@keras.saving.register_keras_serializable(package="tfrobust")
class MALT(APGDTargeted):
    """Targeted Auto-PGD that aims first at the classes that are nearest under a linear model at the clean image.

    The distance to class j is (z_y - z_j) / |grad(z_j - z_y)|, in the dual norm (Linf: L1). Distances are compared of
    the `candidates` classes with the largest logits. Round r aims at the class with the r-th smallest distance, and any
    wrong class counts. In a targeted run every round aims at the given target, with `dlr` as loss.

    Each round ranks the classes anew, by one forward pass and a backward pass per candidate.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.MALT(robust.attacks.ThreatModel(epsilon=8 / 255), targets=4)
        >>> attack.rounds(class_count=100), attack.most_passes(class_count=10)
        (4, (409, 436))

    Args beyond those of APGDTargeted:
        candidates: number of classes, those with the largest logits, whose distances are compared, >= 1.

    Source:
        Melamed et al. 2024, https://arxiv.org/abs/2407.02240.
    """

    name = "malt"

    def __init__(self, threat: ThreatModel | None = None, *, candidates: int = 100, **kwargs):
        super().__init__(threat, **kwargs)
        self.candidates = candidates
        checks.check_counts(self, "candidates")

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the passes of targeted APGD, and a backward pass per candidate."""
        forward, backward = super().round_passes(class_count)
        return forward, backward + min(self.candidates, class_count - 1)

    def _target_count(self, class_count: int) -> int:
        return min(self.targets, self.candidates, class_count - 1)

    def _ranked(self, predict, inputs, labels):
        classes, distances = linear_distances(predict, inputs, labels, self.threat.norm, self.candidates)
        nearest = tf.math.top_k(-distances, min(self.targets, distances.shape[1])).indices
        return tf.gather(classes, nearest, batch_dims=1)


def linear_distances(predict: Callable, inputs, labels, norm: str, candidates: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distances of inputs from other classes under a linear model of the logits there.

    Args:
        predict: float32 [b, ...] -> float32 logits [b, k].
        inputs: float32 [b, ...].
        labels: int32 [b].
        norm: of the distance.
        candidates: number of classes, those with the largest logits, at most k - 1 are.

    Returns:
        (the classes, int32 [b, m], by descending logits; their distances, float32 [b, m]).
    """
    logits, pull_back = linearized(predict, inputs)
    class_count = logits.shape[-1]
    label = tf.one_hot(labels, class_count)
    rival_logits = tf.where(label > 0, logits.dtype.min, logits)
    values, classes = tf.math.top_k(rival_logits, min(candidates, class_count - 1))
    gaps = tf.gather(logits, labels, batch_dims=1)[:, None] - values

    def measure(number, distances):
        slope = pull_back(tf.one_hot(classes[:, number], class_count) - label)
        distance = gaps[:, number] / (norms.dual_norm(slope, norm) + 1e-12)
        is_measured = tf.range(values.shape[1]) == number
        return number + 1, tf.where(is_measured, distance[:, None], distances)

    _, distances = tf.while_loop(
        lambda number, _: number < values.shape[1],
        measure,
        (tf.constant(0), tf.zeros_like(values)),
        parallel_iterations=1,
    )
    return classes, distances

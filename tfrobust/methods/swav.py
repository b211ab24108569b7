"""SwAV: predict from one view the balanced assignment of another view to prototypes."""

import keras
import tensorflow as tf

from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.methods.shared.prototypes import PrototypeMethod
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.ops import assignments, distribution, similarity


@keras.saving.register_keras_serializable(package="tfrobust")
class SwAV(PrototypeMethod):
    """Swapped assignments between views: clusters are found online, with all of them used equally.

    L = swapped_prediction + probe; swapped_prediction is the mean over the pairs of a global view i and another view v
    of -sum_k q_ik log softmax(s_v / t)_k. s are the cosines of the projections and the prototypes. The codes q are the
    scores of the global views balanced by Sinkhorn's iterations over the batches of all replicas and, for small
    batches, a queue of earlier projections; no gradient flows through them. Prototypes have length 1 before each step.

    Terms: `swapped_prediction`, `probe`. Observed: `embedding_deviation`, `assignment_entropy`. Needs: no labels with
    probe=False.

    Example:
        >>> from tfrobust import keras as robust
        >>> prototypes = robust.layers.Prototypes(30)
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.SwAV(*parts, prototypes=prototypes, queue_length=512, queue_start=150)
        >>> method.terms, method.projection.hidden
        (('swapped_prediction', 'probe'), (2048,))

    Args:
        encoder, head: as in `Method`.
        projection: 2048 units, batch norm, ReLU, 128 units by default, as in the paper.
        prototypes: 3000 by default, with "projected" lengths.
        temperature: t > 0 of the predictions.
        code_temperature: > 0 of the codes; epsilon in the paper.
        iterations: Sinkhorn's iterations, >= 0; with 0 the codes are a softmax, which collapses.
        queue_length: earlier projections of each global view that are balanced together with the batch, >= 0. The
            paper has 3840 for batches of 256, and none for large batches.
        queue_start: first step whose projections enter the queue, >= 0. It is used once it is full.
        **kwargs: as in `PrototypeMethod`: `local_views`, `local_count`, `frozen_steps`, `forward`, and those of
            `SelfSupervised`.

    Raises:
        ValueError: a number out of its range, or only one of `local_views` and `local_count`.

    Source:
        Caron et al. 2020, https://arxiv.org/abs/2006.09882, algorithm 1; facebookresearch/swav, main_swav.py. Its
        optimizer is LARS(momentum=0.9, weight_decay=1e-6, exclude=(), velocity="gradients", denominator="sum").
    """

    own_terms = ("swapped_prediction",)

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        prototypes: keras.layers.Layer | None = None,
        code_temperature: float = 0.05,
        iterations: int = 3,
        queue_length: int = 0,
        queue_start: int = 0,
        **kwargs,
    ):
        projection = projection or ProjectionHead((2048,), normalization="hidden")
        prototypes = prototypes or Prototypes(3000)
        super().__init__(encoder, head, projection=projection, prototypes=prototypes, **kwargs)
        self.code_temperature = code_temperature
        self.iterations = require_least(iterations, "SwAV.iterations", 0)
        self.queue_length = require_least(queue_length, "SwAV.queue_length", 0)
        self.queue_start = require_least(queue_start, "SwAV.queue_start", 0)
        if not code_temperature > 0:
            raise InputError(f"SwAV.code_temperature is {code_temperature}; it must be > 0.")
        if queue_start and not queue_length:
            raise InputError(f"SwAV.queue_start is {queue_start}, but there is no queue: set SwAV.queue_length.")

    @property
    def no_accumulation(self):
        """The queue holds the projections of each batch."""
        return "moves its queue with every batch" if self.queue_length else ""

    def build_parts(self, example_shape, embedding_dim):
        """Build projection, prototypes and queue."""
        super().build_parts(example_shape, embedding_dim)
        if self.queue_length:
            shape = (len(VIEWS), self.queue_length, self.projected_dim)
            only = {"trainable": False, "aggregation": "only_first_replica"}
            self.queue = self.add_weight(name="queue", shape=shape, initializer="zeros", dtype="float32", **only)

    def loss_terms(self, views, batch, context):
        """Compute swapped prediction, probe and observations, and the logits of the first view."""
        embeddings, projected = self.represent_views([views[name] for name in self.host_view_names])
        scores = tf.split(self.prototypes(tf.concat(projected, axis=0)), len(projected))
        codes = [self._codes(scores[view], view) for view in range(len(VIEWS))]
        newest = similarity.normalize(tf.stop_gradient(tf.stack(projected[: len(VIEWS)], axis=1)))
        self.carry(lambda: tf.transpose(distribution.gather(newest), [1, 0, 2]))
        return self.predict_assignments(codes, scores, projected[: len(VIEWS)], embeddings, batch)

    def after_update(self):
        """Move the queue, the newest projections first, and scale the prototypes."""
        super().after_update()
        if self.queue_length:
            moved = tf.concat([self.carried(), self.queue], axis=1)[:, : self.queue_length]
            started = tf.convert_to_tensor(self.step) > self.queue_start  # `step` has been advanced already
            self.queue.assign(tf.where(started, moved, self.queue))

    def _codes(self, scores: tf.Tensor, view: int) -> tf.Tensor:
        """Return the codes [b, k] of one view, balanced together with its queue."""
        how = {"temperature": self.code_temperature, "iterations": self.iterations}
        if not self.queue_length:
            return assignments.sinkhorn(scores, **how)
        queue = tf.convert_to_tensor(self.queue)[view]
        full = tf.reduce_any(queue[-1] != 0.0)
        # Each replica has the whole queue, which counts once in sums over the replicas.
        share = tf.cast(full, tf.float32) / distribution.replica()[0]
        weights = tf.concat([tf.fill([self.queue_length], share), tf.ones(tf.shape(scores)[:1])], axis=0)
        stacked = tf.concat([self.prototypes(queue), scores], axis=0)
        return assignments.sinkhorn(stacked, weights=weights, **how)[self.queue_length :]

"""DINO: predict to which prototypes a momentum network assigns the other views, centered and sharpened."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.momentum import MomentumMethod, like, weight_pairs
from tfrobust.methods.shared.prototypes import PrototypeMethod
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.ops import distribution


@keras.saving.register_keras_serializable(package="tfrobust")
class DINO(MomentumMethod, PrototypeMethod):
    """Self-distillation without labels: a momentum network, the teacher, is predicted from other views.

    L = distillation + probe; distillation is the mean over the pairs of a global view i and another view v of -sum_k
    P_ik log softmax(s_v / t)_k with P_i = softmax((s'_i - c) / t'). s are the scores of the trained network, s' those
    of the teacher, through which no gradient flows. After each step teacher <- teacher + r_t (trained - teacher), and
    the center c <- m c + (1 - m) mean(s'), over both global views of all replicas.

    The encoder handed to a second stage is the teacher's, as in the paper.

    Terms: `distillation`, `probe`. Observed: `embedding_deviation`, `assignment_entropy`. Needs: no labels with
    probe=False.

    Example:
        >>> from tfrobust import keras as robust
        >>> views = {"local_views": robust.augment.ContrastiveViews(crop=(0.05, 0.4), size=4), "local_count": 2}
        >>> encoder = robust.models.CNN(((8,),), dense=())  # takes images of any size
        >>> method = robust.methods.DINO(encoder, robust.models.LinearHead(10), **views)
        >>> method.host_view_names
        ('view_1', 'view_2', 'local_1', 'local_2')

    Args:
        encoder, head: as in `Method`.
        projection: 2048, 2048 and 256 units with GELU by default, as in the paper for ViT.
        prototypes: 65,536 by default, weight-normed with fixed lengths.
        temperature: t > 0.
        teacher_temperature: t' > 0, a number or a schedule of the step. The paper increases it from 0.04 to 0.07 during
            30 epochs, `PolynomialDecay(0.04, steps, 0.07)`, in its code once per epoch.
        center_momentum: m in [0, 1]. 1 keeps the center 0, that is, without centering.
        target_rate: r_t in [0, 1], a number or a schedule of the step.
        frozen_steps: steps during which the prototypes are not updated; the paper's code has one epoch.
        forward: "joint" passes of all views of a size, or "separate" ones.
        **kwargs: as in `PrototypeMethod`: `local_views`, `local_count`, and those of `SelfSupervised`. The paper's code
            has clip_norm=3, clip_each=True.

    Raises:
        ValueError: a number out of its range, or only one of `local_views` and `local_count`.

    Source:
        Caron et al. 2021, https://arxiv.org/abs/2104.14294, algorithm 1; facebookresearch/dino, main_dino.py.
    """

    own_terms = ("distillation",)
    no_accumulation = "moves its center with every batch"

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        prototypes: keras.layers.Layer | None = None,
        teacher_temperature=0.04,
        center_momentum: float = 0.9,
        target_rate=0.004,
        forward: str = "joint",
        **kwargs,
    ):
        if projection is None:
            normal = keras.initializers.TruncatedNormal(stddev=0.02)
            projection = ProjectionHead((2048, 2048), dim=256, activation="gelu", kernel_initializer=normal)
        prototypes = prototypes or Prototypes(65_536, lengths="weight_norm")
        parts = {"projection": projection, "prototypes": prototypes, "target_rate": target_rate, "forward": forward}
        super().__init__(encoder, head, **parts, **kwargs)
        self.teacher_temperature = teacher_temperature
        self.center_momentum = center_momentum
        self.target_prototypes = like(prototypes)
        if isinstance(teacher_temperature, (int, float)) and not teacher_temperature > 0:
            raise InputError(f"DINO.teacher_temperature is {teacher_temperature}; it must be > 0.")
        if not 0 <= center_momentum <= 1:
            raise InputError(f"DINO.center_momentum is {center_momentum}; it lies in [0, 1].")

    @property
    def passes_per_step(self):
        """Passes per step: one per view, and the teacher's of the global views."""
        return len(self.host_view_names) + len(VIEWS)

    @property
    def followed_parts(self):
        """As in `MomentumMethod`, and the prototypes."""
        return [*super().followed_parts, (self.prototypes, self.target_prototypes)]

    def build_branch(self):
        """Build the teacher's prototypes and the center."""
        projections.built_shape(self.target_prototypes, (None, self.projected_dim))
        only = {"trainable": False, "aggregation": "only_first_replica", "dtype": "float32"}
        self.center = self.add_weight(name="center", shape=(self.prototypes.count,), initializer="zeros", **only)

    def loss_terms(self, views, batch, context):
        """Compute distillation, probe and observations, and the logits of the first view."""
        images = [views[name] for name in self.host_view_names]
        embeddings, projected = self.represent_views(images)
        _, targets = self.represent_views(images[: len(VIEWS)], self.target_networks)
        stacked = tf.stop_gradient(self.target_prototypes(tf.concat(targets, axis=0)))
        self.carry(lambda: tf.reduce_mean(distribution.gather(stacked), axis=0))
        warmth = self.teacher_temperature
        warmth = tf.cast(warmth(context.step) if callable(warmth) else warmth, tf.float32)
        assigned = tf.split(tf.nn.softmax((stacked - self.center) / warmth), len(VIEWS))
        scores = tf.split(self.prototypes(tf.concat(projected, axis=0)), len(images))
        return self.predict_assignments(assigned, scores, projected[: len(VIEWS)], embeddings, batch)

    def after_update(self):
        """Move the teacher and the center."""
        super().after_update()
        mean = (1.0 - self.center_momentum) * self.carried()
        self.center.assign(self.center_momentum * self.center + mean)

    def finish(self):
        """Give the encoder the weights of the teacher's encoder, with its statistics."""
        for weight, teacher in weight_pairs(self.encoder, self.target_encoder):
            weight.assign(teacher.value)

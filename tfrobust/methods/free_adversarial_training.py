"""Adversarial training for free: one gradient updates the weights and the perturbations."""

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM
from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.common.settings import require_least, require_share
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.method import Method
from tfrobust.ops import distribution, norms


@keras.saving.register_keras_serializable(package="tfrobust")
class FreeAdversarialTraining(Method):
    """Cross-entropy of perturbed images, with perturbations that move by the gradients of the training itself.

    L = ce_adv = CE( h(clip(x + d)), y ). Each batch is replayed m times. The gradient of each replay updates the
    weights, and the perturbation d of each row of the batch: d <- P(d + epsilon v), with v the steepest direction and P
    the projection onto the ball of radius epsilon. d is carried over to the images that have this row in the next
    batch. A step of the training loop is m updates, so that the authors divide the number of epochs by m; the schedule
    of a learning rate counts updates.

    Terms: `ce_adv`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> threat = robust.attacks.ThreatModel(epsilon=0.1)
        >>> method = robust.methods.FreeAdversarialTraining(*parts, threat=threat, replays=2, rows=20)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, batch_size=20, verbose=0).history), int(method.step)
        (['ce_adv', 'loss'], 2)

    Args:
        encoder, head: as in `Method`.
        threat: ball and pixel box, with their radius. The norm is 'linf' or 'l2'.
        replays: m, updates per batch, >= 1.
        rows: rows of the perturbation, at least as many as a global batch has.
        label_smoothing: s in [0, 1), as in `AdversarialTraining`.
        **kwargs: as in `Method`.

    Raises:
        ValueError: a number out of its range, or a batch with more rows.

    Source:
        Shafahi et al. 2019, https://arxiv.org/abs/1904.12843, algorithm 1; ashafahi/free_adv_train @ c42cac2c, m = 8.
    """

    terms = ("ce_adv",)
    no_accumulation = "updates the weights in every replay of a batch"
    learned_views = ("perturbation",)

    def __init__(
        self,
        encoder,
        head,
        *,
        threat: ThreatModel | None = None,
        replays: int = 8,
        rows: int = 128,
        label_smoothing: float = 0.0,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.threat = required_threat(threat, "FreeAdversarialTraining")
        self.replays = require_least(replays, "FreeAdversarialTraining.replays", 1)
        self.rows = require_least(rows, "FreeAdversarialTraining.rows", 1)
        self.label_smoothing = require_share(label_smoothing, "FreeAdversarialTraining.label_smoothing")
        norms.check_kind(self.threat.norm, ("linf", "l2"))
        checks.refuse_frames(self)

    @property
    def adversary(self) -> Adversary:
        """The single step that each replay takes, as reports describe it."""
        return Adversary(attack=FGSM(self.threat), mode="train")

    @property
    def passes_per_step(self):
        """One pass per replay."""
        return self.replays

    @property
    def updates_per_step(self):
        """One update per replay."""
        return self.replays

    def build_parts(self, example_shape, embedding_dim):
        """Create the perturbation of each row of a batch."""
        only = {"trainable": False, "aggregation": "only_first_replica", "dtype": "float32"}
        shape = (self.rows, *example_shape)
        self.perturbation = self.add_weight(name="perturbation", shape=shape, initializer="zeros", **only)

    def train_step(self, data):
        """Run the updates of one batch; return the current value of each metric by name."""
        for _ in range(self.replays):
            logs = super().train_step(data)
        return logs

    def make_views(self, batch, context):
        """Return the images and the perturbations of their rows."""
        count, replicas = batch.images.shape[0], distribution.replica()[0]
        if count is not None and count * replicas > self.rows:
            raise InputError(
                f"FreeAdversarialTraining.rows is {self.rows}, but a batch has {count * replicas} rows: set rows to "
                "BATCH_SIZE."
            )
        return {"images": batch.images, "perturbation": tf.gather(self.perturbation.value, context.rows)}

    def loss_terms(self, views, batch, context):
        """Compute `ce_adv`, and the logits of the perturbed images."""
        perturbed = tf.clip_by_value(views["images"] + views["perturbation"], *self.threat.bounds)
        _, logits = self.propagate(perturbed)
        targets = classification.smoothed(batch.labels, logits.shape[-1], self.label_smoothing)
        return {"ce_adv": classification.cross_entropy(logits, targets)}, logits

    def update_views(self, views, gradients, context):
        """Move the perturbations of this batch up the gradient."""
        threat, slope = self.threat, gradients["perturbation"]
        slope = tf.where(tf.math.is_finite(slope), slope, 0.0)  # a skipped step of loss scaling
        moved = threat.step(views["perturbation"], slope, threat.epsilon)
        moved = distribution.gather(norms.project_ball(moved, threat.norm, threat.epsilon))
        count = tf.shape(moved)[0] if moved.shape[0] is None else moved.shape[0]
        perturbations = tf.concat([moved, self.perturbation.value[count:]], axis=0)
        self.perturbation.assign(tf.ensure_shape(perturbations, self.perturbation.shape))

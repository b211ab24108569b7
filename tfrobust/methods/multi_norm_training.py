"""Adversarial training over several norms: E-AT (Croce & Hein, 2022), MAX and AVG."""

import functools

import keras
import tensorflow as tf

from tfrobust.attacks.msd import MSD
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.shared.adversarial_terms import adversarial_views
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.method import Method
from tfrobust.ops import distribution, randomness
from tfrobust.ops.shapes import select

RULES = ("drawn", "worst", "average")


def draw_probabilities(counts: tf.Tensor) -> tf.Tensor:
    """Return the probabilities with which E-AT draws the attack of a batch: proportional to 1 - robust accuracy.

    Args:
        counts: float32 [m, 2], the correct and all examples of each attack so far.

    Returns:
        float32 [m]; equal until each attack has examples, and if all accuracies are 1.
    """
    accuracies = tf.math.divide_no_nan(counts[:, 0], counts[:, 1])
    errors = tf.where(tf.reduce_all(counts[:, 1] > 0), 1.0 - accuracies, tf.ones_like(accuracies))
    total = tf.reduce_sum(errors)
    return tf.where(total > 0, errors / total, 1.0 / counts.shape[0])


@keras.saving.register_keras_serializable(package="tfrobust")
class MultiNormTraining(Method):
    """Cross-entropy on adversarial examples of several attacks, usually one in each of several norms.

    L = ce_adv, by the `rule`:

    | rule | ce_adv | attacks per step |
    |---|---|---|
    | "drawn" | of one attack per batch, drawn with probabilities proportional to 1 - its robust accuracy (E-AT) | one |
    | "worst" | of each image's adversarial example with the largest loss (MAX) | all |
    | "average" | the mean over the attacks (AVG) | all |

    The robust accuracies of "drawn" count all batches since the first step, at the points on which the step trains, in
    inference mode. Until each attack was drawn once, all are equally likely. E-AT attacks in Linf and L1, whose joint
    convex hull contains the L2 ball, and takes three epochs from a model that is robust in one norm. `attacks` with one
    `MSD` is the training of Maini et al. The attacks run in inference mode of batch norm.

    Terms: `ce_adv`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> threats = [robust.attacks.threat_of(norm, radii=(0.1, 0.5, 2.0)) for norm in ("linf", "l1")]
        >>> attacks = [robust.attacks.PGD(threat, steps=2) for threat in threats]
        >>> method = robust.methods.MultiNormTraining(*parts, attacks=attacks)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, batch_size=10, verbose=0).history)
        ['ce_adv', 'loss']
        >>> int(method.counts[:, 1].numpy().sum())
        20

    Args:
        encoder, head: as in `Method`.
        attacks: the attacks, with one pixel box. A report names the threat model of the first as that of the training.
        rule: "drawn", "worst" or "average".
        **kwargs: as in `Method`.

    Raises:
        InputError: no attacks, several pixel boxes, or an unknown rule.

    Source:
        Croce & Hein 2022, https://arxiv.org/abs/2105.12508 (E-AT), github.com/fra31/robust-finetuning; MAX and AVG:
        Tramèr & Boneh 2019, https://arxiv.org/abs/1904.13000. The authors of E-AT count an image as robust if no
        iterate of the attack is misclassified; here its last or best point decides.
    """

    terms = ("ce_adv",)
    differentiable_views = ("adversarial",)

    def __init__(self, encoder, head, *, attacks: tuple[Attack, ...] = (), rule: str = "drawn", **kwargs):
        super().__init__(encoder, head, **kwargs)
        self.attacks = tuple(attacks)
        self.rule = require_choice(rule, "MultiNormTraining.rule", RULES)
        if not self.attacks or len({attack.threat.bounds for attack in self.attacks}) > 1:
            raise InputError(
                "MultiNormTraining.attacks needs attacks with one pixel box, such as PGD in linf and PGD in l1."
            )
        # As reports describe the training: within the threat models of all attacks.
        threats = [threat for attack in self.attacks for threat in getattr(attack, "threats", (attack.threat,))]
        described = MSD(tuple(threats), steps=max(attack.steps for attack in self.attacks))
        described.name = "_".join(dict.fromkeys(attack.name for attack in self.attacks))
        self.adversary = Adversary(attack=described)

    @property
    def passes_per_step(self):
        """Passes per step: those of the attacks, of their points in inference mode, and of the training."""
        steps = [attack.steps for attack in self.attacks]
        return {"drawn": max(steps) + 2, "worst": sum(steps) + len(steps) + 1, "average": sum(steps) + len(steps)}[
            self.rule
        ]

    def build_parts(self, example_shape, embedding_dim):
        """Create the counts of correct and of all examples of each attack."""
        if self.rule == "drawn":
            only = {"trainable": False, "aggregation": "only_first_replica", "dtype": "float32"}
            self.counts = self.add_weight(name="counts", shape=(len(self.attacks), 2), initializer="zeros", **only)

    def make_views(self, batch, context):
        """Return the images, and adversarial examples of the rule; of "drawn" also which of them are correct."""

        def attacked(attack):
            points = adversarial_views(self, Adversary(attack=attack, objective="cross_entropy"), batch, context)
            return tf.ensure_shape(points["adversarial"], batch.images.shape)

        makers = [functools.partial(attacked, attack) for attack in self.attacks]
        if self.rule == "drawn":
            points = tf.ensure_shape(tf.switch_case(self.drawn(context), makers), batch.images.shape)
            predicted = tf.argmax(self.propagate(points, training=False)[1], axis=-1, output_type=tf.int32)
            correct = tf.cast(predicted == batch.labels, tf.float32)
            return {"images": batch.images, "adversarial": points, "correct": correct}
        first, *further = (make() for make in makers)
        if self.rule == "worst":
            first, further = self._worst([first, *further], batch.labels), []
        named = {f"further_{number + 1}": points for number, points in enumerate(further)}
        return {"images": batch.images, "adversarial": first, **named}

    def loss_terms(self, views, batch, context):
        """Compute `ce_adv`, and the logits of the first adversarial examples."""
        points = [view for name, view in views.items() if name == "adversarial" or name.startswith("further_")]
        logits = [view_logits for _, view_logits in self.propagate_views(*points, forward="separate")]
        losses = [cross_entropy(view_logits, batch.labels) for view_logits in logits]
        return {"ce_adv": tf.add_n(losses) / len(losses)}, logits[0]

    def update_views(self, views, gradients, context):
        """Count the correct and all examples of the drawn attack, over all replicas."""
        if self.rule != "drawn":
            return
        correct = tf.cast(views["correct"], tf.float32)
        both = distribution.global_sum(tf.stack([tf.reduce_sum(correct), tf.cast(tf.size(correct), tf.float32)]))
        self.counts.assign_add(tf.one_hot(self.drawn(context), len(self.attacks))[:, None] * both)

    def drawn(self, context) -> tf.Tensor:
        """Return the position of the attack of this step's batch, int32 scalar, equal on all replicas."""
        ends = tf.cumsum(draw_probabilities(self.counts.value))[:-1]
        number = tf.random.stateless_uniform([], randomness.fold(context.key, "attack"))
        return tf.reduce_sum(tf.cast(number >= ends, tf.int32))

    def _worst(self, candidates: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        """Return each image's candidate with the largest cross-entropy in inference mode; the first of equal ones."""
        losses = [cross_entropy(self.propagate(points, training=False)[1], labels) for points in candidates]
        worst, largest = candidates[0], losses[0]
        for points, loss in zip(candidates[1:], losses[1:], strict=True):
            worst, largest = select(loss > largest, points, worst), tf.maximum(largest, loss)
        return worst

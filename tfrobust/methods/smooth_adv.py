"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al., 2019)."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared import modes, objectives
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.classification import cross_entropy
from tfrobust.losses.consistency import mixture_cross_entropy
from tfrobust.methods.shared.adversary import Adversary, of_method
from tfrobust.methods.shared.noisy_copies import NoisyCopiesMethod
from tfrobust.ops import randomness

AVERAGED = ("losses", "probabilities")


@keras.saving.register_keras_serializable(package="tfrobust")
class SmoothAdv(NoisyCopiesMethod):
    """Cross-entropy of noisy copies of an adversarial example of their mean prediction.

    "losses":         ce_adv = 1/m sum_i -log h_y(x^a + sigma n_i), the mean over the copies
    "probabilities":  ce_adv = -log( 1/m sum_i h_y(x^a + sigma n_i) ), that of the mean prediction

    In both cases x^a maximizes the latter, within the attack's threat model. The m draws n_i are the same throughout
    the attack and in the loss.

    Terms: `ce_adv`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="l2", epsilon=0.25)
        >>> attack = robust.attacks.PGD(threat, steps=2, random_start="none")
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.SmoothAdv(*parts, sigma=0.25, attack=attack)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce_adv', 'loss']

    Args:
        encoder, head: as in `Method`.
        adversary: attack and mode of batch norm that find x^a, for the objective above. The authors' attack is PGD in
            L2 with 10 steps of 2 epsilon / 10, and no random start.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        averaged: what the loss averages over the copies, "losses" or "probabilities".
        **kwargs: as in `NoisyCopiesMethod`: sigma, copies, forward.

    Raises:
        ValueError: an adversary with another objective than "cross_entropy", or an unknown `averaged`.

    Source:
        Salman et al. 2019, https://arxiv.org/abs/1906.04584, eqs 5 to 7; Hadisalman/smoothing-adversarial @ cff781d5,
        whose training program is that of the paper's tables. It averages the losses (with `--train-multi-noise`, else
        it trains on the first copy alone); that of the mean prediction is the attack's. It raises epsilon over the
        first 10 epochs (`Adversary.ramp`), and clips to the pixel box before it projects onto the ball. Here the
        projection onto both is exact.
    """

    terms = ("ce_adv",)

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: Adversary | None = None,
        attack: Attack | None = None,
        averaged: str = "losses",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.averaged = require_choice(averaged, "SmoothAdv.averaged", AVERAGED)
        self.adversary = of_method("SmoothAdv", adversary, attack, "cross_entropy")
        if self.adversary.objective != "cross_entropy":
            raise InputError(
                f"SmoothAdv.adversary has the objective {self.adversary.objective!r}; it maximizes the cross-entropy."
            )

    @property
    def passes_per_step(self):
        """Passes per step: of each copy one per attack step, and one for the loss."""
        return self.copies * (self.adversary.attack.steps + 1)

    def make_views(self, batch, context):
        """Return the noisy copies of the adversarial examples."""
        for part in (self.encoder, self.head):
            modes.check_mode(self.adversary.mode, part)
        noises = self.draw_noises(batch, context)
        forward = modes.forward_in_mode(self._logits, self.adversary.mode)

        def objective(points):
            together = tf.concat([points + noise for noise in noises], axis=0)
            # A confident model's gradients are below the smallest float16. The copies of an image have one scale.
            rows = tf.concat(tf.split(forward(together), self.copies), axis=-1)
            rows = objectives.in_range(rows, per_example=self.adversary.mode == "inference")
            return mixture_cross_entropy(tf.split(rows, self.copies, axis=-1), batch.labels)

        key = randomness.fold(context.key, "adversary")
        adversarial = self.adversary.search(objective, batch.images, key, context.step)
        return {f"copy_{number}": adversarial + noise for number, noise in enumerate(noises)}

    def loss_terms(self, views, batch, context):
        """Compute the cross-entropy of the copies or of their mean prediction, and the logits of the first copy."""
        logits = self.logits_of_copies(views)
        if self.averaged == "probabilities":
            return {"ce_adv": mixture_cross_entropy(logits, batch.labels)}, logits[0]
        return {
            "ce_adv": tf.add_n([cross_entropy(copy_logits, batch.labels) for copy_logits in logits]) / self.copies
        }, logits[0]

    def _logits(self, images, training):
        return self.propagate(images, training=training)[1]

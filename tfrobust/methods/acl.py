"""ACL: adversarial contrastive learning, with separate batch-norm branches for clean and adversarial views."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.modes import check_mode
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.methods.rocl import adversary_of_first, projected
from tfrobust.methods.shared.adversary import of_method
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.shared.nt_xent import NTXentMethod
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.ops import randomness

ADVERSARIAL = ("adversarial_1", "adversarial_2")
# Stream -> its terms and their weights.
STREAMS = {
    "standard_to_standard": {"contrastive": 1.0},
    "adversarial_to_adversarial": {"adversarial": 1.0},
    "adversarial_to_standard": {"adversarial": 1.0},
    "dual_stream": {"contrastive": 0.5, "adversarial": 0.5},
}


@keras.saving.register_keras_serializable(package="tfrobust")
class ACL(NTXentMethod):
    """Contrastive learning with adversarial views, in place of or in addition to clean views, without labels.

        standard_to_standard         NT-Xent(x1, x2): SimCLR
        adversarial_to_adversarial   NT-Xent(x1^a, x2^a)
        adversarial_to_standard      NT-Xent(x1^a, x2), x1^a in batch-norm branch 1, x2 in branch 0
        dual_stream                  ( NT-Xent(x1, x2) in branch 0 + NT-Xent(x1^a, x2^a) in branch 1 ) / 2

    x1^a and x2^a jointly maximize their own NT-Xent, each inside the ball of its view. A single x1^a maximizes its loss
    against x2. With `false_negatives=AdaptiveFNC()` the method is Augmented-ACL (Gupta et al. 2023).

    Terms: `contrastive` of the clean views, `adversarial` of the others, `probe`. Needs: labels for the probe only.
    `call` runs branch 0; fine-tuning on the robust statistics starts from branch 1.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=5)
        >>> parts = robust.models.DigitsCNN(branches=2), robust.models.LinearHead(10)
        >>> method = robust.methods.ACL(*parts, attack=attack)
        >>> method.terms, method.default_weights
        (('contrastive', 'adversarial', 'probe'), {'contrastive': 0.5, 'adversarial': 0.5})

    Args:
        encoder: as in `Method`, with branches=2 for the two streams that use both branches.
        head: as in `Method`.
        streams: which views are contrasted with each other, one of the four above.
        adversary: how adversarial views are generated; in the released code within Linf 8/255, in 5 steps of 2/255.
            "standard_to_standard" takes none.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        **kwargs: as in `NTXentMethod`.

    Raises:
        ValueError: unknown `streams`, an adversary for "standard_to_standard", or an encoder with too few branches.

    Source:
        Jiang et al. 2020, https://arxiv.org/abs/2010.13337, section 3. The released code has the first and the last
        stream.
    """

    def __init__(
        self,
        encoder,
        head,
        *,
        streams: str = "dual_stream",
        adversary: InstanceAdversary | None = None,
        attack: Attack | None = None,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.streams = require_choice(streams, "ACL.streams", STREAMS)
        alone = streams == "standard_to_standard"
        if alone and not adversary is attack is None:
            raise InputError(f"ACL.streams {streams!r} contrasts clean views only: set adversary=None.")
        self.adversary = None if alone else of_method("ACL", adversary, attack, kind=InstanceAdversary)
        if self.branch and getattr(encoder, "branches", 1) < 2:
            raise InputError(
                f"ACL.streams {streams!r} needs separate batch-norm branches: create the encoder with branches=2."
            )

    @property
    def branch(self) -> int:
        """The batch-norm branch of the adversarial views, 0 or 1."""
        return int(self.streams in ("dual_stream", "adversarial_to_standard"))

    @property
    def own_terms(self):
        """The terms of the streams."""
        return tuple(STREAMS[self.streams])

    @property
    def default_weights(self):
        """The weights of the streams: 1, or 1/2 each for two streams."""
        return STREAMS[self.streams]

    @property
    def differentiable_views(self):
        """The views that are contrasted; the clean ones if there are two streams."""
        views = {"adversarial_to_adversarial": ADVERSARIAL, "adversarial_to_standard": (ADVERSARIAL[0], VIEWS[1])}
        return views.get(self.streams, VIEWS)

    @property
    def passes_per_step(self):
        """Passes per step: those of the attack on each view, of the views themselves and of the clean targets."""
        if self.adversary is None:
            return 2
        steps = self.adversary.attack.steps
        return {
            "adversarial_to_adversarial": 2 * steps + 2,
            "adversarial_to_standard": steps + 3,
            "dual_stream": 2 * steps + 4,
        }[self.streams]

    def make_views(self, batch, context):
        """Return the clean views and, except for the clean stream, the adversarial views."""
        views = super().make_views(batch, context)
        if self.adversary is None:
            return views
        if self.streams == "adversarial_to_standard":
            return {**views, ADVERSARIAL[0]: adversary_of_first(self, views, context, branch=self.branch)}
        for part in (self.encoder, self.projection):
            check_mode(self.adversary.mode, part)
        adversarial = self.adversary.jointly(
            lambda images, training: projected(self, images, training, self.branch),
            tuple(views[name] for name in VIEWS),
            context.rows,
            randomness.fold(context.key, "adversary"),
            temperature=self.temperature_at(context.step),
            step=context.step,
        )
        return {**views, **dict(zip(ADVERSARIAL, adversarial, strict=True))}

    def loss_terms(self, views, batch, context):
        """Compute NT-Xent of each stream, the probe, and the observations of the first stream."""
        streams = self._streams(views)
        terms, observed = {}, {}
        for name, passes in streams.items():
            features, projections = zip(*passes, strict=True)
            terms[name], seen = self.contrast(projections, context, batch, features=features)
            observed = observed or seen  # of the clean stream if there is one
        probes, logits = self.probe_terms(self._probed(streams), batch)
        return {**terms, **observed, **probes}, logits

    def _streams(self, views: dict) -> dict:
        """Map each term to the (embedding, projection) of the views that it contrasts."""
        if self.streams == "adversarial_to_standard":
            adversarial = self.represent(views[ADVERSARIAL[0]], branch=self.branch)
            return {"adversarial": adversarial + self.represent(views[VIEWS[1]])}
        names = {"contrastive": (VIEWS, 0), "adversarial": (ADVERSARIAL, self.branch)}
        return {
            term: self.represent(*(views[name] for name in names[term][0]), branch=names[term][1])
            for term in STREAMS[self.streams]
        }

    def _probed(self, streams: dict) -> list[tf.Tensor]:
        """Return the embeddings of branch 0, which `call` passes to the head."""
        if self.streams == "adversarial_to_standard":
            return [streams["adversarial"][1][0]]
        return [embedding for embedding, _ in next(iter(streams.values()))]

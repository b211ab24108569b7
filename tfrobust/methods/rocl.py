"""RoCL: robust contrastive learning, with adversaries of instances instead of classes."""

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.instance_adversary import InstanceAdversary
from tfrobust.attacks.modes import check_mode
from tfrobust.attacks.threat import ThreatModel
from tfrobust.errors import InputError
from tfrobust.methods.contrastive import Contrastive
from tfrobust.methods.self_supervised import VIEWS
from tfrobust.ops import randomness

ADVERSARIAL = "adversarial_1"
REGULARIZER_PASSES = ("shared", "own")


@keras.saving.register_keras_serializable(package="tfrobust")
class RoCL(Contrastive):
    """Contrasts two views of an image and an adversary of the first one, without labels.

    L = contrastive + 1/256 adversarial. The adversary maximises the loss of view 1 against view 2 (instance-wise
    attack); `contrastive` is NT-Xent over all three, each with two positives; `adversarial` is NT-Xent of adversary and
    view 2 alone. With `false_negatives=AdaptiveFNC()` it is Augmented-RoCL (paper 004).

    Terms: `contrastive`, `adversarial`, `probe`. Needs: labels for the probe alone.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.RoCL(*parts, adversary=robust.methods.InstanceAdversary(attack=attack), probe=False)
        >>> method.compile("adam")
        >>> images = np.random.rand(20, 8, 8, 1)
        >>> sorted(method.fit(images, np.zeros(20), verbose=0).history)
        ['adversarial', 'contrastive', 'embedding_deviation', 'loss']

    Source:
        Kim et al. 2020, https://arxiv.org/abs/2006.07589, and its released code. The paper prints the sum over the
        positives inside the logarithm, the code outside, as here. The code adds up both positives of an anchor, which
        is term weight `contrastive` = 2, and is otherwise `detached_keys`, `regularizer_pass="own"` and
        `InstanceAdversary(negatives="moving")`.
    """

    default_weights = {"adversarial": 1 / 256}

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: InstanceAdversary | None = None,
        detached_keys: bool = False,
        regularizer_pass: str = "shared",
        **kwargs,
    ):
        """Args beyond the bases':

        adversary: how the adversary is made; by default the released code's, Linf 0.0314 in 7 steps of 0.007.
        detached_keys: no gradient flows through the second factor of a similarity (the released code).
        regularizer_pass: "shared": `adversarial` is taken from the pass of `contrastive`. "own": adversary and view 2
            pass once more by themselves, which batch norm sees (the released code).
        """
        super().__init__(encoder, head, **kwargs)
        if regularizer_pass not in REGULARIZER_PASSES:
            raise InputError(f"RoCL.regularizer_pass is {regularizer_pass!r}; it is one of {list(REGULARIZER_PASSES)}.")
        self.adversary = adversary or InstanceAdversary(
            attack=PGD(ThreatModel(epsilon=0.0314), steps=7, step_size=0.007)
        )
        self.detached_keys = detached_keys
        self.regularizer_pass = regularizer_pass

    @property
    def terms(self):
        return ("contrastive", "adversarial", *self.probe_names)

    @property
    def passes_per_step(self):
        return self.adversary.attack.steps + (4 if self.regularizer_pass == "shared" else 6)

    def make_views(self, batch, context):
        views = super().make_views(batch, context)
        return {**views, ADVERSARIAL: adversary_of_first(self, views, context)}

    def loss_terms(self, views, batch, context):
        passes = self.represent(*(views[name] for name in (*VIEWS, ADVERSARIAL)))
        features, projections = zip(*passes, strict=True)
        terms, observed = self.contrast(projections, context, batch, features=features)
        pair = [passes[2], passes[1]]
        if self.regularizer_pass == "own":
            pair = self.represent(views[ADVERSARIAL], views[VIEWS[1]])
        regularizer, _ = self.contrast(
            [projection for _, projection in pair], context, batch, features=[feature for feature, _ in pair]
        )
        probes, logits = self.probe_terms(features[:2], batch)
        return {"contrastive": terms, "adversarial": regularizer, **observed, **probes}, logits


def adversary_of_first(method: Contrastive, views: dict, context, *, branch: int = 0) -> tf.Tensor:
    """The adversary of view 1 by one batch-norm branch, against clean views in branch 0; [b, h, w, c]."""
    adversary = method.adversary
    for part in (method.encoder, method.projection):
        check_mode(adversary.mode, part)  # a bare function hides the layers from the check that the attack makes
    # Clean views are embedded as they will be served, whatever the adversary's mode.
    clean = projected(method, tf.concat([views[name] for name in VIEWS], axis=0), False)
    return adversary.against(
        lambda images, training: projected(method, images, training, branch),
        views[VIEWS[0]],
        tuple(tf.split(clean, 2)),
        context.rows,
        randomness.fold(context.key, "adversary"),
        temperature=method.temperature_at(context.step),
    )


def projected(method: Contrastive, images: tf.Tensor, training: bool, branch: int = 0) -> tf.Tensor:
    """The projections [b, d] of images by one batch-norm branch."""
    keywords = {"branch": branch} if branch else {}  # a plain Keras model knows no branches
    embedding = method.encoder(images, training=training and method.encoder.trainable, **keywords)
    return method.project(embedding, training, branch)

"""RoCL: robust contrastive learning with instance-wise adversarial examples."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.modes import check_mode
from tfrobust.common.settings import require_choice
from tfrobust.methods.shared.adversary import of_method
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.shared.nt_xent import NTXentMethod
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.ops import randomness

ADVERSARIAL = "adversarial_1"
REGULARIZER_PASSES = ("shared", "own")


@keras.saving.register_keras_serializable(package="tfrobust")
class RoCL(NTXentMethod):
    """Contrastive learning with two views of an image and an adversarial example of the first, without labels.

    L = contrastive + 1/256 adversarial. The adversarial example maximizes the loss of view 1 against view 2
    (instance-wise attack). `contrastive` is NT-Xent over all three views, each with two positives. `adversarial` is
    NT-Xent of the adversarial example and view 2 alone. With `false_negatives=AdaptiveFNC()` the method is
    Augmented-RoCL (Gupta et al. 2023).

    Terms: `contrastive`, `adversarial`, `probe`. Needs: labels for the probe only.

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

    Args:
        encoder, head: as in `Method`.
        adversary: how adversarial examples are generated; in the released code within Linf 0.0314, in 7 steps of 0.007.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        detached_keys: stop the gradient through the second factor of a similarity (the released code).
        regularizer_pass: "shared": `adversarial` uses the forward pass of `contrastive`. "own": the adversarial example
            and view 2 have a second pass of their own, with their own batch statistics (the released code).
        **kwargs: as in `NTXentMethod`.

    Raises:
        ValueError: an unknown `regularizer_pass`.

    Source:
        Kim et al. 2020, https://arxiv.org/abs/2006.07589, and its released code. The paper prints the sum over the
        positives inside the logarithm. The code has it outside, as here. The code adds up both positives of an anchor,
        which is the term weight `contrastive` = 2. Its other settings are `detached_keys`, `regularizer_pass="own"` and
        `InstanceAdversary(negatives="moving")`.
    """

    own_terms = ("contrastive", "adversarial")
    default_weights = {"adversarial": 1 / 256}

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: InstanceAdversary | None = None,
        attack: Attack | None = None,
        detached_keys: bool = False,
        regularizer_pass: str = "shared",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.adversary = of_method("RoCL", adversary, attack, kind=InstanceAdversary)
        self.detached_keys = detached_keys
        self.regularizer_pass = require_choice(regularizer_pass, "RoCL.regularizer_pass", REGULARIZER_PASSES)

    @property
    def passes_per_step(self):
        """Passes per step: the attack, its clean targets and three views, and two for an own regularizer pass."""
        return self.adversary.attack.steps + (4 if self.regularizer_pass == "shared" else 6)

    def make_views(self, batch, context):
        """Return the two clean views and the adversarial example of the first."""
        views = super().make_views(batch, context)
        return {**views, ADVERSARIAL: adversary_of_first(self, views, context)}

    def loss_terms(self, views, batch, context):
        """Compute both contrastive terms, the probe, and the logits of the first view."""
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


def adversary_of_first(method: NTXentMethod, views: dict, context, *, branch: int = 0) -> tf.Tensor:
    """Generate the adversarial example of view 1 against the clean views.

    Args:
        method: its encoder and projection are attacked.
        views: the clean views, float32 [b, h, w, c] each.
        context: key, step and rows of this step.
        branch: batch-norm branch of the adversarial example. The clean views pass branch 0.

    Returns:
        float32 [b, h, w, c].
    """
    adversary = method.adversary
    for part in (method.encoder, method.projection):
        check_mode(adversary.mode, part)  # the attack only gets a function, and cannot check the layers
    # Clean views are embedded in inference mode, in every mode of the adversary.
    clean = projected(method, tf.concat([views[name] for name in VIEWS], axis=0), False)
    return adversary.against(
        lambda images, training: projected(method, images, training, branch),
        views[VIEWS[0]],
        tuple(tf.split(clean, 2)),
        context.rows,
        randomness.fold(context.key, "adversary"),
        temperature=method.temperature_at(context.step),
        step=context.step,
    )


def projected(method: NTXentMethod, images: tf.Tensor, training: bool, branch: int = 0) -> tf.Tensor:
    """Return the projections [b, d] of images.

    Args:
        method: owns encoder and projection.
        images: float32 [b, h, w, c].
        training: whether batch norm uses the statistics of the batch.
        branch: batch-norm branch.
    """
    keywords = {"branch": branch} if branch else {}  # a plain Keras model has no branches
    embedding = method.encoder(images, training=training and method.encoder.trainable, **keywords)
    return method.project(embedding, training, branch)

"""FARE: unsupervised adversarial fine-tuning of an encoder towards its own embeddings."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared import modes
from tfrobust.attacks.shared.attack import Attack
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared import layer_losses, projections
from tfrobust.methods.shared.adversary import NOISY_STARTS, Adversary, of_method
from tfrobust.methods.shared.method import Method
from tfrobust.methods.shared.momentum import like, weight_pairs
from tfrobust.ops import randomness


@keras.saving.register_keras_serializable(package="tfrobust")
class FARE(Method):
    """Distance of the embedding of an adversarial example from that of its image before the training, without labels.

    L = distance + probe. distance = |e(x^a) - e_0(x)|^2, with e_0 the encoder at the start of the training in inference
    mode, and x^a the maximum of the same distance. A head that was made for e_0 fits e. probe is the cross-entropy of
    the head on e(x^a) with stopped gradients, so that the method has a classifier; the logged accuracy is that of these
    examples.

    Terms: `distance`, `probe`. Needs: labels for the probe only, and an encoder that was trained before
    (`train.pretrained`, or a Backbone with weights).

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.FARE(*parts, attack=attack)
        >>> method.compile("adam")
        >>> images = np.random.rand(20, 8, 8, 1)
        >>> sorted(method.fit(images, np.zeros(20), verbose=0).history)
        ['distance', 'loss', 'probe']

    Args:
        encoder, head: as in `Method`.
        adversary: attack and mode of batch norm that find x^a; it has no objective of its own. The authors' attack is
            PGD in Linf 2/255 or 4/255, with 10 steps.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        probe: False trains without labels and leaves the head unchanged; another method may train it later.
        **kwargs: as in `Method`.

    Raises:
        ValueError: an adversary with an objective, or an attack that starts at the image, where the distance has no
            gradient before the first update.

    Source:
        Schlarmann et al. 2024, https://arxiv.org/abs/2402.12336, and chs20/RobustVLM: AdamW 1e-5 with decay 1e-4,
        batches of 128, two epochs of ImageNet.
    """

    terms: tuple[str, ...] = ("distance", "probe")
    needs_labels = False  # the probe checks for labels itself

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: Adversary | None = None,
        attack: Attack | None = None,
        probe: bool = True,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.adversary = of_method("FARE", adversary, attack)
        self.probe = probe
        self.terms = ("distance", "probe") if probe else ("distance",)
        self.original = like(encoder, drop_path=0.0)
        if self.adversary.objective is not None:
            raise InputError(
                f"FARE.adversary has the objective {self.adversary.objective!r}; it maximizes the distance."
            )
        if self.adversary.starts_at_image:
            raise InputError(f"FARE.adversary starts at the image, where the distance is 0: {NOISY_STARTS}.")

    @property
    def passes_per_step(self):
        """Passes per step: those of the attack, the images, and their adversarial examples."""
        return self.adversary.attack.steps + 2

    @property
    def differentiable_terms(self):
        """The terms without the probe, as in `SelfSupervised`."""
        return ("distance",)

    @property
    def clipped_apart(self):
        """The variables of the probe, as in `SelfSupervised`."""
        return self.head.trainable_variables if self.probe else []

    def build_parts(self, example_shape, embedding_dim):
        """Build the frozen copy of the encoder."""
        projections.built_shape(self.original, (None, *example_shape))
        self.freeze_copies()
        self.start()

    def freeze_copies(self):
        """Freeze the copy of the encoder."""
        self.original.trainable = False

    def start(self):
        """Copy the weights of the encoder, also those that it was given."""
        super().start()
        for weight, copy in weight_pairs(self.encoder, self.original):
            copy.assign(weight.value)

    def make_views(self, batch, context):
        """Return the images, their adversarial examples, and the embeddings of the images before the training."""
        modes.check_mode(self.adversary.mode, self.encoder)
        targets = tf.stop_gradient(self.original(batch.images, training=False))
        forward = modes.forward_in_mode(self._embed, self.adversary.mode)
        adversarial = self.adversary.search(
            lambda points: squared_distance(forward(points), targets),
            batch.images,
            randomness.fold(context.key, "adversary"),
            context.step,
        )
        return {"images": batch.images, "adversarial": adversarial}

    def loss_terms(self, views, batch, context):
        """Compute `distance` and `probe`, and the logits of the adversarial examples."""
        embedding = self._embed(views["adversarial"], True)
        layer_losses.record(self.encoder)
        terms = {"distance": squared_distance(embedding, self.original(views["images"], training=False))}
        if not self.probe:
            return terms, None
        if batch.labels is None:
            raise InputError("FARE has no labels for its probe; probe=False trains without them.")
        logits = tf.cast(self.head(tf.stop_gradient(embedding), training=True), tf.float32)
        return terms | {"probe": classification.cross_entropy(logits, batch.labels)}, logits

    def _embed(self, images, training):
        return self.encoder(images, training=training and self.encoder.trainable)


def squared_distance(embedding: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return |embedding - target|^2 of each row [b, d], float32 [b]."""
    return tf.reduce_sum(tf.square(tf.cast(embedding, tf.float32) - tf.cast(target, tf.float32)), axis=-1)

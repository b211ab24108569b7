"""Feature contrastive learning: insensitive to what is useless in an image, sensitive to what is useful."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks import modes, objectives
from tfrobust.attacks.adversary import Adversary
from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.errors import InputError
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.adversarial import adversarial_views
from tfrobust.methods.base import Method, checked_forward
from tfrobust.methods.feature_contrast import FeatureContrast, FeatureObjective
from tfrobust.ops import randomness

COMBINATIONS = ("replace", "add")


@keras.saving.register_keras_serializable(package="tfrobust")
class FCL(Method):
    """Cross-entropy, and embeddings that noise on useless features leaves alone and noise on useful ones moves.

    L = ce + weight feature_contrast. u = |d CE / d x| says which values of an image the present model needs;
    z+ and z- are the embeddings of x with noise on the k of least and of most utility; `objective` sets them against
    z. The choice of features is a constant: nothing is differentiated through it. Of sentences, with `TokenRemoval`,
    u is how much the cross-entropy changes without a token, and z+ and z- are the embeddings without k of them.

    Terms: `ce`, `feature_contrast`, with an adversary `ce_adv` (its cross-entropy: FCL on top of adversarial
    training; images only). Observed: `usable`, the share of examples with any utility to speak of. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> waits = robust.schedules.LinearRamp(1e-3, delay=2, length=2, steps_per_unit=10)
        >>> method = robust.methods.FCL(*parts, term_weights={"feature_contrast": waits})
        >>> method.terms
        ('ce', 'feature_contrast')

    Source:
        Paper 000 (Kim et al. 2021), algorithm 1 and eq. 6; no code was released. The paper leaves open, and these
        arguments settle: `forward` and `mode` (what batch norm sees), `objective.scale` (whether its lambda is that of
        a sum or a mean), `perturbation.unit`.
    """

    observations = ("usable",)
    utility_passes = 1  # until it is built
    default_weights = {"feature_contrast": 1e-3}

    def __init__(
        self,
        encoder,
        head,
        *,
        perturbation: UtilityPerturbation | TokenRemoval | None = None,
        objective: FeatureObjective | None = None,
        teacher: Callable | None = None,
        combine: str = "replace",
        adversary: Adversary | None = None,
        forward: str = "separate",
        mode: str = "inference",
        **kwargs,
    ):
        """Args beyond the base's:

        perturbation: which features get noise, and how much; k = 256 values and 0.5 by default, which takes
            images of at least 512 values. `TokenRemoval` for
            sentences: which tokens are left out.
        objective: `FeatureContrast` (eq. 6, the default) or `FeatureMargin` (eq. 9).
        teacher: utility from elsewhere, (images, labels) -> float [b, h, w, c], such as `TeacherUtility`; None: the
            model's own.
        combine: what the teacher's utility does: "replace" the model's own, or "add" to it, each divided by its
            largest entry of the image.
        adversary: trains on its images as well; None for none.
        forward: "separate" passes for the images and each copy, or one "joint" pass.
        mode: what batch norm does while utility is measured: 'inference', 'batch' or 'train'.
        """
        super().__init__(encoder, head, **kwargs)
        self.perturbation = perturbation or UtilityPerturbation()
        self.objective = objective or FeatureContrast()
        self.teacher = teacher
        self.combine = combine
        self.adversary = adversary
        self.forward = checked_forward(forward)
        self.mode = modes.check_mode(mode)
        if combine not in COMBINATIONS:
            raise InputError(f"FCL.combine is {combine!r}; it is one of {list(COMBINATIONS)}.")
        if combine == "add" and teacher is None:
            raise InputError("FCL.combine 'add' adds the utility of a teacher to the model's own: it needs a teacher.")

    @property
    def trains_text(self):
        """Where tokens are left out; noise is for pixels."""
        return isinstance(self.perturbation, TokenRemoval)

    @property
    def terms(self):
        return ("ce", "feature_contrast") if self.adversary is None else ("ce", "feature_contrast", "ce_adv")

    def build_parts(self, image_shape, embedding_dim):
        of_text = len(image_shape) == 1
        if self.trains_text != of_text:
            kind, wanted = ("text", "TokenRemoval") if of_text else ("images", "UtilityPerturbation")
            name = type(self.perturbation).__name__
            raise InputError(
                f"FCL.perturbation is @{name}(), and the examples are {kind}, {list(image_shape)}: take @{wanted}()."
            )
        if not of_text:
            self.perturbation.check(image_shape)
        self.utility_passes = self.perturbation.passes(image_shape)

    def check_ready(self, image_shape, class_count):
        if hasattr(self.teacher, "check"):  # any function will do
            self.teacher.check(image_shape, class_count)

    @property
    def passes_per_step(self):
        return super().passes_per_step + 2 + self.utility_passes

    def make_views(self, batch, context):
        for part in (self.encoder, self.head):
            modes.check_mode(self.mode, part)
        views = {"images": batch.images}
        if self.adversary is not None:
            views = adversarial_views(self, self.adversary, batch, context)
        key = randomness.fold(context.key, "utility")
        noisy = self.perturbation(batch.images, self.utility(batch.images, batch.labels), key)
        return {**views, "least": noisy.least, "most": noisy.most, "usable": tf.cast(noisy.usable, tf.float32)}

    def utility(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """u of each input value (of each token), float32 in the shape of `images`, >= 0: what decides who is chosen."""
        if self.teacher is not None and self.combine == "replace":
            return tf.stop_gradient(self.teacher(images, labels))

        def predict(images, training):
            return self.propagate(images, training=training)[1]

        forward = modes.forward_in_mode(predict, self.mode)

        def objective(images, labels):
            return objectives.cross_entropy(forward, labels)(images)

        own = self.perturbation.utility(objective, images, labels)
        if self.teacher is None:
            return own
        return _by_largest(own) + _by_largest(tf.stop_gradient(self.teacher(images, labels)))

    def loss_terms(self, views, batch, context):
        names = ["images", "least", "most", *([] if self.adversary is None else ["adversarial"])]
        passes = self.propagate_views(*(views[name] for name in names), forward=self.forward)
        (clean, logits), (least, _), (most, _), *adversarial = passes
        terms = {
            "ce": cross_entropy(logits, batch.labels),
            "feature_contrast": self.objective(context.rows, clean, least, most, views["usable"] > 0),
            "usable": views["usable"],
        }
        if adversarial:
            terms["ce_adv"] = cross_entropy(adversarial[0][1], batch.labels)
        return terms, logits


def _by_largest(utility: tf.Tensor) -> tf.Tensor:
    """Divided by the largest entry of each image; 0 stays 0."""
    largest = tf.reduce_max(utility, axis=list(range(1, utility.shape.rank)), keepdims=True)
    return tf.math.divide_no_nan(utility, largest)

"""Feature contrastive learning: insensitive to useless features of an image, sensitive to useful ones."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.shared import modes, objectives
from tfrobust.attacks.shared.attack import Attack
from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.common.kinds import OF_PIXELS, TEXT, kind_of, takes
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.shared.adversarial_terms import adversarial_views
from tfrobust.methods.shared.adversary import Adversary, of_method
from tfrobust.methods.shared.feature_objectives import FeatureContrast, FeatureObjective
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.methods.shared.teacher import Teacher
from tfrobust.ops import randomness

COMBINATIONS = ("replace", "add")


@keras.saving.register_keras_serializable(package="tfrobust")
class FCL(Method):
    """Cross-entropy, and embeddings that are invariant to noise on useless features and change with useful ones.

    L = ce + weight feature_contrast. u = |d CE / d x| is the utility: how much the current model depends on each value
    of an image. z+ and z- are the embeddings of x with noise on the k values of least and of most utility, which
    `objective` contrasts with z. The choice of features is a constant: no gradient flows through it. For sentences,
    with `TokenRemoval`, u is the change of the cross-entropy when a token is removed, and z+ and z- are the embeddings
    without k tokens.

    Terms: `ce`, `feature_contrast`, and with an adversary `ce_adv` (the cross-entropy on adversarial examples: FCL in
    addition to adversarial training; images only). Observed: `usable`, the share of examples whose largest utility is
    not negligible. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> waits = robust.schedules.LinearRamp(1e-3, delay=2, length=2, steps_per_unit=10)
        >>> method = robust.methods.FCL(*parts, term_weights={"feature_contrast": waits})
        >>> method.terms
        ('ce', 'feature_contrast')

    Args:
        encoder, head: as in `Method`.
        perturbation: which features get noise, and how much. By default k = 256 values and deviation 0.5, which needs
            images of at least 512 values. `TokenRemoval` for sentences: which tokens are removed.
        objective: `FeatureContrast` (eq. 6, the default) or `FeatureMargin` (eq. 9).
        teacher: utility of another model, (images, labels) -> float [b, h, w, c], such as `TeacherUtility`. None:
            utility of the model itself.
        combine: "replace" the model's own utility by the teacher's, or "add" both, each divided by its largest entry
            per image.
        adversary: adds the cross-entropy on its adversarial examples; None for none.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        forward: "separate" passes for the images and each copy, or one "joint" pass.
        mode: mode of batch norm while utility is measured: 'inference', 'batch' or 'train'.
        **kwargs: as in `Method`.

    Raises:
        ValueError: unknown `combine`, `forward` or `mode`, or "add" without a teacher; when built, examples that do not
            fit the perturbation.

    Source:
        Kim et al. 2021, algorithm 1 and eq. 6; no code was released. Arguments cover what the paper leaves
        open: `forward` and `mode` (the statistics of batch norm), `objective.scale` (whether lambda belongs to a sum or
        a mean), `perturbation.unit`.
    """

    observations = ("usable",)
    utility_passes = 1  # replaced when it is built
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
        attack: Attack | None = None,
        forward: str = "separate",
        mode: str = "inference",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.perturbation = perturbation or UtilityPerturbation()
        self.objective = objective or FeatureContrast()
        self.teacher = teacher
        self.combine = combine
        has_adversary = adversary is not None or attack is not None
        self.adversary = of_method("FCL", adversary, attack, "cross_entropy") if has_adversary else None
        self.forward = checked_forward(forward)
        self.mode = modes.check_mode(mode)
        require_choice(combine, "FCL.combine", COMBINATIONS)
        if combine == "add" and teacher is None:
            raise InputError("FCL.combine 'add' adds the utility of a teacher to the model's own: it needs a teacher.")

    @property
    def kinds(self):
        """Text with `TokenRemoval`; noise applies to pixels only."""
        return (TEXT.name,) if isinstance(self.perturbation, TokenRemoval) else OF_PIXELS

    @property
    def terms(self):
        """`ce`, `feature_contrast` and, with an adversary, `ce_adv`."""
        return ("ce", "feature_contrast") if self.adversary is None else ("ce", "feature_contrast", "ce_adv")

    def build_parts(self, example_shape, embedding_dim):
        """Check that the perturbation fits the examples, and estimate the cost of their utility."""
        kind = kind_of(example_shape)
        if not takes(self, kind):
            fitting = "TokenRemoval" if kind is TEXT else "UtilityPerturbation"
            name = type(self.perturbation).__name__
            raise InputError(
                f"FCL.perturbation is @{name}(), and the examples are {kind.name}, {list(example_shape)}: take "
                f"@{fitting}()."
            )
        if kind is not TEXT:
            self.perturbation.check(example_shape)
        self.utility_passes = self.perturbation.passes(example_shape)

    def check_ready(self, example_shape, class_count):
        """Check that the teacher, if it can be checked, fits images and classes."""
        if hasattr(self.teacher, "check"):  # a plain function has none
            self.teacher.check(example_shape, class_count)

    @property
    def passes_per_step(self):
        """Passes per step: images, two copies and their utility, plus those of the adversary."""
        return super().passes_per_step + 2 + self.utility_passes

    def make_views(self, batch, context):
        """Return the images, the two perturbed copies and, with an adversary, the adversarial examples."""
        for part in (self.encoder, self.head):
            modes.check_mode(self.mode, part)
        views = {"images": batch.images}
        if self.adversary is not None:
            views = adversarial_views(self, self.adversary, batch, context)
        key = randomness.fold(context.key, "utility")
        noisy = self.perturbation(batch.images, self.utility(batch.images, batch.labels), key)
        return {**views, "least": noisy.least, "most": noisy.most, "usable": tf.cast(noisy.usable, tf.float32)}

    def utility(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Compute the utility u of each input value, or of each token, by which features are chosen.

        Args:
            images: float32 [b, h, w, c], or tokens int32 [b, l].
            labels: int32 [b].

        Returns:
            float32 in the shape of `images`, >= 0; of a model that computes in float16 up to a factor for each image.
        """
        if self.teacher is not None and self.combine == "replace":
            return self._utility_of_teacher(images, labels)

        def predict(images, training):
            return self.propagate(images, training=training)[1]

        forward = modes.forward_in_mode(predict, self.mode)
        if self.encoder.compute_dtype == "float16":  # a confident model's gradients are below its smallest number
            forward = objectives.ranged(forward, per_example=self.mode == "inference")

        def objective(images, labels):
            return objectives.cross_entropy(forward, labels)(images)

        own_utility = self.perturbation.utility(objective, images, labels)
        if self.teacher is None:
            return own_utility
        return _by_largest(own_utility) + _by_largest(self._utility_of_teacher(images, labels))

    def _utility_of_teacher(self, images, labels):
        # An export of this library takes pixels in [0, 1]. The utility is used up to a factor.
        shown = self.unit_pixels(images) if isinstance(self.teacher, Teacher) else images
        return tf.stop_gradient(self.teacher(shown, labels))

    def loss_terms(self, views, batch, context):
        """Compute the terms, `usable`, and the logits of the images."""
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
    """Divide by the largest entry of each image; an image of zeros stays 0."""
    largest = tf.reduce_max(utility, axis=list(range(1, utility.shape.rank)), keepdims=True)
    return tf.math.divide_no_nan(utility, largest)

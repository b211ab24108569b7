"""Helper-based adversarial training."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import robust_terms
from tfrobust.methods.shared.teacher import Teacher


@keras.saving.register_keras_serializable(package="tfrobust")
class HAT(AdversarialMethod):
    """TRADES, and helper examples beyond the adversarial ones, with the labels of a standard-trained model.

    L = ce + beta kl + gamma helper. ce and kl are the terms of TRADES, with beta = term weight `kl` = 2.5. helper = CE(
    h(x + s (x^a - x)), argmax g(x^a) ), with g the helper and gamma = term weight `helper` = 0.5. The far point is not
    clipped. So the margin need not be larger than epsilon, and less clean accuracy is lost.

    Terms: `ce`, `kl`, `helper`. Needs: labels.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> method = robust.methods.HAT(
        ...     robust.models.CNN(((4,),), dense=(8,)),
        ...     robust.models.LinearHead(10),
        ...     helper=lambda images: tf.reshape(images, [-1, 64])[:, :10],
        ...     attack=attack,
        ... )
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'helper', 'kl', 'loss']

    Args:
        encoder, head: as in `Method`.
        helper: images -> logits [b, k] of a model that was trained without attacks, such as `TeacherLogits`, which gets
            its pixels in [0, 1] in every case. A Keras model is frozen, and runs in inference mode.
        distance: s > 1, distance of the helper examples in units of x^a - x.
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing (of `ce`), weight_perturbation.

    Raises:
        ValueError: `distance` is not above 1.

    Source:
        Rade and Moosavi-Dezfooli 2022, https://openreview.net/forum?id=Azh9QBQ4tR7, eq 4; imrahulr/hat @ 3177a4f8. Its
        parser has s = 2; the default of its function is 3.5.
    """

    terms = ("ce", "kl", "helper")
    default_weights = {"kl": 2.5, "helper": 0.5}
    inner_objective = "kl"

    def __init__(self, encoder, head, *, helper: Callable, distance: float = 2.0, **kwargs):
        super().__init__(encoder, head, **kwargs)
        self.helper = helper
        self.distance = distance
        if not distance > 1:
            raise InputError(f"HAT.distance is {distance}; it must be > 1, so that helper examples lie farther out.")

    @property
    def passes_per_step(self):
        """Passes per step: as in `AdversarialMethod`, the helper's, and those of the helper examples."""
        return super().passes_per_step + 1 + (1 if self.weight_perturbation is None else 2)

    def build_parts(self, example_shape, embedding_dim):
        """Freeze the helper, whose weights Keras counts among those of the method."""
        self.freeze_copies()

    def freeze_copies(self):
        """Freeze a helper that is a Keras model."""
        if isinstance(self.helper, keras.layers.Layer):
            self.helper.trainable = False

    def check_ready(self, example_shape, class_count):
        """Check that the helper, if it can be checked, fits images and classes."""
        if hasattr(self.helper, "check"):  # a plain function has none
            self.helper.check(example_shape, class_count)

    def loss_terms(self, views, batch, context):
        """Compute `ce`, `kl` and `helper`, and the clean logits."""
        images, adversarial = views["images"], views["adversarial"]
        far = images + self.distance * (adversarial - images)
        (_, clean), (_, attacked), (_, beyond) = self.propagate_views(images, adversarial, far, forward=self.forward)
        keywords = {"training": False} if isinstance(self.helper, keras.layers.Layer) else {}
        shown = self.unit_pixels(adversarial) if isinstance(self.helper, Teacher) else adversarial
        helper_labels = tf.argmax(self.helper(shown, **keywords), axis=-1)
        helped = classification.cross_entropy(beyond, helper_labels)
        terms = robust_terms("trades", clean, attacked, self.targets(batch.labels, clean))
        return {**terms, "helper": helped}, clean

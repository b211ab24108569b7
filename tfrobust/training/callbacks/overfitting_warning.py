"""A warning of catastrophic overfitting to the single step of fast training."""

import logging

import numpy as np
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM
from tfrobust.attacks.shared import objectives, runner
from tfrobust.attacks.shared.attack import Attack
from tfrobust.ops import gradients, overfitting, randomness
from tfrobust.training.callbacks.robust_accuracy import RobustAccuracy

_log = logging.getLogger(__name__)


class OverfittingWarning(RobustAccuracy):
    """`RobustAccuracy` that also warns once of catastrophic overfitting, to the single step of fast training.

    A network that has overfitted withstands the attack of its training, FGSM, and no other. Besides the logs of
    `RobustAccuracy` it adds `val_fgsm_accuracy`, and `val_gradient_cosine`: the mean cosine between the input gradients
    at an image and at a random point of its ball, without images whose gradient is 0. It warns if

        FGSM leaves over 0.2 more accuracy than the attack, or
        the cosine is below 0.3, or
        the accuracy under attack is less than half of its best, and more than 0.1 below it.

    These limits hold at the epsilon of the training: a larger one opens the gap without overfitting.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> images, labels = np.random.rand(16, 8, 8, 1).astype("float32"), np.arange(16) % 4
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.01), steps=10)
        >>> watch = robust.callbacks.OverfittingWarning(images, labels, attack=attack)
        >>> history = model.fit(images, labels, verbose=0, callbacks=[watch]).history
        >>> watch.warned, {"val_fgsm_accuracy", "val_gradient_cosine"} <= set(history)
        (False, True)

    Args:
        images, labels, **kwargs: as in `RobustAccuracy`; a few hundred images are enough.
        attack: an attack of several steps with the threat model of the training.

    Source:
        Wong et al. 2020, https://arxiv.org/abs/2001.03994, section 5; Andriushchenko and Flammarion 2020,
        https://arxiv.org/abs/2007.02617, section 3, for the cosine. The limits are this library's.
    """

    def __init__(self, images, labels=None, *, attack: Attack | None = None, **kwargs):
        super().__init__(images, labels, attack=attack, **kwargs)
        self.warned = False
        self.best = 0.0  # restored when a training resumes

    def on_train_begin(self, logs=None):
        """Compile FGSM, and the attack as `RobustAccuracy`."""
        super().on_train_begin(logs)
        threat = self.attack.threat
        self._single = runner.compile_attack(FGSM(threat), self._predict)

        def cosines(images, labels, keys):
            objective = objectives.cross_entropy(objectives.ranged(self._predict), labels)
            return gradients.cosines(objective, images, threat.random_start(images, keys))

        self._cosines = tf.function(cosines, autograph=False)

    def on_epoch_end(self, epoch, logs=None):
        """Add the logs after every `every`-th epoch, and warn."""
        super().on_epoch_end(epoch, logs)
        if (epoch + 1) % self.every or logs is None:
            return
        single = self._single.run(self.images, self.labels, seed=self.seed, batch_size=self.batch_size)
        keys = randomness.example_keys(randomness.make_key(self.seed, "cosine"), tf.range(len(self.labels)))
        cosines = self._in_batches(self._cosines, self.images, self.labels, keys.numpy())
        logs["val_fgsm_accuracy"] = float(np.mean(~single.success))
        # 1 if no image has two gradients: nothing then has turned.
        logs["val_gradient_cosine"] = float(np.nanmean(cosines)) if np.isfinite(cosines).any() else 1.0
        robust, self.best = logs["val_robust_accuracy"], max(self.best, logs["val_robust_accuracy"])
        signs = overfitting.signs(logs["val_fgsm_accuracy"], robust, logs["val_gradient_cosine"])
        if robust < 0.5 * self.best and self.best - robust > 0.1:
            signs.append(f"the accuracy under attack was {self.best:.1%} before")
        if signs and not self.warned:
            self.warned = True
            _log.warning(
                "catastrophic overfitting in epoch %d: %s. The network withstands FGSM alone. Use GradAlign, N-FGSM, a "
                "smaller step, or several steps.",
                epoch + 1,
                "; ".join(signs),
            )

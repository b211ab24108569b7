"""Transfer: an attack that searches another model and is verified on the attacked one."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.engine import stage_steps
from tfrobust.errors import InputError
from tfrobust.ops.shapes import select


@keras.saving.register_keras_serializable(package="tfrobust")
class Transfer(Attack):
    """Transfer attack: another attack searches a surrogate, and its points are tried on the model itself.

    The model needs no gradients. A round verifies about ten points, at least five steps apart, and at its end that of
    largest loss on the surrogate, where the search remembers it, as APGD does. The search continues until one is
    misclassified by the model, even if the surrogate misclassifies it earlier. The surrogate comes from
    `evaluate --surrogate` (a LiteRT file has one of its own), or from the argument `surrogate` of `run_attack`.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> rounded = lambda images: tf.round(predict(images))  # without a useful gradient
        >>> images = np.array([[0.6, 0.3], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.Transfer(robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.25)))
        >>> result = robust.attacks.run_attack(attack, rounded, images, np.array([0, 0]), surrogate=predict)
        >>> attack.name, result.success.tolist()
        ('transfer_pgd', [True, False])

    Args:
        search: the attack on the surrogate, single and not of minimal norm. FAB goes on from misclassified points
            alone, of which the surrogate says nothing.

    Raises:
        ValueError: an ensemble, a minimal-norm attack, FAB, or another transfer attack.

    Source:
        Papernot et al. 2016, https://arxiv.org/abs/1605.07277.
    """

    needs_gradient = False
    searches_surrogate = True

    def __init__(self, search: Attack):
        self.search = search
        self.name, self.threat, self.steps = f"transfer_{search.name}", search.threat, search.steps
        if search.members or search.minimal or search.searches_surrogate or search.needs_answers:
            raise InputError(f"Transfer.search is {type(search).__name__}; it must be a single attack, such as PGD.")

    def with_epsilon(self, epsilon: float):
        """Return the same with another radius."""
        return type(self)(self.search.with_epsilon(epsilon))

    def maximize(self, objective, inputs, key):
        """Raise NotImplementedError: there is no surrogate in training."""
        raise NotImplementedError("Transfer is for evaluation; train with the attack itself.")

    def rounds(self, class_count: int) -> int:
        """Return the rounds of the attack."""
        return self.search.rounds(class_count)

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the passes on the surrogate, and verifications: of each stage but the last, and of the best point."""
        forward, backward = self.search.round_passes(class_count)
        remembers = type(self.search).best_point is not Attack.best_point
        return forward + -(-self.steps // stage_steps(self.steps)) - 1 + remembers, backward

    def start(self, predict, inputs, goal, keys, rounds):
        """Start the attack; see `Attack.start`."""
        state = self.search.start(predict, inputs, goal, keys, rounds)
        return state | {"refused": tf.zeros_like(state["found"])}

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Advance the attack; see `Attack.advance`."""
        searched = {name: value for name, value in state.items() if name != "refused"}
        searched = self.search.advance(predict, inputs, goal, rounds, searched, count)
        return searched | {"refused": tf.zeros_like(state["refused"])}

    def candidate(self, state):
        """Return the attack's current point, or its best one where the model has withstood that."""
        return select(state["refused"], self.search.best_point(state), self.search.candidate(state))

    def refuse(self, state, refused):
        """Return the state with another candidate: the search itself does not depend on the attacked model."""
        return state | {"refused": refused}

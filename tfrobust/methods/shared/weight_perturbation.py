"""Adversarial weight perturbation: a step is taken at the worst weights near the current ones."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.ops import distribution


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightPerturbation(Configured):
    """Adversarial weight perturbation (AWP), the `weight_perturbation` of an adversarial method.

    Each step computes the gradient g of its loss with respect to the weights w, moves each kernel by v = gamma |w| g /
    |g|, with the norm of this one variable, differentiates again at w + v, lets the optimizer update w + v, and
    subtracts the same v. So the optimizer's weight decay is that of w + v. Averages that an optimizer keeps and
    constraints of kernels would be those of w + v, too, and are refused. Kernels are the variables whose name ends with
    `kernel`; biases and the scales of normalization layers stay. Batch norm uses the batch in both passes; only the
    second one updates moving statistics.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.TRADES(
        ...     *parts,
        ...     attack=attack,
        ...     weight_perturbation=robust.methods.WeightPerturbation(gamma=0.005),
        ... )
        >>> method.compile("sgd")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'kl', 'loss']

    Attributes:
        gamma: length of v in units of |w|, >= 0; a number or a schedule of the step, such as one that is 0 during a
            warm-up. The authors use 0.01 for adversarial training and, after 10 epochs, 0.005 for TRADES.

    Source:
        Wu et al. 2020, https://arxiv.org/abs/2004.05884, eqs 8 and 10, with one step for v; their released code, whose
        proxy optimizer takes an SGD step of any size: the rescaling makes its rate irrelevant.
    """

    gamma: float | keras.optimizers.schedules.LearningRateSchedule = 0.01

    def __post_init__(self):
        if not callable(self.gamma):
            require_least(self.gamma, "WeightPerturbation.gamma", 0)

    @contextlib.contextmanager
    def applied(self, variables: list, step: tf.Tensor, differentiate: Callable) -> Iterator[None]:
        """Move the kernels to w + v while the context is open, and subtract v at its end.

        Args:
            variables: the trained variables, of which the kernels are moved.
            step: integer scalar, of which a schedule is a function.
            differentiate: () -> (..., gradients of `variables`), this replica's share of them.

        Raises:
            ValueError: no variable is a kernel.
        """
        with keras.StatelessScope():  # the statistics of this pass are dropped
            gradients = differentiate()[-1]
        gamma = self.gamma(step) if callable(self.gamma) else self.gamma
        moves = [
            (variable, perturbation(variable.value, distribution.global_sum(gradient), gamma))
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is not None and variable.name.endswith("kernel")
        ]
        if not moves:
            raise InputError("WeightPerturbation moves kernels, and no trained variable is named so.")
        if any(variable.constraint is not None for variable, _ in moves):
            raise InputError(
                "WeightPerturbation moves kernels, and a kernel has a constraint, which Keras would apply to the moved "
                "one: leave one of them out."
            )
        for variable, move in moves:
            variable.assign_add(move)
        yield
        for variable, move in moves:
            variable.assign_sub(move)


def check_optimizer(owner: str, optimizer: keras.optimizers.Optimizer) -> None:
    """Raise InputError if an optimizer keeps averages of the weights, which would be those of the moved ones."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is not None and (inner.use_ema or isinstance(inner, keras.optimizers.ScheduleFreeAdamW)):
        name = f"{type(inner).__name__}{'.use_ema' * bool(inner.use_ema)}"
        raise InputError(
            f"{owner}.weight_perturbation moves the weights in each step, and {name} would average the moved ones: "
            "leave one of them out, or average by the callback AveragedWeights."
        )


def perturbation(weights: tf.Tensor, gradient: tf.Tensor, gamma) -> tf.Tensor:
    """Compute gamma |w| g / (|g| + 1e-20), the perturbation of one variable; 0 for a gradient that is not finite.

    Args:
        weights: w, float, of any shape.
        gradient: g in the shape of w.
        gamma: >= 0, a number or a scalar tensor.
    """
    # Divided by the largest entry first, for squares of small float32 gradients underflow.
    gradient /= tf.reduce_max(tf.abs(gradient)) + 1e-20
    gradient = tf.where(tf.math.is_finite(gradient), gradient, tf.zeros_like(gradient))
    return tf.cast(gamma, weights.dtype) * tf.norm(weights) * gradient / (tf.norm(gradient) + 1e-20)

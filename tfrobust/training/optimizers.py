"""Optimizers that Keras lacks: LARS, LAMB with decay inside its ratio, and AdamW with scheduled decay."""

import math
import re
from collections.abc import Sequence

import keras
from keras import ops

from tfrobust.common.settings import require_least, require_share
from tfrobust.errors import InputError

# Excluded by default, as in the code of SimCLR and BYOL: normalization layers by the name of the layer that owns the
# variable, scales and biases by their own name (also of rank 2), and the linear probe on the features.
EXCLUDED = (r"norm(alization)?(_\d+)?/[^/]+$", r"(^|/)(bias|gamma|beta)$", "linear_head")
VELOCITIES = ("steps", "gradients", "late")
DENOMINATORS = ("joint", "sum")


class _LayerWise(keras.optimizers.Optimizer):
    """The common base: variables excluded by patterns, and weight decay as a part of the update.

    Keras's own weight decay, which is applied outside the ratio, stays off.
    """

    def _remember(self, weight_decay: float, exclude: Sequence[str] | None) -> None:
        require_least(weight_decay, f"{type(self).__name__}.weight_decay", 0)
        self.decay = weight_decay
        # A plain string would be iterated as one pattern per letter.
        self.exclude = (exclude,) if isinstance(exclude, str) else None if exclude is None else tuple(exclude)
        for pattern in self.exclude or ():
            try:
                re.compile(pattern)
            except re.error as error:
                name = type(self).__name__
                raise InputError(f"{name}.exclude has {pattern!r}, which is no regular expression: {error}.") from None

    def build(self, var_list):
        if not self.built:
            # By position, because under TensorFlow `update_step` receives variables without a path.
            self._adapted = [not self._is_excluded(variable) for variable in var_list]
        super().build(var_list)

    def _is_excluded(self, variable) -> bool:
        patterns = EXCLUDED if self.exclude is None else self.exclude
        # Other models may name their normalization layers differently, but their variables still have rank 1.
        vector = self.exclude is None and len(variable.shape) <= 1
        return vector or any(re.search(pattern, variable.path) for pattern in patterns)

    def _decayed(self, update, variable, index: int):
        decay = self.decay if self._adapted[index] else 0.0
        return ops.add(update, ops.multiply(variable, decay)) if decay else update

    def get_config(self):
        return super().get_config() | {"weight_decay": self.decay, "exclude": self.exclude}


@keras.saving.register_keras_serializable(package="tfrobust")
class LARS(_LayerWise):
    """SGD with momentum whose step is a fixed fraction of the norm of each layer's weights.

    With u = g + d w and r = trust |w| / |u| (1 if either norm is 0), each variable is updated by v <- m v + rate r u, w
    <- w - v. Variables that match `exclude` have d = 0 and r = 1. The papers' code corresponds to:

        SimCLR     LARS(weight_decay=1e-4)                              0.3 x batch / 256, warm-up of 10 epochs
        BYOL       LARS(weight_decay=1.5e-6, velocity="gradients")      0.2 x batch / 256
        RoCL       LARS(weight_decay=1e-6, exclude=(), velocity="gradients", denominator="sum")
        ACL        LARS(weight_decay=1e-6, exclude=(), denominator="sum")

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> weights = keras.Variable([[3.0, 4.0]], name="kernel")
        >>> robust.optimizers.LARS(1.0, trust=0.1).apply([np.array([[0.0, 2.0]])], [weights])  # moved by 0.1 x 5
        >>> weights.numpy().tolist()
        [[3.0, 3.5]]

    Args:
        learning_rate: a number or a schedule, by which the fraction is multiplied.
        momentum: m in [0, 1).
        nesterov: True to take the step that the next v would make with the same gradient.
        weight_decay: d >= 0, L2 inside the norm.
        trust: the fraction, > 0.
        exclude: regular expressions. A variable with a match in its path is neither decayed nor adapted. None excludes
            variables of rank 0 and 1, biases, normalization layers and `linear_head`. () excludes nothing.
        velocity: what v accumulates. "steps": rate r u, as above. "gradients": r u, and v is multiplied by the rate,
            which is equivalent unless the rate changes. "late": u, and r is that of v; w <- w - rate r v.
        denominator: denominator of r: "joint", |g + d w|; "sum", |g| + d |w| ("late" supports only "joint").
        **kwargs: of every Keras optimizer, such as `clipnorm`, `loss_scale_factor`, `name`.

    Raises:
        ValueError: a number is out of its range, or `velocity` or `denominator` is unknown.

    Source:
        You et al. 2017, https://arxiv.org/abs/1708.03888, whose r has "sum"; google-research/simclr,
        tf2/lars_optimizer.py ("late" is its popular momentum); deepmind-research/byol; torchlars for RoCL; ACL's own
        code.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.3,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        exclude: Sequence[str] | None = None,
        velocity: str = "steps",
        denominator: str = "joint",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=None, **kwargs)
        require_share(momentum, "LARS.momentum")
        if isinstance(trust, (bool, str)) or not trust > 0:
            raise InputError(f"LARS.trust is {trust!r}; it must be a number above 0.")
        if velocity not in VELOCITIES or denominator not in DENOMINATORS:
            raise InputError(
                f"LARS.velocity is {velocity!r}, one of {VELOCITIES}; denominator is {denominator!r}, one of "
                f"{DENOMINATORS}."
            )
        if velocity == "late" and denominator == "sum":
            raise InputError("LARS: velocity 'late' compares the weights with v alone, so that denominator is 'joint'.")
        self._remember(weight_decay, exclude)
        self.momentum, self.nesterov, self.trust = momentum, nesterov, trust
        self.velocity, self.denominator = velocity, denominator

    def build(self, var_list):
        """Create a velocity for each variable, once."""
        if self.built:
            return
        super().build(var_list)
        self._velocities = self.add_optimizer_variables(var_list, "velocity")

    def update_step(self, gradient, variable, learning_rate):
        """Update one variable by its gradient."""
        index = self._get_variable_index(variable)
        previous, rate = self._velocities[index], ops.cast(learning_rate, variable.dtype)
        gradient = ops.convert_to_tensor(gradient, dtype=variable.dtype)
        gathered = self._decayed(gradient, variable, index)
        if self.velocity != "late":
            gathered = ops.multiply(gathered, self._ratio(variable, gathered, gradient, index))
        if self.velocity == "steps":
            gathered = ops.multiply(gathered, rate)
        velocity = ops.add(ops.multiply(previous, self.momentum), gathered)
        self.assign(previous, velocity)
        step = ops.add(ops.multiply(velocity, self.momentum), gathered) if self.nesterov else velocity
        if self.velocity == "late":
            step = ops.multiply(step, self._ratio(variable, step, step, index))
        self.assign_sub(variable, step if self.velocity == "steps" else ops.multiply(step, rate))

    def _ratio(self, variable, update, gradient, index: int):
        if not self._adapted[index]:
            return 1.0
        weights = _norm(variable)
        against = _norm(update) if self.denominator == "joint" else _norm(gradient) + self.decay * weights
        return _share(self.trust * weights, against)

    def get_config(self):
        """Return the configuration."""
        names = ("momentum", "nesterov", "trust", "velocity", "denominator")
        return super().get_config() | {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="tfrobust")
class LAMB(_LayerWise, keras.optimizers.Lamb):
    """Adam with steps scaled to the norm of each layer's weights; decay is inside the ratio, as in tensorflow-addons.

    u = m / (sqrt(v) + epsilon) + d w with Adam's bias-corrected means m and v, w <- w - rate |w| / |u| u (the ratio is
    1 if either norm is 0). Keras's `Lamb` subtracts d w outside the ratio; without decay both are the same. Variables
    that match `exclude` have d = 0 and ratio 1.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> weights = keras.Variable([3.0, 4.0], name="kernel")
        >>> robust.optimizers.LAMB(0.2).apply([np.array([0.0, 2.0])], [weights])  # moved by 0.2 x 5
        >>> np.round(weights.numpy(), 4).tolist()
        [3.0, 3.0]

    Args:
        learning_rate: a number or a schedule.
        beta_1: decay of the mean of gradients m, in [0, 1).
        beta_2: decay of the mean of squared gradients v, in [0, 1).
        epsilon: > 0.
        weight_decay: d >= 0.
        exclude: as for `LARS`, but nothing by default.
        **kwargs: of every Keras optimizer, such as `clipnorm`, `loss_scale_factor`, `name`.

    Raises:
        ValueError: `weight_decay` is negative.

    Source:
        You et al. 2019, https://arxiv.org/abs/1904.00962; tensorflow-addons 0.23, optimizers.LAMB.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        exclude: Sequence[str] | None = (),
        **kwargs,
    ):
        means = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
        super().__init__(learning_rate=learning_rate, weight_decay=None, **means, **kwargs)
        self._remember(weight_decay, exclude)

    def update_step(self, gradient, variable, learning_rate):
        """Update one variable by its gradient."""
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        gradient = ops.convert_to_tensor(gradient, dtype=dtype)
        count = ops.cast(self.iterations + 1, dtype)
        corrected = []
        for moment, new, beta in (
            (self._momentums[index], gradient, self.beta_1),
            (self._velocities[index], ops.square(gradient), self.beta_2),
        ):
            mean = ops.add(moment, ops.multiply(ops.subtract(new, moment), 1 - beta))
            self.assign(moment, mean)
            corrected.append(ops.divide(mean, 1 - ops.power(ops.cast(beta, dtype), count)))
        update = ops.divide(corrected[0], ops.add(ops.sqrt(corrected[1]), self.epsilon))
        update = self._decayed(update, variable, index)
        ratio = _share(_norm(variable), _norm(update)) if self._adapted[index] else 1.0
        self.assign_sub(variable, ops.multiply(update, ratio * ops.cast(learning_rate, dtype)))


@keras.saving.register_keras_serializable(package="tfrobust")
class ScheduledAdamW(_LayerWise):
    """AdamW with a schedule of the weight decay, excluded variables, and a count of updates for each variable.

    w <- w - rate d w - rate m / (sqrt(v) + epsilon), with Adam's bias-corrected means m and v. Keras's `AdamW` takes a
    constant d, and corrects the bias by the steps of the optimizer, also for a variable that is skipped in the first
    steps (`frozen_steps` of a method).

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> decay = keras.optimizers.schedules.PolynomialDecay(0.04, 1000, end_learning_rate=0.4)
        >>> weights = keras.Variable([[1.0]], name="kernel")
        >>> robust.optimizers.ScheduledAdamW(0.1, weight_decay=decay).apply([np.array([[2.0]])], [weights])
        >>> print(weights.numpy().round(4))  # 1 - 0.1 x 0.04 - 0.1
        [[0.896]]

    Args:
        learning_rate: a number or a schedule.
        beta_1: decay of the mean of gradients m, in [0, 1).
        beta_2: decay of the mean of squared gradients v, in [0, 1).
        epsilon: > 0.
        weight_decay: d >= 0, a number or a schedule of the step.
        exclude: regular expressions; a variable with a match in its path is not decayed. None excludes variables of
            rank 0 and 1, biases, normalization layers and `linear_head`, () excludes nothing.
        **kwargs: of every Keras optimizer, such as `clipnorm`, `loss_scale_factor`, `name`.

    Raises:
        ValueError: a number is out of its range.

    Source:
        Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101; torch.optim.AdamW, which counts by tensor;
        facebookresearch/dino, where d increases from 0.04 to 0.4 along a cosine over T steps: CosineDecay(0.04, T,
        alpha=10), which decays to 10 times its initial value.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float | keras.optimizers.schedules.LearningRateSchedule = 0.04,
        exclude: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=None, **kwargs)
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            require_share(beta, f"ScheduledAdamW.{name}")
        self._remember(0.0 if callable(weight_decay) else weight_decay, exclude)
        self.decay = weight_decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, var_list):
        """Create the means and the count of each variable, once."""
        if self.built:
            return
        super().build(var_list)
        self._momentums, self._velocities = self.add_optimizer_variables(var_list, ["momentum", "velocity"])
        self._counts = [self.add_variable((), name=f"count_{number}") for number, _ in enumerate(var_list)]

    def update_step(self, gradient, variable, learning_rate):
        """Update one variable by its gradient."""
        index, dtype = self._get_variable_index(variable), variable.dtype
        gradient, rate = ops.convert_to_tensor(gradient, dtype=dtype), ops.cast(learning_rate, dtype)
        count = ops.add(self._counts[index], 1.0)
        self.assign(self._counts[index], count)
        corrected = []
        for moment, new, beta in (
            (self._momentums[index], gradient, self.beta_1),
            (self._velocities[index], ops.square(gradient), self.beta_2),
        ):
            mean = ops.add(moment, ops.multiply(ops.subtract(new, moment), 1 - beta))
            self.assign(moment, mean)
            # 1 - beta^count; the difference would lose digits.
            bias = -ops.expm1(ops.multiply(count, math.log(beta))) if beta else 1.0
            corrected.append(ops.divide(mean, ops.cast(bias, dtype)))
        update = ops.divide(corrected[0], ops.add(ops.sqrt(corrected[1]), self.epsilon))
        if self._adapted[index]:
            decay = self.decay(self.iterations) if callable(self.decay) else self.decay
            update = ops.add(update, ops.multiply(variable, ops.cast(decay, dtype)))
        self.assign_sub(variable, ops.multiply(update, rate))

    def get_config(self):
        """Return the configuration."""
        decay = keras.saving.serialize_keras_object(self.decay) if callable(self.decay) else self.decay
        names = ("beta_1", "beta_2", "epsilon")
        return super().get_config() | {"weight_decay": decay} | {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Build the optimizer from its configuration."""
        decay = config.get("weight_decay")
        if isinstance(decay, dict):
            config = config | {"weight_decay": keras.saving.deserialize_keras_object(decay, custom_objects)}
        return super().from_config(config, custom_objects)


def _norm(values):
    return ops.sqrt(ops.sum(ops.square(values)))


def _share(above, below):
    """Compute above / below, or 1 where either is 0."""
    return ops.where(ops.logical_and(above > 0, below > 0), above / ops.where(below > 0, below, 1.0), 1.0)

"""Batch normalization with several sets of statistics, one of which each forward pass uses."""

import operator

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.ops import keras_private

FAST_MOMENTUM = 0.9  # of this library's networks: after 22 steps a tenth remains of the initial statistics
_REMAINING_SHARE = 0.1  # of the initial statistics, above which a training has too few steps


def check_branch(branch, branches: int, owner: str) -> int:
    """Return the branch as a Python integer.

    Args:
        branch: an integer known when the graph is traced (Keras turns NumPy scalars into constant tensors).
        branches: number of branches.
        owner: name of the layer or model, for the message.

    Returns:
        The index, 0 <= index < branches.

    Raises:
        ValueError: not an integer, or out of range.
    """
    value = tf.get_static_value(branch) if tf.is_tensor(branch) else branch
    try:
        position = operator.index(value)
    except TypeError:
        raise InputError(f"{owner}: branch must be an integer known before tracing, got {branch!r}.") from None
    if not 0 <= position < branches:
        raise InputError(
            f"{owner}: there is no branch {position}; it was made with branches={branches}, "
            f"so 0 to {branches - 1} are valid."
        )
    return position


def adopt_branch(model: keras.Model, branch: int) -> None:
    """Copy the batch-norm variables of one branch to branch 0, and freeze all other branches.

    Args:
        model: a built Keras model.
        branch: the branch whose statistics, scales and offsets are copied; 0 copies nothing.

    Raises:
        ValueError: a branch that the model does not have.
    """
    groups = [norms for layer in keras_private.all_layers(model) for norms in getattr(layer, "norm_branches", ())]
    check_branch(branch, max(map(len, groups), default=1), model.name)
    for norms in groups:
        for norm in norms[1:]:
            norm.trainable = False
        for variable, source in zip(norms[0].variables, norms[branch].variables, strict=True):
            variable.assign(source)


def synchronization_warning(model: keras.Model) -> str:
    """Return a sentence that names the batch norms which several replicas do not synchronize; "" if there are none."""
    norms = [layer for layer in keras_private.all_layers(model) if isinstance(layer, keras.layers.BatchNormalization)]
    names = [norm.name for norm in norms if norm.trainable and not norm.synchronized]
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"{len(names)} batch norms ({shown}) use the statistics of their own replica, so that the number of replicas "
        "changes the result; synchronized=True prevents it."
    )


def slow_statistics_warning(model: keras.Model, steps: int) -> str:
    """Return a sentence on batch norms whose moving statistics stay near their initial values; "" if there are none.

    After n steps a moving statistic holds momentum^n of its initial value, which for random weights has nothing to do
    with the network: it classifies in training, and may be at chance afterwards.
    """
    norms = [layer for layer in keras_private.all_layers(model) if isinstance(layer, keras.layers.BatchNormalization)]
    fresh = [norm for norm in norms if norm.trainable and not np.any(norm.moving_mean)]
    momentum = max((norm.momentum for norm in fresh), default=0.0)
    share = momentum**steps
    if momentum <= FAST_MOMENTUM or share <= _REMAINING_SHARE:
        return ""
    return (
        f"batch norms keep {share:.0%} of their initial statistics after {steps} steps of momentum {momentum:g}; in "
        f"inference, the network may be at chance: set normalization_momentum of the encoder to {FAST_MOMENTUM:g}."
    )


@keras.saving.register_keras_serializable(package="tfrobust")
class BranchedBatchNormalization(Configured, keras.layers.Layer):
    """Batch normalization with separate statistics, scale and offset for each of several branches.

    y = gamma_k (x - mean_k) / sqrt(variance_k + epsilon) + beta_k for branch k. In training mean and variance are those
    of the batch (biased variance), and the branch's moving values become momentum * moving + (1 - momentum) * batch. No
    other branch changes.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.BranchedBatchNormalization(branches=2)
        >>> _ = layer(tf.fill([4, 3], 2.0), training=True, branch=1)  # moves the statistics of branch 1 alone
        >>> print(*(norm.moving_mean.numpy() for norm in layer.norms))
        [0. 0. 0.] [0.2 0.2 0.2]

    Args:
        branches: number of sets of variables, >= 1; all are built at once.
        momentum: weight of the old moving value, in [0, 1).
        epsilon: added to the variance, > 0.
        synchronized: batch statistics over all replicas.
        center: add the offsets beta_k.
        scale: multiply by the scales gamma_k.

    Raises:
        ValueError: arguments out of range; in `call`, a branch that does not exist.

    Source: Xie et al. 2020 (AdvProp), section 4. The defaults are the constants of the papers' PyTorch code (momentum
        0.1 there is 0.9 here).
    """

    branched = True

    def __init__(
        self,
        branches: int = 1,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        synchronized: bool = False,
        center: bool = True,
        scale: bool = True,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if not 0 <= momentum < 1:
            raise InputError(f"BranchedBatchNormalization.momentum must be in [0, 1), got {momentum}.")
        if not epsilon > 0:
            raise InputError(f"BranchedBatchNormalization.epsilon must be positive, got {epsilon}.")
        self.branches = require_whole(branches, "BranchedBatchNormalization.branches")
        self.momentum = momentum
        self.epsilon = epsilon
        self.synchronized = synchronized
        self.center = center
        self.scale = scale
        settings = {"momentum": momentum, "epsilon": epsilon, "synchronized": synchronized, "center": center}
        self.norms = [
            keras.layers.BatchNormalization(**settings, scale=scale, dtype=self.dtype_policy) for _ in range(branches)
        ]

    @property
    def norm_branches(self) -> list[tuple]:
        """One tuple, the batch normalizations of the branches."""
        return [tuple(self.norms)]

    def build(self, input_shape):
        """Build all branches."""
        for norm in self.norms:
            if not self.trainable:  # restored from a config, before there were layers to freeze
                norm.trainable = False
            if not norm.built:
                norm.build(input_shape)

    def compute_output_shape(self, input_shape):
        """Return the input shape."""
        return tuple(input_shape)

    def call(self, hidden, *, training=None, branch=0):
        """Normalize with one branch."""
        return self.norms[check_branch(branch, self.branches, self.name)](hidden, training=training)

    def moments(self, branch=0) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (scale, offset), each [c], of the inference mode of a branch: y = scale x + offset."""
        norm = self.norms[check_branch(branch, self.branches, self.name)]
        scale = tf.math.rsqrt(norm.moving_variance + norm.epsilon)
        if self.scale:
            scale *= norm.gamma
        offset = norm.beta if self.center else 0.0
        return scale, offset - norm.moving_mean * scale

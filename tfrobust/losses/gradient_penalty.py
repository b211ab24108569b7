"""Tikhonov regularization: squared input gradients of a loss as additional terms."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.ops import distribution, gradients
from tfrobust.ops.shapes import by_example

FORMS = ("example", "batch", "released")
MODES = ("exact", "finite_difference")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientPenalty(Configured):
    """Base of gradient penalties, a method's `penalty`: additional terms, from the input gradients of its terms.

    The weights are differentiated through these gradients, also through the batch statistics of normalization layers.

    Attributes:
        on: names of the views to differentiate with respect to; None for the method's `differentiable_views`.
    """

    on: tuple[str, ...] | None = None

    @property
    def weights(self) -> dict:
        """Weight of each added term by name, a number or a schedule of the step."""
        raise NotImplementedError

    @property
    def passes_per_view(self) -> int:
        """Additional forward and backward passes per differentiated view, for cost estimates."""
        return 1

    def check(self, terms: tuple[str, ...]) -> None:
        """Raise ValueError if the penalty names a term that the method does not have."""
        unknown = sorted(set(self.penalized(terms)) - set(terms))
        if unknown:
            raise InputError(f"{type(self).__name__} penalizes {unknown}; the method's terms are {list(terms)}.")

    def for_terms(self, terms: tuple[str, ...]) -> "GradientPenalty":
        """Return the penalty with `terms` filled in where it names none."""
        return self

    def penalized(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        """Return the terms of a method whose gradients are penalized."""
        raise NotImplementedError

    def __call__(
        self, evaluate: Callable, views: dict, names: tuple[str, ...], weight_of: Callable, key: tf.Tensor | None = None
    ) -> tuple:
        """Return the method's terms together with those of the penalty.

        Args:
            evaluate: views -> ({term: float32 [b]}, anything); run inside the weight tape.
            views: name -> tensor [b, ...].
            names: views to differentiate with respect to if `on` is None.
            weight_of: term -> its float32 weight in the loss.
            key: int32 [2], of this step, for a penalty at random points.

        Returns:
            ({term: float32 [b]}, the second output of `evaluate`).

        Raises:
            ValueError: a view that does not exist, or that a term does not depend on.
        """
        names = self.on or names
        missing = sorted(set(names) - set(views))
        if missing:
            raise InputError(f"{type(self).__name__} has no views {missing} to differentiate by, only {sorted(views)}.")
        watched = {name: views[name] for name in names}
        with gradients.twice_differentiable():
            return self.add(lambda changed: evaluate({**views, **changed}), watched, weight_of, key)

    def add(self, evaluate: Callable, watched: dict, weight_of: Callable, key: tf.Tensor | None) -> tuple:
        """Compute `__call__` for the differentiated views alone."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tikhonov(GradientPenalty):
    """Tikhonov regularization: adds lambda/2 ||input gradient of the loss||^2 to any method, as term `tikhonov`.

    Supervised (form "example", eq 2):  mean_k ( l_k + lambda/2 |grad_{x_k} l_k|^2 ), l_k the loss of image k.
    Contrastive (form "batch", eq 3):   L + lambda/2 sum_k ( |grad_{x_k} L|^2 + |grad_{x'_k} L|^2 ) / 2, L the batch's
    mean loss and x, x' the two views; with V views the mean over V of them.

    L is the weighted sum of the terms `of`. The gradient is that of the sum of l over the global batch, which equals eq
    2 if an image's loss depends on that image alone; batch norm in training mode adds the dependence between images.
    The logged term is half the squared norm, without lambda. Sample weights apply to an image's penalty as to its loss;
    the gradient is that of the unweighted sum.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.Supervised(*parts, penalty=robust.methods.Tikhonov(weight=0.1))
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'loss', 'tikhonov']

    Attributes:
        weight: lambda >= 0, a number or a schedule of the step.
        of: the terms whose gradient is penalized; None for all but a probe's.
        form: "example" (eq 2); "batch" (eq 3), eq 2 divided by the global batch size N; "released": eq 2 divided by
            N^2, as in the released code of the supervised rows.
        mode: "exact": double backpropagation. "finite_difference": the loss is computed again at x + step v, with v the
            unit direction of the detached gradient of each image ("batch": of the whole batch at once), and ( (l(x +
            step v) - l(x)) / step )^2 replaces the squared norm; the additional pass updates no statistics. Use "exact"
            with stochastic layers (Dropout: another sample there), in 16-bit layers, whose rounding is larger than such
            differences, and with terms that stop a gradient (BYOL's target), which a finite difference does not
            respect.
        step: length of that step in pixel units, > 0.

    Source:
        Campbell, Manta and Iannantuono 2020, eqs 2 and 3; Finlay & Oberman 2019,
        https://arxiv.org/abs/1905.11468, and its code (tulip) for "finite_difference". The report's unused finite
        difference for contrastive losses moves each image in its own direction and therefore squares the sum of the
        norms; "batch" gives the sum of squares of eq 3.
    """

    weight: float | keras.optimizers.schedules.LearningRateSchedule = 1.0
    of: tuple[str, ...] | None = None
    form: str = "example"
    mode: str = "exact"
    step: float = 0.01

    def __post_init__(self):
        for name, choices in (("form", FORMS), ("mode", MODES)):
            require_choice(getattr(self, name), f"Tikhonov.{name}", choices)
        if not self.step > 0:
            raise InputError(f"Tikhonov.step is {self.step}; it must be > 0.")
        _check_nonnegative(self.weight, "Tikhonov.weight")

    @property
    def passes_per_view(self):
        """1 for exact gradients, 2 for finite differences."""
        return 1 if self.mode == "exact" else 2

    @property
    def weights(self):
        """The weight of the term `tikhonov`."""
        return {"tikhonov": self.weight}

    def for_terms(self, terms):
        """Return the penalty with `of` set to these terms where it is None."""
        return self if self.of is not None else dataclasses.replace(self, of=tuple(terms))

    def penalized(self, terms):
        """Return `of`, or all terms where it is None."""
        return terms if self.of is None else tuple(self.of)

    def add(self, evaluate, watched, weight_of, key):
        """Add the term `tikhonov`; see `GradientPenalty.add`."""

        def total(views):
            values, auxiliary = evaluate(views)
            penalized = tf.add_n([weight_of(name) * values[name] for name in self.penalized(tuple(values))])
            return penalized, (values, auxiliary)

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            loss, (values, auxiliary) = total(watched)
            summed = tf.reduce_sum(loss)
        gradient = _gradient(tape, summed, watched, f"{type(self).__name__}.of {self.penalized(tuple(values))}")
        if self.mode == "exact":
            squares = _squared_norm(gradient)
        else:
            squares = self._by_difference(lambda views: total(views)[0], loss, watched, gradient)
        count = _global_count(loss)
        divisor = {"example": 1.0, "batch": count, "released": count**2}[self.form]
        return {**values, "tikhonov": squares / (2.0 * divisor * len(watched))}, auxiliary

    def _by_difference(self, total, loss, watched, gradient):
        """Return the squared norm [b] by finite differences; form "batch": the batch's, spread over its images."""
        squares = _squared_norm(gradient)
        by_batch = self.form == "batch"
        norm = tf.sqrt(distribution.global_sum(tf.reduce_sum(squares)) if by_batch else squares)
        length = tf.stop_gradient(tf.math.divide_no_nan(self.step, norm))
        moved = {
            name: view + by_example(length, view) * tf.stop_gradient(gradient[name]) for name, view in watched.items()
        }
        with keras.StatelessScope():  # batch norm has already been updated with this batch
            change = (total(moved) - loss) / self.step
        if not by_batch:
            return tf.square(change)
        change = distribution.global_sum(tf.reduce_sum(change))
        return tf.fill(tf.shape(loss), tf.square(change) / _global_count(loss))


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerWiseTikhonov(GradientPenalty):
    """Tikhonov regularization of several terms, each separately: the regularizer of the layer-wise contrastive loss.

    sum_i beta_i R_i, R_i = sum_k ( |grad_{x_k} L_i|^2 + |grad_{x'_k} L_i|^2 ) / 2 (eq 5), with L_i the batch's mean of
    one term. The gradients are exact, with one forward pass for all. Each adds a term `tikhonov_<term>`.

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.methods.LayerWiseTikhonov(betas={"layer_1": 0.01, "layer_2": 0.1}).weights
        {'tikhonov_layer_1': 0.01, 'tikhonov_layer_2': 0.1}

    Attributes:
        betas: weight >= 0 by term, numbers or schedules of the step; in the report they grow steeply with depth.

    Source:
        Campbell, Manta and Iannantuono 2020, eq 5, which has no factor 1/2 where eq 3 has one. Eq 4 is the
        method `LayerWiseContrastive`.
    """

    betas: dict

    def __post_init__(self):
        if not self.betas:
            raise InputError("LayerWiseTikhonov.betas is empty; it gives a weight to at least one term.")
        for name, beta in self.betas.items():
            _check_nonnegative(beta, f"LayerWiseTikhonov.betas[{name!r}]")

    @property
    def passes_per_view(self):
        """One pass per term of `betas`."""
        return len(self.betas)

    @property
    def weights(self):
        """The weights of the terms `tikhonov_<term>`."""
        return {f"tikhonov_{name}": beta for name, beta in self.betas.items()}

    def penalized(self, terms):
        """Return the terms named in `betas`."""
        return tuple(self.betas)

    def add(self, evaluate, watched, weight_of, key):
        """Add a term `tikhonov_<term>` for each of `betas`; see `GradientPenalty.add`."""
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(watched)
            values, auxiliary = evaluate(watched)
            totals = {name: tf.reduce_sum(values[name]) for name in self.betas}
        added = {}
        for name, total in totals.items():
            gradient = _gradient(tape, total, watched, f"{type(self).__name__}.betas {name!r}")
            scale = _global_count(values[name]) * len(watched)
            added[f"tikhonov_{name}"] = _squared_norm(gradient) / scale
        return {**values, **added}, auxiliary


def _check_nonnegative(weight, name: str) -> None:
    if isinstance(weight, (int, float)) and not weight >= 0:
        raise InputError(f"{name} is {weight}; it must be at least 0.")


def _gradient(tape: tf.GradientTape, loss: tf.Tensor, watched: dict, source: str) -> dict:
    """Return the gradient of a scalar by each view; raise ValueError for views without one (a penalty of 0)."""
    gradient = tape.gradient(loss, watched)
    idle = tuple(name for name, leaf in gradient.items() if leaf is None)
    if idle:
        raise InputError(f"{source} does not depend on the views {idle}; see `on`.")
    return gradient


def _squared_norm(gradient: dict) -> tf.Tensor:
    """Return the sum of squares per example over all views, float32 [b]."""
    return tf.add_n(
        [tf.reduce_sum(tf.square(leaf), axis=list(range(1, leaf.shape.rank))) for leaf in gradient.values()]
    )


def _global_count(values: tf.Tensor) -> tf.Tensor:
    """Return the number of examples on all replicas, in the dtype of their values [b]."""
    return tf.cast(tf.shape(values)[0] * distribution.replica()[0], values.dtype)

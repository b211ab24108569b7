"""The terms of a method's loss: their weights, the penalty on input gradients, and the checks of their values."""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared.mixin import Mixin
from tfrobust.structs import Batch, Context


class Terms(Mixin):
    """Mixin of `Method`: evaluates, checks and weights the terms."""

    @property
    def all_terms(self) -> tuple[str, ...]:
        """All terms: `terms`, then those of the penalty."""
        return (*self.terms, *(self.penalty.weights if self.penalty is not None else ()))

    def evaluate_terms(self, views: dict, batch: Batch, context: Context) -> tuple[dict, tf.Tensor | None]:
        """Compute `loss_terms`, check them, cast them to float32, and add the terms of the penalty.

        Returns:
            As `loss_terms`.

        Raises:
            ValueError: a term that is missing, not declared, or not of shape [b].
        """

        def evaluate(views):
            values, logits = self.loss_terms(views, batch, context)
            return self._checked_terms(values, batch.images.shape[0]), logits

        if self.penalty is None:
            return evaluate(views)
        names, declared = self.differentiable_views, set(self.terms)

        def terms_alone(views):
            values, logits = evaluate(views)
            observed = {name: value for name, value in values.items() if name not in declared}
            return {name: values[name] for name in self.terms}, (observed, logits)

        penalty = self.penalty.for_terms(self.differentiable_terms)
        values, (observed, logits) = penalty(terms_alone, views, names, self._weight, context.key)
        return {**values, **observed}, logits

    def weight_of(self, name: str):
        """Return the weight of a term: a number, or a schedule of the step."""
        defaults = {**self.default_weights, **(self.penalty.weights if self.penalty is not None else {})}
        return (self.term_weights or {}).get(name, defaults.get(name, 1.0))

    def _weighted(self, name: str, values: tf.Tensor) -> tf.Tensor:
        """Return the term times its weight, float32 [b]; without a gradient where the weight is the number 0.

        Compilers keep the backward pass of a product with 0, because it can be NaN.
        """
        return self._weight(name) * (tf.stop_gradient(values) if self._is_left_out(name) else values)

    def _is_left_out(self, name: str) -> bool:
        """Return True for a term whose weight is the number 0."""
        weight = self.weight_of(name)
        return isinstance(weight, int | float) and weight == 0

    def _weight(self, name: str):
        weight = self.weight_of(name)
        if isinstance(weight, Callable):
            weight = weight(self.update_number())
        return tf.cast(weight, tf.float32)

    def _checked_terms(self, values: dict, count: int | None) -> dict:
        missing = sorted(set(self.terms) - set(values))
        extra = sorted(set(values) - set(self.terms) - set(self.observations))
        if missing or extra:
            raise InputError(f"loss_terms of {type(self).__name__}: missing {missing}, not declared {extra}.")
        checked = {}
        for name, value in values.items():
            if value.shape.rank != 1 or not tf.TensorShape([count]).is_compatible_with(value.shape):
                raise InputError(
                    f"term {name!r} of {type(self).__name__} has shape {value.shape}; a term is one value "
                    f"per example, [{count}]."
                )
            checked[name] = tf.cast(value, tf.float32)
            if name in self.observations:
                checked[name] = tf.stop_gradient(checked[name])
        return checked

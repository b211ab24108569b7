"""The metrics of a method: the loss, one mean per term, and what the user compiled."""

import keras

from tfrobust.errors import InputError
from tfrobust.methods.shared.mixin import Mixin
from tfrobust.ops import keras_private

RADIUS = "epsilon"


class TermMetrics(Mixin):
    """Mixin of `Method`: what a step logs."""

    # Observations that the last traced step did not make, as without labels.
    _unobserved: frozenset[str] = frozenset()

    def _make_metrics(self) -> None:
        unknown = sorted(set(self.term_weights or {}) - set(self.terms))
        if unknown:
            raise InputError(
                f"term_weights of {type(self).__name__} names {unknown}; its terms are {list(self.terms)}."
            )
        if self.penalty is not None:
            self.penalty.check(self.terms)
        names = [*self.all_terms, *self.observations]
        # Keras has the losses of activities in calls alone.
        layers = keras_private.all_layers(self)
        if self.losses or any(getattr(layer, "activity_regularizer", None) is not None for layer in layers):
            names.append("regularization")
        if self.radius_ramp is not None:
            names.append(RADIUS)
        self.means = {name: keras.metrics.Mean(name=name) for name in names}

    def _log_radius(self, step) -> None:
        """Log the radius of this step, if a ramp changes it; the log of an epoch is the mean of its steps."""
        if self.radius_ramp is not None:
            ramp, radius = self.radius_ramp
            self.means[RADIUS].update_state(radius * ramp(step))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Update the compiled metrics and return them without the terms of the training step."""
        results = super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        internal = {"loss", *self.means}
        return {name: value for name, value in results.items() if name not in internal}

    def get_metrics_result(self):
        """Return the value of each metric by name, without observations that the steps do not make."""
        return {name: value for name, value in super().get_metrics_result().items() if name not in self._unobserved}

    @property
    def metrics(self):
        """The total loss, the terms and the compiled metrics, without Keras's own loss tracker.

        Keras builds the compiled metrics at the first logits. A method without a probe has none in training.
        """
        tracked = [self.total, *self.means.values()] if hasattr(self, "means") else []
        identifiers = {id(metric) for metric in tracked}
        compiled = [m for m in super().metrics if m.name != "loss" and id(m) not in identifiers]
        return tracked + [m for m in compiled if getattr(m, "built", True)]

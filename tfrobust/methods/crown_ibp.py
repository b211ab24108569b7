"""CROWN-IBP training (Zhang et al., 2020): linear bounds of the margins on interval bounds of the hidden values."""

import keras
import tensorflow as tf

from tfrobust.certification import intervals, linear_bounds
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.methods.ibp import IBP


@keras.saving.register_keras_serializable(package="tfrobust")
class CROWNIBP(IBP):
    """Training as `IBP`, with bounds that turn from linear bounds into intervals during the ramp.

    m = beta m_crown + (1 - beta) m_ibp, beta = 1 - (1 - final_beta) p for the ramp p from 0 to 1. Linear bounds are
    tighter at the beginning of training, intervals at its end.

    Terms: `ce`, `ce_certified`, `tightness`, `balance`. Needs: labels, and layers that bounds can pass.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> ramp = robust.schedules.SmoothedRamp(delay=10, length=50, steps_per_unit=10)
        >>> robust.methods.CROWNIBP(*parts, epsilon=0.1, ramp=ramp).terms
        ('ce', 'ce_certified', 'tightness', 'balance')

    Args:
        encoder, head: as in `Method`.
        final_beta: weight of the linear bounds at the end of the ramp, in [0, 1].
        slope: lower line of an unstable ReLU, "adaptive", "zero" or "same".
        **kwargs: as in `IBP`; without a ramp, beta is `final_beta` from the start.

    Raises:
        ValueError: as `IBP`; a `final_beta` outside [0, 1], or an unknown `slope`.

    Source:
        Zhang et al. 2020, https://arxiv.org/abs/1906.06316, eqs 13 and 14; "adaptive", final beta 0 and 1.1 times
        epsilon as in the authors' configurations. Initialization and regularizers are those of `IBP`.
    """

    def __init__(self, encoder, head, *, final_beta: float = 0.0, slope: str = "adaptive", **kwargs):
        super().__init__(encoder, head, **kwargs)
        if not 0 <= final_beta <= 1:
            raise InputError(f"CROWNIBP.final_beta is {final_beta}; it lies in [0, 1].")
        self.final_beta = final_beta
        self.slope = require_choice(slope, "CROWNIBP.slope", linear_bounds.SLOPES)

    @property
    def passes_per_step(self):
        """Passes per step: those of `IBP`, and one back to the image for each of about ten classes."""
        return super().passes_per_step + 10

    def margins(self, network, boxes, labels, arithmetic, progress):
        """Return the mixture of both bounds, float32 [b, k]."""
        margins = intervals.margins(network, boxes, labels, arithmetic)
        if self.ramp is None and not self.final_beta:
            return margins
        beta = 1.0 - (1.0 - self.final_beta) * progress
        coefficients = linear_bounds.margin_coefficients(labels, margins.shape[-1], margins.dtype)

        def mixed():
            linear = linear_bounds.lower_bounds(network, boxes, coefficients, arithmetic, slope=self.slope)
            return beta * linear + (1.0 - beta) * margins

        if self.final_beta:
            return mixed()
        # After the ramp the step takes no more time than that of IBP.
        return tf.cond(beta > 0.0, mixed, lambda: margins)

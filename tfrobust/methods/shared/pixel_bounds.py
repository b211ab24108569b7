"""Pixels outside [0, 1], for methods that do nothing to pixels but mix them."""

from __future__ import annotations

import math

from tfrobust.errors import InputError


class PixelBounds:
    """Mixin of a `Method` without a threat model: takes images of other bounds, for models that scale them.

    Args:
        *args: as in the method.
        bounds: (low, high) of the pixels, such as (0, 255) before `keras.layers.Rescaling(1 / 255)`. Other methods
            take them from their threat model, or need [0, 1] for their noise and views.
        **kwargs: as in the method.

    Raises:
        ValueError: bounds that are not two finite numbers in ascending order.
    """

    def __init__(self, *args, bounds: tuple[float, float] = (0.0, 1.0), **kwargs):
        super().__init__(*args, **kwargs)
        try:
            low, high = (float(bound) for bound in bounds)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not -math.inf < low < high < math.inf:
            raise InputError(f"{type(self).__name__}.bounds is {bounds!r}; it is (low, high), such as (0, 255).")
        self.bounds = (low, high)

    @property
    def pixel_bounds(self) -> tuple[float, float]:
        """(low, high) of the pixels in a batch."""
        return self.bounds

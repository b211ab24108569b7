"""The norms of perturbations, one record each: whatever depends on a norm's name alone is here. No tensors."""

import dataclasses
import math
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Norm:
    """A norm of a vector of d values, or the number of its values that are not 0.

    Attributes:
        name: in configurations, ids and reports, as "linf".
        label: in text, as "L∞".
        order: as `numpy.linalg.norm` numbers it.
        dual: name of the dual norm: max <v, g> over |v| <= 1 is the dual norm of g. "" if there is none.
        farthest: d -> the largest norm in the box [-1, 1]^d, by which two images in [0, 1] can differ.
        center: d -> the radius around any image in [0, 1] that contains the gray image.
        noise: d -> norm of standard normal noise, in the sense of `attacks.noise.GaussianNoise`; NaN if it has none.
    """

    name: str
    label: str
    order: float
    dual: str
    farthest: Callable[[int], float]
    center: Callable[[int], float]
    noise: Callable[[int], float]


_RECORDS = (
    Norm("linf", "L∞", math.inf, "l1", lambda d: 1.0, lambda d: 0.5, lambda d: 1.0),
    Norm("l2", "L2", 2, "l2", math.sqrt, lambda d: math.sqrt(d) / 2, math.sqrt),
    Norm("l1", "L1", 1, "linf", float, lambda d: d / 2, lambda d: d * math.sqrt(2 / math.pi)),
    # Gray differs from an image in any number of values.
    Norm("l0", "L0", 0, "", float, float, lambda d: math.nan),
)
NORMS = {record.name: record for record in _RECORDS}
# Those with a steepest direction, which every gradient attack needs.
DIRECTED = tuple(record.name for record in _RECORDS if record.dual)


def by_order(order: float) -> str | None:
    """Return the name of the norm that NumPy numbers so; None for other numbers."""
    return next((record.name for record in _RECORDS if record.order == order), None)

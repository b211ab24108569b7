"""The limits of all evaluation checks in one table, and the one way from a number to a finding."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import ClassVar

from tfrobust.evaluation.engine.base import ROUNDING
from tfrobust.structs import Finding

VERDICTS = ("pass", "warn", "fail")  # from mild to severe


@dataclasses.dataclass(frozen=True)
class Limits:
    """Two limits of one number: within the first it passes, beyond the second it fails, between them it warns.

    Attributes:
        passing: the first limit.
        failing: the second limit.
        few: limits of the number of examples behind a share; the milder of both verdicts counts.
    """

    passing: float
    failing: float
    few: Limits | None = None

    within: ClassVar[Callable]

    def verdict(self, value: float, count: int | None = None) -> str:
        """Return "pass", "warn" or "fail"; NaN fails."""
        within = type(self).within
        verdict = "pass" if within(value, self.passing) else "warn" if within(value, self.failing) else "fail"
        return verdict if self.few is None else min(verdict, self.few.verdict(count or 0), key=VERDICTS.index)

    def above(self, base: float) -> Limits:
        """Return the limits with the failing one counted from `base`."""
        return dataclasses.replace(self, failing=base + self.failing)


class AtMost(Limits):
    """Limits of a number that should be small; the limits are within."""

    within = staticmethod(operator.le)


class Below(Limits):
    """Limits of a number that should be small; the limits are beyond."""

    within = staticmethod(operator.lt)


class AtLeast(Limits):
    """Limits of a number that should be large; the limits are within."""

    within = staticmethod(operator.ge)


# The number of each check with its limits, passing first. Shares are those of the examples that a check examines.
LIMITS = {
    # The model: the largest difference of outputs relative to the largest output (or to 1), the share of gradients that
    # are 0, vanishing, exploding or stochastic, and the share of steps up the gradient that beat a random step.
    "deterministic": AtMost(ROUNDING, ROUNDING),
    "batch_independent": AtMost(1e-3, 1e-3),
    "gradients": AtMost(0.05, 0.5),
    "gradients, not finite": AtMost(0.0, 0.0),
    "ascent": AtLeast(0.9, 0.75),
    # The short attack: the lower end of the interval of a rise of the accuracy with epsilon, and the rise itself, which
    # may be chance within a few steps; saved images whose prediction differs from the report, or outside the threat
    # set; adversarial images that rounding corrects.
    "monotone, certain rise": AtMost(0.0, 0.0),
    "monotone, rise": AtMost(0.01, math.inf, few=AtMost(1, math.inf)),
    "repredict, other prediction": AtMost(0.0, 0.01),
    "repredict, outside": AtMost(0.0, 0.0),
    "rounding": AtMost(0.1, math.inf),
    # Examples on which only one of two gradients succeeds. A transfer attack tries fewer points: with equal weights, up
    # to 4 % are found by the model's own gradients only.
    "surrogate": AtMost(0.06, 0.12, few=AtMost(2, 2)),
    # The evaluation against the training: epsilon relative to that of the training.
    "attack_strength, epsilon": AtLeast(1 - 1e-6, 0.5),
    # Epsilon relative to the distance to another class, or from black to white: gray is halfway.
    "epsilon_units": Below(0.5, 1.0),
    # The data: half the width of an interval, and the share of test images among the training images.
    "test_size": AtMost(0.06, 0.1),
    "duplicates": AtMost(0.0, 0.05),
    # The fast ensemble: the share of the images nearest to another class on which only its attack without gradients
    # succeeds. On honest models these are the few at the boundary.
    "masked_gradients": AtMost(0.1, math.inf, few=AtMost(2, math.inf)),
    # The accuracy under the doctor's attack that a fine-tuning leaves, below which the advice on it is repeated.
    "fine_tuning": AtLeast(0.1, 0.0),
    # The full doctor: the accuracy within a radius at which images can become gray, which fails if it exceeds that of
    # simple points by the second limit; the share of examples on which only the further attack succeeds. More effort
    # finds slightly more on any robust model.
    "large_epsilon": AtMost(0.05, 0.02),
    "more_effort": AtMost(0.02, 0.1, few=AtMost(1, 2)),
    "black_box": AtMost(0.02, 0.05, few=AtMost(1, 2)),
    "transfer": AtMost(0.02, 0.05, few=AtMost(1, 2)),
}

# `attack_strength`: with fewer steps an attack is not a search.
FEW_STEPS = 10
# `epsilon_units`: one of 255 gray levels.
GRAY_LEVEL = 1 / 255
# `logits`: a float32 probability further from 1 than the first has gradients right to a few per cent; sums that differ
# from 1 by more than the second come from a coarser type.
CLOSE_TO_ONE, EXACT_SUM = 2e-6, 1e-5
# `gradients`: bounds of the largest entry of a gradient. Float32 ends at 1e-38. At the upper bound the loss changes by
# 1 within a 4000th of one of 255 gray levels, so the gradient does not predict the loss a step away.
VANISHING, EXPLODING = 1e-30, 1e6
# `duplicates`: root mean square differences of pixels up to which images count as the same picture, re-encoded or with
# shifted brightness; the second is a share of the picture's contrast.
NEAR, NEAR_OF_CONTRAST = 4 / 255, 0.1
# `pixel_range`: predictions that a range corrects, net of those it spoils: the fewest, a share to mention, and a clear
# share; a difference of accuracies that is a tie.
FEWEST_CORRECTED, SOME_CORRECTED, CLEARLY_CORRECTED, TIE = 10, 0.05, 0.3, 0.01
# `pixel_range`: factors between the standard deviations that a normalization layer receives and expects: far from 1,
# and near 1.
FAR_FROM_ONE, NEAR_ONE = 4.0, 1.5
# `fine_tuning`: epochs up to which a training is short; those of the source have 5 or 50.
FEW_EPOCHS = 5
# The limits of `overfitting` are those of the training: `ops.overfitting`.


def verdict(number: str, value: float, count: int | None = None) -> str:
    """Return the verdict on a number of the table.

    Args:
        number: its key in `LIMITS`.
        value: the number.
        count: the number of examples behind a share.
    """
    return LIMITS[number].verdict(value, count)


def graded(check: str, evidence: str, remedy: str, *verdicts: str) -> Finding:
    """Return the finding of a check with the most severe of its verdicts; a finding that passes needs no remedy."""
    worst = max(verdicts, key=VERDICTS.index)
    return Finding(check, worst, evidence, "" if worst == "pass" else remedy)

"""Schedule of APGD: checkpoints and radii over the turns of one round, as tables computed before any graph.

A turn evaluates one point and moves on to the next. Turn 0 evaluates the start, turn t the point after t steps. Where a
round has several phases (radii), each phase begins with a turn of its own.
"""

import math
from typing import NamedTuple

import numpy as np

# L1: the radii in units of epsilon, and the share of the steps of each; the last takes the remaining steps.
_LARGE_RADII = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))


class Schedule(NamedTuple):
    """Tables [turns + 1]; the last row belongs to the point after all steps, which is verified outside of the search.

    Attributes:
        epsilon: float32, the radius of the phase.
        window: int32, the number of steps that the checkpoint after this evaluation compares; 0 if there is none.
        ends: bool, the last evaluation of a phase that another phase follows.
        counts: bool, misclassified points count as success (the last phase).
    """

    epsilon: np.ndarray
    window: np.ndarray
    ends: np.ndarray
    counts: np.ndarray

    @property
    def turns(self) -> int:
        """Number of turns in a round."""
        return len(self.window) - 1


def schedule(norm: str, epsilon: float, steps: int, large_radii: bool) -> Schedule:
    """Build the tables of one round.

    Args:
        norm: 'linf', 'l2' or 'l1'.
        epsilon: radius of the threat model.
        steps: of all phases together, >= 1.
        large_radii: True: three phases of 3, 2 and 1 epsilon.

    Returns:
        The tables.

    Source:
        Croce & Hein 2021, https://arxiv.org/abs/2103.01208, section 3.3 (phases).
    """
    phases, rows = _phases(epsilon, steps, large_radii), []
    for number, (radius, length) in enumerate(phases):
        last, windows = number == len(phases) - 1, looks_back(norm, length)
        for step in range(length + 1):
            rows.append((radius, windows.get(step, 0), step == length and not last, last))
    columns = zip(*rows, strict=True)
    return Schedule(*(np.array(column, kind) for column, kind in zip(columns, ("f4", "i4", "?", "?"), strict=True)))


def looks_back(norm: str, steps: int) -> dict[int, int]:
    """Return the checkpoints and their window lengths in steps: {22: 22, 41: 19, ...} for 100 steps in Linf and L2.

    Linf, L2: the first window is 22 % of the steps, each following one 3 % shorter, down to 6 %. L1: every 4 %.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, section 3.2; rounded as in the authors' code.
    """
    if norm == "l1":
        window = shortest = max(int(0.04 * steps), 1)
        shrink = 0
    else:
        window, shrink, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    found, step = {}, window
    while step <= steps:
        found[step] = window
        window = max(window - shrink, shortest)
        step += window
    return found


def _phases(epsilon: float, steps: int, large_radii: bool) -> list[tuple[float, int]]:
    if not large_radii:
        return [(epsilon, steps)]
    phases, left = [], steps
    for factor, share in _LARGE_RADII[:-1]:
        length = min(math.ceil(share * steps), left)
        phases.append((factor * epsilon, length))
        left -= length
    return [*phases, (_LARGE_RADII[-1][0] * epsilon, left)]

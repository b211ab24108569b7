"""The check that no attack contradicts a certificate."""

from __future__ import annotations

import numpy as np

from tfrobust.evaluation.engine.base import Outcome
from tfrobust.structs import Finding

_PREFIX = "outcomes."


def check_certificates(outcome: Outcome) -> Finding | None:
    """Check that no certified example is misclassified: unmodified, or by an attack within the certified epsilon.

    Args:
        outcome: of all evaluators of one model on the same examples.

    Returns:
        The finding `certificates`; None if no example is certified.
    """
    rows = {
        series.id.removeprefix(_PREFIX): np.array([one == "1" for one in series.columns["right"][0]])
        for series in outcome.series
        if series.id.startswith(_PREFIX)
    }
    measured = {one.id: one.settings for one in outcome.measurements if one.id in rows}
    certified = {one: settings for one, settings in measured.items() if one.startswith("certified.")}
    broken, compared, count = [], 0, 0
    for one, bound in certified.items():
        count = max(count, int(rows[one].sum()))
        for other, settings in measured.items():
            if other != "accuracy.clean" and not (other.startswith("attack.") and _within(settings, bound)):
                continue
            compared += 1
            attacked = rows[other]  # of all images, or of the first
            wrong = int(np.sum(rows[one][: len(attacked)] & ~attacked[: len(rows[one])]))
            if wrong:
                broken.append(f"{wrong} of the {rows[one].sum()} images of {one} are misclassified in {other}")
    if not count:
        return None
    if broken:
        remedy = "Either the bound is not sound for this model, or the attack left its ball: use neither number."
        return Finding("certificates", "fail", f"{'; '.join(broken)}.", remedy)
    evidence = (
        f"None of {count} certified images is misclassified, in {compared} comparisons with attacks and clean images."
    )
    return Finding("certificates", "pass", evidence)


def _within(settings: dict, bound: dict) -> bool:
    """Return True if an attack stays inside the ball of a certificate."""
    return settings.get("norm") == bound["norm"] and settings["epsilon"] <= bound["epsilon"]

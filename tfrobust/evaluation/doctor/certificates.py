"""The check that no attack contradicts a certificate."""

from __future__ import annotations

import numpy as np

from tfrobust.evaluation.engine.base import Outcome
from tfrobust.evaluation.evaluators.certified import covers
from tfrobust.report import catalog
from tfrobust.report.catalog.under_attack import ATTACK, CERTIFIED, CLEAN
from tfrobust.report.catalog.union import UNION
from tfrobust.structs import Finding

_PREFIX = "outcomes."


def check_certificates(outcome: Outcome, examples: str = "images") -> Finding | None:
    """Check that no certified example is misclassified: unmodified, or by an attack within the certified epsilon.

    Args:
        outcome: of all evaluators of one model on the same examples.
        examples: plural noun, as in `Kind.examples`.

    Returns:
        The finding `certificates`; None if no example is certified.
    """
    rows = {
        series.id.removeprefix(_PREFIX): _by_position(series.columns)
        for series in outcome.series
        if series.id.startswith(_PREFIX)
    }
    measured = {m.id: m for m in outcome.measurements if m.id in rows}
    families = {name: catalog.read(m).family for name, m in measured.items()}
    certified = {name: m.settings for name, m in measured.items() if families[name] == CERTIFIED.family.name}
    broken, compared, count = [], 0, 0
    for name, bound in certified.items():
        count = max(count, int(rows[name].sum()))
        for attack, m in measured.items():
            threats = _threats(families[attack], m.settings)
            is_attack = threats and all(covers(bound, threat) for threat in threats)
            if attack != CLEAN.id("clean") and not is_attack:
                continue
            compared += 1
            attacked = rows[attack]  # of all images, or of the first
            wrong = int(np.sum(rows[name][: len(attacked)] & ~attacked[: len(rows[name])]))
            if wrong:
                broken.append(f"{wrong} of the {rows[name].sum()} {examples} of {name} are misclassified in {attack}")
    if not count:
        return None
    if broken:
        remedy = "Either the bound is not sound for this model, or the attack left its ball: use neither number."
        return Finding("certificates", "fail", f"{'; '.join(broken)}.", remedy)
    unknown = [
        m for m in outcome.measurements if m.settings.get("spared") and m.id not in rows and m.id.endswith(".accuracy")
    ]
    if unknown:
        left_out = max(m.settings["spared"] for m in unknown)
        evidence = (
            f"{unknown[0].id} left {left_out} certified {examples} out, and which of the others it broke is unknown."
        )
        remedy = f"Attack the first {examples} (AttackAccuracy.first) in place of drawn ones, or all."
        return Finding("certificates", "warn", evidence, remedy)
    spared = max((m.settings.get("spared", 0) for m in measured.values()), default=0)
    comparisons = f"{compared} comparison{'s' * (compared != 1)} with attacks and clean {examples}"
    left_out = f"; an attack left {spared} of them out" if spared else ""
    evidence = f"None of {count} certified {examples} is misclassified, in {comparisons}{left_out}."
    return Finding("certificates", "pass", evidence)


def _by_position(columns: dict[str, list]) -> np.ndarray:
    """Return which examples are correct or certified, bool [n], in the order of the test split; others are False."""
    correct, *images = (np.array(list(columns[name][0])) == "1" for name in ("right", "images") if name in columns)
    if not images:
        return correct
    images[0][images[0]] = correct
    return images[0]


def _threats(family: str, settings: dict) -> list[dict]:
    """Return the threat models of an attack, or of all attacks of a union, as settings; [] of other measurements."""
    threats = {ATTACK.family.name: [settings], UNION.family.name: settings.get("threats", [])}
    return threats.get(family, [])

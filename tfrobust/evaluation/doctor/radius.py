"""Evaluation check of the unit of epsilon, by the distances between images of different classes."""

from __future__ import annotations

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.norm_table import NORMS
from tfrobust.evaluation.doctor.limits import GRAY_LEVEL, VERDICTS, verdict
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding

# Bounds for about a second of computation.
_SEPARATION_IMAGES, _SEPARATION_VALUES = 500, 1e9


def check_units(setting: Setting, doctor_attack: Attack) -> Finding | None:
    """Check that every epsilon is a radius in pixels of [0, 1]: neither 8 instead of 8/255, nor 8/255/255.

    Budgets for frames are left out, which do not compare with distances between whole clips; None if all are such.
    """
    images = setting.images
    attacks = {
        attack
        for attack in (doctor_attack, *setting.evaluation_attacks)
        if not (attack.minimal or attack.threat.variant)
    }
    if not attacks and doctor_attack.threat.variant:
        return None
    spread = float(images.max() - images.min())
    if spread <= 2 * GRAY_LEVEL:
        return Finding(
            "epsilon_units",
            "fail",
            f"All pixels of all {setting.examples} lie within {spread:.2g} of each other.",
            "Pixels run over [0, 1]: these were divided by 255 once too often, or are empty.",
        )
    worst, remedy = "pass", ""
    sentences = []
    for norm in sorted({attack.threat.norm for attack in attacks}):
        sizes = [float(attack.threat.epsilon) for attack in attacks if attack.threat.norm == norm]
        # A curve starts small whatever its unit is. If the doctor's own attack is among the attacks, its epsilon
        # decides.
        claimed = float(doctor_attack.threat.epsilon) if doctor_attack.threat.norm == norm else min(sizes)
        verdict_of_norm, evidence, remedy_of_norm = _check_sizes(setting, norm, sizes, claimed, spread)
        sentences.append(evidence)
        if VERDICTS.index(verdict_of_norm) > VERDICTS.index(worst):
            worst, remedy = verdict_of_norm, remedy_of_norm
    return Finding("epsilon_units", worst, " ".join(sentences), remedy)


def _check_sizes(setting: Setting, norm: str, sizes: list, claimed: float, spread: float) -> tuple[str, str, str]:
    """Return verdict, evidence and remedy for the attacks in one norm; `claimed` must not be too large."""
    values = int(np.prod(setting.images.shape[1:]))
    smallest, largest = min(sizes), max(sizes)
    if norm == "l0":
        evidence = f"l0: epsilon {smallest:.6g} to {largest:.6g} of {values} values."
        if largest < 1 or smallest >= values:
            return "fail", evidence, "For l0 epsilon counts pixel values that may change, from 1 to less than all."
        return "pass", evidence, ""
    span = spread * NORMS[norm].farthest(values)
    apart = setting.cached(f"separation {norm}", lambda: separation(setting, norm))
    evidence = (
        f"{norm}: epsilon {smallest:.4g} to {largest:.4g}; black and white differ by {span:.4g}; the median distance "
        f"to the nearest {setting.example} of another class is {apart:.4g}."
    )
    remedy = f"Epsilon is in pixels of [0, 1]: {claimed:.4g}/255 = {claimed * GRAY_LEVEL:.4g}, if that was meant."
    # From 1 on, images of another class lie within reach: no classifier can be correct on both.
    reach = claimed / min(span, apart) if apart else np.inf
    grade = verdict("epsilon_units", reach)
    if grade == "pass" and largest < GRAY_LEVEL / 2:
        steps = f"Epsilon is in pixels of [0, 1]: {largest:.2g} is {largest * 255:.2g} of 255 gray levels"
        too_little = f"{steps}, too little to change any 8-bit {setting.example}; was it divided by 255 twice?"
        return "fail", evidence, too_little
    if grade == "warn":
        evidence += " Halfway to another class, or gray, lies within reach."
    return grade, evidence, "" if grade == "pass" else remedy


def separation(setting: Setting, norm: str) -> float:
    """Return the median distance of an image to the nearest one with another label, over a few hundred images."""
    fits = int(np.sqrt(_SEPARATION_VALUES / np.prod(setting.images.shape[1:])))
    chosen = setting.order("separation")[: max(2, min(_SEPARATION_IMAGES, fits))]
    rows, labels = setting.images[chosen].reshape(len(chosen), -1), setting.labels[chosen]
    nearest = []
    for row, label in zip(rows, labels, strict=True):
        gaps = np.abs(rows[labels != label] - row)
        if not len(gaps):
            return float("inf")
        nearest.append(np.linalg.norm(gaps, NORMS[norm].order, axis=1).min())
    return float(np.median(nearest))

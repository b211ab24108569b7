"""Evaluation checks of the evaluation's attacks against the attack in training: threat model, radius and steps."""

from __future__ import annotations

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.evaluation.doctor.limits import FEW_STEPS, AtLeast, graded, verdict
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding


def check_equal_threat(setting: Setting, attack: Attack) -> Finding | None:
    """Return a failure if the doctor's attack has another norm, radius or pixel box than the attack in training."""
    trained = setting.training_attack
    if trained is None:
        return None
    facts = {"norm": attack.threat.norm, "epsilon": attack.threat.epsilon, "bounds": tuple(attack.threat.bounds)}
    facts |= attack.threat.frame_settings
    expected = {"bounds": (0.0, 1.0), **trained}
    expected["bounds"] = tuple(expected["bounds"])
    names = [name for name in (*facts, "per_frame", "max_frames") if not _alike(facts.get(name), expected.get(name))]
    if not names:
        return None
    differing = ", ".join(
        f"{name} {_value_text(expected.get(name))} against {_value_text(facts.get(name))}"
        for name in dict.fromkeys(names)
    )
    evidence = f"Training and evaluation attack within different threat models: {differing}."
    remedy = (
        "Train and evaluate within one (EPSILON and NORM set both), or, if the difference is intended, say so: set "
        "EVAL_EPSILON or EVAL_NORM, or Doctor.other_threat = True."
    )
    return Finding("attack_strength", "fail", evidence, remedy)


def trained_threat(trained: dict) -> ThreatModel:
    """Return the threat model of `Setting.training_attack`, in unit pixels."""
    frames = {name: trained[name] for name in ("per_frame", "max_frames") if name in trained}
    return ThreatModel(norm=trained["norm"], epsilon=trained["epsilon"], **frames)


def _alike(first, second) -> bool:
    if isinstance(first, float) and isinstance(second, (int, float)):
        return bool(np.isclose(first, second, rtol=1e-5, atol=0.0))
    return first == second


def _value_text(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def check_strength(setting: Setting, doctor_attack: Attack) -> Finding:
    """Check that the evaluation attacks the model at least as hard as its training did."""
    attacks = [
        member for attack in setting.evaluation_attacks or (doctor_attack,) for member in attack.members or (attack,)
    ]
    climbers = [attack for attack in attacks if attack.needs_gradient]
    trained = setting.training_attack
    if trained is None:
        steps = max((attack.steps for attack in climbers), default=0)
        evidence = f"The longest gradient attack takes {steps} steps; no attack in training is known."
        return _check_steps(steps, FEW_STEPS, evidence)
    threat, needed = trained_threat(trained), trained["steps"]
    norm, epsilon, frames = threat.norm, threat.epsilon, threat.frame_settings
    comparable = [attack for attack in climbers if (attack.threat.norm, attack.threat.frame_settings) == (norm, frames)]
    reach = max((np.inf if attack.minimal else attack.threat.epsilon for attack in comparable), default=0.0)
    full = [attack for attack in comparable if attack.minimal or _reaches(attack.threat.epsilon, epsilon)]
    steps = max((attack.steps for attack in full), default=0)
    evidence = f"Training attacked by {needed} steps within {norm} {epsilon:.6g}; the evaluation "
    if not comparable:
        remedy = f"Evaluate within {norm} {epsilon:.6g} as well: the model was trained for that."
        return Finding("attack_strength", "warn", f"{evidence}has no gradient attack in that norm.", remedy)
    if not full:
        remedy = f"Evaluate at {epsilon:.6g} too, the epsilon that was trained for."
        return graded(
            "attack_strength",
            f"{evidence}uses at most {reach:.6g}.",
            remedy,
            verdict("attack_strength, epsilon", reach / epsilon),
        )
    return _check_steps(steps, max(needed, FEW_STEPS), f"{evidence}takes up to {steps} steps there.", needed)


def _reaches(reach: float, epsilon: float) -> bool:
    return verdict("attack_strength, epsilon", reach / epsilon) == "pass"


def _check_steps(steps: int, needed: int, evidence: str, trained: int = 0) -> Finding:
    remedy = f"Give the attack at least {needed} steps; gin/eval/pgd.gin takes 100."
    return graded("attack_strength", evidence, remedy, AtLeast(needed, trained).verdict(steps))

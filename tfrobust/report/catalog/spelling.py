"""Spelling of attacks and budgets: as parts of ids, and as people read them."""

from __future__ import annotations

import re
import string

from tfrobust.common.norm_table import NORMS

NORM_NAMES = {norm.name: norm.label for norm in NORMS.values()}
# Parts of attack names, as patterns, with their spelling in the literature. In all other names "_" becomes a space.
_SPELLINGS = {
    r"^transfer_": "transfer of ",
    r"(?<![a-z])(fgsm|msd|a?pgd|fab|pma|malt|fmn|ddn)(?![a-z])": lambda match: match[0].upper(),
    r"(?<=[A-Z])_(ce|dlr|t)(?![a-z])": lambda match: f"-{match[1].upper()}",
    r"(?<=PGD)(?=[0-9])": "-",
    "autoattack": "AutoAttack",
    r"^fast$": "fast ensemble",
    "multi_targeted": "multi-targeted",
    "hop_skip_jump": "HopSkipJump",
    "prox_log_barrier": "proximal log-barrier",
    r"^square(?![a-z])": "Square",
}


def text(value) -> str:
    """Return a text; raise TypeError for anything else, which another program may have written into settings."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def size(value: float | str) -> str:
    """Return an epsilon, a radius or a deviation as in ids, to six digits: "0.0313725"; a text comes from an id."""
    written = value if isinstance(value, str) else f"{value:.6g}"
    if written[:1] not in (*string.digits, "."):
        raise ValueError(written)
    return written


def frames(settings: dict) -> str:
    """Return the restriction to frames as in ids: "_per_frame", "_max_frames_2", both, or ""."""
    count = settings.get("max_frames")
    return "_per_frame" * bool(settings.get("per_frame")) + ("" if count is None else f"_max_frames_{count}")


def norm_of(settings: dict) -> str:
    """Return the norm as in ids: "linf"."""
    norm = settings["norm"]
    if norm not in NORM_NAMES:
        raise ValueError(norm)
    return norm


def ball(settings: dict) -> str:
    """Return norm, epsilon and frames as in ids: "linf_0.2", "l2_1_per_frame"."""
    return f"{norm_of(settings)}_{size(settings['epsilon'])}{frames(settings)}"


def attack_label(settings: dict) -> str:
    """Return the attack's part of an id: its label, or that of its ensemble, or its own name."""
    return text(settings.get("label") or settings.get("ensemble") or settings["attack"])


def attack_key(settings: dict) -> str:
    """Return attack, norm and epsilon as in ids: "pgd20_linf_0.2"."""
    return f"{attack_label(settings)}_{ball(settings)}"


def curve_key(settings: dict) -> str:
    """Return attack and norm as in the ids of curves over epsilon: "pgd20_linf"."""
    return f"{attack_label(settings)}_{norm_of(settings)}{frames(settings)}"


def attack_name(name: str, settings: dict | None = None) -> str:
    """Return the display name of an attack: "multi-targeted PGD" for "multi_targeted_pgd", "PGD-100" for "pgd".

    Args:
        name: the attack's part of an id.
        settings: of a measurement or series; a name of plain PGD then has its steps.
    """
    steps = (settings or {}).get("steps")
    if name == "pgd" and isinstance(steps, int) and not isinstance(steps, bool):
        name = f"pgd{steps}"
    for pattern, spelling in _SPELLINGS.items():
        name = re.sub(pattern, spelling, name)
    return name.replace("_", " ")


def budget(norm: str, epsilon: str | None, frames: str = "") -> str:
    """Return norm and size of a perturbation: "L∞ ε = 0.2", "L2 ε = 1 per frame, in at most 2 frames"."""
    size = f" ε = {epsilon}" if epsilon else ""
    per_frame = " per frame" if frames.startswith("_per_frame") else ""
    _, _, count = frames.partition("_max_frames_")
    return f"{NORM_NAMES[norm]}{size}{per_frame}{',' * bool(per_frame and count)}" + (
        f" in at most {count} frame{'s' * (count != '1')}" if count else ""
    )


def budget_of(settings: dict) -> str:
    """Return the budget that settings describe, without a size if they have none."""
    epsilon = settings.get("epsilon")
    return budget(settings["norm"], None if epsilon is None else size(epsilon), frames(settings))


def attack_caption(settings: dict, *, steps: bool = False) -> str:
    """Return the display name of an attack and its budget: "PGD, L∞ ε = 0.2", with `steps` "PGD-20, L∞ ε = 0.2"."""
    return f"{attack_name(attack_label(settings), settings if steps else None)}, {budget_of(settings)}"


def curve_caption(settings: dict, *, steps: bool = False) -> str:
    """Return the same for a curve over epsilon: "PGD-20, L∞"."""
    return attack_caption({**settings, "epsilon": None}, steps=steps)

"""The one reader of ids: for reports of earlier versions and of other programs, whose settings lack parts of an id."""

from __future__ import annotations

import contextlib
import re

_FRAMES = r"(?P<per_frame>_per_frame)?(?:_max_frames_(?P<max_frames>[0-9]+))?"
_NUMBER = r"[0-9][0-9.e+-]*?"
_BALL = rf"(?P<norm>linf|l2|l1|l0)_(?P<epsilon>{_NUMBER}){_FRAMES}"
_ATTACK = rf"(?P<label>.+?)_{_BALL}"
# Ids by the settings that they name. The names of the groups are those of settings, and `end` is the quantity.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:video\.)?attack\.{_ATTACK}(?:\.(?P<member>[a-z][a-z0-9_]*))?\.(?P<end>accuracy|drop|median_distance)",
        rf"attack\.{_ATTACK}\.(?P<end>examples|frames)",
        rf"attack\.(?P<label>.+)_(?P<norm>linf|l2|l1|l0){_FRAMES}\.(?P<end>curve)",
        rf"attack\.{_ATTACK}\.class\.(?P<class>[^.]+)",
        r"accuracy\.class\.(?P<class>[^.]+)",
        rf"certified\.{_BALL}\.(?P<end>accuracy)",
        rf"smoothing\.(?P<noise>(?:uniform_)?sigma)_(?P<sigma>{_NUMBER})"
        rf"\.(?:(?P<norm>l2|l1)_(?P<radius>[0-9][0-9.e+-]*)\.(?P<end>accuracy)|acr|abstention|curve)",
        rf"calibration\.(?:reliability\.|response_rate\.)?{_ATTACK}(?:\.(?P<end>[a-z]+))?",
        r"shift\.(?P<set>[a-z0-9_]+)\.(?P<end>accuracy|ece|rms|aurra)",
        rf"conformal(?:\.{_ATTACK})?\.(?P<score>[a-z]+)_(?P<level>0?\.[0-9]+)\.(?P<end>coverage|size|empty)",
        r"ood\.(?P<set>[a-z0-9_]+)\.(?P<score>[a-z_]+)\.(?P<end>auroc|fpr95)",
        r"ood\.(?P<set>[a-z0-9_]+)",
        r"(?:clip_)?corruption\.(?P<corruption>[a-z_]+)\.(?P<severity>[1-9])\.(?P<end>accuracy|drop)",
        r"stability\.(?P<sequence>(?!mean\.)[a-z_]+)\.(?P<end>flip_probability|flip_rate)",
    )
)

_SIZES = {"epsilon", "radius", "sigma", "level"}


def completed(identity: str, settings: dict) -> dict:
    """Return settings with those that an id names, in which the id holds; as they are for an id that names none."""
    match = next(filter(None, (pattern.fullmatch(identity) for pattern in _PATTERNS)), None)
    if match is None:
        return settings
    parts = {name: text for name, text in match.groupdict().items() if text is not None and name != "end"}
    parts |= {name: _number(settings.get(name), parts[name]) for name in _SIZES & parts.keys()}
    if "noise" in parts:
        parts["noise"] = "uniform" if parts["noise"].startswith("uniform") else "gaussian"
    if "norm" in parts:
        parts |= {"per_frame": "per_frame" in parts, "max_frames": parts.get("max_frames")}
    if "label" in parts:
        member = parts.pop("member", None)
        name = settings.get("attack", parts["label"])  # which may differ from the label
        parts |= {"attack": name} if member is None else {"attack": member, "ensemble": parts["label"]}
    return settings | parts


def _number(setting, text: str) -> float | str:
    """Return the number that an id rounds: the setting, if it has it; the text itself if it is none that we write."""
    for candidate in (setting, text):
        with contextlib.suppress(TypeError, ValueError):
            if f"{float(candidate):.6g}" == text:
                return float(candidate)
    return text


def family_of(identity: str) -> str:
    """Return the family of an id that no record writes: its first word."""
    return identity.partition(".")[0]


def quantity_of(identity: str) -> tuple[str, str]:
    """Return such an id's part before its last word, and this word."""
    prefix, _, name = identity.rpartition(".")
    return prefix, name

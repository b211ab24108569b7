"""Records of accuracies: clean, of classes, under attack, certified, and of smoothed classifiers."""

from __future__ import annotations

from tfrobust.report.catalog.record import Family, Quantity, Record
from tfrobust.report.catalog.spelling import (
    NORM_NAMES,
    attack_key,
    attack_label,
    attack_name,
    ball,
    budget,
    budget_of,
    curve_key,
    norm_of,
    size,
    text,
)

# Settings with the forward and backward passes of an attack, the mean over the images that it measures.
PASSES = ("forward_passes", "backward_passes")
_ACCURACY, _DROP, _DISTANCE = "accuracy", "relative drop", "median distance"


def _under_member(settings: dict, quantity: Quantity) -> str:
    return _under_attack(settings, quantity, f" ({attack_name(settings['attack'])})")


def _under_attack(settings: dict, quantity: Quantity, member: str = "") -> str:
    name = attack_name(attack_label(settings), settings) + member
    if quantity.label == _DISTANCE:  # does not depend on epsilon
        return f"{name}, {budget(settings['norm'], None)}, {_DISTANCE}"
    return f"{name}, {budget_of(settings)}" + (f", {quantity.label}" if quantity.label != _ACCURACY else "")


_ACCURACY_FAMILY = Family(name="accuracy", place=0)
CLEAN = Record(
    family=_ACCURACY_FAMILY,
    prefix="accuracy",
    quantities={"clean": Quantity(label="Clean accuracy", better=1, headline=0)},
    must_agree=("votes",),
)
CLEAN_CLASS = Record(
    family=_ACCURACY_FAMILY,
    prefix=lambda settings: f"accuracy.class.{settings['class']}",
    quantities={"": Quantity(better=1)},
    must_agree=("votes",),
)
_ATTACK_FAMILY = Family(name="attack", place=10)
# The label of the attack is in the settings where it is not the attack's own name.
ATTACK = Record(
    family=_ATTACK_FAMILY,
    prefix=lambda settings: f"attack.{attack_key(settings)}",
    quantities={
        "accuracy": Quantity(label=_ACCURACY, better=1, headline=0),
        "drop": Quantity(label=_DROP, better=-1, signed=True),
        "median_distance": Quantity(label=_DISTANCE, better=1, headline=1),
    },
    label=_under_attack,
)
# Cumulative: the accuracy after this member of an ensemble and all before it.
MEMBER = Record(
    family=_ATTACK_FAMILY,
    prefix=lambda settings: settings["ensemble"] and f"attack.{attack_key(settings)}.{text(settings['attack'])}",
    quantities={
        "accuracy": Quantity(label=_ACCURACY, better=1),
        "drop": Quantity(label=_DROP, better=-1, signed=True),
        "median_distance": Quantity(label=_DISTANCE, better=1, headline=1),
    },
    label=_under_member,
)
ATTACK_CLASS = Record(
    family=_ATTACK_FAMILY,
    prefix=lambda settings: f"attack.{attack_key(settings)}.class.{settings['class']}",
    quantities={"": Quantity(better=1)},
)
# Series: examples with their perturbations, and their size frame by frame.
PICTURES = Record(
    family=_ATTACK_FAMILY,
    prefix=lambda settings: f"attack.{attack_key(settings)}",
    quantities={"examples": Quantity(), "frames": Quantity()},
)
# A series: the epsilon is a column.
CURVE = Record(
    family=_ATTACK_FAMILY,
    prefix=lambda settings: f"attack.{curve_key(settings)}",
    quantities={"curve": Quantity()},
    radii="a range of radii",
)
_CERTIFIED_FAMILY = Family(name="certified", place=20)
CERTIFIED = Record(
    family=_CERTIFIED_FAMILY,
    prefix=lambda settings: f"certified.{ball(settings)}",
    quantities={
        "accuracy": Quantity(label="Certified accuracy", better=1, headline=0),
        "unknown": Quantity(label="Neither certified nor broken", better=-1),
    },
    label=lambda settings, quantity: f"{quantity.label}, {budget_of(settings)}",
    must_agree=("method", "norm", "epsilon", "bound", "sample"),
)

_NOISES = {"gaussian": "sigma", "uniform": "uniform_sigma"}


def _smoothed(settings: dict) -> str:
    return f"smoothing.{_NOISES[settings['noise']]}_{size(settings['sigma'])}"


def smoothed_name(settings: dict) -> str:
    """Return the display name of a smoothed classifier: "Smoothed by Gaussian noise, σ = 0.25"."""
    kind = "uniform" if settings["noise"] == "uniform" else "Gaussian"  # the deviation, of uniform noise too
    return f"Smoothed by {kind} noise, σ = {size(settings['sigma'])}"


_SMOOTHING_FAMILY = Family(name="smoothing", place=30)
SMOOTHED_RADIUS = Record(
    family=_SMOOTHING_FAMILY,
    prefix=lambda settings: f"{_smoothed(settings)}.{norm_of(settings)}_{size(settings['radius'])}",
    quantities={"accuracy": Quantity(label="certified accuracy", better=1, headline=0)},
    label=lambda settings, quantity: (
        f"{smoothed_name(settings)}, {quantity.label}, {NORM_NAMES[settings['norm']]} r = {size(settings['radius'])}"
    ),
    must_agree=("n0", "n", "alpha", "method", "norm"),
)
SMOOTHED = Record(
    family=_SMOOTHING_FAMILY,
    prefix=_smoothed,
    quantities={
        "acr": Quantity(label="average certified radius (ACR)", headline=1),
        "abstention": Quantity(label="abstentions"),
        "curve": Quantity(),  # a series
    },
    label=lambda settings, quantity: f"{smoothed_name(settings)}, {quantity.label}",
    must_agree=("n0", "n", "alpha", "method", "norm"),
)
_VIDEO_FAMILY = Family(name="video", place=150, is_ranked=False)
VIDEO = Record(
    family=_VIDEO_FAMILY,
    prefix="video",
    quantities={
        "accuracy": Quantity(label="Videos, clean accuracy", better=1),
        "clip_accuracy": Quantity(label="Clips of videos, clean accuracy"),
    },
)


def _of_videos(record: Record) -> Record:
    """Return the record of the same numbers of videos, whose clips are attacked together."""
    quantities = {name: Quantity(better=quantity.better) for name, quantity in record.quantities.items()}
    prefix = record.prefix
    return Record(
        family=_VIDEO_FAMILY,
        prefix=lambda settings: f"video.{prefix(settings)}",
        quantities=quantities,
        radii="budgets of whole videos",
    )


VIDEO_ATTACK, VIDEO_MEMBER = _of_videos(ATTACK), _of_videos(MEMBER)

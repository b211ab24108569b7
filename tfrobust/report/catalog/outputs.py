"""Records of numbers on outputs: calibration, prediction sets, detection of other images, conversions, costs."""

from __future__ import annotations

from tfrobust.report.catalog.record import Absence, Family, Quantity, Record
from tfrobust.report.catalog.spelling import (
    attack_caption,
    attack_key,
    attack_label,
    attack_name,
    budget_of,
    size,
    text,
)
from tfrobust.report.formats import share

_NO_CALIBRATION = Absence(sentence="Calibration: the agreement of confidence and accuracy.")
_CALIBRATION = {
    "ece": Quantity(label="Calibration error (ECE)", better=-1),
    "rms": Quantity(label="Calibration error (RMS)", better=-1),
    "aurra": Quantity(label="AURRA", better=1),
    "brier": Quantity(label="Brier score", better=-1),
    "nll": Quantity(label="Negative log-likelihood", better=-1),
}
_HEADLINES = {
    "ece": Quantity(label="Calibration error (ECE)", better=-1, headline=0),
    "rms": Quantity(label="Calibration error (RMS)", better=-1, headline=0),
}
_SERIES = {"reliability": Quantity(), "response_rate": Quantity()}
_CALIBRATION_FAMILY = Family(
    name="calibration",
    place=90,
    absences={"images": _NO_CALIBRATION, "clips": _NO_CALIBRATION, "sentences": _NO_CALIBRATION},
)
CALIBRATION = Record(
    family=_CALIBRATION_FAMILY,
    prefix="calibration",
    quantities=_CALIBRATION | _HEADLINES | _SERIES,
    must_agree=("bins", "bin_size", "probabilities"),
)
ATTACKED_CALIBRATION = Record(
    family=_CALIBRATION_FAMILY,
    prefix=lambda settings: f"calibration.{attack_key(settings)}",
    quantities=_CALIBRATION,
    label=lambda settings, quantity: (
        f"{quantity.label} under {attack_name(attack_label(settings), settings)}, {budget_of(settings)}"
    ),
)
# Series under an attack.
ATTACKED_RELIABILITY, ATTACKED_RESPONSE_RATE = (
    Record(
        family=_CALIBRATION_FAMILY,
        prefix=lambda settings, name=name: f"calibration.{name}.{attack_key(settings)}",
        quantities={"": Quantity()},
    )
    for name in _SERIES
)


def _sets(settings: dict) -> str:
    attack = f".{attack_key(settings)}" if "attack" in settings else ""
    return f"conformal{attack}.{text(settings['score'])}_{size(settings['level'])}"


def _sets_label(settings: dict, quantity: Quantity) -> str:
    under = f" under {attack_caption(settings, steps=True)}" if "attack" in settings else ""
    return f"{settings['score'].upper()} sets for {share(float(settings['level']))}, {quantity.label}{under}"


_CONFORMAL_FAMILY = Family(name="conformal", place=100)
PREDICTION_SETS = Record(
    family=_CONFORMAL_FAMILY,
    prefix=_sets,
    quantities={
        "coverage": Quantity(label="coverage", headline=0),
        "size": Quantity(label="mean size", headline=0),
        "empty": Quantity(label="empty"),
    },
    label=_sets_label,
    must_agree=("calibration_images",),
)

_SCORES = {"max_softmax": "confidence", "energy": "energy"}


def other_set(settings: dict) -> str:
    """Return the name of a set of other images as in ids: "corruptions_5"."""
    return text(settings.get("set") or f"corruptions_{settings['severity']}")


def set_name(name: str) -> str:
    """Return the display name of a set of images: "corruptions of severity 5" for "corruptions_5"."""
    kind, _, severity = name.rpartition("_")
    is_corrupted = kind == "corruptions" and severity in list("12345")
    return f"corruptions of severity {severity}" if is_corrupted else name.replace("_", " ")


def score_name(name: str) -> str:
    """Return the display name of a score: "confidence" for "max_softmax"."""
    return _SCORES.get(name, name.replace("_", " "))


def _detection_label(settings: dict, quantity: Quantity) -> str:
    label = f"{set_name(other_set(settings))} by {score_name(settings['score'])}, {quantity.label}"
    return label[0].upper() + label[1:]


_OOD_FAMILY = Family(name="ood", place=110)
DETECTION = Record(
    family=_OOD_FAMILY,
    prefix=lambda settings: f"ood.{other_set(settings)}.{text(settings['score'])}",
    quantities={
        "auroc": Quantity(label="AUROC", headline=0),
        "fpr95": Quantity(label="false positives at 95 %"),
    },
    label=_detection_label,
    must_agree=(
        *("source", "constants_of", "frost", "corruptions", "names", "severity"),
        *("temperature", "test_images", "other_data"),
    ),
)
# A series: the corruption is a column.
DETECTION_BY_SET = Record(
    family=_OOD_FAMILY, prefix=lambda settings: f"ood.{other_set(settings)}", quantities={"": Quantity()}
)
_PARITY_FAMILY = Family(name="parity", place=160, is_ranked=False)
PARITY = Record(
    family=_PARITY_FAMILY,
    prefix="parity",
    quantities={
        "agreement": Quantity(label="Same class as the SavedModel"),
        "accuracy_change": Quantity(label="Accuracy, change from the SavedModel's", signed=True),
        "largest_gap": Quantity(label="Largest difference from the SavedModel"),
        "mean_gap": Quantity(label="Mean difference from the SavedModel"),
    },
)
_COST_FAMILY = Family(name="cost", place=180, is_ranked=False)
COST = Record(family=_COST_FAMILY, prefix="cost", quantities={"evaluation": Quantity()})

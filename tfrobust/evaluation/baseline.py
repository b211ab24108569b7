"""Another model's report as the measure of one's own numbers."""

import json
from collections.abc import Iterable

import numpy as np

from tfrobust.errors import InputError
from tfrobust.evaluation.base import Setting
from tfrobust.ops import files, fingerprint
from tfrobust.structs import Finding, Measurement

# What two numbers must share to be divided by each other: which images they were, and how they were changed.
_COMPARED = ("images_sha256", "source", "constants_of", "frost")


def values_of(path: str, mean: str) -> tuple[str, dict[str, float | None], dict]:
    """The model's name, the values by id, and what was judged, of a report.

    Args:
        path: of a `robustness_report.json`.
        mean: id of the measurement whose settings say what was judged.

    Returns:
        (name, values, judged): judged as `judged_by` has it; {} without such a measurement.

    Raises:
        ValueError: it is none.
    """
    try:
        report = json.loads(files.read_bounded(path).decode())
        values = {one["id"]: one["value"] for one in report["measurements"]}
        means = [one for one in report["measurements"] if one["id"] == mean]
        judged = judged_by(means[0].get("settings", {}), means[0].get("n")) if means else {}
        return report["model"]["name"], values, judged
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"The baseline {path} is neither 'alexnet' nor a robustness_report.json.") from error


def images_of(setting: Setting, positions: np.ndarray) -> dict:
    """What settings say of which images were judged: a hash of all images and labels, and of those positions [m]."""
    whole = setting.keep("images_sha256", lambda: fingerprint.data_sha256(setting.images, setting.labels))
    return {"images_sha256": fingerprint.json_sha256([whole, positions])}


def judged_by(settings: dict, count: int | None) -> dict:
    """What a measurement rests on: how many images, and those of its settings that tell which and changed how."""
    return {"images": count, **{name: settings.get(name) for name in _COMPARED}}


def numbers_of(values: dict[str, float]) -> dict:
    """What settings say of a baseline's numbers, since two may have one name; nothing of AlexNet's, which are known."""
    return {"baseline_sha256": fingerprint.json_sha256({name: repr(float(one)) for name, one in values.items()})}


def findings(baseline: dict, what: str, mean: str, measurements: Iterable[Measurement]) -> list[Finding]:
    """A warning where the baseline's numbers are of other images than one's own, or nobody can tell; [] otherwise.

    Args:
        baseline: of a report, with its `judged`; without (constants, another's numbers) there is nothing to compare.
        what: the numbers that hang on the baseline, in words.
        mean: id of the measurement, among one's own, whose settings say what was judged.
        measurements: one's own.
    """
    if "judged" not in baseline:
        return []
    (own,) = (judged_by(one.settings, one.n) for one in measurements if one.id == mean)
    unlike = [
        name.replace("_sha256", "").replace("_", " ")
        for name, value in own.items()
        if baseline["judged"].get(name) != value
    ]
    if not unlike:
        return []
    evidence = f"{what} divide by the numbers of {baseline['name']}, whose report differs in, or does not say: "
    evidence += f"{', '.join(dict.fromkeys(unlike))}."
    return [Finding("baseline", "warn", evidence, "Judge the baseline on the same data by the same file of gin/eval.")]

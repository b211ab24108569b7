"""Baselines: another model's report, by whose numbers the measured numbers are divided."""

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tfrobust.common import files, fingerprint
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding, Measurement

# Settings that two numbers must share to be divided by each other: the images, and how they were changed.
_COMPARED = ("images_sha256", "source", "constants_of", "frost")


def resolve(
    baseline: str | dict, alexnet: dict, of_report: Callable[[dict], dict], mean: str, names: Sequence[str], needs: str
) -> dict:
    """Return a baseline as a dict with the keys of `alexnet`; {} for none.

    Args:
        baseline: "" for none, "alexnet", the path of a `robustness_report.json`, or a baseline.
        alexnet: AlexNet's baseline. Its one dict holds a number by name.
        of_report: called with the values of a report by id; returns the baseline without its name.
        mean: id of the measurement whose settings describe the report's evaluated images.
        names: the names whose numbers are needed.
        needs: the needed numbers in words, for the message.

    Raises:
        ValueError: the file is not a report, or the baseline is incomplete.
    """
    if not baseline:
        return {}
    if baseline == "alexnet":
        return alexnet
    if isinstance(baseline, str):
        name, values, images = values_of(baseline, mean)
        baseline = {"name": name, **of_report(values), "images": images}
    (numbers,) = (key for key, value in alexnet.items() if isinstance(value, dict))
    missing = [name for name in names if name not in baseline.get(numbers, {})]
    missing += [repr(key) for key in alexnet if key not in baseline]
    if missing:
        raise InputError(f"The baseline lacks {missing[0]}: it needs {needs}.")
    return baseline


def values_of(path: str, mean: str) -> tuple[str, dict[str, float | None], dict]:
    """Return the model's name, the values by id, and the evaluated images of a report.

    Args:
        path: path of a `robustness_report.json`.
        mean: id of the measurement whose settings describe the evaluated images.

    Returns:
        (name, values, images): `images` as from `images_of_measurement`; {} without such a measurement.

    Raises:
        ValueError: the file is not a report.
    """
    try:
        report = json.loads(files.read_text(path))
        values = {row["id"]: row["value"] for row in report["measurements"]}
        means = [row for row in report["measurements"] if row["id"] == mean]
        images = images_of_measurement(means[0].get("settings", {}), means[0].get("n")) if means else {}
        return report["model"]["name"], values, images
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"The baseline {path} is neither 'alexnet' nor a robustness_report.json.") from error


def images_of(setting: Setting, positions: np.ndarray) -> dict:
    """Return settings that identify the evaluated images: a hash of all images and labels, and of the positions [m]."""
    return {"images_sha256": fingerprint.json_sha256([setting.data_sha256, positions])}


def images_of_measurement(settings: dict, count: int | None) -> dict:
    """Return the basis of a measurement: the number of images, and its settings on which images and how changed."""
    return {"images": count, **{name: settings.get(name) for name in _COMPARED}}


def numbers_of(values: dict[str, float]) -> dict:
    """Return settings that identify a baseline's numbers by a hash, since two baselines may share a name.

    AlexNet's numbers need no hash: they are constants.
    """
    return {"baseline_sha256": fingerprint.json_sha256({name: repr(float(value)) for name, value in values.items()})}


def findings(baseline: dict, title: str, mean: str, measurements: Iterable[Measurement]) -> list[Finding]:
    """Return a warning if the baseline's numbers are not known to be of the same images; [] otherwise.

    Args:
        baseline: a baseline, with `images` if it comes from a report; without it (constants, given numbers) there is
            nothing to compare.
        title: the numbers that depend on the baseline, in words.
        mean: id of the measurement, among `measurements`, whose settings describe the evaluated images.
        measurements: the measurements of this evaluation.
    """
    if "images" not in baseline:
        return []
    (model_images,) = (
        images_of_measurement(measurement.settings, measurement.n)
        for measurement in measurements
        if measurement.id == mean
    )
    unlike = [
        name.replace("_sha256", "").replace("_", " ")
        for name, value in model_images.items()
        if baseline["images"].get(name) != value
    ]
    if not unlike:
        return []
    evidence = f"{title} divide by the numbers of {baseline['name']}, whose report differs in or lacks: "
    evidence += f"{', '.join(dict.fromkeys(unlike))}."
    return [
        Finding("baseline", "warn", evidence, "Evaluate the baseline on the same data with the same file of gin/eval.")
    ]

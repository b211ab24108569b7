"""Rows of smoothed classifiers: certified accuracies by radius, average radius and abstentions."""

from __future__ import annotations

import dataclasses

from tfrobust.report import catalog
from tfrobust.report.catalog.spelling import NORM_NAMES
from tfrobust.report.catalog.under_attack import SMOOTHED, SMOOTHED_RADIUS, smoothed_name
from tfrobust.structs import Measurement


@dataclasses.dataclass(frozen=True)
class Smoothed:
    """The measurements of one smoothed classifier: a certified accuracy per radius, in ascending order, and the rest.

    Attributes:
        key: the beginning of the ids, "smoothing.sigma_0.25".
        name: its display name.
        norm: of the radii, "L2".
        accuracies: radius -> certified accuracy.
        summaries: "acr", "abstention" -> measurement.
    """

    key: str
    name: str
    norm: str
    accuracies: dict[float, Measurement]
    summaries: dict[str, Measurement]


def smoothed(measurements) -> list[Smoothed]:
    """Return a row per smoothed classifier, in the order measured."""
    by_key: dict[str, Smoothed] = {}
    for measurement in measurements:
        entry = catalog.read(measurement)
        if entry.record not in (SMOOTHED, SMOOTHED_RADIUS) or measurement.value is None:
            continue
        key = SMOOTHED.id("", entry.settings)
        row = by_key.setdefault(key, Smoothed(key, smoothed_name(entry.settings), "", {}, {}))
        if entry.record is SMOOTHED:
            row.summaries[entry.name] = measurement
        else:
            row.accuracies[float(entry.settings["radius"])] = measurement
            by_key[key] = dataclasses.replace(row, norm=NORM_NAMES[entry.settings["norm"]])
    rows = [row for row in by_key.values() if row.accuracies]
    return [dataclasses.replace(row, accuracies=dict(sorted(row.accuracies.items()))) for row in rows]

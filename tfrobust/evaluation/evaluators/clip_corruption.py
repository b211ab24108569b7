"""Accuracy of clips under the tfrobust clip corruptions, which are no published benchmark."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust import corruptions
from tfrobust.common.kinds import CLIPS
from tfrobust.common.settings import require_least, require_some
from tfrobust.corruptions import temporal
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators.corruption import Generated, under_each
from tfrobust.report.catalog.natural import CLIP_CORRUPTION, CLIP_CORRUPTION_MEAN
from tfrobust.structs import Measurement

_MEANS = {"temporal": temporal.NAMES, "frames": corruptions.NAMES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipCorruptionAccuracy(Evaluator):
    """Accuracy of clips under corruptions: `clip_corruption.<name>.<severity>.accuracy` and `.drop`.

    The corruptions are tfrobust's own (`corruptions.corrupt_clips`): four in time, and those of images frame by frame,
    with the same random numbers for all frames of a clip. The numbers are comparable between models of the same clips,
    and not with any published ones. `clip_corruption.mean_temporal.accuracy` and `clip_corruption.mean_frames.accuracy`
    are means over the corruptions of either kind that were requested, with equal weights of the severities.

    Attributes:
        names: some of `corruptions.CLIP_NAMES`; "video_compression" needs the extra `video`.
        severities: some of 1 to 5.
        limit: maximum number of clips, drawn by the seed; None: all.

    Raises:
        ValueError: unknown names or severities, or a limit below 1.
    """

    names: tuple[str, ...] = tuple(name for name in corruptions.CLIP_NAMES if name != "video_compression")
    severities: tuple[int, ...] = corruptions.SEVERITIES
    limit: int | None = None

    kinds: ClassVar[tuple[str, ...]] = (CLIPS.name,)

    def __post_init__(self):
        for argument, allowed in (("names", corruptions.CLIP_NAMES), ("severities", corruptions.SEVERITIES)):
            values = require_some(getattr(self, argument), f"ClipCorruptionAccuracy.{argument}", allowed)
            object.__setattr__(self, argument, values)
        if self.limit is not None:
            require_least(self.limit, "ClipCorruptionAccuracy.limit", 1)

    def run(self, setting: Setting) -> Outcome:
        """Measure the accuracy under every corruption and severity."""
        clips = Generated(setting, setting.subset(self.limit))
        clips.settings["source"] = temporal.SET
        measurements, correct = under_each(setting, clips, CLIP_CORRUPTION, self.names, self.severities)
        return Outcome([*measurements, *(self._mean(setting, kind, correct) for kind in self._kinds())])

    def _mean(self, setting: Setting, kind: str, correct: dict) -> Measurement:
        rates = np.mean([hits for (name, _), hits in correct.items() if name in _MEANS[kind]], axis=0)
        settings = {"source": temporal.SET, "interval": setting.interval(statistics.share_kind(setting.example))}
        settings |= {
            "names": [name for name in self.names if name in _MEANS[kind]],
            "severities": list(self.severities),
        }
        bounds = statistics.share_interval(rates)
        identity = CLIP_CORRUPTION_MEAN.id(f"mean_{kind}.accuracy")
        return Measurement(identity, float(rates.mean()), "fraction", len(rates), *bounds, settings)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the accuracies, drops and means."""
        cells = [{"corruption": name, "severity": severity} for name in self.names for severity in self.severities]
        identities = [CLIP_CORRUPTION.id(quantity, cell) for cell in cells for quantity in ("accuracy", "drop")]
        return (*identities, *(CLIP_CORRUPTION_MEAN.id(f"mean_{kind}.accuracy") for kind in self._kinds()))

    def _kinds(self) -> list[str]:
        return [kind for kind, names in _MEANS.items() if set(names) & set(self.names)]

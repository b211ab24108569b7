"""Detection of images from another distribution by confidence and by energy: AUROC, and false positives at 95 %."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import ClassVar

import numpy as np

from tfrobust import corruptions
from tfrobust.common.kinds import IMAGES
from tfrobust.common.settings import require_least, require_some
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators.calibration import log_confidence
from tfrobust.evaluation.evaluators.corruption import Generated
from tfrobust.report.catalog.outputs import DETECTION, DETECTION_BY_SET
from tfrobust.structs import Finding, Measurement, Series

SCORES = ("max_softmax", "energy")
_NUMBERS = ("auroc", "fpr95")
_RATE = 0.95
_NO_ENERGY = Finding(
    "energy",
    "warn",
    "The model returns probabilities. Its energies cannot be recovered from them, and were not measured.",
    "Evaluate the model that returns logits.",
)


def max_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the largest softmax probability, float64 [n]; higher for known images.

    The logarithm has the order of the probability, and does not round values close to 1 to equal ones.

    Args:
        logits: float [n, k].

    Source:
        Hendrycks and Gimpel 2017 (arXiv 1610.02136).
    """
    return log_confidence(logits)


def negative_energy(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Compute T log sum_k exp(z_k / T), float64 [n]; higher for known images.

    Args:
        logits: z, float [n, k].
        temperature: T > 0.

    Source:
        Liu et al. 2020 (arXiv 2010.03759), eq. 4.
    """
    scaled = np.asarray(logits, np.float64) / temperature
    largest = scaled.max(axis=-1)
    return temperature * (largest + np.log(np.exp(scaled - largest[:, None]).sum(axis=-1)))


def placements(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the placement of each score among those of the other side; the mean of either side is the AUROC.

    AUROC = P(inside > outside) + P(inside = outside) / 2.

    Args:
        inside: float [m], scores of images of the known distribution, m >= 1.
        outside: float [n], scores of other images, n >= 1.

    Returns:
        (float64 [m]: for each inner score the share of outer ones below it, plus half of the equal ones; float64 [n]:
        for each outer score the share of inner ones above it, plus half of the equal ones).

    Source:
        DeLong et al. 1988, Biometrics 44, eqs. 4 and 5.
    """

    def below(scores, references):
        references = np.sort(references)
        return (np.searchsorted(references, scores, "left") + np.searchsorted(references, scores, "right")) / (
            2 * len(references)
        )

    return below(inside, outside), 1 - below(outside, inside)


def false_positives(inside: np.ndarray, outside: np.ndarray, rate: float = _RATE) -> np.ndarray:
    """Return which outer scores pass the largest threshold that at least a share `rate` of the inner ones passes.

    Args:
        inside: float [m], m >= 1.
        outside: float [n].
        rate: in (0, 1].

    Returns:
        bool [n]; scores equal to the threshold pass.
    """
    passing = math.ceil(rate * len(inside) - 1e-9)
    return outside >= np.sort(inside)[len(inside) - passing]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutOfDistribution(Evaluator):
    """Detection of other images by confidence and energy: `ood.<set>.<score>.auroc` and `.fpr95`.

    The other images are the test split of another data set, or the test images under corruptions: `ood.corruptions_5`
    for severity 5. AUROC is the probability that a test image has the higher score, 0.5 for no difference. `fpr95` is
    the share of the other images above the threshold that 95 % of the test images exceed. Over corruptions both are
    means, with equal weights. The series `ood.<set>` then has each of them. An output of NaN makes a score unknown.

    Confidence may also fall on images that are only difficult. So a high AUROC on corruptions shows that the model
    notices them, not that it should reject them.

    Attributes:
        source: a data set of images in the shape of the model's input, which show none of its classes; labels are
            ignored. None: corruptions.
        names: without a source, some of `corruptions.NAMES` or `corruptions.EXTRA_NAMES`.
        severity: without a source, 1 to 5.
        label: the set's part of the ids; None: the name of the source's class, or "corruptions_<severity>".
        temperature: T of the energy, > 0.
        limit: maximum number of images on either side, drawn by the seed; None: all.

    Raises:
        ValueError: unknown names, an invalid severity, or (when run) images of another shape.

    Source:
        Hendrycks and Gimpel 2017 (arXiv 1610.02136); Liu et al. 2020 (arXiv 2010.03759).
    """

    source: Source | None = None
    names: tuple[str, ...] = corruptions.NAMES
    severity: int = 5
    label: str | None = None
    temperature: float = 1.0
    limit: int | None = 1000

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def __post_init__(self):
        names = require_some(self.names, "OutOfDistribution.names", (*corruptions.NAMES, *corruptions.EXTRA_NAMES))
        object.__setattr__(self, "names", names)
        if self.severity not in corruptions.SEVERITIES:
            raise InputError(f"OutOfDistribution.severity is {self.severity!r}; it is one of 1 to 5.")
        if not 0 < self.temperature < math.inf:
            raise InputError(f"OutOfDistribution.temperature is {self.temperature!r}; it is a number > 0, usually 1.")
        if self.limit is not None:
            require_least(self.limit, "OutOfDistribution.limit", 1)
        if self.label is not None and not re.fullmatch("[a-z0-9_]+", self.label):
            raise InputError(
                f"OutOfDistribution.label is {self.label!r}; it has lower-case letters, digits and _ only."
            )

    def check(self, setting: Setting) -> None:
        """Load the other data set, and raise its errors early."""
        if self.source is None:
            return
        here, there = setting.images.shape[1:], tuple(self._other_examples.image_shape)
        if here != there:
            raise InputError(f"OutOfDistribution.source has images of shape {there}; those of the test set are {here}.")

    def files_read(self) -> str:
        """Return a hash of the other data set."""
        return "" if self.source is None else self._other_examples.fingerprint

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements of both scores."""
        return tuple(DETECTION.id(quantity, self._set | {"score": score}) for score in SCORES for quantity in _NUMBERS)

    def run(self, setting: Setting) -> Outcome:
        """Measure both scores."""
        positions = setting.subset(self.limit)
        inside, (outside, settings) = setting.clean_logits[positions], self._outside(setting, positions)
        lost = setting.predictor.outputs_probabilities and not setting.predictor.one_per_class
        scores = {"max_softmax": max_softmax}
        if not lost:
            scores["energy"] = functools.partial(negative_energy, temperature=self.temperature)
        measurements, columns = [], {"set": list(outside)}
        for name, score in scores.items():
            inside_scores, outside_scores = score(inside), {key: score(logits) for key, logits in outside.items()}
            score_measurements, areas = self._numbers(name, inside_scores, outside_scores, settings)
            measurements += score_measurements
            columns[f"{name}_auroc"] = areas
        identity = DETECTION_BY_SET.id("", self._set)
        series = [] if self.source else [Series(identity, "AUROC against each corruption", columns, self._set)]
        return Outcome(measurements, series, [_NO_ENERGY] if lost else [])

    @property
    def _set(self) -> dict:
        """The name of the set as a setting: the label, or what the images are."""
        if self.label is None and self.source is None:
            return {"set": f"corruptions_{self.severity}"}
        return {"set": self.label or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self.source).__name__).lower()}

    @functools.cached_property
    def _other_examples(self) -> Examples:
        return self.source.load().test

    def _outside(self, setting: Setting, positions: np.ndarray) -> tuple[dict[str, np.ndarray], dict]:
        """Return logits [n, k] by the name of the corruption, or of the set; and the settings of the images."""
        if self.source is not None:
            self.check(setting)
            images, _ = self._other_examples.arrays()
            rows = setting.subset(self.limit, len(images))
            logits = setting.predict(images[rows], "images of the other data set")
            return {self._set["set"]: logits}, {"other_data": self._other_examples.fingerprint}
        outputs, images = {}, Generated(setting, positions, frost="frost" in self.names)
        for name in self.names:
            outputs[name] = images.logits(name, self.severity)
            if setting.progress is not None:
                setting.progress("corruptions", len(outputs), len(self.names))
        few = {} if set(outputs) == set(corruptions.NAMES) else {"names": sorted(outputs)}
        return outputs, {**images.settings, "severity": self.severity, "corruptions": len(outputs), **few}

    def _numbers(self, score: str, inside, outside: dict, settings: dict) -> tuple[list[Measurement], list]:
        """Return both measurements of a score, and the AUROC of each set."""
        count = len(next(iter(outside.values())))
        settings = settings | self._set | {"score": score, "test_images": len(inside)}
        settings |= {} if score == "max_softmax" else {"temperature": self.temperature}
        if any(np.isnan(values).any() for values in (inside, *outside.values())):
            why = {**self._set, "score": score, "reason": "the logits of some images are not finite"}
            unknown = [
                Measurement(DETECTION.id(quantity, why), None, "fraction", count, settings=why) for quantity in _NUMBERS
            ]
            return unknown, [None] * len(outside)
        placed = [placements(inside, values) for values in outside.values()]
        areas = [float(inner.mean()) for inner, _ in placed]
        inner, outer = (np.mean(side, axis=0) for side in zip(*placed, strict=True))
        wrong = np.mean([false_positives(inside, values) for values in outside.values()], axis=0)
        numbers = {
            "auroc": (float(np.mean(areas)), self._interval(inner, outer), "DeLong"),
            "fpr95": (float(wrong.mean()), *_share(wrong, self.source is not None)),
        }
        return [
            Measurement(
                DETECTION.id(quantity, settings),
                value,
                "fraction",
                count,
                *ends,
                settings if ends[0] is None else settings | {"interval": f"95 % over images, {kind}"},
            )
            for quantity, (value, ends, kind) in numbers.items()
        ], areas

    def _interval(self, inner: np.ndarray, outer: np.ndarray) -> tuple[float | None, float | None]:
        """Return the interval of an AUROC; none if all images agree.

        Corrupted images share their originals with the test images, so that both placements of one image are added.
        """
        parts = [inner + outer] if self.source is None else [inner, outer]
        if any(len(part) < 2 for part in parts):
            return None, None
        half = statistics.Z * math.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))
        mean = float(inner.mean())
        return (max(0.0, mean - half), min(1.0, mean + half)) if half else (None, None)


def _share(values: np.ndarray, independent: bool) -> tuple[tuple[float, float], str]:
    """Return the interval of a mean of shares [n], each 0 or 1 if `independent`, and its kind."""
    if independent:
        return statistics.wilson_interval(int(values.sum()), len(values)), "Wilson"
    return statistics.share_interval(values), statistics.share_kind("image")

"""Accuracy under natural corruptions, and the benchmark's summary errors mCE and relative mCE."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.common import fingerprint
from tfrobust.common.kinds import IMAGES
from tfrobust.common.outside import LocalPath
from tfrobust.common.settings import require_least, require_some
from tfrobust.corruptions import registry, textures
from tfrobust.data.published.published_set import CorruptedImages
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import baseline, published, statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.evaluators.accuracy import accuracy
from tfrobust.ops import randomness
from tfrobust.report.catalog.natural import CORRUPTION, CORRUPTION_MEAN
from tfrobust.report.catalog.record import Record
from tfrobust.structs import Measurement

# AlexNet's mean errors over five severities of ImageNet-C, and its clean error.
# Source: google-research/augmix, imagenet.py. The clean error is the 43.5 % of arXiv 1903.12261, Table 1, to its one
# decimal: AlexNet there is torchvision's (the benchmark's issue 38), whose published top-1 error was 43.45 %.
ALEXNET = {
    "name": "AlexNet",
    "clean": 0.435,
    "errors": {
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    },
}
# Tracing a corruption costs about as much as so many untraced runs.
_WORTH_TRACING = 8
# Errors of the baseline, and their increases, up to this size are 0 but for rounding.
_ROUNDING = 1e-9
_MEAN = CORRUPTION_MEAN.id("mean.accuracy")
_INTERVAL = f"95 % over images, {statistics.share_kind('image')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorruptionAccuracy(Evaluator):
    """Accuracy under corruptions: `corruption.<name>.<severity>.accuracy` and `.drop`, group means, mCE, relative mCE.

    The corruptions are generated here (`tfrobust.corruptions`), or read from a published set; the settings state which.
    Means are over those of the benchmark's 15 corruptions that were requested, with equal weights of the severities. A
    group that was not measured, or not completely, is left out. With E(c, s) the error under corruption c at severity
    s, and B the baseline's:

    `corruption.mce` = mean_c [ sum_s E(c, s) / sum_s B(c, s) ], `corruption.relative_mce` = mean_c [ sum_s (E(c, s) -
    E_clean) / sum_s (B(c, s) - B_clean) ]; both need all 15 at all 5 severities, and a baseline.

    Attributes:
        names: some of `corruptions.NAMES` or `corruptions.EXTRA_NAMES`.
        severities: some of 1 to 5.
        limit: maximum number of images, drawn by the seed; None: all.
        baseline: the model whose errors are the denominators: "alexnet" (meaningful for ImageNet's 1000 classes only);
            a `robustness_report.json` with the same corruptions of the same images (a finding warns of others); or
            {"name", "clean", "errors": {name: mean error}}. A report's values are read on construction, and kept. "":
            no mCE.
        frost_pictures: a folder with pictures of frost, instead of the textures of tfrobust; "": the textures.
        source: a published set of the clean test images under these corruptions; None: they are generated.

    Raises:
        ValueError: unknown names or severities, or a baseline that lacks one of the 15; pictures of frost for a
            published set.

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261), section 4. The drop: Gupta et al. 2023, eq. 3.
    """

    names: tuple[str, ...] = corruptions.NAMES
    severities: tuple[int, ...] = corruptions.SEVERITIES
    limit: int | None = None
    baseline: LocalPath | dict = ""
    frost_pictures: LocalPath = ""
    source: CorruptedImages | None = None

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def __post_init__(self):
        names = (*corruptions.NAMES, *corruptions.EXTRA_NAMES)
        for argument, allowed in (("names", names), ("severities", corruptions.SEVERITIES)):
            values = require_some(getattr(self, argument), f"CorruptionAccuracy.{argument}", allowed)
            object.__setattr__(self, argument, values)
        if self.limit is not None:
            require_least(self.limit, "CorruptionAccuracy.limit", 1)
        if self.source is not None and self.frost_pictures:
            raise InputError("CorruptionAccuracy.frost_pictures is without effect on a published set (source).")
        needs = "the mean error of each of the 15 corruptions, and the clean error"
        resolved = baseline.resolve(self.baseline, ALEXNET, _of_report, _MEAN, corruptions.NAMES, needs)
        object.__setattr__(self, "baseline", resolved)
        if self.baseline and not self._complete:
            raise InputError("CorruptionAccuracy.baseline requires all 15 corruptions at all 5 severities.")

    @property
    def _complete(self) -> bool:
        return set(corruptions.NAMES) <= set(self.names) and len(self.severities) == 5

    def run(self, setting: Setting) -> Outcome:
        """Measure the accuracy under every corruption and severity."""
        images = self._images(setting)
        measurements, correct = under_each(setting, images, CORRUPTION, self.names, self.severities)
        measurements += [self._mean(images, *group, correct) for group in self._groups()]
        unlike = baseline.findings(self.baseline, "mCE and relative mCE", _MEAN, measurements)
        return Outcome([*measurements, *self._errors(images, correct)], findings=[*images.findings, *unlike])

    def check(self, setting: Setting) -> None:
        """Read the published set or the pictures of frost, and raise their errors early."""
        if self.source is not None:
            published.open_once(setting, self.source, self.names, self.severities)
        elif self.frost_pictures and "frost" in self.names:
            _frost(setting, self.frost_pictures)

    def files_read(self) -> str:
        """Return a hash of the state of the published set or the pictures of frost."""
        if self.source is not None:
            return self.source.state()
        frost = self.frost_pictures if "frost" in self.names else ""
        return fingerprint.files_sha256(frost, textures.frost_files(frost)) if frost else ""

    def _images(self, setting: Setting) -> Generated | published.Corrupted:
        if self.source is None:
            return Generated(setting, setting.subset(self.limit), self.frost_pictures, "frost" in self.names)
        return published.Corrupted(setting, self.source, self.names, self.severities, self.limit)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the accuracies, drops, means and errors."""
        identities = [
            CORRUPTION.id(quantity, {"corruption": name, "severity": s})
            for name in self.names
            for s in self.severities
            for quantity in _QUANTITIES
        ]
        identities += [identity for identity, _ in self._groups()]
        return (*identities, *(map(CORRUPTION_MEAN.id, _ERRORS) if self.baseline else ()))

    def _groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return id and corruptions of each mean; in two of the means, some corruptions may be missing."""
        noise = corruptions.GROUPS["noise"]
        quiet = tuple(name for name in corruptions.NAMES if name not in noise)
        groups = [(_MEAN, corruptions.NAMES), (CORRUPTION_MEAN.id("mean_without_noise.accuracy"), quiet)]
        for group, names in corruptions.GROUPS.items():
            identity = CORRUPTION_MEAN.id(f"mean_{group}.accuracy")
            groups.append((identity, names if set(names) <= set(self.names) else ()))
        return [(identity, names) for identity, names in groups if set(names) & set(self.names)]

    def _mean(self, images: Generated | published.Corrupted, identity: str, group, correct: dict) -> Measurement:
        names = [name for name in group if name in self.names]
        rates = np.mean([correct[name, severity] for name in names for severity in self.severities], axis=0)
        more = {"corruptions": len(names), "severities": list(self.severities), "interval": _INTERVAL}
        if len(names) < len(group):  # complete groups have no names, as in older reports
            more["names"] = sorted(names)
        settings = images.settings | (images.identity if identity == _MEAN else {})
        bounds = statistics.share_interval(rates)
        return Measurement(identity, float(rates.mean()), "fraction", len(rates), *bounds, {**settings, **more})

    def _errors(self, images: Generated | published.Corrupted, correct: dict) -> list[Measurement]:
        """Return mCE and relative mCE."""
        if not self.baseline:
            return []
        mean_errors = {name: 1 - np.mean([correct[name, s] for s in self.severities]) for name in corruptions.NAMES}
        mce, relative = mean_corruption_errors(mean_errors, 1 - images.clean.mean(), self.baseline)
        settings = {**images.settings, "baseline": self.baseline["name"]}
        if self.baseline != ALEXNET:
            used = {name: self.baseline["errors"][name] for name in corruptions.NAMES}
            settings |= baseline.numbers_of({"clean": self.baseline["clean"], **used})
        unit, count = "fraction of the baseline's error", len(next(iter(correct.values())))
        return [
            Measurement(CORRUPTION_MEAN.id(name), value, unit, count, settings=settings)
            for name, value in zip(_ERRORS, (mce, relative), strict=True)
        ]


_QUANTITIES, _ERRORS = ("accuracy", "drop"), ("mce", "relative_mce")


def under_each(
    setting: Setting, examples: Generated | published.Corrupted, record: Record, names: tuple, severities: tuple
) -> tuple[list[Measurement], dict]:
    """Measure accuracy and drop under each corruption and severity, with the ids of a record.

    Returns:
        The measurements, and by (name, severity) which examples are correctly classified, bool [m].
    """
    cells, measurements, correct = list(itertools.product(names, severities)), [], {}
    for name, severity in cells:
        correct[name, severity] = hits = examples.correct(name, severity)
        settings = {**examples.settings, "corruption": name, "severity": severity}
        measurements.append(accuracy(record.id("accuracy", settings), hits, settings, setting.examples))
        drop, low, high = examples.drop(hits)
        settings = settings | {"interval": examples.drop_interval}
        measurements.append(Measurement(record.id("drop", settings), drop, "fraction", len(hits), low, high, settings))
        if setting.progress is not None:
            setting.progress("corruptions", len(correct), len(cells))
    return measurements, correct


class Generated:
    """Clean examples under generated corruptions; `published.Corrupted` is the counterpart for published ones."""

    findings = ()

    def __init__(self, setting: Setting, positions: np.ndarray, frost_pictures: str = "", frost: bool = False):
        self._setting, self._positions, self._folder = setting, positions, frost_pictures
        self.drop_interval = setting.interval(statistics.paired_drop_kind(setting.example))
        self._key = randomness.make_key(setting.seed, "evaluation", "corruption")
        self.clean = setting.correct_once[positions]
        side = registry.reference_side(min(_size(setting)))
        frost_settings = {"frost": "pictures" if frost_pictures else "textures of tfrobust"} if frost else {}
        constants = {"constants_of": f"{side} x {side} pixels", "seed": setting.seed}
        self.settings = {"source": "generated", **constants, **frost_settings}
        self.identity = baseline.images_of(setting, positions)

    def correct(self, name: str, severity: int) -> np.ndarray:
        """Return which images are correctly classified under one corruption, bool [m]."""
        logits = self.logits(name, severity)
        return are_correct(logits, self._setting.labels[self._positions])

    def logits(self, name: str, severity: int) -> np.ndarray:
        """Return the logits of the images under one corruption, float32 [m, k]."""
        size = min(self._setting.batch_size, len(self._positions))
        pictures = _frost(self._setting, self._folder) if self._folder and name == "frost" else None

        def change(images, keys):
            if images.shape.rank == 5:
                return corruptions.corrupt_clips(images, name, severity, keys)
            return corruptions.corrupt(images, name, severity, keys, frost_pictures=pictures)

        if len(self._positions) > _WORTH_TRACING * size:
            change = tf.function(change, autograph=False)
        batches = []
        for start in range(0, len(self._positions), size):
            # The last batch is padded, so that nothing is traced twice.
            rows = self._positions[np.minimum(np.arange(start, start + size), len(self._positions) - 1)]
            images = change(tf.constant(self._setting.images[rows]), randomness.example_keys(self._key, rows))
            logits = self._setting.predictor.compiled_logits(images).numpy()
            batches.append(logits[: len(self._positions) - start])
        return np.concatenate(batches)

    def drop(self, correct: np.ndarray) -> tuple:
        """Return the relative drop of accuracy with its interval."""
        return statistics.relative_drop(self.clean, correct)


def mean_corruption_errors(errors: dict, clean: float, baseline: dict) -> tuple[float | None, float | None]:
    """Compute mCE and relative mCE from mean errors over severities.

    Args:
        errors: {name: mean error over severities} of the 15 corruptions.
        clean: the error on clean images.
        baseline: {"clean": its clean error, "errors": {name: its mean error}}.

    Returns:
        (mCE, relative mCE); None where the baseline's error, or its increase, is not above 0 for some corruption.
    """
    pairs = [(errors[name], baseline["errors"][name]) for name in corruptions.NAMES]
    growths = [(error - clean, other - baseline["clean"]) for error, other in pairs]
    return tuple(
        float(np.mean([error / other for error, other in ratios]))
        if all(other > _ROUNDING for _, other in ratios)
        else None
        for ratios in (pairs, growths)
    )


def _of_report(values: dict) -> dict:
    """Return the mean errors by corruption, and the clean error, that a report has.

    The clean accuracy follows from an accuracy and its relative drop, 1 - accuracy / clean: it is that of the corrupted
    images, whereas `accuracy.clean` is that of all images.
    """
    errors, clean = {}, values.get("accuracy.clean")
    for corruption in corruptions.NAMES:
        cells = [{"corruption": corruption, "severity": severity} for severity in corruptions.SEVERITIES]
        accuracies, drops = ([values.get(CORRUPTION.id(name, cell)) for cell in cells] for name in _QUANTITIES)
        pairs = zip(accuracies, drops, strict=True)
        clean = next((share / (1 - drop) for share, drop in pairs if share and drop is not None), clean)
        if None not in accuracies:
            errors[corruption] = 1 - float(np.mean(accuracies))
    return {"errors": errors} | ({} if clean is None else {"clean": 1 - clean})


def _frost(setting: Setting, folder: str) -> np.ndarray:
    """Return the pictures in a folder, for images of the setting's size."""
    return setting.cached(f"frost {folder}", lambda: textures.read_frost(folder, *_size(setting)))


def _size(setting: Setting) -> tuple[int, int]:
    return setting.images.shape[-3:-1]

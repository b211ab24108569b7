"""Stability of predictions along perturbation sequences, in which an image changes slightly from frame to frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.common.kinds import IMAGES
from tfrobust.common.outside import LocalPath
from tfrobust.common.settings import require_least, require_some
from tfrobust.corruptions import registry, sequences
from tfrobust.data.published.published_set import PerturbedImages
from tfrobust.evaluation.engine import baseline, published, statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.predictor import in_batches
from tfrobust.ops import randomness
from tfrobust.report.catalog.natural import STABILITY, STABILITY_MEAN
from tfrobust.structs import Measurement

# AlexNet's flip probabilities on ImageNet-P, from clovaai/assembled-cnn (mce/eval_robustness.py); the benchmark's
# authors keep theirs in a spreadsheet outside their repository (its issue 49).
ALEXNET = {
    "name": "AlexNet",
    "flip_probabilities": {
        "gaussian_noise": 0.23653,
        "shot_noise": 0.30062,
        "motion_blur": 0.09297,
        "zoom_blur": 0.05942,
        "snow": 0.11928,
        "brightness": 0.04889,
        "translate": 0.11007,
        "rotate": 0.13104,
        "tilt": 0.07050,
        "scale": 0.23531,
        "speckle_noise": 0.18649,
        "gaussian_blur": 0.02775,
        "spatter": 0.05053,
        "shear": 0.10658,
    },
}
_SEQUENCES = (*corruptions.SEQUENCES, *corruptions.EXTRA_SEQUENCES)
_MEAN = STABILITY_MEAN.id("mean.flip_probability")
_INTERVAL = f"95 % over images, {statistics.share_kind('image')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stability(Evaluator):
    """Flip probabilities and rates along perturbation sequences: `stability.<name>.flip_probability`, `.flip_rate`.

    The means are `stability.mean.flip_probability` and `stability.mfr`. The sequences are generated here
    (`corruptions.sequence`, level 1), or read from a published set; the settings state which. With f(x_j) the
    prediction on frame j of an image, FP = mean over images and over j = 1, 2, ... of [f(x_j) != f(reference)]. The
    reference is frame j - 1, or frame 0 for noise, whose frames are independent. A prediction from logits that are not
    all finite differs from every other. The flip rate is FP divided by the baseline's, which is taken as exact.
    `stability.mfr` is its mean over the benchmark's ten types, if all were requested; `stability.mean.flip_probability`
    is the mean of FP over all requested types.

    Attributes:
        names: some of `corruptions.SEQUENCES` or `corruptions.EXTRA_SEQUENCES`. Public numbers on CIFAR-P have spatter
            in place of snow.
        limit: maximum number of images, drawn by the seed; None: all.
        baseline: the model whose flip probabilities are the denominators: "alexnet" (meaningful for ImageNet's 1000
            classes only); a `robustness_report.json` with the same sequences of the same images (a finding warns of
            others); or {"name", "flip_probabilities": {name: value}}. A report's values are read on construction, and
            kept. "": no flip rates.
        source: a published set of such sequences, of any images; None: they are generated.

    Raises:
        ValueError: unknown names, or a baseline that lacks one of them.

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261), section 4; Erichson et al. 2022, section 4.3.
    """

    names: tuple[str, ...] = corruptions.SEQUENCES
    limit: int | None = None
    baseline: LocalPath | dict = ""
    source: PerturbedImages | None = None

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def __post_init__(self):
        names = require_some(self.names, "Stability.names", _SEQUENCES)
        if self.limit is not None:
            require_least(self.limit, "Stability.limit", 1)
        object.__setattr__(self, "names", names)
        needs = f"the flip probability of each of the {len(names)} sequences"
        resolved = baseline.resolve(self.baseline, ALEXNET, _of_report, _MEAN, names, needs)
        object.__setattr__(self, "baseline", resolved)

    def run(self, setting: Setting) -> Outcome:
        """Measure flip probabilities and flip rates."""
        source = self._sequences(setting)
        flips, measurements = {}, []
        for number, name in enumerate(self.names):
            predictions, noise = self._predictions(setting, source, number), sequences.is_noise(name)
            flips[name] = flip_probabilities(predictions, noise=noise)
            reference = "first frame" if noise else "previous frame"
            settings = {"sequence": name, "frames": predictions.shape[1], "level": 1, "reference": reference}
            settings = {**source.settings, **settings}
            measurements.append(_mean(STABILITY.id("flip_probability", settings), flips[name], [1.0], settings))
            if self.baseline:
                identity = STABILITY.id("flip_rate", settings)
                measurements.append(_mean(identity, flips[name], *self._rates([name], settings)))
        rates = np.mean([flips[name] for name in self.names], axis=0)
        settings = {**source.settings, **source.identity, "sequences": list(self.names)}
        measurements.append(_mean(_MEAN, rates, [1.0], settings))
        unlike = baseline.findings(self.baseline, "Flip rates", _MEAN, measurements)
        if self._has_mean_rate:
            rates = np.stack([flips[name] for name in corruptions.SEQUENCES], axis=-1)
            settings = {**source.settings, "sequences": list(corruptions.SEQUENCES)}
            measurements.append(_mean(STABILITY_MEAN.id("mfr"), rates, *self._rates(corruptions.SEQUENCES, settings)))
        return Outcome(measurements, findings=unlike)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements."""
        kinds = ("flip_probability", "flip_rate") if self.baseline else ("flip_probability",)
        identities = [STABILITY.id(kind, {"sequence": name}) for name in self.names for kind in kinds]
        return (*identities, _MEAN, *((STABILITY_MEAN.id("mfr"),) if self._has_mean_rate else ()))

    @property
    def _has_mean_rate(self) -> bool:
        return bool(self.baseline) and set(corruptions.SEQUENCES) <= set(self.names)

    def _rates(self, names, settings: dict) -> tuple[list[float], dict, str]:
        """Return the baseline's flip probabilities, the settings that name it, and the unit of rates."""
        divisors = {name: self.baseline["flip_probabilities"][name] for name in names}
        settings = {**settings, "baseline": self.baseline["name"]}
        if self.baseline != ALEXNET:
            settings |= baseline.numbers_of(divisors)
        return list(divisors.values()), settings, "fraction of the baseline's flip probability"

    def _sequences(self, setting: Setting) -> _Generated | published.Perturbed:
        if self.source is None:
            return _Generated(setting, setting.subset(self.limit))
        return published.Perturbed(setting, self.source, self.names, self.limit)

    def check(self, setting: Setting) -> None:
        """Open the published set, and raise its errors early."""
        if self.source is not None:
            published.open_once(setting, self.source, self.names)

    def files_read(self) -> str:
        """Return a hash of the state of the published set's files."""
        return "" if self.source is None else self.source.state()

    def _predictions(self, setting: Setting, source: _Generated | published.Perturbed, number: int) -> np.ndarray:
        """Return the predicted classes along the sequence `number`, float [n, frames], NaN where there is none."""
        parts, done = [], number * source.count
        for part in source.sequences(self.names[number]):
            frames = part.reshape(-1, *part.shape[2:])
            logits = in_batches(setting.predictor.compiled_logits, frames, setting.batch_size)
            classes = np.where(np.isfinite(logits).all(axis=-1), logits.argmax(axis=-1), np.nan)
            parts.append(classes.reshape(part.shape[:2])[: source.count * (number + 1) - done])
            done += len(parts[-1])
            if setting.progress is not None:
                setting.progress("perturbation sequences", done, len(self.names) * source.count)
        return np.concatenate(parts)


class _Generated:
    """Sequences generated from the clean images; `published.Perturbed` is the counterpart for published ones."""

    def __init__(self, setting: Setting, positions: np.ndarray):
        self._setting, self._positions, self.count = setting, positions, len(positions)
        self._key = randomness.make_key(setting.seed, "evaluation", "stability")
        side = registry.reference_side(min(setting.images.shape[1:3]))
        self.settings = {"source": "generated", "constants_of": f"{side} x {side} pixels", "seed": setting.seed}
        self.identity = baseline.images_of(setting, positions)

    def sequences(self, name: str) -> Iterator[np.ndarray]:
        """Yield sequences float32 [b, frames, h, w, c], as many at once as fill a batch; the last batch is padded."""
        frame = self._setting.images.shape[1:]
        frames = sequences.constants(name, *frame[:2]).frames
        size = min(max(1, self._setting.batch_size // frames), self.count)
        make = tf.function(lambda images, keys: corruptions.sequence(images, name, keys), autograph=False)
        make = make.get_concrete_function(tf.TensorSpec([size, *frame]), tf.TensorSpec([size, 2], tf.int32))
        for start in range(0, self.count, size):
            # Padded, so that nothing is traced twice.
            rows = self._positions[np.minimum(np.arange(start, start + size), self.count - 1)]
            images = tf.constant(self._setting.images[rows])
            yield make(images, randomness.example_keys(self._key, rows)).numpy()


def flip_probabilities(predictions: np.ndarray, *, noise: bool) -> np.ndarray:
    """Compute the share of an image's frames whose prediction differs from that of their reference frame.

    Args:
        predictions: [n, frames], predicted classes, frames >= 2; NaN equals nothing.
        noise: True: the reference is the first frame; False: the previous frame.

    Returns:
        float64 [n] in [0, 1].
    """
    predictions = np.asarray(predictions)
    return np.mean(predictions[:, 1:] != (predictions[:, :1] if noise else predictions[:, :-1]), axis=1)


def _mean(
    identity: str, flips: np.ndarray, divisors: list[float], settings: dict, unit: str = "fraction"
) -> Measurement:
    """Return the mean of flips / others, with its interval over images; no value if one of the others is 0.

    Args:
        identity: id of the measurement.
        flips: [n] or [n, m] in [0, 1], each image's flip probability by type.
        divisors: m divisors, taken as exact; if m > 1 the ratios are averaged.
        settings: the settings of the measurement.
        unit: its unit.
    """
    count = len(flips)
    settings = {**settings, "interval": _INTERVAL}
    if not all(divisors):
        settings["reason"] = "the baseline never changes its prediction, and a ratio to it has no value"
        return Measurement(identity, None, unit, count, settings=settings)
    ratios = np.mean(flips.reshape(count, -1) / np.array(divisors), axis=1)
    largest = float(np.mean(1 / np.array(divisors)))
    low, high = (largest * bound for bound in statistics.share_interval(ratios / largest))
    return Measurement(identity, float(ratios.mean()), unit, count, low, high, settings)


def _of_report(values: dict) -> dict:
    """Return the flip probabilities by sequence that a report has."""
    probabilities = {name: values.get(STABILITY.id("flip_probability", {"sequence": name})) for name in _SEQUENCES}
    return {"flip_probabilities": {name: value for name, value in probabilities.items() if value is not None}}

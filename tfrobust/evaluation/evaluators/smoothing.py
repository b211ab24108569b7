"""Certified accuracy of the smoothed classifier, which votes over noisy copies of an image."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.certification import smoothing
from tfrobust.certification.smoothing_noise import GridNoise, make_noise
from tfrobust.common.settings import require_least, require_whole
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import chunks, statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators import accuracy
from tfrobust.report.catalog.under_attack import SMOOTHED, SMOOTHED_RADIUS
from tfrobust.structs import Measurement, Series

# Images per stored chunk: each costs thousands of passes.
_CHUNK = 20
_CURVE_POINTS = 41


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smoothing(Evaluator):
    """Certified accuracy of the smoothed classifier, `smoothing.sigma_<sigma>.l2_<radius>.accuracy`.

    That is the share of images that it classifies correctly and certifies with at least this radius; abstentions count
    as errors. `smoothing.sigma_<sigma>.acr` is the average certified radius (0 for errors), `.abstention` the share of
    abstentions, and the series `smoothing.sigma_<sigma>.curve` the certified accuracy over the radius. Uniform noise
    gives `smoothing.uniform_sigma_<sigma>.l1_<radius>.accuracy`, and so on.

    These are numbers of another classifier than the model: of g(x), the model's most frequent class for x + noise. Each
    certificate holds for its image with probability 1 - alpha over the draws (`certification.smoothed_certificates`).
    The interval of a measurement is over images, and assumes that all certificates hold.

    It costs (n0 + n) passes per image. Votes are stored for chunks of images, so that an evaluation resumes and shards
    share it. Batch size, shards and interruptions change no vote.

    Attributes:
        sigma: standard deviation of the noise in pixel units, in (0, 2]. Models trained with the same noise vote best.
        radii: radii in pixel units, >= 0.
        noise: "gaussian", which certifies in L2; "uniform", which certifies in L1.
        selection: n0, draws that choose the class.
        draws: n, draws that bound its probability.
        alpha: probability of a wrong certificate of an image, in (0, 0.5).
        limit: maximum number of images, drawn by the seed; None: all.
        copies: noisy copies in one pass of the model; the draws depend on it.

    Source:
        Cohen, Rosenfeld and Kolter 2019 (arXiv 1902.02918); average certified radius: Zhai et al. 2020 (arXiv
        2001.02378).
    """

    sigma: float = 0.25
    radii: tuple[float, ...] = (0.0, 0.25, 0.5)
    noise: str = "gaussian"
    selection: int = 100
    draws: int = 10_000
    alpha: float = 0.001
    limit: int | None = None
    copies: int = smoothing.COPIES_PER_PASS

    def __post_init__(self):
        self._noise()
        smoothing.require_alpha(self.alpha)
        for name in ("selection", "draws", "copies"):
            require_whole(getattr(self, name), f"Smoothing.{name}")
        if self.limit is not None:
            require_least(self.limit, "Smoothing.limit", 1)
        radii = tuple(self.radii)
        if not radii or len(set(radii)) < len(radii):
            raise InputError(f"Smoothing.radii is {radii}; it has at least one radius, and none twice.")
        for radius in radii:
            require_least(radius, "Smoothing.radii", 0.0)
        object.__setattr__(self, "radii", radii)

    def run(self, setting: Setting) -> Outcome:
        """Count the votes, and measure what they certify."""
        positions = setting.subset(self.limit)
        votes = self._votes(setting, chunks.split(positions, self._chunk_size(setting)))
        noise, values = self._noise(), setting.images[0].size
        options = {"noise": noise, "alpha": self.alpha, "values": values}
        certificates = smoothing.certificates(votes[:, 0], votes[:, 1], self.draws, **options)
        # -1: wrong or abstained
        radii = np.where(certificates.classes == setting.labels[positions], certificates.radii, -1.0)
        settings = self._settings(setting)
        outcome = Outcome()
        for radius in self.radii:
            identity, certified = self._id(radius), radii >= radius
            radius_settings = {**settings, "radius": radius}
            outcome.measurements.append(accuracy.accuracy(identity, certified, radius_settings, setting.examples))
            if len(positions) == len(setting.images):
                outcome.series.append(accuracy.outcomes(identity, certified))
        outcome.measurements += self._means(
            setting, np.maximum(radii, 0.0), certificates.classes == smoothing.ABSTAINED, settings
        )
        outcome.series.append(self._curve(setting, radii, self._largest(values), settings))
        return outcome

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements and of the curve."""
        return (
            *map(self._id, self.radii),
            *(SMOOTHED.id(quantity, self._in_ids) for quantity in ("acr", "abstention", "curve")),
        )

    def share(self, setting: Setting, shard: chunks.Shard) -> int:
        """Count and store the votes on a shard's images."""
        positions = setting.subset(self.limit)
        return len(self._votes(setting, shard.select(chunks.split(positions, self._chunk_size(setting)))))

    @property
    def _in_ids(self) -> dict:
        return {"noise": self.noise, "sigma": self.sigma, "norm": self._noise().norm}

    def _id(self, radius: float) -> str:
        return SMOOTHED_RADIUS.id("accuracy", self._in_ids | {"radius": radius})

    def _noise(self) -> GridNoise:
        return make_noise(self.noise, self.sigma)

    def _chunk_size(self, setting: Setting) -> int:
        return min(_CHUNK, setting.chunk_size)

    def _settings(self, setting: Setting) -> dict:
        noise = self._noise()
        return {
            "classifier": "smoothed, not the one behind serving_default",
            **self._in_ids,
            "n0": self.selection,
            "n": self.draws,
            "alpha": self.alpha,
            "confidence": 1.0 - self.alpha,
            "seed": setting.seed,
            "copies_per_pass": self.copies,
            "arithmetic": f"sound: image and noise are multiples of 1/{noise.grid}",
        }

    def _votes(self, setting: Setting, parts: list[np.ndarray]) -> np.ndarray:
        """Return the votes that choose and those that estimate, int64 [n, 2, k], from the store where it has them."""
        shape, k = setting.images.shape[1:], setting.predictor.class_count
        total, done, blocks = sum(map(len, parts)), 0, [np.zeros((0, 2, k), np.int64)]
        report = setting.reporter(f"votes of the smoothed classifier, sigma {self.sigma:g}")
        made_by = {"votes": [self.noise, self.sigma, self.selection, self.draws, self.copies]}
        voting = None
        for part in parts:
            path = setting.store and setting.store.path_of("smoothing", made_by, part)
            stored = path and setting.store.arrays(path, {"votes": (len(part), 2, k)})
            if not stored:
                voting = voting or smoothing.Voting(setting.predictor.logits, shape, self._noise(), self.copies, k)
                stored = {"votes": np.zeros((len(part), 2, k), np.int64)}
                for row, position in enumerate(part):
                    key = smoothing.draw_key(setting.seed, position)
                    stored["votes"][row] = voting.both(setting.images[position], key, self.selection, self.draws)
                    if report is not None:
                        report(done + row + 1, total)
                if path:
                    setting.store.keep(path, **stored)
            blocks.append(stored["votes"])
            done += len(part)
        return np.concatenate(blocks)

    def _means(self, setting: Setting, radii: np.ndarray, abstained: np.ndarray, settings: dict) -> list[Measurement]:
        """Return the average certified radius and the share of abstentions."""
        low, high = statistics.mean_interval(radii)
        mean_settings = {**settings, "interval": setting.interval("normal")}
        mean = Measurement(
            SMOOTHED.id("acr", settings), float(radii.mean()), "1", len(radii), max(0.0, low), high, mean_settings
        )
        return [mean, accuracy.accuracy(SMOOTHED.id("abstention", settings), abstained, settings, setting.examples)]

    def _largest(self, values: int) -> float:
        """Return the radius of a unanimous vote."""
        draws, noise = np.array([[self.draws]]), self._noise()
        unanimous = smoothing.certificates(draws, draws, self.draws, noise=noise, alpha=self.alpha, values=values)
        return float(unanimous.radii[0])

    def _curve(self, setting: Setting, radii: np.ndarray, largest: float, settings: dict) -> Series:
        """Return the certified accuracy over radii up to the largest that so many draws can certify."""
        columns: dict[str, list] = {"radius": [], "accuracy": [], "low": [], "high": [], "n": []}
        for radius in np.linspace(0.0, largest, _CURVE_POINTS):
            correct = int(np.sum(radii >= radius))
            row = (float(radius), correct / len(radii), *statistics.wilson_interval(correct, len(radii)), len(radii))
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
        settings = {**settings, "interval": setting.interval("Wilson")}
        return Series(
            SMOOTHED.id("curve", settings), "Certified accuracy of the smoothed classifier", columns, settings
        )

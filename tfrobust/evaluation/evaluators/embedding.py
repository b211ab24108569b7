"""Geometry of features on the unit sphere: class separation, alignment, uniformity."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.predictor import in_batches
from tfrobust.evaluation.evaluators.geometry import finite, no_embedding
from tfrobust.ops import randomness
from tfrobust.report.catalog.features import GEOMETRY
from tfrobust.structs import Measurement

DISTANCES = ("euclidean", "cosine")

# Elements of one block of distances.
_BLOCK_ELEMENTS = 2**22


def on_sphere(embeddings: np.ndarray) -> np.ndarray:
    """Scale embeddings [n, d] to length 1, float64; a zero vector stays zero."""
    embeddings = np.asarray(embeddings, np.float64)
    lengths = np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return embeddings / np.where(lengths > 0, lengths, 1.0)


def inter_intra_ratio(
    embeddings: np.ndarray, labels: np.ndarray, *, distance: str = "euclidean"
) -> dict[str, tuple[float, float, float]]:
    """Compute the ratio of the mean distance between images of different classes to that within classes.

        inter = mean of d(f_i, f_j) over all pairs with y_i != y_j
        intra = mean of d(f_i, f_j) over all pairs with y_i = y_j, i != j
        inter_intra_ratio = inter / intra

    with f on the unit sphere and d the Euclidean distance |f_i - f_j| or the cosine distance 1 - f_i . f_j.

    Args:
        embeddings: float [n, d].
        labels: integer [n].
        distance: one of `DISTANCES`. The paper does not specify it; its features are on the unit sphere.

    Returns:
        "inter_intra_ratio", "inter", "intra" -> (value, low, high), 95 % over images by the jackknife; NaN if a set of
        pairs is empty, the ratio also if intra is 0.

    Raises:
        ValueError: an unknown distance.

    Source:
        Gupta et al. 2023, Figure 2 and section 4.1: 1.98 (SupCon) and 1.19 (SimCLR) on CIFAR-10.
    """
    require_choice(distance, "distance", DISTANCES)

    def sums(squared, within, different):
        # On the sphere 1 - cos is half the squared distance.
        sizes = squared / 2 if distance == "cosine" else np.sqrt(squared)
        return [(sizes * different).sum(1), (sizes * within).sum(1), different.sum(1), within.sum(1)]

    def parts(totals):
        inter, intra = totals[0] / totals[2], totals[1] / totals[3]
        ratio = np.where(intra > 0, inter / intra, np.nan)
        return {"inter_intra_ratio": ratio, "inter": inter, "intra": intra}

    return _jackknife(_row_sums(embeddings, np.asarray(labels), sums), parts)


def uniformity(embeddings: np.ndarray, *, sharpness: float = 2.0) -> tuple[float, float, float]:
    """Compute how uniformly images are spread over the sphere: lower values are more uniform.

        log of the mean of exp(-t |f_i - f_j|^2) over all pairs i != j, f on the unit sphere

    Args:
        embeddings: float [n, d].
        sharpness: t > 0.

    Returns:
        (value, low, high) in nats, <= 0: 0 if all are equal; 95 % over images by the jackknife; NaN for n < 2.

    Source:
        Wang and Isola 2020, https://arxiv.org/abs/2005.10242, section 4.1.2 and its released `uniform_loss`.
    """
    labels = np.zeros(len(embeddings), np.int64)  # one class, so that all pairs count

    def sums(squared, within, _):
        return [(np.exp(-sharpness * squared) * within).sum(1), within.sum(1)]

    estimates = _jackknife(
        _row_sums(embeddings, labels, sums), lambda totals: {"log mean": np.log(totals[0] / totals[1])}
    )
    return estimates["log mean"]


def alignment(first: np.ndarray, second: np.ndarray, *, power: float = 2.0) -> np.ndarray:
    """Compute the distance |f(x) - f(x+)|^alpha of two views of an image, f on the unit sphere.

    Args:
        first: float [n, d], the images in one view.
        second: float [n, d], the same images in another view.
        power: alpha > 0.

    Returns:
        float64 [n] in [0, 2^alpha]; their mean is the alignment: lower values are better aligned.

    Source:
        Wang and Isola 2020, https://arxiv.org/abs/2005.10242, section 4.1.1 and its released `align_loss`.
    """
    return np.linalg.norm(on_sphere(first) - on_sphere(second), axis=-1) ** power


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingGeometry(Evaluator):
    """Class distances, uniformity and alignment of features on the unit sphere.

    Ids: `geometry.inter_intra_ratio`, `.inter_class_distance`, `.intra_class_distance`, `.uniformity`, `.alignment`. A
    predictor without an embedding is not measured, and a finding says so.

    Attributes:
        views: augmentation that draws the two views of each image for alignment; None leaves alignment out.
        distance: of the ratio, one of `DISTANCES`.
        sharpness: t of uniformity.
        power: alpha of alignment.
        limit: maximum number of images, drawn by the seed; None: all.
    """

    views: Augmentation | None = None
    distance: str = "euclidean"
    sharpness: float = 2.0
    power: float = 2.0
    limit: int | None = 2000

    uses_embedding: ClassVar[bool] = True

    def __post_init__(self):
        require_choice(self.distance, "EmbeddingGeometry.distance", DISTANCES)
        if not (self.sharpness > 0 and self.power > 0):
            raise InputError(
                f"EmbeddingGeometry has sharpness {self.sharpness} and power {self.power}; both are above 0."
            )

    def run(self, setting: Setting) -> Outcome:
        """Measure the geometry of the features."""
        if setting.predictor.embedding is None:
            return no_embedding(setting, "no class distances, no uniformity, no alignment")
        positions = setting.subset(self.limit)
        features = setting.embed(setting.images[positions])
        distances = inter_intra_ratio(features, setting.labels[positions], distance=self.distance)
        spread = uniformity(features, sharpness=self.sharpness)
        rows = [
            ("inter_intra_ratio", "ratio", distances["inter_intra_ratio"], {"distance": self.distance}),
            ("inter_class_distance", "1", distances["inter"], {"distance": self.distance}),
            ("intra_class_distance", "1", distances["intra"], {"distance": self.distance}),
            ("uniformity", "nats", spread, {"sharpness": self.sharpness}),
        ]
        if self.views is not None:
            settings = {"power": self.power, "views": type(self.views).__name__, "interval": setting.interval("normal")}
            rows.append(("alignment", "1", self._alignment(setting, positions), settings))
        return Outcome([_measurement(setting, *row, len(positions)) for row in rows])

    def _alignment(self, setting: Setting, positions: np.ndarray) -> tuple[float, float, float]:
        images, pairs = setting.images[positions], []
        compiled = tf.function(self.views, autograph=False)
        for number in (1, 2):
            key = randomness.make_key(setting.seed, "evaluation", "views", number)
            keys = randomness.example_keys(key, tf.constant(positions)).numpy()
            augmented = in_batches(
                lambda rows, keys=keys: compiled(tf.constant(images[rows]), tf.constant(keys[rows])),
                np.arange(len(images)),
                setting.batch_size,
            )
            pairs.append(setting.embed(augmented))
        values = alignment(*pairs, power=self.power)
        return float(values.mean()), *statistics.mean_interval(values)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements."""
        names = ["inter_intra_ratio", "inter_class_distance", "intra_class_distance", "uniformity"]
        return tuple(GEOMETRY.id(name) for name in names + ["alignment"] * (self.views is not None))


def _measurement(setting: Setting, name: str, unit: str, interval, settings: dict, count: int) -> Measurement:
    value, low, high = map(finite, interval)
    settings = {"interval": setting.interval("jackknife"), **settings}
    return Measurement(GEOMETRY.id(name), value, unit, count, low, high, settings)


def _row_sums(embeddings, labels, sums) -> np.ndarray:
    """Compute sums over the pairs of each image, float64 [c, n], in blocks.

    `sums` maps (squared distances on the sphere [r, n], pairs within a class [r, n], pairs of two classes [r, n]) to c
    arrays [r]. An image and itself do not form a pair.
    """
    unit = on_sphere(embeddings)
    squares, blocks = (unit**2).sum(1), []
    block = max(1, _BLOCK_ELEMENTS // max(1, len(unit)))
    for start in range(0, len(unit), block):
        rows = np.arange(start, min(start + block, len(unit)))
        squared = np.maximum(squares[rows, None] + squares - 2 * unit[rows] @ unit.T, 0.0)
        equal = labels[rows, None] == labels
        itself = rows[:, None] == np.arange(len(unit))
        blocks.append(np.stack(sums(squared, equal & ~itself, ~equal)))
    return np.concatenate(blocks, axis=1).astype(np.float64)


def _jackknife(row_sums: np.ndarray, parts) -> dict[str, tuple[float, float, float]]:
    """Compute values made of sums over pairs, each with its interval, from the sums of each image's pairs [c, n].

    Without image i, a sum over ordered pairs loses twice the image's own: theta_i. The interval is that of
    `statistics.jackknife_interval`.
    """
    totals = row_sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        values, left_out = parts(totals), parts(totals[:, None] - 2 * row_sums)
    return {name: statistics.jackknife_interval(float(values[name]), left_out[name]) for name in values}

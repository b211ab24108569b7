"""Sensitivity of loss and features to input values, and the agreement of both."""

from __future__ import annotations

import dataclasses
import time
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import objectives
from tfrobust.common import thumbnails
from tfrobust.common.kinds import IMAGES
from tfrobust.common.settings import require_least
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators.geometry import no_embedding
from tfrobust.ops import randomness
from tfrobust.ops import sensitivity_maps as maps
from tfrobust.report.catalog.features import SENSITIVITY
from tfrobust.structs import Measurement, Series

# Half of the 5 s within which progress is shown and signals are handled: a call may be slower than the last.
_CALL_SECONDS = 2.5
_NAMES = ("utility_concentration", "sensitivity_concentration", "agreement")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity(Evaluator):
    """Concentration and agreement of utility and sensitivity maps, with pictures of the maps.

    Ids: `sensitivity.utility_concentration`, `.sensitivity_concentration`, `.agreement`. Per clean image there are two
    maps: utility |d loss / d x_j| and sensitivity |d embedding / d x_j|_2 of each input value (a pixel of a channel).
    Concentration is a map's Gini coefficient: 0 if all input values have equal weight, near 1 if few hold everything.
    Agreement is Spearman's rank correlation of the two maps: 1 if the features are most sensitive to the values that
    matter most for the loss. The results are means over images with 95 % intervals, without images whose maps are
    constant or not finite, which the settings count. The series `sensitivity.maps` has a few images with both maps,
    `sensitivity.classes` the mean image and the mean utility of each class. There, channels are combined by their
    Euclidean norm, and large images averaged over squares of pixels.

    For a predictor without an embedding only the utility is measured, and a finding says so.

    Attributes:
        limit: maximum number of images, drawn by the seed; None: all.
        exact_limit: embedding dimensions times input values up to which sensitivities are exact, with one backward pass
            per dimension; above, they are estimated.
        projections: random orthonormal projections of an estimate, >= 1; the settings state its relative error.
        pictures: number of images in `sensitivity.maps`; 0: no such series.
        classes: maximum number of classes, the first ones, in `sensitivity.classes`; 0: no such series.

    Source:
        Kim et al. 2021, definitions 1 and 2, and Fig. 3 (there the classes are taken modulo 10, over one batch). The
        paper defines the maps; the summaries in one number are those of tfrobust.
    """

    limit: int | None = 256
    exact_limit: int = 2**18
    projections: int = 64
    pictures: int = 3
    classes: int = 20

    uses_embedding: ClassVar[bool] = True

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def __post_init__(self):
        for name, least in (("limit", 1), ("exact_limit", 0), ("projections", 1), ("pictures", 0), ("classes", 0)):
            if getattr(self, name) is not None:
                require_least(getattr(self, name), f"Sensitivity.{name}", least)

    def run(self, setting: Setting) -> Outcome:
        """Compute the maps and measure them."""
        order = setting.order("sensitivity")
        positions = order[np.isin(order, setting.subset(self.limit))]
        directions, settings = self._directions(setting)
        size = min(setting.batch_size, len(positions))
        engine = _Engine(setting, directions, size, -(-len(positions) // size))
        values, lost, shown = {name: [] for name in _NAMES}, dict.fromkeys(_NAMES, 0), []
        means = _ClassMeans(setting, positions, self.classes)
        for start in range(0, len(positions), size):
            batch = positions[start : start + size]
            utility, sensitivity = engine.run(batch)
            means.add(batch, utility)
            has_utility = _are_finite(utility)
            parts: dict[str, tuple] = {"utility_concentration": (maps.concentration, has_utility, utility)}
            is_shown = has_utility
            if sensitivity is not None:
                has_sensitivity = _are_finite(sensitivity)
                is_shown = has_utility & has_sensitivity
                parts["sensitivity_concentration"] = (maps.concentration, has_sensitivity, sensitivity)
                parts["agreement"] = (maps.rank_correlation, is_shown, utility, sensitivity)
            for name, (measure, rows, *arrays) in parts.items():
                values[name] += list(measure(*(array[rows] for array in arrays)).numpy())
                lost[name] += int((~rows).sum())
            for row in np.flatnonzero(is_shown)[: self.pictures - len(shown)]:
                pixel_maps = {"utility": utility[row]} | (
                    {} if sensitivity is None else {"sensitivity": sensitivity[row]}
                )
                shown.append(_picture(setting, batch[row], pixel_maps))
        measured = [name for name in _NAMES if values[name] or lost[name]]
        outcome = Outcome([_mean(name, values[name], settings, lost[name]) for name in measured], means.series())
        if shown:
            columns = {"picture": [number for number, picture in enumerate(shown) for _ in picture["label"]]}
            columns |= {name: [value for picture in shown for value in picture[name]] for name in shown[0]}
            outcome.series.append(Series("sensitivity.maps", "Utility and sensitivity of each pixel", columns))
        if directions is None:
            outcome.extend(no_embedding(setting, "utility alone is measured, no sensitivity, no agreement"))
        return outcome

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements and series."""
        return tuple(SENSITIVITY.id(name) for name in (*_NAMES, "classes", "maps"))

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return (): the maps are gradients."""
        return ()

    def _directions(self, setting: Setting) -> tuple[np.ndarray | None, dict]:
        """Return the directions to project the embedding on, float32 [d, m], chosen by cost, and the settings."""
        embedding, shape = setting.predictor.embedding, setting.images.shape[1:]
        if embedding is None:
            return None, {}
        width = maps.embedding_width(embedding, tf.TensorSpec([1, *shape]))
        settings = {"sensitivity": "exact", "embedding_dimensions": width}
        if width * int(np.prod(shape)) <= self.exact_limit or width <= self.projections:
            return np.eye(width, dtype=np.float32), settings
        key = randomness.make_key(setting.seed, "evaluation", "sensitivity")
        settings |= {
            "sensitivity": "random projections",
            "projections": self.projections,
            "relative_error_of_squares": maps.projection_error(width, self.projections),
        }
        return maps.random_directions(key, width, self.projections).numpy(), settings


class _Engine:
    """Engine that computes both maps batch by batch, in graph calls short enough to interrupt."""

    def __init__(self, setting: Setting, directions: np.ndarray | None, size: int, batches: int):
        self.setting, self.directions, self.size = setting, directions, size
        self.passes = 0 if directions is None else directions.shape[1]
        self.done, self.total = 0, batches * (1 + self.passes)
        self.report = setting.reporter("utility and sensitivity")
        shape, predictor = (size, *setting.images.shape[1:]), setting.predictor
        # Traced here, once, for batches of one static size.
        self.utility = tf.function(
            lambda images, labels: maps.utility(objectives.cross_entropy(predictor.logits, labels), images),
            autograph=False,
        ).get_concrete_function(tf.TensorSpec(shape), tf.TensorSpec(shape[:1], tf.int32))
        if directions is None:
            return
        self.add = tf.function(
            lambda images, some, total: maps.add_squared_derivatives(predictor.embedding, images, some, total),
            autograph=False,
        ).get_concrete_function(tf.TensorSpec(shape), tf.TensorSpec([len(directions), None]), tf.TensorSpec(shape))

    def run(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return utilities and sensitivities of the images at `positions` [m], m <= size, float32 [m, h, w, c] each."""
        rows = positions[np.minimum(np.arange(self.size), len(positions) - 1)]
        images, labels = tf.constant(self.setting.images[rows]), tf.constant(self.setting.labels[rows])
        utility = self.utility(images, labels).numpy()[: len(positions)]
        self._reported(1)
        if self.directions is None:
            return utility, None
        # Added one by one, so that the sum does not depend on the clock, as the chunks do.
        squares, start, count = tf.zeros_like(images), 0, 1
        while start < self.passes:
            some = self.directions[:, start : start + count]
            began = time.monotonic()
            squares = self.add(images, tf.constant(some), squares)
            squares.numpy()  # waits for the device
            seconds = max((time.monotonic() - began) / some.shape[1], 1e-6)
            self._reported(some.shape[1])
            start, count = start + some.shape[1], max(1, int(_CALL_SECONDS / seconds))
        return utility, np.sqrt(squares.numpy())[: len(positions)]

    def _reported(self, passes: int):
        self.done += passes
        if self.report is not None:
            self.report(self.done, self.total)


class _ClassMeans:
    """Mean image and mean utility of each class, over the evaluated images."""

    def __init__(self, setting: Setting, positions: np.ndarray, limit: int):
        self._setting, present = setting, np.unique(setting.labels[positions])
        self._labels, self._left_out = present[:limit], len(present[limit:])
        shape = setting.images.shape[1:]
        self._count = np.zeros(len(self._labels), int)
        self._image = np.zeros((len(self._labels), *shape))
        self._utility = np.zeros((len(self._labels), *shape[:2], 1))

    def add(self, positions: np.ndarray, utility: np.ndarray) -> None:
        """Add images at `positions` [m] and their utilities [m, h, w, c]; skip those with non-finite utilities."""
        maps, labels = np.linalg.norm(utility, axis=-1, keepdims=True), self._setting.labels[positions]
        for index, label in enumerate(self._labels):
            rows = (labels == label) & np.isfinite(maps).all(axis=(1, 2, 3))
            self._count[index] += rows.sum()
            self._image[index] += self._setting.images[positions[rows]].sum(axis=0)
            self._utility[index] += maps[rows].sum(axis=0)

    def series(self) -> list[Series]:
        """Return `sensitivity.classes`, a row per class; pictures encoded by `common.thumbnails.encode`."""
        classes = []
        for label, count, *sums in zip(self._labels, self._count, self._image, self._utility, strict=True):
            if count:
                image, utility = (thumbnails.shrunk(total / count) for total in sums)
                size = dict(zip(("height", "width", "channels"), image.shape, strict=True))
                largest = float(utility.max())
                drawn = {"image": thumbnails.encode(image), "utility": thumbnails.encode(utility, largest)}
                classes.append({"label": int(label), "images": int(count), **size, **drawn, "largest_utility": largest})
        if not classes:
            return []
        of = f": the first {len(self._labels)} of {len(self._labels) + self._left_out}" if self._left_out else ""
        columns = {name: [entry[name] for entry in classes] for name in classes[0]}
        return [Series("sensitivity.classes", f"Utility averaged over the images of each class{of}", columns)]


def _picture(setting: Setting, position: int, pixel_maps: dict[str, np.ndarray]) -> dict[str, list]:
    """Return one image and its maps, a row per pixel: label, row, column, one value per channel, one per map."""
    image = thumbnails.shrunk(setting.images[position])
    height, width, channels = image.shape
    rows, columns = np.indices((height, width)).reshape(2, -1)
    label = int(setting.labels[position])
    picture = {"label": [label] * len(rows), "row": rows.tolist(), "column": columns.tolist()}
    for channel in range(channels):
        picture[f"channel_{channel}"] = _short(image[..., channel])
    for name, values in pixel_maps.items():
        picture[name] = _short(thumbnails.shrunk(np.linalg.norm(values, axis=-1, keepdims=True)))
    return picture


def _short(values: np.ndarray) -> list[float]:
    """Round to three digits: enough for a picture, and a report stays small."""
    return [float(f"{value:.3g}") for value in values.ravel()]


def _are_finite(values: np.ndarray) -> np.ndarray:
    """Return which maps [m, h, w, c] have finite values alone, bool [m]."""
    return np.isfinite(values).reshape(len(values), -1).all(axis=1)


def _mean(name: str, values: list[float], settings: dict, lost: int) -> Measurement:
    """Return the mean of an image's numbers; `lost` images have none, as their maps are not finite."""
    finite = np.array(values)[np.isfinite(values)]
    measure = "Spearman's rank correlation" if name == "agreement" else "Gini coefficient"
    settings = {**settings, "measure": measure, "interval": "95 % over images, normal"}
    if name == "utility_concentration":
        settings = {name: settings[name] for name in ("measure", "interval")}
    if len(finite) < len(values):
        # A map of zeros, such as a vanished gradient, has no concentration or rank.
        settings["images_with_constant_maps"] = len(values) - len(finite)
    if lost:
        settings["images_with_maps_not_finite"] = lost
    if not len(finite):
        settings["reason"] = f"the maps of all {len(values) + lost} images are constant{' or not finite' * bool(lost)}"
        return Measurement(SENSITIVITY.id(name), None, "ratio", 0, settings=settings)
    low, high = statistics.mean_interval(finite)
    least = -1.0 if name == "agreement" else 0.0
    bounds = (max(least, low), min(1.0, high))
    return Measurement(SENSITIVITY.id(name), float(finite.mean()), "ratio", len(finite), *bounds, settings)

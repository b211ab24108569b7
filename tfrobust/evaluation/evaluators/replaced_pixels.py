"""Accuracy with some pixels replaced by random gray: the noise sets UN and NUN of Kim et al. 2021."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from tfrobust.common import thumbnails
from tfrobust.common.kinds import CLIPS, kind_of
from tfrobust.common.settings import require_choice, require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.evaluators.accuracy import accuracy
from tfrobust.ops.randomness import make_key
from tfrobust.report.catalog.natural import NOISE
from tfrobust.structs import Finding, Measurement, Series

LEVELS = ("grey", "channel")
COUNTS = ("exact", "bernoulli")
# A pixel that never changes in training would certainly be replaced; it counts as varying by one gray level of 255.
_LEAST_DEVIATION = 1 / 255


def replacement_weights(train_images: np.ndarray) -> np.ndarray:
    """Return NUN's relative replacement weights per pixel: 1 / the standard deviation over training images.

    Args:
        train_images: float [n, h, w, c] or [n, t, h, w, c] in [0, 1]; channels are combined by the mean of their
            variances.

    Returns:
        float64 [h, w] or [t, h, w], sum 1.
    """
    mean = np.mean(train_images, axis=0, dtype=np.float64)
    variance = np.mean(np.square(train_images, dtype=np.float64), axis=0) - mean**2
    deviation = np.sqrt(np.maximum(variance.mean(axis=-1), 0.0))
    weights = 1 / np.maximum(deviation, _LEAST_DEVIATION)
    return weights / weights.sum()


def replacement_probabilities(weights: np.ndarray, *, share: float = 0.15, count: str = "exact") -> np.ndarray:
    """Return the probability that `replace_pixels` replaces each pixel.

    "bernoulli": min(1, share h w weight). "exact": 1 - exp(-t weight), with the t at which they sum to round(share h
    w); this is the limit of sampling without replacement for many pixels.

    Args:
        weights: [h, w], sum 1.
        share: as in `replace_pixels`.
        count: as in `replace_pixels`.

    Returns:
        float64 [h, w] in [0, 1].

    Source:
        Rosen 1972, Annals of Mathematical Statistics 43: asymptotics of successive sampling with varying weights.
    """
    if count == "bernoulli":
        return np.minimum(1.0, share * weights.size * weights)
    total = round(share * weights.size)
    low, high = 0.0, float(weights.size)
    while np.sum(-np.expm1(-high * weights)) < total:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum(-np.expm1(-middle * weights)) < total else (low, middle)
    return -np.expm1(-high * weights)


def replace_pixels(
    images: np.ndarray,
    generator: np.random.Generator,
    *,
    share: float = 0.15,
    weights: np.ndarray | None = None,
    levels: str = "grey",
    count: str = "exact",
) -> np.ndarray:
    """Replace a share of the pixels of images by uniformly random levels in [0, 1].

    Args:
        images: float [n, h, w, c], or clips [n, t, h, w, c], whose frames have t h w pixels together.
        generator: generator of the random draws.
        share: share of the pixels, in (0, 1).
        weights: [h, w] or [t, h, w], relative probability of each pixel, as from `replacement_weights`; None: uniform.
        levels: "grey": one level for all channels of a pixel; "channel": one per channel.
        count: "exact": round(share h w) pixels of every image, sampled without replacement. "bernoulli": each pixel
            independently, with the share as the mean probability (a probability above 1 is 1).

    Returns:
        float32 in the shape of the images.
    """
    n, *sides, channels = images.shape
    places = math.prod(sides)
    weights = np.full(places, 1 / places) if weights is None else np.reshape(weights, places) / np.sum(weights)
    if count == "exact":
        # The largest values of log(u) / w are a sample without replacement (Efraimidis and Spirakis 2006).
        order = np.log(generator.random((n, places))) / weights
        chosen = np.zeros((n, places), bool)
        np.put_along_axis(chosen, np.argsort(-order, axis=1)[:, : round(share * places)], True, axis=1)
    else:
        chosen = generator.random((n, places)) < share * places * weights
    noise = generator.random((n, *sides, 1 if levels == "grey" else channels))
    return np.where(chosen.reshape(n, *sides, 1), noise, images).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplacedPixels(Evaluator):
    """Accuracy with replaced pixels: `noise.uniform.accuracy` (UN) and `noise.non_uniform.accuracy` (NUN).

    A share of the pixels of each test image is replaced by uniformly random gray, either uniformly over the image (UN),
    or with higher probability where a pixel varies less over the training images (NUN). Without training images there
    is no NUN, and a finding says so. The series `noise.examples` has a few of the evaluated images, clean and with
    noise. `noise.replacement` has NUN's probability per pixel. Large images are averaged over squares of pixels there.
    Of clips, the middle frame is shown.

    Attributes:
        share: share of the pixels, in (0, 1).
        levels: "grey" or "channel": one level per pixel, or one for each of its channels.
        count: "exact" or "bernoulli": the same number in every image, or each pixel independently.
        pictures: number of images in `noise.examples`, drawn by the seed; 0: no series.

    Source:
        Kim et al. 2021, section 4.2: 15 %. It leaves open `levels` (of color images), `count`, and the handling of
        pixels that never vary: here they count as varying by one gray level of 255.
    """

    share: float = 0.15
    levels: str = "grey"
    count: str = "exact"
    pictures: int = 3

    uses_training: ClassVar[bool] = True

    def __post_init__(self):
        if not 0 < self.share < 1:
            raise InputError(f"ReplacedPixels.share is {self.share}; it lies between 0 and 1.")
        require_least(self.pictures, "ReplacedPixels.pictures", 0)
        for name, valid in (("levels", LEVELS), ("count", COUNTS)):
            require_choice(getattr(self, name), f"ReplacedPixels.{name}", valid)

    def run(self, setting: Setting) -> Outcome:
        """Measure the accuracy under both kinds of noise."""
        shown = setting.order("replaced pixels")[: self.pictures]
        examples = {"clean": setting.images[shown]}
        outcome, weights = Outcome(), {"uniform": None}
        train = setting.train_images
        if train is not None and len(train) and train.shape[1:] == setting.images.shape[1:]:
            weights["non_uniform"] = replacement_weights(train)
        else:
            outcome.findings.append(_no_training_images(setting.examples))
        for name, weight in weights.items():
            images = self._replaced(setting, name, weight)
            examples[name] = images[shown]
            outcome.measurements.append(self._accuracy(setting, name, images))
        if len(shown):
            outcome.series.append(_examples(setting, examples, setting.labels[shown]))
            if "non_uniform" in weights:
                chances = replacement_probabilities(weights["non_uniform"], share=self.share, count=self.count)
                outcome.series.append(_map_of_chances(chances))
        return outcome

    def _replaced(self, setting: Setting, name: str, weights: np.ndarray | None) -> np.ndarray:
        words = make_key(setting.seed, "evaluation", "replaced pixels", name).numpy().astype(np.uint32)
        return replace_pixels(setting.images, np.random.default_rng(words), weights=weights, **self._choices)

    def _accuracy(self, setting: Setting, name: str, images: np.ndarray) -> Measurement:
        logits = setting.predict(images, f"{name} noise")
        correct = are_correct(logits, setting.labels)
        return accuracy(
            NOISE.id(f"{name}.accuracy"), correct, {**self._choices, "seed": setting.seed}, setting.examples
        )

    @property
    def _choices(self) -> dict:
        return {"share": self.share, "levels": self.levels, "count": self.count}

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the accuracies and series."""
        return tuple(NOISE.id(name) for name in ("uniform.accuracy", "non_uniform.accuracy", "examples", "replacement"))


def _no_training_images(examples: str) -> Finding:
    return Finding(
        "training_images",
        "warn",
        f"There are no training {examples} of this size, from which NUN computes its replacement probabilities; only "
        "UN is measured.",
        "Evaluate with the data that the model was trained on, including its training split.",
    )


def _examples(setting: Setting, images: dict[str, np.ndarray], labels: np.ndarray) -> Series:
    """Return `noise.examples`: a row per image, a column per set; pictures encoded by `common.thumbnails.encode`."""
    small = {name: [thumbnails.shrunk(_still(image)) for image in stills] for name, stills in images.items()}
    sizes = zip(*(image.shape for image in small["clean"]), strict=True)
    columns = {"label": labels.tolist(), **dict(zip(("height", "width", "channels"), map(list, sizes), strict=True))}
    columns |= {name: [thumbnails.encode(image) for image in stills] for name, stills in small.items()}
    return Series("noise.examples", f"{setting.examples.capitalize()} clean and with random pixels", columns)


def _still(example: np.ndarray) -> np.ndarray:
    """Return the middle frame of a clip, and an image as it is."""
    return example[len(example) // 2] if kind_of(example.shape) is CLIPS else example


def _map_of_chances(chances: np.ndarray) -> Series:
    """Return `noise.replacement`: one row, with the map encoded by `common.thumbnails.encode`."""
    small = thumbnails.shrunk(_still(chances[..., None]))
    largest, (height, width, _) = float(small.max()), small.shape
    columns = {"height": height, "width": width, "probability": thumbnails.encode(small, largest)}
    columns |= {"least_probability": float(small.min()), "largest_probability": largest}
    title = "Replacement probability of each pixel, non-uniform noise"
    return Series("noise.replacement", title, {name: [value] for name, value in columns.items()})

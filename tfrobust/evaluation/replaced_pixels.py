"""Accuracy where some pixels are replaced by random grey: the noise sets UN and NUN of paper 000."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.evaluation.accuracy import accuracy
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.ops.randomness import make_key
from tfrobust.structs import Finding

LEVELS = ("grey", "channel")
COUNTS = ("exact", "bernoulli")
# A pixel that never changes in training would be replaced for certain; it counts as varying by one grey level of 255.
_LEAST_DEVIATION = 1 / 255
_NO_TRAINING_IMAGES = Finding(
    "training_images",
    "warn",
    "There are no training images of this size, from which NUN takes where it replaces pixels: UN alone is measured.",
    "Evaluate with the data that the model was trained on, training split and all.",
)


def replacement_weights(train_images: np.ndarray) -> np.ndarray:
    """How likely NUN replaces each pixel, relative to the others: 1 / its standard deviation over training images.

    Args:
        train_images: float [n, h, w, c] in [0, 1]; channels are joined by the mean of their variances.

    Returns:
        float64 [h, w], sum 1.
    """
    mean = np.mean(train_images, axis=0, dtype=np.float64)
    variance = np.mean(np.square(train_images, dtype=np.float64), axis=0) - mean**2
    deviation = np.sqrt(np.maximum(variance.mean(axis=-1), 0.0))
    weights = 1 / np.maximum(deviation, _LEAST_DEVIATION)
    return weights / weights.sum()


def replace_pixels(
    images: np.ndarray,
    generator: np.random.Generator,
    *,
    share: float = 0.15,
    weights: np.ndarray | None = None,
    levels: str = "grey",
    count: str = "exact",
) -> np.ndarray:
    """Images with a share of their pixels replaced by uniformly random levels in [0, 1].

    Args:
        images: float [n, h, w, c].
        generator: of the draws.
        share: of the pixels, in (0, 1).
        weights: [h, w], how likely each is chosen, as `replacement_weights` has it; None: all alike.
        levels: "grey": one level for all channels of a pixel; "channel": one each.
        count: "exact": round(share h w) pixels of every image, drawn without putting back. "bernoulli": each pixel
            by itself, with the share as its mean probability (a probability above 1 is 1).

    Returns:
        float32 [n, h, w, c].
    """
    n, height, width, channels = images.shape
    places = height * width
    weights = np.full(places, 1 / places) if weights is None else np.reshape(weights, places) / np.sum(weights)
    if count == "exact":
        # The largest of log(u) / w are a draw without putting back (Efraimidis and Spirakis 2006).
        order = np.log(generator.random((n, places))) / weights
        chosen = np.zeros((n, places), bool)
        np.put_along_axis(chosen, np.argsort(-order, axis=1)[:, : round(share * places)], True, axis=1)
    else:
        chosen = generator.random((n, places)) < share * places * weights
    noise = generator.random((n, height, width, 1 if levels == "grey" else channels))
    return np.where(chosen.reshape(n, height, width, 1), noise, images).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplacedPixels(Evaluator):
    """`noise.uniform.accuracy` and `noise.non_uniform.accuracy`: UN and NUN of paper 000.

    A share of the pixels of each test image is replaced by uniformly random grey; anywhere alike (UN), or the more
    likely the less a pixel varies over the training images (NUN). Without training images there is no NUN, and a
    finding says so.

    Attributes:
        share: of the pixels, in (0, 1).
        levels: "grey" or "channel": one level for a pixel, or one for each of its channels.
        count: "exact" or "bernoulli": the same number in every image, or each pixel by itself.

    Source:
        Paper 000, section 4.2: 15 %. It leaves open `levels` (its colour images), `count`, and what happens to pixels
        that never vary: here they count as varying by one grey level of 255.
    """

    share: float = 0.15
    levels: str = "grey"
    count: str = "exact"

    uses_training: ClassVar[bool] = True

    def __post_init__(self):
        if not 0 < self.share < 1:
            raise ValueError(f"ReplacedPixels.share is {self.share}; it lies between 0 and 1.")
        for name, valid in (("levels", LEVELS), ("count", COUNTS)):
            if getattr(self, name) not in valid:
                raise ValueError(f"ReplacedPixels.{name} is {getattr(self, name)!r}; it is one of {list(valid)}.")

    def run(self, setting: Setting) -> Outcome:
        outcome = Outcome([self._accuracy(setting, "uniform", None)])
        train = setting.train_images
        if train is not None and len(train) and train.shape[1:] == setting.images.shape[1:]:
            outcome.measurements.append(self._accuracy(setting, "non_uniform", replacement_weights(train)))
        else:
            outcome.findings.append(_NO_TRAINING_IMAGES)
        return outcome

    def _accuracy(self, setting: Setting, name: str, weights):
        words = make_key(setting.seed, "evaluation", "replaced pixels", name).numpy().astype(np.uint32)
        chosen = {"share": self.share, "levels": self.levels, "count": self.count}
        images = replace_pixels(setting.images, np.random.default_rng(words), weights=weights, **chosen)
        logits = setting.predict(images, f"{name} noise")
        correct = (logits.argmax(axis=-1) == setting.labels) & ~np.isnan(logits).any(axis=-1)
        return accuracy(f"noise.{name}.accuracy", correct, {**chosen, "seed": setting.seed})

    def ids(self) -> tuple[str, ...]:
        return ("noise.uniform.accuracy", "noise.non_uniform.accuracy")

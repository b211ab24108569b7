"""The corner-digit task: a small digit in a corner is irrelevant for some classes and decisive for the others."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.data.checks import check_generated
from tfrobust.data.mixture import refuse_mixture
from tfrobust.data.sources.digits import Digits
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset, Examples
from tfrobust.errors import InputError
from tfrobust.ops.randomness import make_key

COMPOSITIONS = ("maximum", "add", "replace")
_DIGITS = 10
# Digits below this one change their class if there is a digit in a corner.
_FIRST_UNMOVED = 5


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class CornerDigits(Source):
    """15 classes from any source of digits: a digit in the center and optionally another one in a corner.

    The digits 5 to 9 keep their class and always have a corner digit. The digits 0 to 4 keep their class without a
    corner digit. With one they form the classes 10 to 14, which are rare in training. A corner digit is thus useless in
    100 of 101 cases. The validation and test splits are balanced. Center digit, corner digit and corner are sampled
    with replacement within each split of the source: no image of the source is in two splits.

    Args:
        source: digits, gray and square, with test images and a validation size of its own.
        canvas: side of the images, in pixels.
        centre: side of the digit in the center; if it equals `canvas`, images of that size (MNIST) are not resized.
        corner: side of the digit in the corner.
        margin: pixels between the corner digit and the border.
        composition: pixels of both digits: "maximum", "add" (clipped at 1), or "replace" (the corner's square replaces
            them).
        per_class: training images of each of the classes 0 to 9.
        rare_share: number of training images of each of the classes 10 to 14, as a share of `per_class`; at least one
            image.
        balanced: images of each class in the validation split (if the source has one) and in the test split.
        split_seed: seed of the sampling.

    Raises:
        ValueError: a number out of its range, an unknown composition, or a `validation_size`.

    Source:
        Kim et al. 2021, section 4.2: about 5,000 and 50 training images per class, 1,000 in each of the other splits.
        The paper does not give sizes, margin or composition. That all of 5 to 9 have a corner digit follows from its
        "100 out of 101".
    """

    source: Source = dataclasses.field(default_factory=lambda: Digits(validation_size=200))
    canvas: int = 28
    centre: int = 20
    corner: int = 7
    margin: int = 0
    composition: str = "maximum"
    per_class: int = 500
    rare_share: float = 0.01
    balanced: int = 100

    def __post_init__(self):
        super().__post_init__()
        require_choice(self.composition, "CornerDigits.composition", COMPOSITIONS)
        for name, least, most in (("centre", 1, self.canvas), ("corner", 1, self.canvas - self.margin)):
            if not least <= getattr(self, name) <= most:
                raise InputError(f"CornerDigits.{name} is {getattr(self, name)}; it must be in {least}..{most}.")
        if min(self.per_class, self.balanced) < 1 or not 0 < self.rare_share <= 1 or self.margin < 0:
            raise InputError(
                f"CornerDigits has per_class {self.per_class} and balanced {self.balanced} (both >= 1), rare_share "
                f"{self.rare_share} (in (0, 1]) and margin {self.margin} (>= 0)."
            )
        if self.validation_size:
            raise InputError("CornerDigits does not split data; set validation_size of its source.")

    def load(self) -> Dataset:
        """Compose the images of the three splits."""
        digits = self.source.load()
        refuse_mixture(digits.train, "CornerDigits")
        height, width, channels = digits.train.image_shape
        if digits.class_count != _DIGITS or height != width or channels != 1:
            raise InputError(
                f"CornerDigits needs ten digits in square gray images; {digits.name} has {digits.class_count} classes "
                f"of {height}x{width}x{channels}."
            )
        rare = max(1, round(self.rare_share * self.per_class))
        names = (*map(str, range(_DIGITS)), *(f"{digit} with corner" for digit in range(_FIRST_UNMOVED)))
        counts = [self.per_class] * _DIGITS + [rare] * _FIRST_UNMOVED
        splits = {"train": (digits.train, counts)}
        count = sum(counts) + 2 * self.balanced * len(names) + sum(digits.sizes.values())
        check_generated(count, (self.canvas, self.canvas), "CornerDigits")
        for name in ("validation", "test"):
            splits[name] = (getattr(digits, name), [self.balanced] * len(names))
        composed = (self._composed_examples(name, *split) for name, split in splits.items())
        return Dataset(f"corner digits from {digits.name}", names, *composed)

    def _composed_examples(self, name: str, examples: Examples, counts: list[int]) -> Examples:
        """Compose counts[k] images of each class k from the examples of one split; return no images if it is empty."""
        if not len(examples):
            return ArrayExamples(np.zeros([0, self.canvas, self.canvas, 1], np.float32), np.zeros([0], np.int32))
        images, labels = examples.arrays()
        missing = sorted(set(range(_DIGITS)) - set(labels.tolist()))
        if missing:
            raise InputError(f"CornerDigits needs every digit in each split; the {name} split has no {missing[0]}.")
        words = make_key(self.split_seed, "corner digits", name).numpy().astype(np.uint32)
        generator = np.random.default_rng(words)
        middles, corners = (_scaled(images, side) for side in (self.centre, self.corner))
        before = (self.canvas - self.centre) // 2
        after = self.canvas - self.centre - before
        composed, classes = [], np.repeat(np.arange(len(counts)), counts)
        for label in classes:
            digit = middles[generator.choice(np.flatnonzero(labels == label % _DIGITS))]
            image = np.pad(digit, ((before, after), (before, after), (0, 0)))
            if label >= _FIRST_UNMOVED:
                self._paste(image, corners[generator.integers(len(corners))], *generator.integers(2, size=2))
            composed.append(image)
        return ArrayExamples(np.stack(composed), classes.astype(np.int32))

    def _paste(self, image: np.ndarray, digit: np.ndarray, down: int, right: int) -> None:
        """Paste a digit into a corner of an image, in place."""
        low, high = self.margin, self.canvas - self.margin - self.corner
        row, column = (high if far else low for far in (down, right))
        window = image[row : row + self.corner, column : column + self.corner]
        together = {"maximum": np.maximum, "add": lambda a, b: np.minimum(a + b, 1.0), "replace": lambda a, b: b}
        window[...] = together[self.composition](window, digit)


def _scaled(images: np.ndarray, side: int) -> np.ndarray:
    """Resize square images [n, h, h, 1] to `side` x `side` pixels."""
    if images.shape[1] == side:
        return images
    resized = tf.image.resize(images, [side, side], antialias=True).numpy()
    return np.clip(resized, 0.0, 1.0)

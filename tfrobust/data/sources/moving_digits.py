"""Clips of moving digits: a video task that runs without network access and whose labels need time."""

import dataclasses
import zlib

import keras
import numpy as np

from tfrobust.common.settings import require_choice, require_least
from tfrobust.data.checks import check_generated
from tfrobust.data.mixture import refuse_mixture
from tfrobust.data.sources.digits import Digits
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset, Examples
from tfrobust.data.splits import stratified_folds
from tfrobust.errors import InputError

# The displacement (down, right) from one frame to the next, in pixels.
MOTIONS = {
    "right": (0, 1),
    "left": (0, -1),
    "down": (1, 0),
    "up": (-1, 0),
    "down right": (1, 1),
    "up left": (-1, -1),
    "down left": (1, -1),
    "up right": (-1, 1),
}
LABELS = ("motion", "digit and motion")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MovingDigits(Source):
    """Clips float32 [frames, side, side, c] of one digit that moves across a torus; the label is its motion.

    A digit moves by one pixel per frame in one of `motions` directions. What leaves the frame on one side returns on
    the opposite side. The digit starts at each pixel with the same probability. In each single frame it is then at each
    pixel with the same probability, whatever the motion: a model of single frames stays at chance. A model of the set
    of frames without their order cannot distinguish a motion from its reverse, and stays at 1/2 if `motions` is even.

    With the labels "digit and motion", class 10 m + d is digit d with motion m. A model of single frames stays at
    1 / `motions` of its accuracy for digits.

    The splits are those of the source, so that no digit is in two of them. Every motion is equally frequent, up to one
    clip per digit class. Flips and rotations would change the label; train without them.

    Args:
        source: digits or other images, with test images and a validation size of its own.
        frames: frames of a clip.
        side: height and width of a frame, in pixels.
        motions: number of motions, the first of right, left, down, up, down right, up left, down left and up right.
        label: "motion" or "digit and motion".
        clips_per_digit: clips of each training image, with different motions and starts. The validation and test
            splits have one clip of each image.
        split_seed: seed of motions and starts; those of an image follow from it and from the position of the image.

    Raises:
        ValueError: a number out of its range, an unknown label, a `validation_size`, or images larger than a frame.
    """

    source: Source = dataclasses.field(default_factory=lambda: Digits(validation_size=100))
    frames: int = 8
    side: int = 16
    motions: int = 4
    label: str = "motion"
    clips_per_digit: int = 2

    def __post_init__(self):
        super().__post_init__()
        require_choice(self.label, "MovingDigits.label", LABELS)
        require_least(self.frames, "MovingDigits.frames", 2)
        for name, most in (("motions", len(MOTIONS)), ("clips_per_digit", self.motions)):
            low = 2 if name == "motions" else 1
            if not low <= getattr(self, name) <= most:
                raise InputError(f"MovingDigits.{name} is {getattr(self, name)}; it must be in {low}..{most}.")
        if self.validation_size:
            raise InputError("MovingDigits does not split data; set validation_size of its source.")

    def load(self) -> Dataset:
        """Move the images of the three splits."""
        still = self.source.load()
        refuse_mixture(still.train, "MovingDigits")
        if len(still.image_shape) != 3 or max(still.image_shape[:2]) > self.side:
            raise InputError(
                f"MovingDigits.side is {self.side}, but the examples of {still.name} have shape "
                f"{list(still.image_shape)}; it takes images of at most {self.side} x {self.side} pixels."
            )
        names = tuple(MOTIONS)[: self.motions]
        if self.label == "digit and motion":
            names = tuple(f"{digit} {motion}" for motion in names for digit in still.class_names)
        counts = {"train": self.clips_per_digit, "validation": 1, "test": 1}
        count = sum(number * len(getattr(still, split)) for split, number in counts.items())
        check_generated(count, (self.frames, self.side, self.side, still.image_shape[2]), "MovingDigits")
        moved_splits = (
            self._moving_clips(name, getattr(still, name), still.class_count, count) for name, count in counts.items()
        )
        return Dataset(f"moving {still.name}", names, *moved_splits)

    def _moving_clips(self, name: str, examples: Examples, class_count: int, per_image: int) -> Examples:
        """Make `per_image` clips of each image of one split."""
        count = len(examples)
        if not count:
            shape = [0, self.frames, self.side, self.side, examples.image_shape[2]]
            return ArrayExamples(np.zeros(shape, np.float32), np.zeros([0], np.int32))
        images, digits = examples.arrays()
        motions = _balanced_motions(digits, self.motions, self.split_seed)
        motions = np.concatenate([(motions + number) % self.motions for number in range(per_image)])
        words = np.random.PCG64([self.split_seed, zlib.crc32(f"moving digits, {name}".encode())])
        starts = (words.random_raw(2 * len(motions)) % self.side).reshape(
            -1, 2
        )  # in order: clip i has words 2i, 2i + 1
        clips = moved(np.concatenate([images] * per_image), motions, starts, self.frames, self.side)
        labels = motions if self.label == "motion" else class_count * motions + np.tile(digits, per_image)
        return ArrayExamples(clips, labels)


def moved(images: np.ndarray, motions: np.ndarray, starts: np.ndarray, frames: int, side: int) -> np.ndarray:
    """Move images across a torus.

    Args:
        images: float32 [n, h, w, c], h and w at most `side`.
        motions: integer [n], positions in `MOTIONS`.
        starts: integer [n, 2], (down, right) of the image's corner in the first frame, in pixels.
        frames: frames of a clip.
        side: height and width of a frame.

    Returns:
        float32 [n, frames, side, side, c]; what no image covers is 0.
    """
    height, width, channels = images.shape[1:]
    clips = np.zeros([len(images), frames, side, side, channels], np.float32)
    steps = np.array(list(MOTIONS.values()))[motions]
    for frame in range(frames):
        corners = starts.astype(np.int64) + frame * steps
        rows = (corners[:, :1] + np.arange(height)) % side
        columns = (corners[:, 1:] + np.arange(width)) % side
        clips[np.arange(len(images))[:, None, None], frame, rows[:, :, None], columns[:, None, :]] = images
    return clips


def _balanced_motions(digits: np.ndarray, motions: int, seed: int) -> np.ndarray:
    """Assign a motion to each image, equally often within each digit."""
    if len(digits) < motions:
        raise InputError(f"MovingDigits.motions is {motions}, but a split has only {len(digits)} images.")
    return stratified_folds(digits, motions, seed)

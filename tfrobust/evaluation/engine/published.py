"""Evaluation on published images: their selection, checks that they are what they claim to be, and the outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.common import configured
from tfrobust.data.published.published_set import CorruptedImages, Opened, PerturbedImages, PublishedSet, Target
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting, are_correct
from tfrobust.structs import Finding

# Mean difference per value up to which two images count as the same: a quarter of a gray level, half of the change that
# the mildest corruption of the benchmark makes to a smooth picture.
_ROUNDING = 0.25 / 255
# Share of a corruption's images that may be clean ones (a white image does not grow brighter) without a warning, and
# share above which the set is rejected.
_SUSPICIOUS, _CLEAN = 0.01, 0.5
# Frames of most sequences; a batch holds so many times fewer sequences than images.
_USUAL_FRAMES = 31


def open_once(setting: Setting, source: PublishedSet, *parts) -> Opened:
    """Return the set, opened and checked for the setting's model, once in the life of the setting.

    Args:
        setting: the setting; images are read at the size of its clean images.
        source: the set.
        parts: the parts to open, as its `open` takes them before the target.
    """
    target = Target(tuple(setting.images.shape[1:]), setting.predictor.class_count, setting.class_names)
    name = json.dumps(["published", configured.serialize(source), parts])
    return setting.cached(name, lambda: source.open(*parts, target))


def predictions(setting: Setting, batches: Iterator[np.ndarray], size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each batch with its logits, float32 [b, k]; smaller batches are padded, so that nothing is traced twice."""
    for images in batches:
        filled = images[np.minimum(np.arange(size), len(images) - 1)]
        yield images, setting.predictor.compiled_logits(tf.constant(filled)).numpy()[: len(images)]


class Corrupted:
    """Published set in place of generated corruptions, for `CorruptionAccuracy`.

    Attributes:
        clean: bool [m], correctly classified clean images: the same images in the same order if `paired`, else all of
            the setting's.
        settings: the settings of each measurement in a report.
        drop_interval: the kind of the interval of `drop`, as in a report.
        identity: further settings that identify the images; {}, as the source identifies them.
        findings: warnings, complete once all parts were evaluated.
    """

    identity: ClassVar[dict] = {}

    def __init__(self, setting: Setting, source: CorruptedImages, names, severities, limit: int | None):
        self._setting, self._opened = setting, open_once(setting, source, names, severities)
        labels = self._opened.labels
        self._positions = setting.subset(limit, len(labels))
        self._labels = labels[self._positions]
        self.paired = np.array_equal(labels, setting.labels)
        if not self.paired and len(labels) == len(setting.labels):
            _refuse_other_labels(labels, setting.labels, self._opened.notes["source"])
        self.clean = setting.correct_once[self._positions] if self.paired else setting.correct_once
        compared = "image by image" if self.paired else "as a whole: they are others, or in another order"
        self.settings = {**self._opened.notes, "compared_with_clean_images": compared}
        kind = statistics.paired_drop_kind(setting.example) if self.paired else statistics.INDEPENDENT_DROP
        self.drop_interval = setting.interval(kind)
        self.findings: list[Finding] = []
        self._is_clean = self._close if self.paired else _copies(setting)

    def correct(self, name: str, severity: int) -> np.ndarray:
        """Return which images of one part are correctly classified, bool [m].

        Raises:
            ValueError: most of them are the clean images, or a file cannot be read.
        """
        size, correct_parts, clean = min(self._setting.batch_size, len(self._positions)), [], 0
        batches = self._opened.read((name, severity), self._positions, size)
        for images, logits in predictions(self._setting, batches, size):
            rows = slice(len(correct_parts) * size, len(correct_parts) * size + len(images))
            clean += int(self._is_clean(images, rows).sum())
            correct_parts.append(are_correct(logits, self._labels[rows]))
        self._check_copies(clean, f"{name} at severity {severity}")
        return np.concatenate(correct_parts)

    def drop(self, correct: np.ndarray) -> tuple:
        """Return the relative drop of accuracy with its interval."""
        measure = statistics.relative_drop if self.paired else statistics.independent_drop
        return measure(self.clean, correct)

    def _close(self, images: np.ndarray, rows: slice) -> np.ndarray:
        """Return which images hardly differ from their own clean ones, bool [b]."""
        return np.abs(images - self._setting.images[self._positions[rows]]).mean(axis=(1, 2, 3)) <= _ROUNDING

    def _check_copies(self, clean: int, part: str) -> None:
        count, source = len(self._positions), self._opened.notes["source"]
        if clean > _CLEAN * count:
            raise InputError(
                f"This looks like the clean set: {clean} of {count} images of {part} ({source}) are the clean test "
                "images, or differ from them by less than a quarter of a gray level."
            )
        if clean > _SUSPICIOUS * count:
            evidence = f"{clean} of {count} images of {part} ({source}) are clean test images."
            self.findings.append(Finding("published_images", "warn", evidence, "Compare the files with the originals."))


class Perturbed:
    """Published perturbation sequences in place of generated ones, for `Stability`.

    Attributes:
        count: number of images with sequences, after the limit.
        settings: the settings of each measurement in a report.
        identity: further settings that identify the images; {}, as the source identifies them.
    """

    identity: ClassVar[dict] = {}

    def __init__(self, setting: Setting, source: PerturbedImages, names, limit: int | None):
        self._opened = open_once(setting, source, names)
        self._positions = setting.subset(limit, len(self._opened.labels))
        self._size = max(1, setting.batch_size // _USUAL_FRAMES)
        self.count, self.settings = len(self._positions), self._opened.notes

    def sequences(self, name: str) -> Iterator[np.ndarray]:
        """Yield sequences float32 [b, frames, h, w, c], a few at a time.

        Raises:
            ValueError: the frames of most sequences are all equal, or a file cannot be read.
        """
        still = 0
        for frames in self._opened.read((name,), self._positions, self._size):
            still += int((frames == frames[:, :1]).all(axis=(1, 2, 3, 4)).sum())
            yield frames
        if still > _CLEAN * self.count:
            raise InputError(
                f"This looks like the clean set: in {still} of {self.count} sequences of {name} "
                f"({self.settings['source']}) all frames are alike."
            )


def _copies(setting: Setting) -> Callable[[np.ndarray, slice], np.ndarray]:
    """Return a function that finds images equal in gray levels to any of the clean ones, in any order."""

    def levels(images: np.ndarray) -> list[bytes]:
        return [np.round(image * 255).astype(np.uint8).tobytes() for image in images]

    clean_hashes = setting.cached(
        "hashes of the clean images", lambda: {hash(content) for content in levels(setting.images)}
    )
    return lambda images, rows: np.array([hash(content) in clean_hashes for content in levels(images)])


def _refuse_other_labels(published: np.ndarray, clean: np.ndarray, source: str) -> None:
    """Raise ValueError if as many images as clean ones have other class counts: this is another test split."""
    size = max(published.max(), clean.max()) + 1
    counts = [np.bincount(labels, minlength=size) for labels in (published, clean)]
    if (counts[0] != counts[1]).any():
        label = int(np.argmax(counts[0] != counts[1]))
        raise InputError(
            f"The labels ({source}) do not repeat those of the clean test images: class {label} occurs "
            f"{counts[0][label]} times in place of {counts[1][label]}. Is it a set of the same images?"
        )

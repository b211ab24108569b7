"""Evaluation check of the pixels: was the model made for another range than [0, 1]?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import limits
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting, are_correct
from tfrobust.evaluation.engine.predictor import in_batches
from tfrobust.structs import Finding

# Images that are predicted in each range, and images whose input of the normalization layer is examined.
_PREDICTED, _OBSERVED = 256, 64
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CAFFE_MEAN = (103.939, 116.779, 123.68)


class PixelRange(NamedTuple):
    """A convention of pixel values other than [0, 1] in RGB.

    Attributes:
        name: the convention, in words.
        convert: float32 [n, h, w, c] in [0, 1] -> the same images in this convention.
        code: the same in Python, as a Keras layer or as an expression of `images`.
        bounds: "low, high", if every pixel is only moved and scaled; else "".
    """

    name: str
    convert: Callable
    code: str
    bounds: str = ""


class Comparison(NamedTuple):
    """Accuracy on the same images in [0, 1] and in the best other range.

    A network without saturation classifies pixels alike that are scaled up. Of ranges whose accuracies differ by at
    most a point, the first is named: the conventions from small to large values, then the units of the data.

    Attributes:
        count: m, the number of images.
        unit_correct: bool [m], correctly classified in [0, 1].
        best: the range; None if no range can gain enough.
        correct: bool [m], correctly classified in that range.
    """

    count: int
    unit_correct: np.ndarray
    best: PixelRange | None = None
    correct: np.ndarray | None = None

    @property
    def is_better(self) -> bool:
        """True if the other range corrects more predictions than it spoils, beyond chance."""
        if self.best is None:
            return False
        gain, low, _ = statistics.paired_difference(self.correct, self.unit_correct)
        return low > limits.SOME_CORRECTED and gain * self.count >= limits.FEWEST_CORRECTED

    @property
    def is_clear(self) -> bool:
        """True if it corrects at least 30 % of the predictions, net of those it spoils."""
        return self.is_better and self.correct.mean() - self.unit_correct.mean() >= limits.CLEARLY_CORRECTED


def refuse_other_range(setting: Setting) -> None:
    """Raise InputError if a model clearly expects pixels in another range than [0, 1].

    That is, if another range corrects at least 30 % of the predictions of some images, net of those it spoils.
    """
    if setting.predictor.is_text:
        return
    comparison = compare_ranges(setting)
    if comparison.is_clear:
        best, count = comparison.best, comparison.count
        raise InputError(
            f"{setting.predictor.name} expects pixels in {best.name}: of {count} {setting.examples} it classifies "
            f"{comparison.unit_correct.mean():.0%} correctly in [0, 1], and {comparison.correct.mean():.0%} in "
            f"{best.name}. {_wrapping_advice(setting, best)}"
        )


def check_pixel_range(setting: Setting) -> Finding:
    """Check that no usual range of pixels suits the model clearly better than [0, 1].

    At most 256 images are predicted again in the other ranges. Independent of labels, what the first normalization
    layer of a Keras model receives is compared with its statistics; a SavedModel does not show that.
    """
    comparison, misfit = compare_ranges(setting), _misfit(setting)
    evidence = (
        f"Of {comparison.count} {setting.examples} {comparison.unit_correct.mean():.1%} are correctly classified in "
        "[0, 1]"
    )
    if comparison.best is None:
        evidence += ", so that no other range can be much better."
    else:
        evidence += (
            f" and {comparison.correct.mean():.1%} in {comparison.best.name}, the best of the other usual ranges."
        )
    best = comparison.best if comparison.is_better else None
    if misfit is not None:
        best, evidence = best or misfit[0], f"{evidence} {misfit[1]}"
    if best is None:
        return Finding("pixel_range", "pass", evidence)
    at_chance = statistics.wilson_interval(int(comparison.unit_correct.sum()), comparison.count)[0] <= chance(setting)
    verdict = "fail" if comparison.is_clear or comparison.is_better and at_chance else "warn"
    remedy = (
        f"The model seems to be made for pixels in {best.name}. {_wrapping_advice(setting, best)} For an encoder, "
        "robust.models.Backbone(pixel_range=...) converts the pixels."
    )
    return Finding("pixel_range", verdict, evidence, remedy)


def chance(setting: Setting) -> float:
    """Return the accuracy of always predicting the most frequent class."""
    return float(np.bincount(setting.labels).max() / len(setting.labels))


def compare_ranges(setting: Setting) -> Comparison:
    """Return the accuracy of some images in [0, 1] and in the best of the other ranges; computed once per setting."""
    return setting.cached("pixel ranges", lambda: _compute_comparison(setting))


def _compute_comparison(setting: Setting) -> Comparison:
    chosen = setting.subset(_PREDICTED)
    images, labels = setting.images[chosen], setting.labels[chosen]

    def correct(pixels: np.ndarray) -> np.ndarray:
        logits = in_batches(setting.predictor.compiled_logits, np.float32(pixels), setting.batch_size)
        return are_correct(logits, labels)

    unit_correct = correct(images)
    if np.sum(~unit_correct) < max(limits.FEWEST_CORRECTED, limits.SOME_CORRECTED * len(unit_correct)):
        return Comparison(len(unit_correct), unit_correct)
    tried = []
    for pixel_range in _ranges(setting.images):
        try:
            tried.append((pixel_range, correct(pixel_range.convert(images))))
        except Exception:  # noqa: BLE001, PERF203 - a model that refuses such pixels was not made for them
            continue
    most = max((correct_there.mean() for _, correct_there in tried), default=0.0)
    near = [
        (pixel_range, correct_there)
        for pixel_range, correct_there in tried
        if correct_there.mean() >= most - limits.TIE
    ]
    return Comparison(len(unit_correct), unit_correct, *(near[0] if near else ()))


def _misfit(setting: Setting) -> tuple[PixelRange, str] | None:
    """Return the range that suits the first normalization layer, and a sentence; None if [0, 1] does, or no range.

    The layer's input has a standard deviation per channel. The median of its ratios to those in the layer is far from 1
    in [0, 1], and near 1 in the range that is returned, where the means agree as well.
    """
    observe = setting.predictor.normalization
    if observe is None:
        return None
    images = setting.images[setting.subset(_OBSERVED)]
    received = observe(images)
    if received is None or 1 / limits.FAR_FROM_ONE < (unit_ratio := _agreement(received)[0]) < limits.FAR_FROM_ONE:
        return None
    for pixel_range in _ranges(setting.images):
        ratio, distance = _agreement(observe(np.float32(pixel_range.convert(images))))
        if 1 / limits.NEAR_ONE <= ratio <= limits.NEAR_ONE and distance <= 1:
            return pixel_range, (
                f"The input of its first normalization layer ({received.layer}) has {unit_ratio:.2g} times the "
                f"standard deviation of the training in [0, 1], and {ratio:.2g} times in {pixel_range.name}."
            )
    return None


def _agreement(received) -> tuple[float, float]:
    """Return the median ratio of standard deviations over channels, and the median distance of means in deviations."""
    ratios = received.values.std(axis=0) / received.std
    return float(np.median(ratios)), float(
        np.median(np.abs(received.values.mean(axis=0) - received.mean) / received.std)
    )


def _ranges(images: np.ndarray) -> list[PixelRange]:
    """Return the usual ranges of keras.applications, KerasHub and torchvision; of equal ones the first is named."""
    axes = tuple(range(images.ndim - 1))
    mean, std = images.mean(axis=axes), images.std(axis=axes) + np.float32(1e-6)
    scaled = [
        PixelRange("[-1, 1]", lambda x: 2 * x - 1, "keras.layers.Rescaling(2, -1)", "-1, 1"),
        PixelRange("[0, 255]", lambda x: 255 * x, "keras.layers.Rescaling(255)", "0, 255"),
    ]
    if images.shape[-1] == 3:
        caffe = "keras.applications.resnet.preprocess_input(255 * images)"
        scaled = [
            PixelRange("[0, 1] as BGR", lambda x: x[..., ::-1], "images[..., ::-1]"),
            scaled[0],
            _standardized_range("units of ImageNet's mean and standard deviation", _IMAGENET_MEAN, _IMAGENET_STD),
            scaled[1],
            PixelRange("[0, 255] as BGR minus ImageNet's mean", lambda x: 255 * x[..., ::-1] - _CAFFE_MEAN, caffe),
        ]
    return [*scaled, _standardized_range("units of the data's mean and standard deviation", mean, std)]


def _standardized_range(name: str, mean, std) -> PixelRange:
    mean, std = np.float32(mean), np.float32(std)
    texts = ([float(f"{value:.3g}") for value in values] for values in (mean, std**2))
    code = "keras.layers.Normalization(mean={}, variance={})".format(*texts)
    return PixelRange(name, lambda x: (x - mean) / std, code)


def _wrapping_advice(setting: Setting, pixel_range: PixelRange) -> str:
    bounds, wrap = pixel_range.bounds, "Wrap it"
    if bounds:
        wrap = f"Pass bounds=({bounds}) (in the command --bounds={bounds.replace(' ', '')})"
        if setting.predictor.is_file:
            return f"{wrap}."
        wrap += ", or wrap it"
    if pixel_range.code.startswith("keras.layers."):
        shape = tuple(setting.images.shape[1:])
        return f"{wrap}: keras.Sequential([keras.Input({shape}), {pixel_range.code}, model])."
    return f"{wrap}: lambda images: model({pixel_range.code})."

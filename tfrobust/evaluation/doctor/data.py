"""Evaluation checks of the data and the claims: sample sizes, units, overlap of test and training images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.base import Attack
from tfrobust.data.spec import Examples
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding

_GRAY_LEVEL = 1 / 255
_IMAGES_FOR_FIVE_POINTS = int(np.ceil((statistics.Z / 0.1) ** 2))
# Root mean square differences of pixels up to which images count as the same picture, re-encoded or with shifted
# brightness.
_NEAR, _NEAR_OF_CONTRAST = 4 / 255, 0.1
_SMALL_SIDE = 8
_TEST_ROWS = 256
# First-stage images, as float32: the bytes that are checked in total, spread evenly, and the bytes held at a time.
_FETCHED_BYTES, _BLOCK_BYTES = 2**30, 2**26
# Bounds for about a second of computation.
_SEPARATION_IMAGES, _SEPARATION_VALUES = 500, 1e9


def check_accuracy(setting: Setting) -> Finding:
    """Check that clean images are classified better than by always predicting the most frequent class."""
    right, count = int(setting.clean_correct.sum()), len(setting.labels)
    chance = np.bincount(setting.labels).max() / count
    low, high = statistics.wilson_interval(right, count)
    evidence = (
        f"{right / count:.1%} of {count} clean {setting.examples} are correctly classified (95 % interval {low:.1%} "
        f"to {high:.1%})"
    )
    evidence += f"; always predicting the most frequent class gives {chance:.1%}."
    scaled = "the vocabulary is" if setting.predictor.is_text else "pixels are scaled as"
    remedy = f"Check that labels and classes are in the model's order and that {scaled} in its training."
    if low > chance:
        return Finding("clean_accuracy", "pass", evidence)
    return Finding("clean_accuracy", "fail" if right / count <= chance else "warn", evidence, remedy)


def check_units(setting: Setting, own: Attack) -> Finding:
    """Check that every epsilon is a radius in pixels of [0, 1]: neither 8 instead of 8/255, nor 8/255/255."""
    images = setting.images
    attacks = {attack for attack in (own, *setting.evaluation_attacks) if not attack.minimal}
    spread = float(images.max() - images.min())
    if spread <= 2 * _GRAY_LEVEL:
        return Finding(
            "epsilon_units",
            "fail",
            f"All pixels of all images lie within {spread:.2g} of each other.",
            "Pixels run over [0, 1]: these were divided by 255 once too often, or are empty.",
        )
    worst, remedy = "pass", ""
    said = []
    for norm in sorted({attack.threat.norm for attack in attacks}):
        sizes = [float(attack.threat.epsilon) for attack in attacks if attack.threat.norm == norm]
        # A curve starts small whatever its unit is. If the doctor's own attack is among the attacks, its epsilon
        # decides.
        claimed = float(own.threat.epsilon) if own.threat.norm == norm else min(sizes)
        verdict, evidence, remedy_of_norm = _check_sizes(setting, norm, sizes, claimed, spread)
        said.append(evidence)
        if _WORSE.index(verdict) > _WORSE.index(worst):
            worst, remedy = verdict, remedy_of_norm
    return Finding("epsilon_units", worst, " ".join(said), remedy)


_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
_WORSE = ("pass", "warn", "fail")


def _check_sizes(setting: Setting, norm: str, sizes: list, claimed: float, spread: float) -> tuple[str, str, str]:
    """Return verdict, evidence and remedy for the attacks in one norm; `claimed` must not be too large."""
    values = int(np.prod(setting.images.shape[1:]))
    smallest, largest = min(sizes), max(sizes)
    if norm == "l0":
        evidence = f"l0: epsilon {smallest:.6g} to {largest:.6g} of {values} values."
        if largest < 1 or smallest >= values:
            return "fail", evidence, "For l0 epsilon counts pixel values that may change, from 1 to less than all."
        return "pass", evidence, ""
    span = spread * {"linf": 1.0, "l2": np.sqrt(values), "l1": values}[norm]
    apart = setting.cached(f"separation {norm}", lambda: separation(setting, norm))
    evidence = (
        f"{norm}: epsilon {smallest:.4g} to {largest:.4g}; black and white differ by {span:.4g}; the median distance "
        f"to the nearest image of another class is {apart:.4g}."
    )
    remedy = f"Epsilon is in pixels of [0, 1]: {claimed:.4g}/255 = {claimed * _GRAY_LEVEL:.4g}, if that was meant."
    if claimed >= min(span, apart):
        # Images of another class lie within reach: no classifier can be correct on both.
        return "fail", evidence, remedy
    if claimed >= min(span, apart) / 2:
        return "warn", f"{evidence} Halfway to another class, or gray, lies within reach.", remedy
    if largest < _GRAY_LEVEL / 2:
        steps = f"Epsilon is in pixels of [0, 1]: {largest:.2g} is {largest * 255:.2g} of 255 gray levels"
        return "fail", evidence, f"{steps}, too little to change any 8-bit image; was it divided by 255 twice?"
    return "pass", evidence, ""


def separation(setting: Setting, norm: str) -> float:
    """Return the median distance of an image to the nearest one with another label, over a few hundred images."""
    fits = int(np.sqrt(_SEPARATION_VALUES / np.prod(setting.images.shape[1:])))
    chosen = setting.order("separation")[: max(2, min(_SEPARATION_IMAGES, fits))]
    rows, labels = setting.images[chosen].reshape(len(chosen), -1), setting.labels[chosen]
    nearest = []
    for row, label in zip(rows, labels, strict=True):
        gaps = np.abs(rows[labels != label] - row)
        if not len(gaps):
            return float("inf")
        nearest.append(np.linalg.norm(gaps, _ORDERS[norm], axis=1).min())
    return float(np.median(nearest))


def check_test_size(setting: Setting, robust: np.ndarray | None) -> Finding:
    """Check that there are enough test images for the claimed percentages.

    Args:
        setting: the setting, for the number of images.
        robust: bool [m], images that remain correctly classified under the doctor's attack; None: the clean accuracy is
            the only claim.

    Returns:
        The finding.
    """
    count = len(setting.labels)
    claims = {"clean accuracy": float(setting.clean_correct.mean())}
    if robust is not None:
        claims["accuracy under the doctor's attack"] = float(robust.mean())
    halves = {}
    for name, share in claims.items():
        low, high = statistics.wilson_interval(round(share * count), count)
        halves[name] = (high - low) / 2
    said = " and ".join(f"a {name} of {claims[name]:.1%} to within {half:.1%}" for name, half in halves.items())
    evidence = f"{count} test {setting.examples} determine {said} (95 % intervals).".replace(
        "a accuracy", "an accuracy"
    )
    worst = max(halves.values())
    if worst <= 0.06:
        return Finding("test_size", "pass", evidence)
    enough = f"{_IMAGES_FOR_FIVE_POINTS} {setting.examples}"
    remedy = f"Evaluate on {enough}, which determine any share to within 5 %, or claim no more than this."
    return Finding("test_size", "fail" if worst > 0.1 else "warn", evidence, remedy)


def check_duplicates(setting: Setting) -> Finding | None:
    """Check that test images, or near duplicates, are not among the training images; None if those are unknown.

    Images of a first stage count too: an encoder trained on the test images has seen them.
    """
    test, kind = setting.images, setting.examples
    exact, near, seen = np.zeros(len(test), bool), np.zeros(len(test), bool), []
    digests = _hashes(test)
    parts = {f"training {kind}": setting.train_images, f"{kind} of the first stage": setting.pretraining_examples}
    for name, images in parts.items():
        count = 0
        for block in _blocks(images, test):
            known = set(_hashes(block))
            exact |= np.array([digest in known for digest in digests])
            if not setting.predictor.is_text:
                near |= _nearly_equal(block, test)
            count += len(block)
        seen += [f"{count} {name}"] * (count > 0)
    if not seen:
        return None
    near &= ~exact
    evidence = f"Of {len(test)} test {kind} {exact.sum()} ({exact.mean():.1%}) are among {' and '.join(seen)}"
    if setting.predictor.is_text:
        evidence += "."
    else:
        evidence += (
            f", and {near.sum()} ({near.mean():.1%}) differ from one by less than {_NEAR:.3f} (root mean square)."
        )
    share = float(np.mean(exact | near))
    if share == 0:
        return Finding("duplicates", "pass", evidence)
    remedy = (
        f"Take the test {setting.examples} out of the training set, or the duplicates out of the test set, and "
        "evaluate again."
    )
    if setting.pretraining_examples is not None:
        remedy += " train.data and Pretraining.data have one test split where they have one split_seed."
    return Finding("duplicates", "fail" if share > 0.05 else "warn", evidence, remedy)


def check_selection(setting: Setting) -> Finding:
    """Check that the published weights were not selected on the test split."""
    chosen = setting.selected_on
    if chosen == "test":
        remedy = "Choose on a validation split: numbers on the split that chose are too good."
        return Finding("selection", "fail", "The weights were chosen by their test results.", remedy)
    if chosen:
        return Finding(
            "selection",
            "pass",
            "The weights are those of the last epoch."
            if chosen == "last"
            else f"The weights were chosen on the {chosen} split, not on test.",
        )
    return Finding(
        "selection",
        "warn",
        "It is not known on which split the weights were chosen.",
        "Ask the authors of the model; many published weights were selected by test results.",
    )


def _blocks(images: np.ndarray | Examples | None, test: np.ndarray) -> Iterator[np.ndarray]:
    """Yield training images as arrays [b, ...]: an array held already, or `Examples`, fetched block by block.

    It yields nothing if there are none, or if their shape differs from that of the test images.
    """
    if images is None or not len(images):
        return
    if not isinstance(images, Examples):
        if np.shape(images)[1:] == test.shape[1:]:
            yield np.asarray(images, test.dtype)
        return
    if tuple(images.image_shape) != test.shape[1:]:
        return
    bytes_each = 4 * int(np.prod(images.image_shape))
    count = min(len(images), max(1, _FETCHED_BYTES // bytes_each))
    positions, step = np.arange(count, dtype=np.int64) * len(images) // count, max(1, _BLOCK_BYTES // bytes_each)
    for start in range(0, count, step):
        yield images.fetch(tf.constant(positions[start : start + step])).numpy()


def _hashes(images: np.ndarray) -> list[bytes]:
    """Return hashes of the images at 8 bits; a few thousand images are converted at a time."""
    hashes = []
    for start in range(0, len(images), 4096):
        levels = images[start : start + 4096]
        levels = levels if levels.dtype == np.int32 else np.round(levels * 255).astype(np.uint8)
        hashes += [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in levels]
    return hashes


def _nearly_equal(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return which test images have a training image within the near distance; bool [n].

    Averaging over blocks of pixels never increases the root mean square distance of two images. So only the nearest
    small image is compared at full size.
    """
    small_train, small_test = _small(train), _small(test)
    lengths, found = np.sum(small_train**2, axis=1), np.zeros(len(test), bool)
    for start in range(0, len(test), _TEST_ROWS):
        rows = small_test[start : start + _TEST_ROWS]
        nearest = np.argmin(lengths[None] - 2 * rows @ small_train.T, axis=1)
        images = test[start : start + _TEST_ROWS]
        gap = np.sqrt(np.mean((images - train[nearest]) ** 2, axis=(1, 2, 3)))
        # Two nearly empty images are similar without being the same.
        found[start : start + _TEST_ROWS] = gap <= np.minimum(_NEAR, _NEAR_OF_CONTRAST * images.std(axis=(1, 2, 3)))
    return found


def _small(images: np.ndarray) -> np.ndarray:
    """Return means over blocks: float32 [n, d] with at most 15 x 15 blocks per channel."""
    height, width = (max(1, size // _SMALL_SIDE) for size in images.shape[1:3])
    high, wide = images.shape[1] // height, images.shape[2] // width
    cut = images[:, : high * height, : wide * width]
    blocks = cut.reshape(len(cut), high, height, wide, width, -1)
    return blocks.mean(axis=(2, 4)).reshape(len(cut), -1)

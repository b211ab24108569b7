"""Checks of an attack's settings, images, labels and logits before the search begins."""

import numpy as np
import tensorflow as tf

from tfrobust.common import arrays
from tfrobust.common.settings import as_plain, require_whole
from tfrobust.errors import InputError
from tfrobust.ops import batch_checks
from tfrobust.ops.probabilities import kind_of_outputs


class ProbabilitiesError(InputError):
    """A model returns probabilities in place of logits; `kind` is "softmax" or "sigmoid"."""

    def __init__(self, message: str, kind: str):
        super().__init__(message)
        self.kind = kind


def check_norm(attack) -> None:
    """Raise ValueError if the attack does not support its threat model (see `norms` and `bounds_frames`)."""
    if attack.threat.norm not in attack.norms:
        raise InputError(
            f"{type(attack).__name__} supports the norms {list(attack.norms)}, not {attack.threat.norm!r}; use "
            "FMN (gin/eval/curve.gin) or ProxLogBarrier (gin/eval/prox_log_barrier.gin)."
        )
    if not attack.bounds_frames:
        refuse_frames(attack)


def refuse_frames(part) -> None:
    """Raise ValueError if the threat model of a part, its `threat`, has a budget for frames."""
    threat = part.threat
    if threat.variant:
        setting = "per_frame=True" if threat.per_frame else f"max_frames={threat.max_frames}"
        raise InputError(
            f"{type(part).__name__} bounds the norm of whole clips and does not support ThreatModel.{setting}; use "
            "FGSM, PGD or APGD."
        )


def check_counts(attack, *names: str) -> None:
    """Raise ValueError unless the named attributes are integers >= 1 and the attack supports its threat model.

    Integers of NumPy become Python's.
    """
    for name in names:
        count = require_whole(getattr(attack, name), f"{type(attack).__name__}.{name}")
        object.__setattr__(attack, name, count)
    check_norm(attack)


def check_positive(attack, *names: str) -> None:
    """Raise ValueError unless the named attributes are finite numbers > 0; NumPy's become Python's."""
    for name in names:
        object.__setattr__(attack, name, as_plain(getattr(attack, name)))
        if not 0 < getattr(attack, name) < float("inf"):
            raise InputError(f"{type(attack).__name__}.{name} is {getattr(attack, name)!r}; it is a number > 0.")


def check_share(attack, *names: str) -> None:
    """Raise ValueError unless the named attributes are above 0 and below 1; NumPy's become Python's."""
    for name in names:
        object.__setattr__(attack, name, as_plain(getattr(attack, name)))
        if not 0 < getattr(attack, name) < 1:
            where = f"{type(attack).__name__}.{name}"
            raise InputError(f"{where} is {getattr(attack, name)!r}; it is a share, from 0 to 1.")


def check_images(images, low: float, high: float) -> np.ndarray:
    """Return images as float32 [n, ...] inside the bounds.

    Args:
        images: float [n, ...], n >= 1.
        low: lower bound of the threat model.
        high: upper bound of the threat model.

    Returns:
        float32 [n, ...], contiguous.

    Raises:
        ValueError: empty, not floating, not finite, or outside the bounds.
    """
    images = np.asarray(images)
    if images.ndim < 2 or not len(images):
        raise InputError(f"images have shape {list(images.shape)}, not [n, h, w, c] with n >= 1.")
    return arrays.check_pixels(images, "images", low, high)


def check_views(attack, images) -> None:
    """Raise ValueError if a nest of views does not suit the attack's threat; checks pixels of eager tensors only."""
    for view in tf.nest.flatten(images):
        attack.threat.check_frames(tuple(view.shape[1:]))
    if tf.executing_eagerly():
        for view in tf.nest.flatten(images):
            batch_checks.check_pixels(tf.convert_to_tensor(view), type(attack).__name__, *attack.threat.bounds)


def label_ids(labels, count: int) -> np.ndarray:
    """Return labels as int32 ids [n] from ids or one-hot rows, which may be floating point as Keras's labels are."""
    return arrays.check_labels(labels, count, floats=True)


def target_ids(targets, labels: np.ndarray) -> np.ndarray:
    """Return targets as int32 ids [n], from ids or one-hot rows.

    Args:
        targets: int [n] or [n, k].
        labels: int32 [n], the true classes.

    Raises:
        ValueError: as `label_ids`, or a target that equals the label.
    """
    ids = arrays.check_labels(targets, len(labels), where="targets", floats=True)
    if np.any(ids == labels):
        raise InputError(f"The target of image {int(np.argmax(ids == labels))} is its own label; aim at another class.")
    return ids


def check_logits(logits, ids: np.ndarray, known_logits: bool = False) -> int:
    """Raise ValueError unless the model's outputs are logits that fit the labels.

    Args:
        logits: float [n, k], of the clean images.
        ids: int32 [n].
        known_logits: True if the outputs are known to be logits, so that looking like probabilities is no error.

    Returns:
        k.

    Raises:
        ValueError: NaN or infinity, labels outside 0 .. k-1, or probabilities: their gradients vanish where the model
            is confident, and an attack on them overestimates robustness.
    """
    logits = np.asarray(logits)
    class_count = logits.shape[1]
    if not np.all(np.isfinite(logits)):
        raise InputError("The model's outputs for clean images contain NaN or infinity; it cannot be evaluated.")
    if ids.max() >= class_count:
        raise InputError(
            f"A label is {ids.max()}, but the model has {class_count} classes (ids 0 to {class_count - 1})."
        )
    kind = "logits" if known_logits else kind_of_outputs(logits)
    if kind == "softmax":
        raise ProbabilitiesError(
            "The model returns probabilities (rows >= 0 that sum to 1), which hide gradients: pass logits, or log(p).",
            kind,
        )
    if kind == "sigmoid":
        raise ProbabilitiesError(
            "The model returns probabilities (they span [0, 1], like sigmoids), which hide gradients: pass logits, or "
            "log(p / (1 - p)). If these are logits bounded by 0 and 1, pass logits - 1, which are equivalent for every "
            "attack.",
            kind,
        )
    return class_count

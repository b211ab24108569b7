"""The values that travel between layers. Plain tuples and frozen dataclasses, no behaviour beyond their fields."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf


class Batch(NamedTuple):
    """One batch of examples.

    images: float32 [b, h, w, c] in [0, 1], or the tokens of text, int32 [b, length]. labels: int32 [b]. index:
    int64 [b], the example's position in its split, from which its random draws follow. extra: further tensors
    [b, ...] by name; `sample_weight` (float32 [b]) is the only name the base class knows.
    """

    images: tf.Tensor
    labels: tf.Tensor
    index: tf.Tensor
    extra: dict


class Context(NamedTuple):
    """Where a training step stands: everything random in it is a function of these.

    key: int32 [2], already folded with the step. step: int64 scalar. rows: int64 [b], this replica's rows of
    the global batch.
    """

    key: tf.Tensor
    step: tf.Tensor
    rows: tf.Tensor


class Tags(NamedTuple):
    """What the pair rules know of each embedding: int32 [n] each.

    sample: row in the global batch. view: 0 = the image, 1 = its adversary (or second view), ... label: class
    id. prediction: predicted class id.
    """

    sample: tf.Tensor
    view: tf.Tensor
    label: tf.Tensor
    prediction: tf.Tensor


class PairMasks(NamedTuple):
    """Which keys are positives and which are negatives of each anchor: bool [n, m] each, disjoint."""

    positive: tf.Tensor
    negative: tf.Tensor


class AttackResult(NamedTuple):
    """What an evaluation attack found. Success is judged by re-prediction, never by the attack itself.

    adversarial: float32 [n, h, w, c], the example itself where nothing was found. success: bool [n], the
    prediction of `adversarial` is not the label (also where the clean image was already wrong).
    distance: float32 [n], size of the perturbation in the threat's norm.
    complete: False where a time budget ended the attack: the accuracy is then an upper bound.
    member: int [n], which member of an ensemble succeeded, -1 where none did or none was needed; None for a
    single attack.
    """

    adversarial: Any
    success: Any
    distance: Any
    complete: bool = True
    member: Any = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One number of a report.

    id: stable and opaque. value, low, high: in `unit`; None where not known. n: how many examples (or seeds)
    it rests on. The interval is 95 %; settings["interval"] says over what. settings: what produced it.
    """

    id: str
    value: float | None
    unit: str = "fraction"
    n: int | None = None
    low: float | None = None
    high: float | None = None
    settings: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding of the doctor. verdict: "pass", "warn" or "fail"."""

    check: str
    verdict: str
    evidence: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve or a cloud of points behind a plot: equally long columns by name.

    settings: what produced it; settings["interval"] says what columns `low` and `high` are.
    """

    id: str
    title: str
    columns: dict
    settings: dict = dataclasses.field(default_factory=dict)

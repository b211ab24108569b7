"""Values that are passed between layers: plain tuples and frozen dataclasses, without behavior beyond their fields."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf


class Batch(NamedTuple):
    """One batch of examples.

    Attributes:
        images: float32 [b, h, w, c] in [0, 1], or the tokens of text, int32 [b, length].
        labels: int32 [b].
        index: int64 [b], the example's position in its split, from which its random draws follow.
        extra: further tensors [b, ...] by name; `sample_weight` (float32 [b]) is the only name the base class knows.
    """

    images: tf.Tensor
    labels: tf.Tensor
    index: tf.Tensor
    extra: dict


class Context(NamedTuple):
    """The random state of a training step: everything random in the step is a function of these.

    Attributes:
        key: int32 [2], already folded with the step.
        step: int64 scalar.
        rows: int64 [b], this replica's rows of the global batch.
    """

    key: tf.Tensor
    step: tf.Tensor
    rows: tf.Tensor


class Tags(NamedTuple):
    """The attributes of each embedding that the pair rules use: int32 [n] each.

    Attributes:
        sample: row in the global batch.
        view: 0 = the image, 1 = its adversary (or second view), ...
        label: class id.
        prediction: predicted class id.
    """

    sample: tf.Tensor
    view: tf.Tensor
    label: tf.Tensor
    prediction: tf.Tensor


class PairMasks(NamedTuple):
    """The positives and negatives of each anchor among the keys: bool [n, m] each, disjoint.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> labels = tf.constant([0, 1, 0])
        >>> equal = labels[:, None] == labels
        >>> masks = robust.losses.PairMasks(positive=equal & ~tf.eye(3, dtype=tf.bool), negative=~equal)
        >>> masks.positive.numpy().sum(axis=1)
        array([1, 0, 1])
    """

    positive: tf.Tensor
    negative: tf.Tensor


class AttackResult(NamedTuple):
    """The result of an evaluation attack. Success is verified by re-prediction, never reported by the attack itself.

    Attributes:
        adversarial: float32 [n, h, w, c], the example itself where nothing was found.
        success: bool [n], True if the prediction of `adversarial` is not the label (also if the clean image was already
            misclassified), at any distance after a minimal-norm attack.
        distance: float32 [n], size of the perturbation in the threat's norm.
        complete: False if a time budget ended the attack: the accuracy is then an upper bound.
        member: int [n], the member of an ensemble that succeeded, -1 if none did or none was needed; None for a single
            attack.
        passes: float64 [n, 2], forward and backward passes of the model for each example: those of the search, of a
            surrogate, and of the verifications. Copies of examples that fill a batch are not counted. None if unknown.
    """

    adversarial: Any
    success: Any
    distance: Any
    complete: bool = True
    member: Any = None
    passes: Any = None

    def __repr__(self) -> str:
        """Return a line without the arrays: "AttackResult(512 examples, success 62.1%, median distance 0.031)"."""
        success = [bool(hit) for hit in self.success]
        # An image that is misclassified without an attack has the distance 0.
        sizes = [float(size) for size, hit in zip(self.distance, success, strict=True) if hit and size > 0]
        distance = f", median distance {statistics.median(sizes):.3g}" if sizes else ""
        share = f", success {sum(success) / len(success):.1%}" if success else ""
        bound = "" if self.complete else ", ended by its time budget"
        return f"AttackResult({len(success)} examples{share}{distance}{bound})"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One number of a report.

    Attributes:
        id: stable and opaque.
        value: in `unit`; None if not known.
        unit: such as "fraction".
        n: number of examples (or seeds) it is computed from.
        low: lower end of the 95 % interval in `unit`; None if not known.
        high: upper end of the 95 % interval in `unit`; None if not known.
        settings: what produced it; settings["interval"] names what the interval is over.
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
    """One finding of the doctor.

    Attributes:
        check: name of the check.
        verdict: "pass", "warn" or "fail".
        evidence: what was found.
        remedy: what to do; may be "".
    """

    check: str
    verdict: str
    evidence: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve or a cloud of points behind a plot.

    Attributes:
        id: stable and opaque.
        title: of the plot.
        columns: equally long columns by name.
        settings: what produced it; settings["interval"] describes the columns `low` and `high`.
    """

    id: str
    title: str
    columns: dict
    settings: dict = dataclasses.field(default_factory=dict)

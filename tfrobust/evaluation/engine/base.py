"""Interfaces of evaluation: `Setting` (predictor and data), `Evaluator` and `Outcome`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.engine import Votes
from tfrobust.common import arrays, fingerprint
from tfrobust.common.configured import Configured
from tfrobust.common.kinds import OF_PIXELS, kind_of
from tfrobust.common.settings import require_least
from tfrobust.data.checks import check_tokens
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.chunks import Shard, Store
from tfrobust.evaluation.engine.predictor import Predictor, in_batches
from tfrobust.ops import randomness
from tfrobust.structs import Finding, Measurement, Series

# Largest difference by rounding alone between two outputs of one example, as a share of the largest logit, or of 1.
ROUNDING = 1e-5
_DATA_HASH = "hash of the data"


def are_correct(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return which rows of logits [n, k] are finite and largest at their labels [n], bool [n]."""
    return (logits.argmax(axis=-1) == labels) & np.isfinite(logits).all(axis=-1)


@dataclasses.dataclass
class Outcome:
    """Results of an evaluation: measurements, series and findings, in the order in which they were made."""

    measurements: list[Measurement] = dataclasses.field(default_factory=list)
    series: list[Series] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def extend(self, other: Outcome) -> None:
        """Append another outcome."""
        self.measurements += other.measurements
        self.series += other.series
        self.findings += other.findings

    def to_frame(self):
        """Return the measurements as a data frame of pandas: columns id, value, unit, n, low, high, and each setting.

        A setting with the name of one of these, such as the draws n of a smoothed classifier, is `setting_n`.

        Raises:
            InputError (a ValueError): pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame needs the package pandas: pip install pandas.") from None
        names = ("id", "value", "unit", "n", "low", "high")
        rows = []
        for row in self.measurements:
            settings = {f"setting_{name}" if name in names else name: part for name, part in row.settings.items()}
            rows.append({name: getattr(row, name) for name in names} | settings)
        return pandas.DataFrame(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Predictor and data of an evaluation; results that several evaluators need are computed once and kept.

    It is checked on construction. If the predictor returns probabilities, `predictor` here is its `as_logits` form. If
    its input is integer, `images` here are rounded to what it can store.

    Attributes:
        predictor: the model to evaluate.
        images: float [n, h, w, c] in [0, 1], stored as float32; for a model of clips [n, t, h, w, c]; for a text model
            its tokens, integer [n, length].
        labels: ids [n] in [0, k), integers of any dtype, or one-hot [n, k]; stored as int32 ids.
        class_names: k names, or None.
        seed: seed of every random draw.
        batch_size: largest number of images in one graph call.
        progress: called between graph calls as (task, done, total); the task is a text, or a `searching.AttackTask`. Or
            None.
        train_images: images of the training split, for evaluators that need them; or None.
        train_labels: labels of the training split; or None.
        train_counts: integer [k], examples of each class in the training split; or None.
        validation_images: images of a split that neither training nor evaluation uses, for evaluators that calibrate on
            it; checked and rounded as `images`; or None.
        validation_labels: its labels; or None.
        pretraining_examples: training examples of a first stage if they are another split, a `data.spec.Examples`; or
            None. No attack uses them.
        selected_on: the split on which the published weights were selected: "last" (no selection), "validation",
            "test"; "" if unknown.
        training_attack: {"norm", "epsilon", "steps"} of the attack inside training, and its threat model's
            `frame_settings`; None if there was none, or if unknown.
        fine_tuning: fields of `doctor.fine_tuning.FineTuning`, what is known of an adversarial fine-tuning; or None.
        evaluation_attacks: attacks of the whole evaluation; `run_evaluation` sets it.
        chunk_size: images per chunk of an attack, which is stored as a whole or not at all.
        store: storage of finished chunks; `run_evaluation` sets it.
        strengths: for text, float32 [n, length], |sentiment - 0.5| of every token, NaN if unknown; or None.
        vocabulary: for text, the word of each id.
        limit: largest number of examples of every attack, certificate or corruption, in addition to the
            evaluator's own; None: no limit.
        votes: (draws, needed) for a stochastic model: an example counts as misclassified, clean or under attack, if at
            least `needed` of `draws` predictions are wrong. A model whose outputs do not change is predicted once.
        groups: str [n], the name of each example's group, such as a hospital: evaluators then measure the accuracy of
            each group; or, for clips, integer [n], the video of each clip; or None.

    Raises:
        ValueError: labels out of range, of another length, or neither ids nor one-hot; pixels outside [0, 1], NaN or
            bytes; shapes that do not match the model; no data.
    """

    predictor: Predictor
    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...] | None = None
    seed: int = 0
    batch_size: int = 128
    progress: Callable | None = None
    train_images: np.ndarray | None = None
    train_labels: np.ndarray | None = None
    train_counts: np.ndarray | None = None
    validation_images: np.ndarray | None = None
    validation_labels: np.ndarray | None = None
    pretraining_examples: Examples | None = None
    selected_on: str = ""
    training_attack: dict | None = None
    fine_tuning: dict | None = None
    evaluation_attacks: tuple[Attack, ...] = ()
    chunk_size: int = 1000
    store: Store | None = None
    strengths: np.ndarray | None = None
    vocabulary: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    limit: int | None = None
    votes: tuple[int, int] = (10, 5)
    # Not an argument, so that `dataclasses.replace` with another predictor or seed starts with an empty cache.
    _cache: dict = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        Votes.of(self.votes)
        images, labels = checked_examples(self.images, self.labels, self.predictor)
        if self.predictor.grid:
            self._cache[_DATA_HASH] = fingerprint.data_sha256(images, labels)
        # As the model stores them, so that epsilon is measured between what it sees.
        images = self.predictor.onto_grid(images)
        if self.has_validation:
            held_out = checked_examples(self.validation_images, self.validation_labels, self.predictor)
            object.__setattr__(self, "validation_images", self.predictor.onto_grid(held_out[0]))
            object.__setattr__(self, "validation_labels", held_out[1])
        names = self.class_names
        if names is not None and len(names) != self.predictor.class_count:
            raise InputError(f"There are {len(names)} class names for a model of {self.predictor.class_count} classes.")
        if self.group_names is not None:
            object.__setattr__(self, "groups", arrays.check_groups(self.groups, len(images)))
        for name in ("batch_size", "chunk_size", *(["limit"] if self.limit is not None else [])):
            require_least(getattr(self, name), name, 1)
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "predictor", self.predictor.as_logits(images, self.batch_size))

    @property
    def group_names(self) -> np.ndarray | None:
        """The name of each example's group, str [n]; None without groups."""
        is_named = self.groups is not None and np.asarray(self.groups).dtype.kind in "UO"
        return np.asarray(self.groups) if is_named else None

    @property
    def has_validation(self) -> bool:
        """True if there are images of a validation split."""
        return self.validation_images is not None and len(self.validation_images) > 0

    @property
    def data_sha256(self) -> str:
        """Hash of images and labels as passed: a model has the same data as its conversion, which rounds the images."""
        return self.cached(_DATA_HASH, lambda: fingerprint.data_sha256(self.images, self.labels))

    @property
    def examples(self) -> str:
        """Name of the examples: "images", "clips" or "sentences"."""
        return self.predictor.kind.examples

    def interval(self, kind: str) -> str:
        """Return the text of a 95 % interval over the examples: "95 % over images, Wilson"."""
        return f"95 % over {self.examples}, {kind}"

    @property
    def example(self) -> str:
        """Name of one example: "image", "clip" or "sentence"."""
        return self.predictor.kind.example

    @functools.cached_property
    def clean_logits(self) -> np.ndarray:
        """Logits of the clean images, float32 [n, k]."""
        return self.predict(self.images, "clean predictions")

    @functools.cached_property
    def clean_correct(self) -> np.ndarray:
        """Correctly classified clean images, bool [n], by votes; logits that are not all finite count as wrong."""
        wrong = (~are_correct(self.clean_logits, self.labels)).astype(int)
        for number in range(1, self.judged_by.draws):
            logits = self.predict(self.images, f"clean predictions, draw {number + 1}")
            wrong += ~are_correct(logits, self.labels)
        return wrong < self.judged_by.needed

    @functools.cached_property
    def correct_once(self) -> np.ndarray:
        """Clean images that one prediction classifies correctly, bool [n], to compare with one of changed images."""
        return are_correct(self.clean_logits, self.labels)

    @functools.cached_property
    def repeated_logits(self) -> tuple[np.ndarray, np.ndarray]:
        """Logits of the first batch of clean images, float32 [b, k], predicted twice."""
        batch = tf.constant(self.images[: self.batch_size])
        first, second = (np.asarray(self.predictor.compiled_logits(batch)) for _ in range(2))
        return first, second

    @functools.cached_property
    def judged_by(self) -> Votes:
        """The votes, if the model is stochastic: if equal examples get different outputs; else one prediction."""
        first, second = self.repeated_logits
        is_stochastic = np.abs(first - second).max() > ROUNDING * max(1.0, np.abs(first).max())
        return Votes.of(self.votes) if is_stochastic else Votes()

    @property
    def vote_settings(self) -> dict:
        """The votes as a setting of measurements and a part of keys; {} where each example is predicted once."""
        return {"votes": list(self.judged_by)} if self.judged_by.draws > 1 else {}

    @functools.cached_property
    def validation_logits(self) -> np.ndarray:
        """Logits of the validation split, float32 [m, k]."""
        return self.predict(self.validation_images, "predictions of the validation split")

    def predict(self, images: np.ndarray, task: str = "predictions") -> np.ndarray:
        """Return the logits of images, float32 [n, k]."""
        return in_batches(self.predictor.compiled_logits, images, self.batch_size, self.reporter(task))

    def embed(self, images: np.ndarray, task: str = "embeddings") -> np.ndarray:
        """Return the penultimate features of images, float32 [n, d]."""
        return in_batches(self.predictor.compiled_embedding, images, self.batch_size, self.reporter(task))

    def reporter(self, task: str) -> Callable | None:
        """Return `progress` with its task filled in, (done, total) -> None; or None."""
        if self.progress is None:
            return None
        return functools.partial(self.progress, task)

    def subset(self, limit: int | None, count: int | None = None, first: int | None = None) -> np.ndarray:
        """Return positions of at most `limit` of `count` images (None: all), ascending, int64.

        They are drawn by the seed, or with `first` at most so many from the beginning.
        """
        count = len(self.images) if count is None else count
        limit = min((size for size in (limit, first, self.limit) if size is not None), default=count)
        if first is not None or limit >= count:
            return np.arange(min(limit, count))
        return np.sort(self.order("subset", count)[:limit])

    def order(self, purpose: str, count: int | None = None) -> np.ndarray:
        """Return a random order of `count` images (None: all) that depends on the seed and `purpose`; int64."""
        key = randomness.make_key(self.seed, "evaluation", purpose)
        count = len(self.images) if count is None else count
        return np.argsort(tf.random.stateless_uniform([count], key).numpy(), kind="stable")

    def within(self, store: Store | None, evaluation_attacks: tuple[Attack, ...]) -> Setting:
        """Return the same setting inside a run; it shares all results computed so far."""
        setting = copy.copy(self)
        object.__setattr__(setting, "store", store)
        object.__setattr__(setting, "evaluation_attacks", evaluation_attacks)
        return setting

    def cached(self, name: str, make: Callable):
        """Return the value stored under a name, or compute it by `make()` and store it for the life of the setting."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]


class Evaluator(Configured):
    """Base of evaluators: frozen dataclasses that measure a predictor and neither print nor write.

    Example:
        >>> import dataclasses, numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> from tfrobust.evaluation.engine.base import Outcome
        >>> from tfrobust.evaluation.evaluators.accuracy import accuracy
        >>> @dataclasses.dataclass(frozen=True, kw_only=True)
        ... class DimAccuracy(robust.evaluators.Evaluator):
        ...     factor: float = 0.5
        ...
        ...     def run(self, setting):
        ...         correct = setting.predict(self.factor * setting.images).argmax(-1) == setting.labels
        ...         return Outcome([accuracy("accuracy.dim", correct, {"factor": self.factor})])
        >>> images, labels = np.random.rand(4, 8, 8, 1), np.zeros(4, int)
        >>> logits = lambda images: tf.reduce_mean(images, axis=[1, 2]) * [1.0, 0.0, 0.0]
        >>> evaluators = (robust.evaluators.CleanAccuracy(), DimAccuracy())
        >>> outcome = robust.evaluate(logits, images, labels, epsilon=0.1, evaluators=evaluators)
        >>> [(measurement.id, measurement.value) for measurement in outcome.measurements[:2]]
        [('accuracy.clean', 1.0), ('accuracy.dim', 1.0)]

    Attributes of a subclass:
        uses_training: True if the outcome depends on how the model was trained, and on which images.
        uses_validation: True if the outcome depends on the validation split.
        uses_attacks: True if it examines the attacks of the other evaluators.
        uses_embedding: True if the outcome depends on the predictor's embedding, or on its absence.
        whole_examples: True if its attacks see single examples; another evaluator checks their threat models itself.
        kinds: names of the kinds of examples that it supports, of "images", "clips" and "text"; text has no pixels to
            perturb.
    """

    uses_training: ClassVar[bool] = False
    uses_validation: ClassVar[bool] = False
    uses_attacks: ClassVar[bool] = False
    uses_embedding: ClassVar[bool] = False
    whole_examples: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = OF_PIXELS

    def run(self, setting: Setting) -> Outcome:
        """Measure the predictor.

        Args:
            setting: a checked setting.

        Returns:
            Measurements, series and findings, a function of the setting and the configuration alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `run`.")

    def check(self, setting: Setting) -> None:
        """Raise, before any evaluator runs, the errors that `run` would raise for the files it reads.

        Raises:
            ValueError: files that do not fit the setting.
            FileNotFoundError: files that are missing.
        """

    def files_read(self) -> str:
        """Return a hash of the state of the files that `run` reads, for the cache key; "" if it reads none."""
        return ""

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attacks whose chunks may be computed in advance or elsewhere, each with positions int64 [m].

        That takes no time, so that it can be asked before an evaluation.
        """
        return ()

    def searches(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return `attacks` on the images that they search, which can take the time of certificates."""
        return self.attacks(setting)

    def share(self, setting: Setting, shard: Shard) -> int:
        """Compute and store a shard's chunks of long work other than `searches`; return the number of its images."""
        return 0

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return the evaluators to run in place of this one for a predictor without input gradients.

        That is the evaluator itself, unless its `attack` needs gradients: then none. Evaluators that examine the
        attacks of others leave out by themselves what needs gradients.
        """
        attack = getattr(self, "attack", None)
        return (self,) if attack is None or self.uses_attacks or not attack.needs_gradient else ()

    def ids(self) -> tuple[str, ...]:
        """Return the ids that `run` will produce, so that clashes are rejected before hours of work."""
        return ()


def checked_examples(images, labels, predictor: Predictor) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 pixels (or int32 tokens) and int32 labels that fit the predictor, or raise ValueError."""
    images = np.asarray(images)
    if not images.size:
        raise InputError("There are no examples to evaluate on.")
    if (kind := kind_of(images.shape[1:])) is not predictor.kind:
        raise InputError(f"{predictor.name} takes {predictor.kind.layout}; the data are {kind.layout}.")
    if predictor.is_text:
        images = check_tokens(images, "the test split", predictor.vocabulary_size)
    else:
        images = checks.check_images(images, 0.0, 1.0)
    have, expected = images.shape[1:], tuple(predictor.image_shape)
    if len(have) != len(expected) or any(want not in (None, size) for want, size in zip(expected, have, strict=True)):
        remedy = arrays.channels_first(images.shape)
        if len(have) >= 3 and expected == (*have[:-3], have[-1], have[-3], have[-2]):
            remedy = ": its channels come first, so add --channels_first, or transpose in a function around it"
        raise InputError(f"Examples have the shape {have}, but {predictor.name} takes {expected}{remedy}.")
    labels = checks.label_ids(labels, len(images))
    if labels.max() >= predictor.class_count:
        raise InputError(
            f"A label is {labels.max()}, but {predictor.name} has the classes 0 to {predictor.class_count - 1}."
        )
    return images, labels

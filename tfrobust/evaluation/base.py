"""What an evaluator gets (a setting) and gives (an outcome)."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks import checks
from tfrobust.attacks.base import Attack
from tfrobust.data.checks import check_tokens
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError
from tfrobust.evaluation.chunks import Store
from tfrobust.evaluation.predictor import Predictor, in_batches
from tfrobust.ops import randomness
from tfrobust.ops.configured import Configured
from tfrobust.structs import Finding, Measurement, Series


@dataclasses.dataclass
class Outcome:
    """What an evaluation found, in the order in which it was found."""

    measurements: list[Measurement] = dataclasses.field(default_factory=list)
    series: list[Series] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def extend(self, other: Outcome) -> None:
        """Appends another outcome."""
        self.measurements += other.measurements
        self.series += other.series
        self.findings += other.findings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A predictor and the data it is judged on; what several evaluators need is computed once and kept.

    Checked when made. If the predictor answers with probabilities, `predictor` here is its `judged_on` form.

    Attributes:
        predictor: who is judged.
        images: float [n, h, w, c] in [0, 1], kept as float32; of a model of text its tokens, integer [n, length].
        labels: ids [n] in [0, k), whole numbers of any dtype, or one-hot [n, k]; kept as int32 ids.
        class_names: k names, or None.
        seed: where every random draw starts from.
        batch_size: largest number of images in one graph call.
        progress: (task, done, total), called between graph calls; or None.
        train_images, train_labels: the training split, for evaluators that need one; or None.
        pretraining_examples: what a first stage was trained on where that is another split, a `data.spec.Examples`;
            or None. No attack uses it.
        selected_on: what the published weights were chosen by: "last" (no choice), "validation", "test"; ""
            where it is not known.
        training_attack: {"norm", "epsilon", "steps"} of the attack inside training; None where there was none, or
            where it is not known.
        evaluation_attacks: what the evaluation this belongs to attacks with; `run_evaluation` sets it.
        chunk_size: images per chunk of an attack, which is kept as a whole or not at all.
        store: where finished chunks are kept; `run_evaluation` sets it.
        strengths: of text, float32 [n, length], |sentiment - 0.5| of every token, NaN where not known; or None.
        vocabulary: of text, the word of each id.

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
    pretraining_examples: Examples | None = None
    selected_on: str = ""
    training_attack: dict | None = None
    evaluation_attacks: tuple[Attack, ...] = ()
    chunk_size: int = 1000
    store: Store | None = None
    strengths: np.ndarray | None = None
    vocabulary: tuple[str, ...] = ()
    # Not an argument, so that `dataclasses.replace` with another predictor or seed starts anew.
    _kept: dict = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        images, labels = checked_examples(self.images, self.labels, self.predictor)
        names = self.class_names
        if names is not None and len(names) != self.predictor.class_count:
            raise InputError(f"There are {len(names)} class names for a model of {self.predictor.class_count} classes.")
        for name in ("batch_size", "chunk_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "predictor", self.predictor.judged_on(images, self.batch_size))

    @property
    def examples(self) -> str:
        """What the examples are called: "images" or "sentences"."""
        return "sentences" if self.predictor.is_text else "images"

    @functools.cached_property
    def clean_logits(self) -> np.ndarray:
        """float32 [n, k]: the answers to the clean images."""
        return self.predict(self.images, "clean predictions")

    @functools.cached_property
    def clean_correct(self) -> np.ndarray:
        """bool [n]: which clean images are rightly classified; an answer with NaN in it is wrong, as to an attack."""
        return (self.clean_logits.argmax(axis=-1) == self.labels) & ~np.isnan(self.clean_logits).any(axis=-1)

    def predict(self, images: np.ndarray, task: str = "predictions") -> np.ndarray:
        """Logits of images, float32 [n, k]."""
        return in_batches(self.predictor.compiled_logits, images, self.batch_size, self.reporter(task))

    def embed(self, images: np.ndarray, task: str = "embeddings") -> np.ndarray:
        """Penultimate features of images, float32 [n, d]."""
        return in_batches(self.predictor.compiled_embedding, images, self.batch_size, self.reporter(task))

    def reporter(self, task: str) -> Callable | None:
        """`progress` with its task filled in: (done, total) -> None."""
        if self.progress is None:
            return None
        return functools.partial(self.progress, task)

    def subset(self, limit: int | None, count: int | None = None) -> np.ndarray:
        """Positions of at most `limit` of `count` images (None: of all here), drawn by the seed, ascending; int64."""
        count = len(self.images) if count is None else count
        if limit is None or limit >= count:
            return np.arange(count)
        return np.sort(self.order("subset", count)[:limit])

    def order(self, purpose: str, count: int | None = None) -> np.ndarray:
        """A random order of `count` images (None: of all here) that follows from the seed and a word; int64."""
        key = randomness.make_key(self.seed, "evaluation", purpose)
        count = len(self.images) if count is None else count
        return np.argsort(tf.random.stateless_uniform([count], key).numpy(), kind="stable")

    def within(self, store: Store | None, evaluation_attacks: tuple[Attack, ...]) -> Setting:
        """The same setting inside a run: what was computed for it already is not computed again."""
        setting = copy.copy(self)
        object.__setattr__(setting, "store", store)
        object.__setattr__(setting, "evaluation_attacks", evaluation_attacks)
        return setting

    def keep(self, name: str, make: Callable):
        """The value made under this name before, or `make()`, kept for as long as the setting lives."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]


class Evaluator(Configured):
    """One probe of a predictor: a frozen dataclass that measures and neither prints nor writes.

    Attributes of a subclass:
        uses_training: whether the outcome hangs on how the model was trained, and on which images.
        uses_attacks: whether it judges what the other evaluators attack with.
        uses_embedding: whether the outcome hangs on the predictor's embedding, or on there being none.
        judges_text, judges_images: what it can make sense of; text has no pixels to move.
    """

    uses_training: ClassVar[bool] = False
    uses_attacks: ClassVar[bool] = False
    uses_embedding: ClassVar[bool] = False
    judges_text: ClassVar[bool] = False
    judges_images: ClassVar[bool] = True

    def run(self, setting: Setting) -> Outcome:
        """Measures.

        Args:
            setting: a checked setting.

        Returns:
            Measurements, series and findings, a function of the setting and the configuration alone.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs.")

    def check(self, setting: Setting) -> None:
        """Refuses, before any evaluator has run, what `run` would refuse of what it reads.

        Raises:
            ValueError: files that do not fit the setting.
            FileNotFoundError: files that are missing.
        """

    def files_read(self) -> str:
        """A hash of the state of the files `run` reads, which a kept outcome hangs on; "" where it reads none."""
        return ""

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """The attacks whose chunks may be made beforehand and elsewhere, each with its positions int64 [m]."""
        return ()

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """What a predictor without input gradients can still be judged by: evaluators that run in this one's place.

        Itself, unless its `attack` needs gradients: then nothing. Who judges what the others attack with leaves out
        what needs gradients by itself.
        """
        attack = getattr(self, "attack", None)
        return (self,) if attack is None or self.uses_attacks or not attack.needs_gradient else ()

    def ids(self) -> tuple[str, ...]:
        """The ids `run` will give, so that two that clash are refused before hours of work."""
        return ()


def checked_examples(images, labels, predictor: Predictor) -> tuple[np.ndarray, np.ndarray]:
    """float32 images (or int32 tokens) and int32 labels that fit the predictor, or a ValueError of one sentence."""
    images = np.asarray(images)
    if not images.size:
        raise InputError("There are no examples to evaluate on.")
    if (images.ndim == 2) != predictor.is_text:
        kinds = ("images [n, h, w, c]", "tokens [n, length]")
        raise InputError(f"{predictor.name} takes {kinds[predictor.is_text]}; the data are {kinds[images.ndim == 2]}.")
    images = check_tokens(images, "the test split") if predictor.is_text else checks.check_images(images, 0.0, 1.0)
    have, expected = images.shape[1:], tuple(predictor.image_shape)
    if len(have) != len(expected) or any(want not in (None, size) for want, size in zip(expected, have, strict=True)):
        raise InputError(f"Examples have the shape {have}, but {predictor.name} takes {expected}.")
    labels = checks.label_ids(labels, len(images))
    if labels.max() >= predictor.class_count:
        raise InputError(
            f"A label is {labels.max()}, but {predictor.name} has the classes 0 to {predictor.class_count - 1}."
        )
    return images, labels

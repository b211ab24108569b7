"""Pretraining: a first stage, in the same run, that trains the encoder for a second one."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common import configured
from tfrobust.common.settings import require_least
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.methods.shared.method import Method
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.shared.normalization import adopt_branch
from tfrobust.runs.stage import Stage
from tfrobust.runs.watchers import watch
from tfrobust.training.head_fit import fitted_at_once

FOLDER = "pretraining"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
    """The first of two stages: a method trains the encoder, which the run's METHOD then takes over.

    METHOD is the second stage: a linear probe (`Supervised` on a frozen encoder), or fine-tuning by any method. A run's
    head `KNearestNeighbours` or `LogisticRegression` is fitted at once, and the first stage's probe is then linear. The
    second stage has its own data, so that it may see fewer labels (`LabelledFraction`); `Pretraining.data` are then all
    examples. One command runs both stages, and resumes in the stage in which it was stopped.

    Args:
        method: constructor of a method, called as method(encoder=, head=, seed=), for example `SimCLR`. Its head is an
            online probe and is dropped.
        optimizer: constructor of a Keras optimizer.
        epochs: >= 1.
        batch_size: size of the global batch, >= 1.
        augmentation: of the images before the method makes its views, or None.
        data: source of the examples; None takes those of the second stage.
        frozen: True: the pre-trained encoder is not changed, runs in inference mode, and only the head is trained.
            False: all weights are fine-tuned.
        probe: True: the first stage trains the head alone on the frozen encoder, and the second stage starts from this
            head. `frozen` is then False. The encoder's weights are those of ENCODER, or of `train.pretrained`.
        branch: the batch-norm branch of the encoder that the second stage starts from and serves; ACL keeps that of its
            adversarial views in branch 1.
        callbacks: further Keras callbacks.

    Raises:
        ValueError: a number below 1, a negative branch, or a `probe` with `frozen`.

    Source:
        RoLI, https://arxiv.org/abs/2312.05716, for `probe`: an adversarial probe of a robust encoder comes first.
    """

    method: Callable[..., Method]
    optimizer: Callable[..., keras.optimizers.Optimizer]
    epochs: int
    batch_size: int
    augmentation: Augmentation | None = None
    data: Source | None = None
    frozen: bool = True
    probe: bool = False
    branch: int = 0
    callbacks: tuple[keras.callbacks.Callback, ...] = ()

    def __post_init__(self):
        for name in ("epochs", "batch_size"):
            require_least(getattr(self, name), f"Pretraining.{name}", 1)
        if self.probe and self.frozen:
            raise InputError("Pretraining.probe hands its head to a stage that trains the encoder: set frozen = False.")
        if self.branch < 0:
            raise InputError(f"Pretraining.branch is {self.branch}; branches count from 0.")

    def stage(
        self,
        encoder: keras.Model,
        head: Callable,
        source: Source,
        dataset: Dataset,
        seed: int,
        trained_head: keras.layers.Layer | None = None,
    ) -> Stage:
        """Build the first stage.

        Args:
            encoder: encoder that the second stage shares.
            head: constructor, called as head(class_count=).
            source: data source of the second stage.
            dataset: examples of the second stage.
            seed: seed of the run.
            trained_head: head of the second stage, which a `probe` trains.

        Raises:
            InputError: its own data have images of another shape, the encoder does not have the branch, or a head that
                is fitted at once has an encoder that is not frozen.
        """
        if fitted_at_once(head):
            if not self.frozen:
                raise InputError(f"{head.__name__} is fitted to a frozen encoder: set Pretraining.frozen = True.")
            head = LinearHead  # the online probe is trained along with the encoder
        if self.branch >= max(1, getattr(encoder, "branches", 1)):
            name = type(encoder).__name__
            takes = "branches" in configured.constructor_arguments(type(encoder))
            remedy = f" Set {name}.branches = {self.branch + 1}." if takes else ""
            raise InputError(f"Pretraining.branch is {self.branch}, but {name} has no such branch.{remedy}")
        if self.data is not None:
            source, shape, classes = self.data, dataset.image_shape, dataset.class_count
            dataset = self.data.load()
            if self.probe and dataset.class_count != classes:
                raise InputError(
                    f"Pretraining.probe trains a head of {classes} classes; Pretraining.data has {dataset.class_count}."
                )
            if dataset.image_shape != shape:
                raise InputError(f"Pretraining.data has images {dataset.image_shape}, those of train.data are {shape}.")
        probed = trained_head if self.probe else None
        stage = Stage(
            method=self.method(encoder=encoder, head=probed or head(class_count=dataset.class_count), seed=seed),
            frozen=self.probe or None,
            dataset=dataset,
            source=source,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            augmentation=self.augmentation,
            callbacks=self.callbacks,
            last=False,
        )
        stage.title = f"stage 1 of 2, {type(stage.method).__name__}"
        stage.build(self.optimizer())
        return stage

    def run(
        self,
        stage: Stage,
        strategy: tf.distribute.Strategy,
        folder: pathlib.Path,
        worker_folder: pathlib.Path,
        **keywords,
    ):
        """Train what is left of the stage, and hand over its encoder.

        Returns:
            The report's entries about the stage, its history, and its duration in seconds.
        """
        watchers = watch(worker_folder / FOLDER, ((), ()), None, self.callbacks, self.batch_size)
        loop = stage.loop(strategy, folder / FOLDER, watchers, **keywords)
        history = loop.run()
        last = {name: values[-1] for name, values in history.items() if name not in ("epoch", "learning_rate")}
        stage.method.finish()
        self.hand_over(stage.method.encoder)
        facts = stage.facts() | {"data": stage.dataset.name, "train_size": len(stage.dataset.train)}
        if self.data is not None:
            facts["source"] = configured.serialize(self.data)
        facts |= {"frozen": self.frozen, "branch": self.branch, "last_epoch": last} | self.probed
        return facts, history, loop.seconds

    @property
    def probed(self) -> dict:
        """The entry of a configuration about `probe`, {} without."""
        return {"probe": True} if self.probe else {}

    def hand_over(self, encoder: keras.Model) -> None:
        """Prepare the encoder for the second stage: freeze it if `frozen`, and adopt the chosen branch."""
        encoder.trainable = not self.frozen
        adopt_branch(encoder, self.branch)

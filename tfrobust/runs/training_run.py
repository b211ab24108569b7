"""A training run: what it is made of, and its way from an empty workdir to a published version.

A run may be killed anywhere. The same command then continues in the first state that its workdir does not hold whole:

    workdir/                                   state of the run                     a killed process left
    ---------------------------------------    ---------------------------------    --------------------------------
    training.json, owner, lock                 opened: the identity of the run;     no training.json: opened again
      |                                        another training is refused
      v  `Pretraining.run`, if there is one
    pretraining/checkpoints/, history.csv      first stage trained, encoder         resumes after the newest step
      |                                        handed over                          that is intact
      v  `Loop.run`
    checkpoints/, history.csv, best/           main stage trained                   resumes likewise
      |
      v  `Artifact.publish` (runs/artifact.py)
    staged/                                    SavedModel without a report          written again
      |
      v  `run_evaluation`
    evaluation/                                outcomes of the evaluators           finished parts are read, others run
      |
      v  report, gate, `verify`
    final/                                     SavedModel with its report           written again
      |
      v  one rename, then the record
    exported/NAME/VERSION                      published                            the version is found by its run and
    publication.json, robustness_report.json                                        owner, the record written again
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common import configured, files
from tfrobust.data import pipeline, summary
from tfrobust.data.kinds import refuse_other_parts
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.methods.shared.method import Method
from tfrobust.models.heads.linear import LinearHead
from tfrobust.report.schema import Report
from tfrobust.runs import estimate, publication, published_weights
from tfrobust.runs import workdir as workdirs
from tfrobust.runs.artifact import Artifact, Trained
from tfrobust.runs.budget import Budget
from tfrobust.runs.fine_tuning import advice_lines, fine_tuning
from tfrobust.runs.first_stage import Pretraining
from tfrobust.runs.initial_encoder import Pretrained
from tfrobust.runs.plan import Plan
from tfrobust.runs.settings import EvaluationSettings, PublicationSettings
from tfrobust.runs.stage import Stage
from tfrobust.runs.watchers import watch
from tfrobust.serving.export import publish
from tfrobust.training import cluster
from tfrobust.training import strategy as strategies
from tfrobust.training.head_fit import HeadFit
from tfrobust.training.loop import Loop


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The training of a run: its parts, data, devices and numbers.

    Each field is the argument of `experiment.train` of the same name, which says what it means; hence their number.
    """

    method: Callable[..., Method]
    encoder: Callable[..., keras.Model]
    optimizer: Callable[..., keras.optimizers.Optimizer]
    data: Source
    epochs: int
    batch_size: int
    seed: int = 0
    strategy: str = "auto"
    head: Callable[..., keras.layers.Layer] = LinearHead
    augmentation: Augmentation | None = None
    validation: Callable[..., keras.callbacks.Callback] | None = None
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    pretrained: Pretrained | None = None
    pretraining: Pretraining | None = None
    precision: str = "float32"
    jit_compile: bool | str = "auto"
    deterministic: bool | str = "auto"
    checkpoint_seconds: float = 15.0
    profile: int = 0

    def check_numbers(self) -> None:
        """Raise InputError for epochs or a batch size out of range."""
        for name, value in {"EPOCHS": self.epochs, "BATCH_SIZE": self.batch_size}.items():
            if not 1 <= value < 2**31:
                raise InputError(f"{name} is {value}; it must be at least 1 and below 2**31.")

    def prepared_strategy(self) -> tf.distribute.Strategy:
        """Make the strategy, and set what holds for the whole process: determinism, precision and Keras's seed.

        Raises:
            InputError: the replicas do not divide a batch, or two sources of an encoder are set.
        """
        strategies.set_determinism(self.deterministic)
        strategy = strategies.make_strategy(self.strategy)  # collectives must exist before anything else runs
        self._check_replicas(strategy.num_replicas_in_sync)
        strategies.set_precision(self.precision)
        keras.utils.set_random_seed(self.seed)
        return strategy

    def _check_replicas(self, replicas: int) -> None:
        if self.pretrained is not None and self.pretraining is not None:
            if not self.pretraining.probe:
                raise InputError("train.pretrained and train.pretraining exclude each other: set only one of them.")
            if self.pretrained.frozen:
                raise InputError("Pretraining.probe is followed by a trained encoder: set Pretrained.frozen = False.")
        first = self.pretraining.batch_size if self.pretraining else 0
        for name, size in {"BATCH_SIZE": self.batch_size, "Pretraining.batch_size": first}.items():
            if size % replicas:
                raise InputError(f"{name} {size} does not divide among {replicas} replicas.")


class _TrainedStages(NamedTuple):
    """The parts that remain after both stages have been trained."""

    loop: Loop | HeadFit
    watchers: list[keras.callbacks.Callback]
    history: dict
    first_facts: dict
    first_history: dict | None
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A run that is checked and built, and ready to train.

    Attributes:
        training: settings of the training.
        evaluation: settings of the evaluation, for the run's data.
        publication: settings of the publication.
        strategy: of `training`.
        worker: the place of this process in the cluster.
        stage: the main stage, built.
        first: the first of two stages, built, or None.
        origin: facts on weights that another model gave, {} without.
        configuration: returns the operative configuration as text; called after everything was built.
        verbose: as for `experiment.train`.
    """

    training: TrainingSettings
    evaluation: EvaluationSettings
    publication: PublicationSettings
    strategy: tf.distribute.Strategy
    worker: cluster.Worker
    stage: Stage
    first: Stage | None
    origin: dict
    configuration: Callable[[], str]
    verbose: int

    @classmethod
    def build(
        cls,
        training: TrainingSettings,
        evaluation: EvaluationSettings,
        publication: PublicationSettings,
        strategy: tf.distribute.Strategy,
        **display,
    ) -> TrainingRun:
        """Load the data, check that everything fits them, and build both stages.

        Raises:
            InputError: the data are missing, or the parts do not fit each other.
        """
        worker = cluster.this_worker(strategy)
        quiet = not (worker.chief and display["verbose"])
        dataset = loaded(training.data, quiet=quiet)
        validated = bool(training.validation and len(dataset.validation))
        published_weights.check_choice(publication.weights, validated, training.callbacks, training.head)
        if training.validation is not None and validated:
            images, labels = dataset.validation.arrays(1)
            validation = training.validation(images=images, labels=labels)
            published_weights.check_validation(publication.weights, validation, training.epochs)
        pipeline.steps_per_epoch(dataset.train, training.batch_size)  # raises for a batch larger than the data
        evaluation.check_data(dataset)
        evaluation = evaluation.on(dataset)
        with cluster.watched(worker), strategy.scope():
            stage, first, origin = _built(training, dataset, strategy, quiet=quiet)
        settings: dict[str, Any] = {"training": training, "evaluation": evaluation, "publication": publication}
        stages: dict[str, Any] = {"stage": stage, "first": first, "origin": origin}
        return cls(**settings, **stages, strategy=strategy, worker=worker, **display)

    @property
    def stages(self) -> list[Stage]:
        """The stages in the order in which they run."""
        return [*filter(None, [self.first]), self.stage]

    @property
    def identity(self) -> dict:
        """All that determines the trained weights, as JSON; a workdir must hold the same."""
        identity = self.stage.configuration() | self.origin
        if self.first is not None:
            pretraining = self.training.pretraining
            parts = {"frozen": pretraining.frozen, "branch": pretraining.branch} | pretraining.probed
            identity["pretraining"] = self.first.configuration() | parts
        return identity

    def show_estimate(self, plan: Plan | None, budget: Budget | None) -> None:
        """Print the configuration and the cost of the run."""
        estimate.show(
            self.configuration(), self.stages, self.evaluation, self.strategy, self.training.jit_compile, plan, budget
        )
        print(*self._advice, sep="\n", end="\n" * bool(self._advice))

    @property
    def _advice(self) -> list[str]:
        return advice_lines(fine_tuning(self.stage, self.first, self.origin))

    def execute(self, workdir: str | None, finished_only: bool) -> Report | None:
        """Train, evaluate and publish what is left of the run.

        Args:
            workdir: folder of the run; None takes the default.
            finished_only: True to refuse a workdir whose training is not finished.

        Returns:
            The report; None on workers other than the chief.
        """
        identity, worker, base = self.identity, self.worker, self.publication.base
        workdir = workdir or _default_workdir(self.publication.name, identity, quiet=not worker.chief)
        files.check_writable(workdir, "--workdir")
        publish.check_available(base, self.publication.version, workdirs.owner(workdir))
        if worker.chief and not self.publication.replaces:
            _announce(identity, base)
        agreement = cluster.Agreement(self.strategy, worker)
        with contextlib.ExitStack() as until_the_end:
            with agreement.after_chief():
                opened = workdirs.locked_workdir(workdir, identity, must_exist=finished_only, alone=worker.chief)
                folder = until_the_end.enter_context(opened)
            trained = self._train(folder, finished_only)
            if not worker.chief:
                _say_that_it_has_trained(worker, self.verbose)
                return agreement.final_barrier()
            artifact = self._artifact(trained, folder, identity)
            if not finished_only:  # `export` leaves the configuration of the training, and reads it again next time
                self._write_configuration(folder)
            report = artifact.publish()
            agreement.final_barrier(alone=True)
            return report

    def _train(self, folder: pathlib.Path, finished_only: bool) -> _TrainedStages:
        """Train what is left of both stages."""
        training, strategy, stage = self.training, self.strategy, self.stage
        worker_folder = cluster.own_folder(folder, self.worker)
        # `export` reads it: a run that the trained state refuses must not replace that of the run which trained.
        if not (worker_folder / workdirs.CONFIGURATION_FILE).exists():
            self._write_configuration(worker_folder)
        driven = {
            "checkpoint_seconds": training.checkpoint_seconds,
            "jit_compile": strategies.use_xla(training.jit_compile, strategy),
            "finished_only": finished_only,
            "verbose": self.verbose * self.worker.chief,
        }
        if driven["verbose"]:
            descriptions = [line for part in self.stages for line in part.description()]
            print(*descriptions, *self._advice, f"workdir     {folder}", sep="\n", flush=True)
        with cluster.watched(self.worker):
            facts, first_history, seconds = {}, None, 0.0
            if self.first:
                pretraining = training.pretraining
                entries, first_history, seconds = pretraining.run(self.first, strategy, folder, worker_folder, **driven)
                facts = {"pretraining": entries}
            arrays = stage.dataset.validation.arrays()
            watchers = watch(worker_folder, arrays, training.validation, training.callbacks, training.batch_size)
            driven |= {"profile_steps": training.profile, "profile_directory": str(worker_folder / "logs")}
            steps_after = estimate.attack_steps(self.evaluation, stage)
            loop = stage.loop(strategy, folder, watchers, steps_after=steps_after, **driven)
            history = loop.run()
        return _TrainedStages(loop, watchers, history, facts, first_history, seconds + loop.seconds)

    def _write_configuration(self, folder: pathlib.Path) -> None:
        files.write_atomically(folder / workdirs.CONFIGURATION_FILE, self.configuration())

    def _artifact(self, stages: _TrainedStages, folder: pathlib.Path, identity: dict) -> Artifact:
        facts = {**self.stage.facts(), **getattr(stages.loop, "facts", {}), **self.origin, **stages.first_facts}
        facts |= {"precision": self.training.precision}
        tuning = fine_tuning(self.stage, self.first, self.origin)
        if tuning is not None:
            facts["fine_tuning"] = dataclasses.asdict(tuning)
        chosen = published_weights.choose_weights(self.publication.weights, stages.watchers)
        if getattr(self.stage.method.encoder, "lora_rank", None):
            self.stage.method.encoder.merge_adapters()
        trained = Trained(
            method=self.stage.method,
            dataset=self.stage.dataset,
            source=self.training.data,
            facts=facts | {"selection": chosen, "configuration": identity},
            history=stages.history,
            first_history=stages.first_history,
            seconds=stages.seconds,
            seen_first=self.first and self.first.dataset.train,
        )
        return Artifact(
            trained=trained,
            evaluation=self.evaluation,
            publication=self.publication,
            folder=folder,
            configuration=self.configuration,
            verbose=self.verbose,
        )


def loaded(data: Source, quiet: bool = False) -> Dataset:
    """Load a data set, and print its summary unless `quiet`."""
    dataset = data.load()
    if not quiet:
        print(*summary.lines(dataset), sep="\n", flush=True)
    return dataset


def _built(training: TrainingSettings, dataset: Dataset, strategy: tf.distribute.Strategy, quiet: bool) -> tuple:
    """Build both stages in the strategy's scope, before either trains.

    A resumed run then draws the same initial weights.

    Args:
        training: settings of the training.
        dataset: its data, loaded.
        strategy: the run's.
        quiet: True to print no summary of the first stage's data.

    Returns:
        (stage, the first stage or None, facts on the origin of the weights).
    """
    pretrained, pretraining, seed = training.pretrained, training.pretraining, training.seed
    network = _encoder(training.encoder, strategy)
    model = training.method(encoder=network, head=training.head(class_count=dataset.class_count), seed=seed)
    parts = {"augmentation": training.augmentation, "validation": training.validation}
    refuse_other_parts(dataset, model, pretrained=pretrained, pretraining=pretraining, **parts)
    shared: tuple = (network, training.head, training.data, dataset, seed, model.head)
    first = None if pretraining is None else pretraining.stage(*shared)
    if first and first.dataset is not dataset and not quiet:
        print("first stage", *summary.lines(first.dataset), sep="\n", flush=True)
    stage = Stage(
        method=model,
        dataset=dataset,
        source=training.data,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=seed,
        callbacks=training.callbacks,
        title=f"stage 2 of 2, {type(model).__name__}" if first else "",
        frozen=None if pretraining is None else pretraining.frozen,
        **parts,
    )
    stage.build(training.optimizer())
    return stage, first, {} if pretrained is None else {"pretrained": pretrained.give(network, dataset.image_shape)}


def _encoder(encoder: Callable[..., keras.Model], strategy: tf.distribute.Strategy) -> keras.Model:
    """Build the encoder, with batch norm synchronized over the global batch if there are several replicas."""
    constructor = getattr(encoder, "func", encoder)
    synchronized = strategy.num_replicas_in_sync > 1 and "synchronized" in configured.constructor_arguments(constructor)
    network = encoder(synchronized=True) if synchronized else encoder()
    if isinstance(network, Method):
        raise InputError(f"ENCODER is {type(network).__name__}, which is a method: name a network, such as @CNN.")
    return network


def _default_workdir(name: str, identity: dict, quiet: bool) -> str:
    """Return the default workdir; unless `quiet`, print why it is not that of the name, if so."""
    workdir, note = workdirs.default_workdir(name, identity)
    if note and not quiet:
        print(note, flush=True)
    return workdir


def _announce(identity: dict, base: pathlib.Path) -> None:
    """Print, before hours of training, that the run differs from the newest version, if so."""
    differences = publication.other_configuration(identity, base)
    if differences:
        print(
            f"{base / str(publish.versions(base)[-1])} is of another training configuration ({differences[0]}): this "
            "run will not replace it as the newest version unless --publish, a gate or another NAME says so.",
            flush=True,
        )


def _say_that_it_has_trained(worker: cluster.Worker, verbose: int) -> None:
    if verbose:
        name = f"worker {worker.index} of {worker.count}"
        print(f"{name} has trained; the chief evaluates and publishes", flush=True)

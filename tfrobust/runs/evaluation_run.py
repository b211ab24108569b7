"""An evaluation run: a model file, opened together with the data, and its way to a report."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator

import keras

from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor.pixels import refuse_other_range
from tfrobust.evaluation.engine import layout, loading
from tfrobust.evaluation.engine import predictor as predictors
from tfrobust.evaluation.engine.base import Outcome, Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.evaluators.certified import CertifiedAccuracy
from tfrobust.evaluation.progress import ConsoleProgress
from tfrobust.evaluation.runner import run_evaluation, run_shard
from tfrobust.models.weights import checkpoints, weight_files
from tfrobust.report import assembly, writer
from tfrobust.report.renderers import console as render
from tfrobust.report.schema import Report
from tfrobust.runs import artifact as artifacts
from tfrobust.runs import estimate, exported_layers
from tfrobust.runs.budget import Budget
from tfrobust.runs.settings import EvaluationSettings
from tfrobust.runs.training_run import loaded
from tfrobust.security import rehearsal, saved_models
from tfrobust.security.rehearsal import Use

# Test images that the rehearsal of a model uses.
_REHEARSED = 15
# Copies of the data and outputs that evaluators may keep, and of the logits of one batch that an attack may.
_TIMES_DATA, _TIMES_LOGITS = 8, 32
_UNIT = (0.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A file or folder that holds a model, and how to read it.

    Attributes:
        path: the argument `model` of `experiment.evaluate`.
        encoder: constructor of the encoder, for weights only.
        logits_output: name of the output that holds the logits.
        signature: name of the signature.
        channels_first: True for images [b, c, h, w].
        bounds: (low, high) of the pixels.
        surrogate: path of another model, which transfer attacks search.
    """

    path: str
    encoder: Callable[..., keras.Model] | None = None
    logits_output: str | None = None
    signature: str | None = None
    channels_first: bool = False
    bounds: tuple[float, float] = _UNIT
    surrogate: str | None = None

    @property
    def is_model(self) -> bool:
        """True for a model, False for weights only."""
        return not weight_files.is_weights(self.path)

    @property
    def takes_unit_pixels(self) -> bool:
        """True if the pixels lie in [0, 1]."""
        return self.bounds == _UNIT

    @property
    def facts(self) -> dict:
        """The settings that only models of others need, as a report states them; {} without any."""
        used = {"model_bounds": list(self.bounds)} if not self.takes_unit_pixels else {}
        used |= {"channels_first": True} if self.channels_first else {}
        return used | ({"signature": self.signature} if self.signature else {})

    def check_foreign(self, earlier: Report | None) -> None:
        """Raise InputError for such a setting of a model that has a report of tfrobust, or that has no signatures."""
        flags = {"model_bounds": "--bounds", "channels_first": "--channels_first", "signature": "--signature"}
        if earlier and self.facts:
            names = " and ".join(flags[name] for name in self.facts)
            raise InputError(
                f"{self.path[-100:]} has a report of tfrobust and takes pixels in [0, 1]: leave {names} out."
            )
        if self.signature and not (self.is_model and loading.locate(self.path).is_dir()):
            raise InputError(f"{self.path[-100:]} is no SavedModel and has no signatures: leave --signature out.")

    def predictor(self, use: Use) -> predictors.Predictor:
        """Load the model, with its surrogate if any."""
        if self.channels_first:
            return layout.channels_last(dataclasses.replace(self, channels_first=False).predictor(use))
        if self.surrogate is not None:
            predictor = dataclasses.replace(self, surrogate=None).predictor(use)
            return predictor.with_surrogate(loading.load(self.surrogate, use=use))
        if self.is_model:
            return loading.load(self.path, self.logits_output, use)
        weight_files.require_readable(self.path)
        if self.encoder is None:
            raise InputError(
                f"{weight_files.display_name(self.path)} holds only weights: name the network, such as by "
                "--gin_file=gin/models/resnet18.gin. Build other networks in Keras, copy the arrays, and save a .keras."
            )
        network, matched = checkpoints.classifier(self.encoder(), self.path)
        print(f"{weight_files.display_name(self.path)}: {matched}")
        return loading.from_keras(network, self.logits_output)

    def with_data(self, data: Source | Callable[..., Source], fitting: dict, use: Use, quiet: bool) -> tuple:
        """Load the data first, whose examples the rehearsal of the model uses, unless the model defines their shape.

        Args:
            data: the source, or a constructor that is called with the model's input shape.
            fitting: further arguments of such a constructor.
            use: how the model will be called.
            quiet: True to print no summary of the data.

        Returns:
            (predictor, source, dataset).
        """
        predictor = None
        if self.is_model:
            loading.locate(self.path)  # raises before the data are loaded
        if callable(data):
            predictor = self.predictor(use)
            data = data(image_shape=_input_shape(predictor), **fitting)
        dataset = loaded(data, quiet)
        examples = dataset.test.arrays(_REHEARSED)[0]
        if not self.takes_unit_pixels:
            low, high = self.bounds
            examples = low + (high - low) * examples
        use = dataclasses.replace(use, examples=examples)
        if predictor is None:
            return self.predictor(use), data, dataset
        if self.is_model:
            loading.rehearse(self.path, use, self.logits_output)
        return predictor, data, dataset

    def limited(self, use: Use, predictor: predictors.Predictor) -> contextlib.AbstractContextManager:
        """Limit the memory of this process during an evaluation, to what the file, the data and the outputs explain.

        Raises:
            InputError: its outputs alone would take more.
        """
        if not self.is_model:
            return contextlib.nullcontext()  # the code is that of tfrobust
        directory = loading.locate(self.path)
        growth = rehearsal.memory_limit(directory, use)
        logits = 4 * predictor.class_count * min(use.batch_size, len(use.examples))
        if _TIMES_LOGITS * logits > growth:
            raise InputError(
                f"{predictor.name} has {predictor.class_count} classes, whose logits of one batch take {logits} bytes, "
                "too much for the memory that it may take: set a smaller evaluate.batch_size."
            )
        outputs = 4 * predictor.class_count * len(use.examples)
        return rehearsal.limited(directory, use, _TIMES_DATA * (use.examples.nbytes + outputs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationRun:
    """A model and the data to evaluate it on, both loaded and checked.

    Attributes:
        file: the model's file.
        evaluation: what is measured.
        earlier: the report inside the model's export, or None.
        earlier_training: its entries on the training, {} without.
        predictor: the model.
        source: source of the data.
        dataset: the data; the test split is evaluated.
        use: how the model is called.
    """

    file: ModelFile
    evaluation: EvaluationSettings
    earlier: Report | None
    earlier_training: dict
    predictor: predictors.Predictor
    source: Source
    dataset: Dataset
    use: Use

    @classmethod
    def build(
        cls,
        file: ModelFile,
        evaluation: EvaluationSettings,
        data: Source | Callable[..., Source] | None,
        batch_size: int,
        quiet: bool = False,
    ) -> EvaluationRun:
        """Load data and model.

        Args:
            file: the model's file.
            evaluation: what is measured.
            data: as for `experiment.evaluate`.
            batch_size: images per call.
            quiet: True to print no summary of the data.

        Raises:
            InputError: model or data cannot be read, or they do not fit each other.
        """
        earlier = artifacts.earlier_report(file.path)
        file.check_foreign(earlier)
        earlier_training = artifacts.known_training(file.path, earlier)
        naming = None
        if data is None:
            naming = earlier or (file.surrogate and artifacts.earlier_report(file.surrogate))
            data = artifacts.named_source(file.path, naming)
        gradient_batch = batch_size if evaluation.has_attacks else predictors.GRADIENT_PROBES
        use = Use(batch_size=batch_size, gradient_batch=gradient_batch)
        use = dataclasses.replace(use, signature=file.signature or use.signature)
        with artifacts.named_by(naming, file.path):
            predictor, source, dataset = file.with_data(data, artifacts.fitting(earlier), use, quiet)
        evaluation = evaluation.on(dataset)
        if any(isinstance(evaluator, CertifiedAccuracy) for evaluator in evaluation.evaluators):
            predictor = exported_layers.with_layers(predictor, earlier)
        predictor = predictor.on_unit_pixels(*file.bounds)
        artifacts.check_vocabulary(file.path, dataset)
        artifacts.check_classes(earlier, dataset)
        opened = {"predictor": predictor, "source": source, "dataset": dataset, "use": use}
        return cls(file=file, evaluation=evaluation, earlier=earlier, earlier_training=earlier_training, **opened)

    @contextlib.contextmanager
    def setting(self, *, seed: int | None, chunk_size: int, votes: tuple[int, int], verbose: int) -> Iterator[Setting]:
        """Yield the setting of the evaluation, within the limits of the model's memory and time.

        Args:
            seed: of the attacks; None takes that of the earlier report, or else 0.
            chunk_size: images per chunk of an attack.
            votes: as for `Setting`.
            verbose: as for `ConsoleProgress`.
        """
        images, labels = self.dataset.test.arrays()
        use, dataset, predictor = dataclasses.replace(self.use, examples=images), self.dataset, self.predictor
        limited = self.file.limited(use, predictor)
        with saved_models.answering(predictor.name), limited, ConsoleProgress(verbose) as progress:
            yield Setting(
                predictor=predictor,
                images=images,
                labels=labels,
                class_names=dataset.class_names if dataset.class_count == predictor.class_count else None,
                strengths=dataset.test.strengths,
                groups=dataset.test.groups,
                vocabulary=dataset.vocabulary,
                seed=int(self.earlier_training.get("seed", 0)) if seed is None else seed,
                batch_size=use.batch_size,
                chunk_size=chunk_size,
                votes=votes,
                limit=self.evaluation.attacked_examples,
                progress=progress,
                **artifacts.training_facts(self.earlier_training, dataset, self.evaluation.evaluators),
            )

    def check_range(self, setting: Setting) -> None:
        """Refuse pixels in another range than [0, 1], if no report says what the model takes."""
        if self.earlier is None and self.file.takes_unit_pixels:
            refuse_other_range(setting)

    def show_estimate(self, setting: Setting, budget: Budget | None) -> None:
        """Print the cost of the attacks."""
        estimate.show_evaluation(self.evaluation, self.dataset, estimate.seconds_per_pass(setting), budget)

    def evaluate_shard(self, setting: Setting, shard: tuple[int, int], cache: pathlib.Path | None) -> None:
        """Compute one share of the attacks, and keep it in the cache.

        Raises:
            InputError: there is no cache.
        """
        if cache is None:
            raise InputError("a shard keeps its results in --output, the same for all shards; it is missing.")
        count = run_shard(self.evaluation.evaluators, setting, Shard(*shard), cache_directory=cache)
        print(f"shard {shard[0]} of {shard[1]} is done: {count} images attacked; when all are, run without --shard")

    def evaluate(self, setting: Setting, cache: pathlib.Path | None) -> tuple[Outcome, float]:
        """Run the evaluators; return their outcome and the seconds that they took."""
        began = time.monotonic()
        outcome = run_evaluation(self.evaluation.evaluators, setting, cache_directory=cache)
        return outcome, time.monotonic() - began

    def report(self, outcome: Outcome, setting: Setting, seconds: float, configuration: str) -> Report:
        """Return the report of an outcome."""
        evaluation, taken = self.evaluation, self.file.facts
        identifying = taken | {"seed": setting.seed} | evaluation.identity | setting.vote_settings
        weights = self.predictor.weights_sha256
        return assembly.make_report(
            **artifacts.assembly_arguments(outcome),
            model=self._model_facts(),
            data=artifacts.data_facts(self.dataset, self.source),
            run_sha256=artifacts.run_sha256(weights, self.dataset, evaluation.evaluators, identifying),
            configuration=configuration,
            training={**self.earlier_training, **taken, "evaluation_seed": setting.seed},
            history={},
            cost={"evaluation_seconds": seconds},
        )

    def _model_facts(self) -> dict:
        named = self.earlier.model if self.earlier else {"name": pathlib.Path(self.file.path).stem, "version": None}
        facts = {name: named[name] for name in ("name", "version")}
        return facts | {"weights_sha256": self.predictor.weights_sha256, "parameters": self.predictor.parameters}

    def write(self, report: Report, output: str | None) -> None:
        """Print the report's table, and write the report if there is an output folder."""
        paths = writer.write_report(report, output) if output else ()
        print(render.console_table(report))
        for path in paths:
            if path.suffix == ".html":
                print(f"report      {path}")


def _input_shape(predictor: predictors.Predictor) -> tuple[int, int, int]:
    if predictor.is_text:
        raise InputError(f"{predictor.name} takes text, and --data names images: set evaluate.data in gin instead.")
    if None in predictor.image_shape:
        raise InputError(
            f"{predictor.name} takes images of any size, so that a folder does not define how to read its images: "
            "set evaluate.data = @ImageFolder() with ImageFolder.path and ImageFolder.image_shape, without --data."
        )
    return tuple(int(size) for size in predictor.image_shape)

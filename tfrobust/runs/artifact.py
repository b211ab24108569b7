"""Publication of a trained method: staging, evaluation, report, gate, verification."""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tfrobust.common import configured, files, fingerprint
from tfrobust.common.console import PLAIN_INTERVAL, Heartbeat
from tfrobust.common.kinds import CLIPS
from tfrobust.data.checks import DataNotFoundError
from tfrobust.data.description import described_source, placed, relative_paths
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset, Examples
from tfrobust.errors import Failure, InputError, RefusedByGate
from tfrobust.evaluation.engine import loading
from tfrobust.evaluation.engine.base import Outcome, Setting
from tfrobust.evaluation.progress import ConsoleProgress
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.methods.shared.method import Method
from tfrobust.report import assembly, writer
from tfrobust.report.renderers import console as render
from tfrobust.report.renderers import html, markdown
from tfrobust.report.schema import Report
from tfrobust.report.validator import first_problem
from tfrobust.runs import publication
from tfrobust.runs import workdir as workdirs
from tfrobust.runs.publication import earlier_report
from tfrobust.runs.settings import EvaluationSettings, PublicationSettings
from tfrobust.serving.export import assets, publish, verify
from tfrobust.serving.export import saved_model as export
from tfrobust.serving.export.smoothed import ServedSmoothing

_log = logging.getLogger(__name__)

# Maximum size in bytes of the training images, as float32, that are held during an evaluation.
_TRAINING_BYTES = 2**30
# Arguments of `ImageFolder` by which the images of another folder are read as those of the training.
_READING = ("fit", "short_side", "interpolation", "groups")
# The entries of a report about the training that a later evaluation uses, as JSON Schema.
_USED_OF_TRAINING = {
    "type": "object",
    "properties": {
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "norm": {"type": ["string", "null"]},
        "epsilon": {"type": ["number", "null"], "minimum": 0},
        "attack_steps": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1},
        "per_frame": {"type": "boolean"},
        "max_frames": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1},
        "selection": {"type": "object", "properties": {"on": {"type": "string"}}},
        "pretraining": {"type": "object"},
        "fine_tuning": {
            "type": "object",
            "required": ["origin", "elsewhere", "frozen", "ramped", "epochs", "trades", "batch_normalized"],
            "properties": {
                "origin": {"enum": ["adversarial", "plain", "unknown"]},
                "epochs": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
                **{
                    name: {"type": "boolean"}
                    for name in ("elsewhere", "frozen", "ramped", "trades", "batch_normalized")
                },
            },
            "additionalProperties": False,
        },
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained method, and what the report says about its training.

    Attributes:
        method: trained.
        dataset: the examples; the test split is evaluated.
        source: source of `dataset`.
        facts: `Report.training`.
        history: of the training, column by log name.
        seconds: duration of all stages.
        first_history: of the first of two stages, or None.
        seen_first: training split of the first of two stages, or None.
    """

    method: Method
    dataset: Dataset
    source: Source
    facts: dict
    history: dict
    seconds: float
    first_history: dict | None = None
    seen_first: Examples | None = None

    @property
    def parameters(self) -> int:
        """Number of parameters of encoder and head."""
        return int(self.method.encoder.count_params() + self.method.head.count_params())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """A trained method to be published: staged, evaluated, reported, verified, published.

    Attributes:
        trained: the method.
        evaluation: what is measured.
        publication: what is published, where, and under which conditions.
        folder: the workdir.
        configuration: returns the operative configuration as text.
        verbose: as for `ConsoleProgress`.
    """

    trained: Trained
    evaluation: EvaluationSettings
    publication: PublicationSettings
    folder: pathlib.Path
    configuration: Callable[[], str]
    verbose: int = 1

    def publish(self) -> Report:
        """Evaluate, report, check and publish the model; steps that a previous run completed are not repeated.

        Raises:
            RefusedByGate: the report misses a requirement, or the version would replace one that it differs from or is
                worse than, without a decision; nothing was published.
            Failure: the exported model failed its verification.
        """
        dataset, smoothing, parts = self.trained.dataset, self.publication.smoothing, self._parts()
        staged, final = self.folder / "staged", self.folder / publication.FINAL
        with self._heartbeat("staging the SavedModel"):
            weights = assets.assemble(staged, **parts)
        identifying = self.trained.facts["configuration"] | self.evaluation.identity
        # Without the version and the report: a process that was killed and started again computes the same, and finds
        # its claim of a number, or its published version, under it.
        run = run_sha256(weights, dataset, self.evaluation.evaluators, identifying, smoothing)
        base, owner = self.publication.base, workdirs.owner(self.folder)
        number = publish.claim(base, owner, self.publication.version, run=run)
        if publish.is_published(base, number, owner, run=run):
            report = earlier_report(base / str(number))
            if report is None:
                raise InputError(f"{base / str(number)} has lost its report: withdraw it, then run again.")
            self._check_gate(report, "it was published before, when less was required", published=True)
            return self._finish(report, base, run, "published by this run before")
        with publish.holding(base, number, owner):
            report = self._report(staged, weights, number, run)
            self._check_gate(report, "nothing was published", published=False)
            with publish.one_at_a_time(base):
                # A higher one if another version was published during the evaluation.
                number = publish.claim(base, owner, self.publication.version, run=run)
                with publish.holding(base, number, owner):
                    reasons = [] if self.publication.replaces else publication.objections(report, base)
                    report = _as_version(report, None if reasons else number)
                    texts = {"report_html": html.render(report), "report_markdown": markdown.render(report)}
                    with self._heartbeat("writing and verifying the SavedModel"):
                        assets.assemble(final, **parts, **texts, report_json=report.to_json(), evaluated=staged)
                        result = verify.verify(final)
                    if not result.passed:
                        raise Failure(f"The model was not published: {result.problems[0]}")
                    if reasons:  # after the verification: the command `publish` then only has to copy the folder
                        self._hold_back(report, base, reasons)
                    before = publication.newest_line(base)  # the newest one until the next line
                    publish.publish(final, base, number, owner, run=run)
        self._finish(report, base, run)
        if before:
            print(f"before      {before}")
        return report

    def _heartbeat(self, task: str) -> Heartbeat:
        return Heartbeat(task, PLAIN_INTERVAL / 2 if self.verbose else None)

    def _hold_back(self, report: Report, base: pathlib.Path, reasons: list[str]) -> None:
        """Keep a verified model in the workdir, and raise."""
        writer.write_report(report, self.folder)
        print(render.console_table(report, short=True))
        newest = publication.newest_line(base)
        print(
            f"newest      {newest or f'none in {base}'}", *(f"not published: {reason}" for reason in reasons), sep="\n"
        )
        elsewhere = "" if base.parent == pathlib.Path("exported") else f" --export_dir={base.parent}"
        remedy = f"{reasons[0][:110]}: to publish it, python -m tfrobust publish {self.folder}{elsewhere}"
        raise RefusedByGate(f"not published beside the newest version: {remedy}")

    def _check_gate(self, report: Report, consequence: str, *, published: bool) -> None:
        """Write and print the report of a model that misses a requirement, and raise."""
        failures = self.publication.gate.failures(report)
        if not failures:
            return
        if not published:  # an earlier run may have left a model that the command `publish` would publish
            shutil.rmtree(self.folder / publication.FINAL, ignore_errors=True)
            report = _as_version(report, None)
        writer.write_report(report, self.folder)
        print(render.console_table(report, short=True), *(f"gate: {failure}" for failure in failures), sep="\n")
        count = f"{len(failures)} requirement{'s' if len(failures) > 1 else ''}"
        raise RefusedByGate(f"the model misses {count}; {consequence}, its report lies in {self.folder}")

    def _finish(self, report: Report, base: pathlib.Path, run: str, note: str = "") -> Report:
        """Write the record and the report of a published version; repeated by a run that was killed before."""
        number = report.model["version"]
        publication.record_published(self.folder, base, number, run)
        writer.write_report(report, self.folder)
        print_result(report, base / str(number), note)
        return report

    def _parts(self) -> dict:
        """Return the parts of a SavedModel, as arguments of `assets.assemble`."""
        dataset = self.trained.dataset
        return dict(
            encoder=self.trained.method.encoder,
            head=self.trained.method.head,
            image_shape=dataset.image_shape,
            class_names=dataset.class_names,
            name=self.publication.name,
            fit=dataset.test.fit,
            interpolation=dataset.test.interpolation,
            vocabulary=dataset.vocabulary,
            smoothing=self.publication.smoothing,
        )

    def _report(self, staged: pathlib.Path, weights: str, number: int, run: str) -> Report:
        """Evaluate the staged model, and return its report as version `number`."""
        trained, outcome, seconds = self.trained, *self._evaluate(staged)
        model = {"name": self.publication.name, "version": number, "weights_sha256": weights}
        return assembly.make_report(
            **assembly_arguments(outcome),
            model=model | {"parameters": trained.parameters},
            data=data_facts(trained.dataset, trained.source),
            run_sha256=run,
            configuration=self.configuration(),
            training=trained.facts,
            history=trained.history,
            first_history=trained.first_history,
            cost={"training_seconds": trained.seconds, "evaluation_seconds": seconds},
        )

    def _evaluate(self, staged: pathlib.Path) -> tuple[Outcome, float]:
        trained, dataset, evaluators = self.trained, self.trained.dataset, self.evaluation.evaluators
        images, labels = dataset.test.arrays()
        with ConsoleProgress(self.verbose) as progress:
            setting = Setting(
                # A SavedModel has no layers. Bounds use those of the method, and check that the outputs are the same.
                predictor=dataclasses.replace(
                    loading.from_saved_model(str(staged)), **loading.network_of(trained.method)
                ),
                images=images,
                labels=labels,
                class_names=dataset.class_names,
                seed=trained.facts["seed"],
                progress=progress,
                strengths=dataset.test.strengths,
                groups=dataset.test.groups,
                vocabulary=dataset.vocabulary,
                limit=self.evaluation.attacked_examples,
                **training_facts(trained.facts, dataset, evaluators, trained.seen_first),
            )
            started = time.monotonic()
            outcome = run_evaluation(evaluators, setting, cache_directory=str(self.folder / "evaluation"))
        return outcome, time.monotonic() - started


def _as_version(report: Report, version: int | None) -> Report:
    """Return the report of a model with another version; None for one that is not published."""
    return dataclasses.replace(report, model=report.model | {"version": version})


def described(value) -> dict:
    """Serialize a part without what differs between processes."""
    return workdirs.canonical(configured.serialize(value))


def run_sha256(
    weights: str | None, dataset: Dataset, evaluators: tuple, training: dict, smoothing: ServedSmoothing | None = None
) -> str:
    """Hash what identifies an evaluated run: weights, data, training, evaluation, and a smoothed endpoint if any."""
    evaluation = [described(evaluator) for evaluator in evaluators]
    parts = {"weights": weights, "data": dataset.fingerprint, "training": training, "evaluation": evaluation}
    if smoothing is not None:
        parts["smoothing"] = described(smoothing)
    return fingerprint.json_sha256(parts)


def training_facts(facts: dict, dataset: Dataset, evaluators: tuple, first: Examples | None = None) -> dict:
    """Return what is known about a model's training, as arguments of `Setting`; splits only if an evaluator uses them.

    Args:
        facts: `Report.training`, or {} for a model that tfrobust did not train.
        dataset: its training and validation splits; a model that tfrobust did not train may have been trained on the
            former, too.
        evaluators: the evaluators to run.
        first: training examples of a first stage; None loads them again from the source in `facts`.
    """
    images = labels = None
    needed = any(evaluator.uses_training for evaluator in evaluators)
    if len(dataset.train) and needed:
        images, labels = dataset.train.arrays(max(1, _TRAINING_BYTES // (4 * math.prod(dataset.image_shape))))
    attack = None
    if all(facts.get(name) for name in ("attack_steps", "norm", "epsilon")):
        attack = {"norm": facts["norm"], "epsilon": facts["epsilon"], "steps": facts["attack_steps"]}
        attack |= {name: facts[name] for name in ("bounds", "per_frame", "max_frames") if name in facts}
    selected_on = facts.get("selection", {}).get("on", "")
    entries = {"train_images": images, "train_labels": labels, "training_attack": attack, "selected_on": selected_on}
    entries["fine_tuning"] = facts.get("fine_tuning")
    if len(dataset.train):
        entries["train_counts"] = np.bincount(dataset.train.labels, minlength=dataset.class_count)
    if len(dataset.validation) and any(evaluator.uses_validation for evaluator in evaluators):
        entries["validation_images"], entries["validation_labels"] = dataset.validation.arrays()
    first = (first or _pretraining_examples(facts)) if needed else None
    if first is not None and first.fingerprint != dataset.train.fingerprint:
        entries["pretraining_examples"] = first
    return entries


def _pretraining_examples(facts: dict) -> Examples | None:
    """Return the training examples of a first stage with its own data; None without one or if loading fails."""
    first = facts.get("pretraining")
    described = first.get("source") if isinstance(first, dict) else None
    if described is None:
        return None
    try:
        return described_source(described).load().train
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:100]
        _log.warning("The first stage's images are not searched for test images: %s", reason)
        return None


def data_facts(dataset: Dataset, source: Source) -> dict:
    """Return the report's entries about the data, which suffice to load them again."""
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "test_fingerprint": dataset.test.fingerprint,
        **{f"{split}_size": size for split, size in dataset.sizes.items()},
        "source": configured.serialize(source),
        "class_names": list(dataset.class_names),
        **({"folder": os.getcwd()} if relative_paths(source) else {}),
        **({"note": dataset.note} if dataset.note else {}),
        **({"vocabulary_size": len(dataset.vocabulary)} if dataset.is_text else {}),
        **({"kind": dataset.kind.name} if dataset.kind is CLIPS else {}),
    }


def assembly_arguments(outcome: Outcome) -> dict:
    """Return an evaluation's outcome as arguments of `report.assembly.make_report`."""
    return {
        "measurements": outcome.measurements,
        "series": outcome.series,
        "findings": outcome.findings,
        "devices": sorted({device.device_type for device in tf.config.list_physical_devices()}),
    }


def known_training(model: str, report: Report | None) -> dict:
    """Return what an export's report says about the training, {} without a report.

    Raises:
        InputError (a ValueError): an entry that an evaluation uses has another type or range.
    """
    facts = report.training if report else {}
    problem = first_problem(facts, _USED_OF_TRAINING, "training")
    if problem:
        raise InputError(f"the report of {model[-60:]} is not valid: {problem}")
    return facts


def named_source(model: str, report: Report | None) -> Source:
    """Return the data source that an export's report names, with downloads disabled.

    Raises:
        FileNotFoundError: there is no model.
        InputError (a ValueError): the folder holds no model, or the report names no source, or not a valid one.
    """
    if report is None or not report.data.get("source"):
        if not os.path.isfile(model):
            loading.locate(model)
        raise InputError(f"{model} names no data of its own: name the data to evaluate it on with --data.")
    try:
        return placed(described_source(report.data["source"]), report.data.get("folder"))
    except InputError as error:
        raise InputError(
            f"the report of {model[-60:]} names data that cannot be loaded ({str(error)[:170]}), or use --data."
        ) from error


@contextlib.contextmanager
def named_by(report: Report | None, model: str) -> Iterator[None]:
    """Raise for data that are missing with the report that names them, and the folder that it names them from."""
    try:
        yield
    except DataNotFoundError as error:
        if report is None:
            raise
        origin = report.data.get("folder")
        origin = f", seen from {origin[-70:]}" if isinstance(origin, str) and origin.isprintable() else ""
        fault = f"{str(error)[:110]} The report of {model[-50:]} names it{origin}"
        raise InputError(f"{fault}: run there, or name the data by --data.") from error


def fitting(report: Report | None) -> dict:
    """Return how the images of an export were read from their folder, as arguments of `ImageFolder`."""
    described = report.data.get("source") if report else None
    if not described:
        return {}
    try:
        source = described_source(described)
    except InputError:  # a source of the user's own, which knows no fit
        return {}
    while not hasattr(source, "fit") and hasattr(source, "source"):  # a part of another source, or its mixture
        source = source.source
    return {name: getattr(source, name) for name in _READING if hasattr(source, name)}


def check_vocabulary(model: str, dataset: Dataset) -> None:
    """Raise InputError if the token ids of a text dataset mean other words than those of an export."""
    path = pathlib.Path(model)
    vocabulary = export.read_vocabulary(files.model_directory(path)) if path.is_dir() else ()
    if not vocabulary or not dataset.is_text or vocabulary == dataset.vocabulary:
        return
    if len(vocabulary) != len(dataset.vocabulary):
        fault = f"there are {len(dataset.vocabulary)} words, not {len(vocabulary)}"
    else:
        identity = next(
            i for i, pair in enumerate(zip(vocabulary, dataset.vocabulary, strict=True)) if len(set(pair)) > 1
        )
        fault = f"the id {identity} is {dataset.vocabulary[identity]!r} there and {vocabulary[identity]!r} here"
    raise InputError(
        f"{dataset.name} has another vocabulary than {model}: {fault}. Give the tokenizer the export's own "
        "assets.extra/vocabulary.txt."
    )


def check_classes(report: Report | None, dataset: Dataset) -> None:
    """Raise InputError if a class has another id in a dataset than in an export, as in a folder of some classes.

    A class that the export does not have is refused beside others that it has. Names of which it has none are taken to
    be other names of its classes, in its order.
    """
    class_names = tuple(report.data.get("class_names") or ()) if report else ()
    ids = tuple(map(str, range(dataset.class_count)))
    unnamed = dataset.class_names == ids
    # Ids without names agree with any names but those of a model whose folders are named 0, 1, 10, 11, 2, ...
    if unnamed and not set(ids) <= set(class_names):
        return
    remedy = "Save its labels as texts, the names" if unnamed else "Give examples of each"
    for identity, (here, there) in enumerate(zip(dataset.class_names, class_names, strict=False)):
        if here != there and here in class_names:
            raise InputError(
                f"{dataset.name}: class {identity} is {here!r} here and {there!r} in the model, so that the labels "
                f"would mean other classes. {remedy} of its classes: {', '.join(class_names)}."
            )
    unknown = [name for name in dataset.class_names if name not in class_names]
    if 0 < len(unknown) < dataset.class_count:
        raise InputError(
            f"{dataset.name}: the model has no class {unknown[0]!r}, whose examples would count as those of another. "
            f"Leave them out, or give the class its name in the model: {', '.join(class_names)}."
        )


def print_result(report: Report, directory: pathlib.Path, note: str = "") -> None:
    """Print the table of a report, and the paths of the model and the report."""
    print(render.console_table(report, short=True))
    print(f"SavedModel  {directory}" + (f"  ({note})" if note else ""))
    print(f"report      {directory / assets.HTML_FILE}")

"""The root: builds, trains, stages, evaluates, reports, publishes. The commands call these functions, gin fills them."""

import dataclasses
import os
import pathlib
import platform
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.augment.base import Augmentation
from tfrobust.data import pipeline
from tfrobust.data.sources.base import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation import predictor as predictors
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.methods.base import Method
from tfrobust.models.heads import LinearHead
from tfrobust.ops import configured, files, fingerprint
from tfrobust.report import assembly, compare, render, writer
from tfrobust.report.schema import Report
from tfrobust.serving import assets, publish, verify
from tfrobust.training import callbacks as own_callbacks
from tfrobust.training import strategy as strategies
from tfrobust.training import workdir as workdirs
from tfrobust.training.loop import Loop
from tfrobust.training.progress import ConsoleProgress

PUBLISHED_WEIGHTS = ("last", "best", "averaged")


def train(
    *,
    name: str,
    method: Callable[..., Method],
    encoder: Callable[..., keras.Model],
    optimizer: Callable[..., keras.optimizers.Optimizer],
    data: Source,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    strategy: str = "auto",
    head: Callable[..., keras.layers.Layer] = LinearHead,
    augmentation: Augmentation | None = None,
    validation: Callable[..., keras.callbacks.Callback] | None = None,
    callbacks: tuple = (),
    evaluators: tuple = (),
    publish_weights: str = "last",
    jit_compile: bool | str = "auto",
    deterministic: bool | str = "auto",
    checkpoint_seconds: float = 15.0,
    workdir: str,
    export_dir: str = "exported",
    version: int | None = None,
    profile: int = 0,
    dry_run: bool = False,
    training_must_be_done: bool = False,
    configuration: Callable[[], str] = lambda: "",
) -> Report | None:
    """Trains a model, judges the SavedModel made of it, and publishes that with its report. Running again resumes.

    Args:
        name: of the model, and of its folder in `export_dir`.
        method: constructor of a method, called as method(encoder=, head=, seed=) inside the strategy's scope.
        encoder: constructor of an encoder.
        optimizer: constructor of a Keras optimizer.
        data: where the examples come from.
        epochs: >= 1.
        batch_size: of the global batch, >= 1; at most the number of training examples.
        seed: where initial weights and every draw start from.
        strategy: 'auto', 'one_device', 'mirrored', 'multi_worker' or 'tpu'.
        head: constructor of the classifier, called as head(class_count=).
        augmentation: of the training images, or None.
        validation: constructor of a callback, called as validation(images=, labels=) with the validation split.
        callbacks: further Keras callbacks.
        evaluators: what is measured on the test split of the staged SavedModel.
        publish_weights: "last", "best" (by validation robust accuracy) or "averaged" (by an AveragedWeights).
        jit_compile, deterministic: True, False or "auto" (see `training.strategy`).
        checkpoint_seconds: between two checkpoints.
        workdir: holds checkpoints, logs, the staged model, cached evaluations and the report.
        export_dir: where `<name>/<version>` is published.
        version: an explicit version; None takes the next one.
        profile: steps to trace for TensorBoard, 0 for none.
        dry_run: print the configuration and an estimate, and stop.
        training_must_be_done: refuse a workdir whose training is not finished (the command `export`).
        configuration: the operative configuration as text, asked for after everything was built.

    Returns:
        The report; None after a dry run.

    Raises:
        InputError (a ValueError): wrong input or configuration, or a workdir of another training configuration.
    """
    _check_numbers(epochs=epochs, batch_size=batch_size)
    if publish_weights not in PUBLISHED_WEIGHTS:
        raise InputError(f"publish_weights is {publish_weights!r}; it is one of {list(PUBLISHED_WEIGHTS)}.")
    strategies.set_determinism(deterministic)
    keras.utils.set_random_seed(seed)
    dataset = data.load()
    steps_per_epoch = pipeline.steps_per_epoch(dataset.train, batch_size)
    chosen_strategy = strategies.make_strategy(strategy)
    with chosen_strategy.scope():
        model = method(encoder=encoder(), head=head(class_count=dataset.class_count), seed=seed)
        model.build((None, *dataset.image_shape))
        model.compile(
            optimizer=optimizer(),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            jit_compile=False,  # the loop compiles the step itself where that pays
        )
    if dry_run:
        _print_estimate(configuration(), model, epochs * steps_per_epoch, steps_per_epoch)
        return None
    described = {
        "method": model,
        "optimizer": model.optimizer,
        "data": data,
        "augmentation": augmentation,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
    }
    training = workdirs.canonical(configured.serialize(described)) | {"data_fingerprint": dataset.fingerprint}
    folder = workdirs.open_workdir(workdir, training, must_exist=training_must_be_done)
    watchers = _callbacks(folder, dataset, validation, callbacks, publish_weights)
    loop = Loop(
        method=model,
        strategy=chosen_strategy,
        batches=lambda step: pipeline.training_batches(
            dataset.train, batch_size=batch_size, seed=seed, augmentation=augmentation, start_step=step
        ),
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        checkpoint_directory=str(folder / "checkpoints"),
        callbacks=watchers,
        checkpoint_seconds=checkpoint_seconds,
        jit_compile=strategies.use_xla(jit_compile, chosen_strategy),
        profile_steps=profile,
        profile_directory=str(folder / "logs"),
        finished_only=training_must_be_done,
    )
    files.write_atomically(folder / workdirs.CONFIGURATION_FILE, configuration())
    history = loop.run()
    selection = _choose_weights(publish_weights, watchers)
    facts = {
        "method": type(model).__name__,
        "seed": seed,
        "epochs": epochs,
        "batch_size": batch_size,
        "selection": selection,
        **_adversary_facts(model),
        "configuration": training,
        "history": history,
        "seconds": loop.seconds,
    }
    artefact = _Artefact(model, dataset, configured.serialize(data), evaluators, folder, facts, configuration, seed)
    return artefact.publish(name, export_dir, version)


@dataclasses.dataclass
class _Artefact:
    """A trained method on its way out: staged, judged, reported, published, verified."""

    method: Method
    dataset: Dataset
    source: dict
    evaluators: tuple
    folder: pathlib.Path
    facts: dict
    configuration: Callable[[], str]
    seed: int

    def publish(self, name: str, export_dir: str, version: int | None) -> Report:
        """Everything after training; each part is found done or done again, whole."""
        parts = dict(
            encoder=self.method.encoder,
            head=self.method.head,
            image_shape=self.dataset.image_shape,
            class_names=self.dataset.class_names,
            name=name,
        )
        staged, final = self.folder / "staged", self.folder / "final"
        weights = assets.assemble(staged, **parts)
        evaluation = [workdirs.canonical(configured.serialize(evaluator)) for evaluator in self.evaluators]
        run = fingerprint.json_sha256(
            {"weights": weights, "training": self.facts["configuration"], "evaluation": evaluation, "seed": self.seed}
        )
        base, owner = pathlib.Path(export_dir, name), (self.folder / workdirs.OWNER_FILE).read_text()
        number = publish.claim(base, owner, version, run=run)
        if publish.is_published(base, number, owner, run=run):
            report = Report.from_json((base / str(number) / "assets.extra" / "robustness_report.json").read_text())
            _print_result(report, base / str(number), note="published before by this run; nothing to do.")
            return report
        outcome, seconds = self._judge(staged)
        report = self._report(outcome, {"name": name, "version": number, "weights_sha256": weights}, run, seconds)
        texts = {"report_json": report.to_json(), "report_html": render.html(report)}
        assets.assemble(final, **parts, **texts, report_markdown=render.markdown(report), judged=staged)
        result = verify.verify(final)
        if not result.passed:
            raise RuntimeError(f"The model was not published: {result.problems[0]}")
        directory = publish.publish(final, base, number, owner, run=run)
        publish.write_record(self.folder, {"base": str(base), "version": number, "run": run})
        writer.write_report(report, self.folder)
        _print_result(report, directory)
        return report

    def _judge(self, staged: pathlib.Path) -> tuple[Outcome, float]:
        images, labels = self.dataset.test.arrays()
        setting = Setting(
            predictor=predictors.from_saved_model(str(staged)),
            images=images,
            labels=labels,
            class_names=self.dataset.class_names,
            seed=self.seed,
            progress=ConsoleProgress(),
            selected_on=self.facts["selection"]["on"],
        )
        started = time.monotonic()
        outcome = run_evaluation(self.evaluators, setting, cache_directory=str(self.folder / "evaluation"))
        return outcome, time.monotonic() - started

    def _report(self, outcome: Outcome, model: dict, run: str, seconds: float) -> Report:
        facts = dict(self.facts)
        history = facts.pop("history")
        return assembly.make_report(
            measurements=outcome.measurements,
            series=outcome.series,
            findings=outcome.findings,
            environment=_environment(),
            model=model | {"parameters": int(self.method.encoder.count_params() + self.method.head.count_params())},
            data=_data_facts(self.dataset, self.source),
            run_sha256=run,
            configuration=self.configuration(),
            training=facts,
            history=history,
            cost={"training_seconds": facts.pop("seconds"), "evaluation_seconds": seconds},
        )


def evaluate(
    *,
    model: str,
    evaluators: tuple,
    data: Source | None = None,
    seed: int = 0,
    logits_output: str | None = None,
    batch_size: int = 128,
    output: str | None = None,
    configuration: Callable[[], str] = lambda: "",
) -> Report:
    """Judges any model: an export of ours, somebody else's SavedModel, a plain `.keras` file.

    Args:
        model: a SavedModel folder, a folder of its versions, or a `.keras` file.
        evaluators: what is measured.
        data: the test split of this source; None takes the data and split that the export's report names.
        seed: of the attacks; 0 takes the seed that the export's own report was made with.
        logits_output: which output of a foreign SavedModel holds the logits.
        batch_size: images per call.
        output: a folder that receives `robustness_report.json`, `.html` and `.md`; None writes nothing.
        configuration: the operative configuration as text.

    Returns:
        The report, printed as a table.

    Raises:
        InputError (a ValueError): the model cannot be read, or data are missing or do not fit it.
    """
    predictor = predictors.load(model, logits_output)
    earlier = _earlier_report(model)
    if data is None:
        if earlier is None or not earlier.data.get("source"):
            raise InputError(f"{model} names no data of its own: say what to judge it on with --data.")
        data = configured.deserialize(earlier.data["source"])
    dataset = data.load()
    images, labels = dataset.test.arrays()
    known = earlier.training if earlier else {}
    setting = Setting(
        predictor=predictor,
        images=images,
        labels=labels,
        class_names=dataset.class_names if dataset.class_count == predictor.class_count else None,
        seed=seed or known.get("seed", 0),
        batch_size=batch_size,
        progress=ConsoleProgress(),
        selected_on=known.get("selection", {}).get("on", ""),
    )
    started = time.monotonic()
    outcome = run_evaluation(evaluators, setting)
    report = assembly.make_report(
        measurements=outcome.measurements,
        series=outcome.series,
        findings=outcome.findings,
        environment=_environment(),
        model={
            "name": earlier.model["name"] if earlier else pathlib.Path(model).stem,
            "version": earlier.model["version"] if earlier else None,
            "weights_sha256": predictor.weights_sha256,
            "parameters": predictor.parameters,
        },
        data=_data_facts(dataset, configured.serialize(data)),
        run_sha256=fingerprint.json_sha256(
            {
                "weights": predictor.weights_sha256,
                "data": dataset.fingerprint,
                "evaluation": [workdirs.canonical(configured.serialize(evaluator)) for evaluator in evaluators],
                "seed": setting.seed,
            }
        ),
        configuration=configuration(),
        training={name: value for name, value in known.items() if name != "configuration"},
        history={},
        cost={"evaluation_seconds": time.monotonic() - started},
    )
    paths = writer.write_report(report, output) if output else ()
    print(render.console_table(report))
    for path in paths:
        print(path)
    return report




# -------------------------------------------------------------------------------------------------- details


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise InputError(f"{name.upper()} is {value}; it must be at least 1.")


def _callbacks(folder, dataset: Dataset, validation, extra: tuple, publish_weights: str) -> list:
    watchers = []
    if validation is not None and len(dataset.validation):
        images, labels = dataset.validation.arrays()
        watchers.append(validation(images=images, labels=labels))
    elif publish_weights == "best":
        raise InputError("publish_weights = 'best' needs validation data: set validation_size and a validation callback.")
    watchers += extra
    if publish_weights == "averaged" and not any(isinstance(c, own_callbacks.AveragedWeights) for c in extra):
        raise InputError("publish_weights = 'averaged' needs an @AveragedWeights() among the callbacks.")
    watchers.append(own_callbacks.BestWeights(folder / "best"))
    watchers.append(
        keras.callbacks.TensorBoard(str(folder / "logs"), write_graph=False, profile_batch=0)
    )
    return watchers


def _choose_weights(publish_weights: str, watchers: list) -> dict:
    """Puts the weights to be published into the model; what they were chosen by."""
    if publish_weights == "last":
        return {"weights": "last", "on": "last"}
    kind = own_callbacks.BestWeights if publish_weights == "best" else own_callbacks.AveragedWeights
    watcher = next(watcher for watcher in watchers if isinstance(watcher, kind))
    state = watcher.restore()
    if state is None:
        raise InputError("publish_weights = 'best', but no epoch was validated: lower the callback's `every`.")
    if publish_weights == "averaged":
        return {"weights": "averaged", "on": "last", **state}
    return {"weights": "best", "on": "validation", "epoch": state["step"], "value": state["value"]}


def _adversary_facts(model: Method) -> dict:
    adversary = getattr(model, "adversary", None)
    if adversary is None:
        return {}
    return {
        "norm": adversary.attack.threat.norm,
        "epsilon": adversary.attack.threat.epsilon,
        "attack_steps": adversary.attack.steps,
        "batch_norm_mode_of_the_attack": adversary.mode,
    }


def _data_facts(dataset: Dataset, source: dict) -> dict:
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        **{f"{split}_size": size for split, size in dataset.sizes.items()},
        "source": source,
        "class_names": list(dataset.class_names),
    }


def _environment() -> dict:
    import tfrobust

    return {
        "tfrobust": tfrobust.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "devices": [device.device_type for device in tf.config.list_physical_devices()],
        "processors": os.cpu_count(),
    }


def _earlier_report(model: str) -> Report | None:
    """The report inside an export of ours."""
    found = compare.find_report(model)
    return Report.from_json(found.read_text()) if found else None


def _print_result(report: Report, directory: pathlib.Path, note: str = "") -> None:
    print(render.console_table(report))
    print(f"SavedModel  {directory}" + (f"  ({note})" if note else ""))
    print(f"report      {directory / assets.HTML_FILE}")


def _print_estimate(configuration: str, model: Method, steps: int, steps_per_epoch: int) -> None:
    print(configuration)
    passes = model.passes_per_step
    print(f"steps       {steps} ({steps_per_epoch} an epoch)")
    print(f"passes      {passes} forward and backward passes over the batch a step, {steps * passes} in all")
    print(f"parameters  {model.count_params()}")

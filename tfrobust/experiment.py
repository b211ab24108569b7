"""The root: builds, trains, stages, evaluates, reports, publishes. The commands call it, gin fills it."""

import dataclasses
import pathlib
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust import saving
from tfrobust.augment.base import Augmentation
from tfrobust.data import pipeline
from tfrobust.data.sources.base import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation import predictor as predictors
from tfrobust.evaluation.base import Outcome, Setting
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.methods.base import Method
from tfrobust.models.heads import LinearHead
from tfrobust.ops import configured, files, fingerprint
from tfrobust.report import assembly, compare, render, writer
from tfrobust.report.schema import Report
from tfrobust.serving import assets, publish, verify
from tfrobust.training import selection
from tfrobust.training import strategy as strategies
from tfrobust.training import workdir as workdirs
from tfrobust.training.loop import Loop
from tfrobust.training.progress import ConsoleProgress


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
    """Trains a model, judges the SavedModel made of it, publishes that with its report. Running again resumes.

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
    strategies.set_determinism(deterministic)
    keras.utils.set_random_seed(seed)
    dataset = data.load()
    selection.check_choice(publish_weights, validation is not None and len(dataset.validation) > 0, callbacks)
    steps_per_epoch = pipeline.steps_per_epoch(dataset.train, batch_size)
    scope = strategies.make_strategy(strategy)
    with scope.scope():
        model = _built(method(encoder=encoder(), head=head(class_count=dataset.class_count), seed=seed), dataset)
        # The loop compiles the step itself where that pays.
        model.compile(
            optimizer=optimizer(),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            jit_compile=False,
        )
    if dry_run:
        _print_estimate(configuration(), model, epochs * steps_per_epoch, steps_per_epoch)
        return None
    numbers = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    parts = {"method": model, "optimizer": model.optimizer, "data": data, "augmentation": augmentation}
    training = _described(parts | {"callbacks": [_callback_facts(one) for one in callbacks]} | numbers)
    training["data_fingerprint"] = dataset.fingerprint
    publish.check_available(pathlib.Path(export_dir, name), version, workdirs.owner(workdir))
    folder = workdirs.open_workdir(workdir, training, must_exist=training_must_be_done)
    files.write_atomically(folder / workdirs.CONFIGURATION_FILE, configuration())
    watchers = selection.watch(folder, dataset.validation.arrays(), validation, callbacks)
    loop = Loop(
        method=model,
        strategy=scope,
        batches=lambda step: pipeline.training_batches(
            dataset.train, batch_size=batch_size, seed=seed, augmentation=augmentation, start_step=step
        ),
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        checkpoint_directory=str(folder / "checkpoints"),
        callbacks=watchers,
        checkpoint_seconds=checkpoint_seconds,
        jit_compile=strategies.use_xla(jit_compile, scope),
        profile_steps=profile,
        profile_directory=str(folder / "logs"),
        finished_only=training_must_be_done,
    )
    history = loop.run()
    facts = {
        "method": type(model).__name__,
        **numbers,
        **_adversary_facts(model),
        "selection": selection.choose_weights(publish_weights, watchers),
        "configuration": training,
    }
    artefact = _Artefact(model, dataset, data, evaluators, folder, facts, history, loop.seconds, configuration)
    return artefact.publish(name, export_dir, version)


@dataclasses.dataclass
class _Artefact:
    """A trained method on its way out: staged, judged, reported, published, verified."""

    method: Method
    dataset: Dataset
    source: Source
    evaluators: tuple
    folder: pathlib.Path
    facts: dict
    history: dict
    training_seconds: float
    configuration: Callable[[], str]

    def publish(self, name: str, export_dir: str, version: int | None) -> Report:
        """Everything after training; each part is found done, or done again, whole."""
        parts = dict(
            encoder=self.method.encoder,
            head=self.method.head,
            image_shape=self.dataset.image_shape,
            class_names=self.dataset.class_names,
            name=name,
        )
        staged, final = self.folder / "staged", self.folder / "final"
        weights = assets.assemble(staged, **parts)
        run = _run_sha256(weights, self.dataset, self.evaluators, self.facts["configuration"])
        base, owner = pathlib.Path(export_dir, name), workdirs.owner(self.folder)
        number = publish.claim(base, owner, version, run=run)
        if publish.is_published(base, number, owner, run=run):
            report = _earlier_report(base / str(number))
            _print_result(report, base / str(number), "published by this run before")
            return report
        outcome, seconds = self._judge(staged)
        report = assembly.make_report(
            **_found(outcome),
            model={"name": name, "version": number, "weights_sha256": weights, "parameters": self._parameters()},
            data=_data_facts(self.dataset, self.source),
            run_sha256=run,
            configuration=self.configuration(),
            training=self.facts,
            history=self.history,
            cost={"training_seconds": self.training_seconds, "evaluation_seconds": seconds},
        )
        texts = {"report_html": render.html(report), "report_markdown": render.markdown(report)}
        assets.assemble(final, **parts, **texts, report_json=report.to_json(), judged=staged)
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
            seed=self.facts["seed"],
            progress=ConsoleProgress(),
            selected_on=self.facts["selection"]["on"],
        )
        started = time.monotonic()
        outcome = run_evaluation(self.evaluators, setting, cache_directory=str(self.folder / "evaluation"))
        return outcome, time.monotonic() - started

    def _parameters(self) -> int:
        return int(self.method.encoder.count_params() + self.method.head.count_params())


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
    saving.import_all()  # a .keras file names classes of ours
    predictor = predictors.load(model, logits_output)
    earlier = _earlier_report(model)
    known = earlier.training if earlier else {}
    if data is None:
        if earlier is None or not earlier.data.get("source"):
            raise InputError(f"{model} names no data of its own: say what to judge it on with --data.")
        data = configured.deserialize(earlier.data["source"])
    dataset = data.load()
    images, labels = dataset.test.arrays()
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
    identity = earlier.model if earlier else {"name": pathlib.Path(model).stem, "version": None}
    report = assembly.make_report(
        **_found(outcome),
        model={
            "name": identity["name"],
            "version": identity["version"],
            "weights_sha256": predictor.weights_sha256,
            "parameters": predictor.parameters,
        },
        data=_data_facts(dataset, data),
        run_sha256=_run_sha256(predictor.weights_sha256, dataset, evaluators, {"seed": setting.seed}),
        configuration=configuration(),
        training={**known, "evaluation_seed": setting.seed},
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


def _built(model: Method, dataset: Dataset) -> Method:
    model.build((None, *dataset.image_shape))
    answers = model.compute_output_shape((None, *dataset.image_shape))[-1]
    if answers != dataset.class_count:
        raise InputError(f"the head gives {answers} logits, but {dataset.name} has {dataset.class_count} classes.")
    return model


def _described(value) -> dict:
    return workdirs.canonical(configured.serialize(value))


def _callback_facts(callback) -> dict:
    plain = (bool, int, float, str, type(None))
    return {type(callback).__name__: {k: v for k, v in vars(callback).items() if isinstance(v, plain) and k[0] != "_"}}


def _run_sha256(weights: str | None, dataset: Dataset, evaluators: tuple, training: dict) -> str:
    evaluation = [_described(evaluator) for evaluator in evaluators]
    parts = {"weights": weights, "data": dataset.fingerprint, "training": training, "evaluation": evaluation}
    return fingerprint.json_sha256(parts)


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


def _data_facts(dataset: Dataset, source: Source) -> dict:
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        **{f"{split}_size": size for split, size in dataset.sizes.items()},
        "source": configured.serialize(source),
        "class_names": list(dataset.class_names),
    }


def _found(outcome: Outcome) -> dict:
    return {
        "measurements": outcome.measurements,
        "series": outcome.series,
        "findings": outcome.findings,
        "devices": sorted({device.device_type for device in tf.config.list_physical_devices()}),
    }


def _earlier_report(model) -> Report | None:
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

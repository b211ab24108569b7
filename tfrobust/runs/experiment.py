"""The root functions, which build, train, stage, evaluate, report and publish. Commands call them, gin binds them."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust import saving
from tfrobust.augment.augmentation import Augmentation
from tfrobust.common import configured, files
from tfrobust.common.outside import LocalPath
from tfrobust.data import pipeline, summary
from tfrobust.data.kinds import refuse_other_parts
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.doctor.full import FullDoctor
from tfrobust.evaluation.doctor.pixels import refuse_other_range
from tfrobust.evaluation.engine import layout
from tfrobust.evaluation.engine import predictor as predictors
from tfrobust.evaluation.engine.base import Evaluator, Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.progress import ConsoleProgress
from tfrobust.evaluation.runner import refuse_clashes, refuse_kind, refuse_radius, run_evaluation, run_shard
from tfrobust.methods.shared.method import Method
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.weights import checkpoints, weight_files
from tfrobust.report import assembly, writer
from tfrobust.report.gate import Gate
from tfrobust.report.renderers import console as render
from tfrobust.report.schema import Report
from tfrobust.runs import artifact as artifacts
from tfrobust.runs import estimate, publication, selection
from tfrobust.runs import workdir as workdirs
from tfrobust.runs.attachment import Attachment
from tfrobust.runs.budget import Budget
from tfrobust.runs.first_stage import Pretraining
from tfrobust.runs.initial_encoder import Pretrained
from tfrobust.runs.plan import Plan
from tfrobust.runs.reference import with_reference
from tfrobust.runs.stage import Stage
from tfrobust.security import rehearsal, saved_models
from tfrobust.security.rehearsal import Use
from tfrobust.serving.export import publish
from tfrobust.serving.export.smoothed import ServedSmoothing
from tfrobust.training import cluster
from tfrobust.training import strategy as strategies

# Test images that the rehearsal of a model uses.
_REHEARSED = 15
# Copies of the data and outputs that evaluators may keep, and of the logits of one batch that an attack may.
_TIMES_DATA, _TIMES_LOGITS = 8, 32


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
    callbacks: tuple[keras.callbacks.Callback, ...] = (),
    evaluators: tuple[Evaluator, ...] = (),
    attacked_examples: int | None = None,
    reference: LocalPath | None = None,
    pretrained: Pretrained | None = None,
    pretraining: Pretraining | None = None,
    gate: Gate = Gate(),  # noqa: B008 (frozen)
    publish_weights: str = "last",
    smoothing: ServedSmoothing | None = None,
    precision: str = "float32",
    jit_compile: bool | str = "auto",
    deterministic: bool | str = "auto",
    checkpoint_seconds: float = 15.0,
    workdir: str | None = None,
    export_dir: str = "exported",
    version: int | None = None,
    publish_anyway: bool = False,
    profile: int = 0,
    dry_run: bool = False,
    plan: Plan | None = None,
    budget: Budget | None = None,
    training_must_be_done: bool = False,
    verbose: int = 1,
    configuration: Callable[[], str] = lambda: "",
) -> Report | None:
    """Train a model, evaluate its SavedModel, and publish that with its report. Running again resumes.

    Args:
        name: name of the model, and of its folder in `export_dir`.
        method: constructor of a method, called as method(encoder=, head=, seed=) inside the strategy's scope.
        encoder: constructor of an encoder.
        optimizer: constructor of a Keras optimizer.
        data: source of the examples.
        epochs: >= 1.
        batch_size: size of the global batch, >= 1; at most the number of training examples.
        seed: seed of the initial weights and of all random draws.
        strategy: 'auto', 'one_device', 'mirrored', 'multi_worker' or 'tpu'.
        head: constructor of the classifier, called as head(class_count=).
        augmentation: of the training images, or None.
        validation: constructor of a callback, called as validation(images=, labels=) with the validation split.
        callbacks: further Keras callbacks.
        evaluators: evaluators to run on the test split with the staged SavedModel.
        attacked_examples: largest number of test examples of every attack, drawn by the seed; None: all.
        reference: export, workdir or report of another model on the same test split, such as an undefended one. The
            report then opens with what that model does under the same attack.
        pretrained: a model whose encoder this one starts from, fine-tuned or frozen; None for fresh weights.
        pretraining: a first stage, which trains the encoder that `method` then takes over; None for one stage.
        gate: requirements that the report must meet for the model to be published; none by default.
        publish_weights: "last", "best" (by validation robust accuracy) or "averaged" (by an AveragedWeights).
        smoothing: the smoothed classifier, which the published model offers as a further endpoint; None for none.
        precision: Keras dtype policy, 'float32', 'mixed_bfloat16' or 'mixed_float16'; losses and attack gradients are
            float32 in each.
        jit_compile: True, False or "auto" (see `training.strategy.use_xla`).
        deterministic: True, False or "auto" (see `training.strategy.set_determinism`).
        checkpoint_seconds: seconds between two checkpoints.
        workdir: folder of checkpoints, logs, the staged model, cached evaluations and the report. None takes
            `runs/<name>`; if that holds another training configuration, `runs/<name>-2` or the next one that does not.
        export_dir: folder in which `<name>/<version>` is published.
        version: an explicit version; None takes the next one.
        publish_anyway: True to publish a model that differs from the newest version in its training configuration or
            is significantly worse. Otherwise only a `gate` with requirements decides that.
        profile: number of steps to trace for TensorBoard, 0 for none.
        dry_run: True to print the configuration and a cost estimate, and stop.
        budget: time that a dry run fits the run into; None for no such lines.
        plan: assumptions under which a dry run also forecasts the training on many accelerators; None for no forecast.
        training_must_be_done: True to refuse a workdir whose training is not finished (the command `export`).
        verbose: 0 prints the results only, 1 also a line per epoch and per attack, 2 all logs and tasks.
        configuration: returns the operative configuration as text; called after everything was built.

    Returns:
        The report; None after a dry run, and on workers other than the chief.

    Raises:
        InputError (a ValueError): wrong input or configuration, or a workdir of another training configuration.
        RefusedByGate: the report misses a requirement, or nothing has decided that this model replaces the newest
            version; the report is in the workdir, and nothing was published.
    """
    _check_numbers(epochs=epochs, batch_size=batch_size)
    _check_gate(gate, evaluators)
    strategies.set_determinism(deterministic)
    scope = strategies.make_strategy(strategy)  # collectives must exist before anything else runs
    worker = cluster.this_worker(scope)
    _check_replicas(scope, batch_size, pretrained, pretraining)
    strategies.set_precision(precision)
    keras.utils.set_random_seed(seed)
    if worker.chief and not dry_run:
        workdirs.check_unused(workdir, name)
    dataset = _loaded(data, quiet=not worker.chief)
    selection.check_choice(publish_weights, bool(validation and len(dataset.validation)), callbacks, head)
    _check_data(dataset, batch_size, evaluators)
    evaluators = with_reference(evaluators, reference, dataset)
    settings = {"dataset": dataset, "source": data, "callbacks": callbacks, "epochs": epochs, "batch_size": batch_size}
    settings |= {"seed": seed, "augmentation": augmentation, "validation": validation}
    with cluster.watched(worker), scope.scope():
        constructors = (method, encoder, head, optimizer)
        stage, first, origin = _built(constructors, settings, scope, pretrained, pretraining, quiet=not worker.chief)
    evaluation = estimate.EvaluationPlan(evaluators, stage.dataset, attacked_examples)
    if dry_run:
        stages = [*filter(None, [first]), stage]
        return estimate.show(configuration(), stages, evaluation, scope, jit_compile, plan, budget)
    training = stage.configuration() | origin | _first_configuration(first, pretraining)
    workdir, base = workdir or _default_workdir(name, training, not worker.chief), pathlib.Path(export_dir, name)
    files.check_writable(workdir, "--workdir")
    publish.check_available(base, version, workdirs.owner(workdir))
    decided = publish_anyway or training_must_be_done
    if worker.chief and not decided and not gate.require:
        _announce(training, base)
    agreement = cluster.Agreement(scope, worker)
    with contextlib.ExitStack() as until_the_end:
        with agreement.after_chief():
            opened = workdirs.locked_workdir(workdir, training, must_exist=training_must_be_done, alone=worker.chief)
            folder = until_the_end.enter_context(opened)
        worker_folder = cluster.own_folder(folder, worker)
        files.write_atomically(worker_folder / workdirs.CONFIGURATION_FILE, configuration())
        driven = {"checkpoint_seconds": checkpoint_seconds, "jit_compile": strategies.use_xla(jit_compile, scope)}
        driven |= {"finished_only": training_must_be_done, "verbose": verbose * worker.chief}
        _describe([*filter(None, [first, stage])], folder, driven["verbose"])
        with cluster.watched(worker):
            before, seconds = None, 0.0
            if first:
                origin["pretraining"], before, seconds = pretraining.run(first, scope, folder, worker_folder, **driven)
            watchers = selection.watch(worker_folder, dataset.validation.arrays(), validation, callbacks, batch_size)
            # Again, now with the parameters of the watchers.
            files.write_atomically(worker_folder / workdirs.CONFIGURATION_FILE, configuration())
            driven |= {"profile_steps": profile, "profile_directory": str(worker_folder / "logs")}
            steps_after = estimate.attack_steps(evaluation, stage)
            loop = stage.loop(scope, folder, watchers, steps_after=steps_after, **driven)
            history = loop.run()
        if not worker.chief:
            _say_that_it_has_trained(worker, verbose)
            return agreement.final_barrier()
        facts = {**stage.facts(), **getattr(loop, "facts", {}), **origin, "precision": precision}
        facts |= {"selection": selection.choose_weights(publish_weights, watchers), "configuration": training}
        parts = (stage.method, dataset, data, evaluators, folder, facts, history, seconds + loop.seconds, configuration)
        parts += (before, gate, first and first.dataset.train, verbose, smoothing, decided, attacked_examples)
        report = artifacts.Artifact(*parts).publish(name, export_dir, version)
        agreement.final_barrier(alone=True)
        return report


def evaluate(
    *,
    model: str,
    evaluators: tuple[Evaluator, ...],
    attacked_examples: int | None = None,
    data: Source | Callable[..., Source] | None = None,
    encoder: Callable[..., keras.Model] | None = None,
    seed: int = 0,
    logits_output: str | None = None,
    signature: str | None = None,
    channels_first: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    surrogate: str | None = None,
    reference: LocalPath | None = None,
    batch_size: int = 128,
    chunk_size: int = 1000,
    output: str | None = None,
    shard: tuple[int, int] | None = None,
    verbose: int = 1,
    attach: bool = False,
    dry_run: bool = False,
    budget: Budget | None = None,
    configuration: Callable[[], str] = lambda: "",
) -> Report | None:
    """Evaluate a model: an export, any other SavedModel, a `.keras` or `.tflite` file, or weights from PyTorch.

    Args:
        model: a SavedModel folder, a folder of its versions, a `.keras` or `.tflite` file; or only the weights of a
            network from PyTorch, `.safetensors` or `.npz` (see `models.weights.checkpoints`).
        evaluators: the evaluators to run.
        attacked_examples: as for `train`.
        data: the test split of this source; None takes the data and split that the export's report names. A constructor
            is called as data(image_shape=) with the model's input shape, and with `fit` and `short_side` of an export.
        encoder: constructor of the encoder, needed for weights only; the linear head is built to fit the weights.
        seed: seed of the attacks; 0 takes the seed of the export's own report.
        logits_output: name of the output that holds the logits, for a model that tfrobust did not export.
        signature: name of the signature of such a SavedModel; None: `serving_default`.
        channels_first: True for such a model that takes images [b, c, h, w], and so does its surrogate.
        bounds: (low, high) of the pixels that the model and its surrogate take, if tfrobust did not export it; the data
            and the radii of the evaluators stay in [0, 1].
        surrogate: another model of the same classes, which transfer attacks search; None: the model's own, if any. Its
            report names the data if the model has no report.
        reference: export, workdir or report of another model on the same examples, as for `train`.
        batch_size: images per call.
        chunk_size: images per chunk of an attack, the unit of shards; within a chunk, results are stored every minute.
        output: a folder that receives `robustness_report.json`, `.html` and `.md`, and in `cache` the finished parts,
            from which the same command resumes; None writes nothing.
        shard: (i, n): compute only the i-th of n shares of all attacks, which a run without `shard` finds in the same
            `output`; None computes everything that is missing, and the report.
        verbose: 0 prints the results only, 1 also a line per attack, 2 a line per task.
        attach: True to publish the next version of an export, with these measurements added to its report.
        dry_run: True to print a cost estimate and stop, after model and data were loaded.
        budget: as for `train`.
        configuration: returns the operative configuration as text.

    Returns:
        The report, also printed as a table; None for a shard or a dry run.

    Raises:
        InputError (a ValueError): the model cannot be read, data are missing or do not fit it, or `attach` cannot be
            done (see `runs.attachment`).
    """
    refuse_clashes(evaluators)
    if output and not dry_run:
        files.check_writable(output, "--output")
    if attach and shard:
        raise InputError("--attach takes no --shard: run it when all shards are done.")
    attachment = Attachment.to(model, output) if attach else None
    saving.import_all()  # registers the classes that a .keras file may name
    earlier = artifacts.earlier_report(model)
    foreign = {"--bounds": bounds != (0.0, 1.0), "--channels_first": channels_first, "--signature": signature}
    if earlier and any(foreign.values()):
        flags = " and ".join(flag for flag, value in foreign.items() if value)
        raise InputError(f"{model[-100:]} has a report of tfrobust and takes pixels in [0, 1]: leave {flags} out.")
    earlier_training = artifacts.known_training(model, earlier)
    naming = (earlier or (surrogate and artifacts.earlier_report(surrogate))) if data is None else None
    data = artifacts.named_source(model, naming) if data is None else data
    attacked = any(evaluator not in evaluator.without_gradients() for evaluator in evaluators)
    use = Use(batch_size=batch_size, gradient_batch=batch_size if attacked else predictors.GRADIENT_PROBES)
    use = dataclasses.replace(use, signature=signature or use.signature)
    opening = {"model": model, "encoder": encoder, "logits_output": logits_output, "surrogate": surrogate}
    opening, fitting = opening | {"channels_first": channels_first}, artifacts.fitting(earlier)
    with artifacts.named_by(naming, model):
        predictor, data, dataset = _predictor_and_data(opening, data, fitting, use, bounds)
    evaluators = with_reference(evaluators, reference, dataset)
    predictor, arrays = predictor.on_unit_pixels(*bounds), dataset.test.arrays()
    artifacts.check_vocabulary(model, dataset)
    artifacts.check_classes(earlier, dataset)
    limited = _limited(model, dataclasses.replace(use, examples=arrays[0]), predictor)
    with saved_models.answering(predictor.name), limited, ConsoleProgress(verbose) as progress:
        sizes = {"batch_size": batch_size, "chunk_size": chunk_size, "limit": attacked_examples, "progress": progress}
        facts = artifacts.training_facts(earlier_training, dataset, evaluators)
        setting = _setting(
            predictor, dataset, arrays, seed=seed or int(earlier_training.get("seed", 0)), **sizes, **facts
        )
        if attachment:
            attachment.check(earlier, dataset, evaluators, setting)
        if earlier is None and bounds == (0.0, 1.0):
            refuse_other_range(setting)
        if dry_run:
            plan = estimate.EvaluationPlan(evaluators, dataset, attacked_examples)
            return estimate.show_evaluation(plan, estimate.seconds_per_pass(setting), budget)
        cache = pathlib.Path(output, "cache") if output else None
        if shard is not None:
            return _evaluate_shard(evaluators, setting, shard, cache)
        started = time.monotonic()
        outcome = run_evaluation(evaluators, setting, cache_directory=cache)
    taken = {"model_bounds": list(bounds), "channels_first": channels_first, "signature": signature}
    taken = {name: value for (name, value), used in zip(taken.items(), foreign.values(), strict=True) if used}
    identifying = taken | {"seed": setting.seed} | artifacts.limit_facts(attacked_examples)
    report = assembly.make_report(
        **artifacts.assembly_arguments(outcome),
        model=_model_facts(model, earlier, predictor),
        data=artifacts.data_facts(dataset, data),
        run_sha256=artifacts.run_sha256(predictor.weights_sha256, dataset, evaluators, identifying),
        configuration=configuration(),
        training={**earlier_training, **taken, "evaluation_seed": setting.seed},
        history={},
        cost={"evaluation_seconds": time.monotonic() - started},
    )
    _write(report, output)
    if attachment:
        attachment.publish(report)
    return report


# -------------------------------------------------------------------------------------------------- details


def _built(constructors: tuple, settings: dict, scope, pretrained, pretraining, quiet: bool) -> tuple:
    """Build both stages in the strategy's scope, before either trains.

    A resumed run then draws the same initial weights.

    Args:
        constructors: of the method, the encoder, the head and the optimizer.
        settings: arguments of `Stage` other than the method.
        scope: the strategy.
        pretrained: as for `train`.
        pretraining: as for `train`.
        quiet: True to print no summary of the first stage's data.

    Returns:
        (stage, the first stage or None, facts on the origin of the weights).
    """
    method, encoder, head, optimizer = constructors
    dataset, source, seed = settings["dataset"], settings["source"], settings["seed"]
    network = _encoder(encoder, scope)
    model = method(encoder=network, head=head(class_count=dataset.class_count), seed=seed)
    parts = {name: settings[name] for name in ("augmentation", "validation")}
    refuse_other_parts(dataset, model, pretrained=pretrained, pretraining=pretraining, **parts)
    first = None if pretraining is None else pretraining.stage(network, head, source, dataset, seed)
    if first and first.dataset is not dataset and not quiet:
        print("first stage", *summary.lines(first.dataset), sep="\n", flush=True)
    stage = Stage(method=model, **settings)
    stage.title = f"stage 2 of 2, {type(model).__name__}" if first else ""
    stage.build(optimizer())
    return stage, first, {} if pretrained is None else {"pretrained": pretrained.give(network, dataset.image_shape)}


def _say_that_it_has_trained(worker, verbose: int) -> None:
    if verbose:
        name = f"worker {worker.index} of {worker.count}"
        print(f"{name} has trained; the chief evaluates and publishes", flush=True)


def _loaded(data: Source, quiet: bool = False) -> Dataset:
    """Load a data set, and print its summary unless `quiet`."""
    dataset = data.load()
    if not quiet:
        print(*summary.lines(dataset), sep="\n", flush=True)
    return dataset


def _setting(predictor: predictors.Predictor, dataset: Dataset, arrays: tuple, **facts) -> Setting:
    """Return the setting of an evaluation on a data set's test split."""
    return Setting(
        predictor=predictor,
        images=arrays[0],
        labels=arrays[1],
        class_names=dataset.class_names if dataset.class_count == predictor.class_count else None,
        strengths=dataset.test.strengths,
        groups=dataset.test.groups,
        vocabulary=dataset.vocabulary,
        **facts,
    )


def _model_facts(model: str, earlier: Report | None, predictor: predictors.Predictor) -> dict:
    """Return a report's facts on a model: name and version, weights and parameters."""
    named = earlier.model if earlier else {"name": pathlib.Path(model).stem, "version": None}
    facts = {name: named[name] for name in ("name", "version")}
    return facts | {"weights_sha256": predictor.weights_sha256, "parameters": predictor.parameters}


def _predictor_and_data(
    opening: dict, data: Source | Callable, fitting: dict, use: Use, bounds: tuple[float, float]
) -> tuple:
    """Load the data first, whose examples the rehearsal of the model uses, unless the model defines their shape.

    Returns:
        (predictor, source, dataset).
    """
    predictor, is_model = None, not weight_files.is_weights(opening["model"])
    if is_model:
        predictors.locate(opening["model"])  # raises before the data are loaded
    if callable(data):
        predictor = _predictor(**opening, use=use)
        data = data(image_shape=_input_shape(predictor), **fitting)
    dataset = _loaded(data)
    examples = dataset.test.arrays(_REHEARSED)[0]
    if bounds != (0.0, 1.0):
        examples = bounds[0] + (bounds[1] - bounds[0]) * examples
    use = dataclasses.replace(use, examples=examples)
    if predictor is None:
        return _predictor(**opening, use=use), data, dataset
    if is_model:
        predictors.rehearse(opening["model"], use, opening["logits_output"])
    return predictor, data, dataset


def _limited(model: str, use: Use, predictor: predictors.Predictor) -> contextlib.AbstractContextManager:
    """Limit the memory of this process while it evaluates a file, to what the file, the data and the outputs explain.

    Raises:
        InputError: its outputs alone would take more.
    """
    if weight_files.is_weights(model):
        return contextlib.nullcontext()  # the code is that of tfrobust
    directory = predictors.locate(model)
    growth = rehearsal.memory_limit(directory, use)
    logits = 4 * predictor.class_count * min(use.batch_size, len(use.examples))
    if _TIMES_LOGITS * logits > growth:
        raise InputError(
            f"{predictor.name} has {predictor.class_count} classes, whose logits of one batch take {logits} bytes, too "
            "much for the memory that it may take: set a smaller evaluate.batch_size."
        )
    outputs = 4 * predictor.class_count * len(use.examples)
    return rehearsal.limited(directory, use, _TIMES_DATA * (use.examples.nbytes + outputs))


def _check_data(dataset: Dataset, batch_size: int, evaluators: tuple) -> None:
    pipeline.steps_per_epoch(dataset.train, batch_size)  # raises for a batch larger than the data
    refuse_clashes(evaluators)
    refuse_kind(evaluators, dataset.kind)
    refuse_radius(evaluators, dataset.image_shape)


def _check_gate(gate: Gate, evaluators: tuple[Evaluator, ...]) -> None:
    """Refuse requirements that the evaluation cannot meet; evaluators of one's own may name no ids."""
    gate.check_references()
    ids = [evaluator.ids() for evaluator in evaluators if not isinstance(evaluator, (Doctor, FullDoctor))]
    has_doctor = any(isinstance(evaluator, Doctor) for evaluator in evaluators)
    if all(ids):
        gate.check_measured([identity for group in ids for identity in group], has_doctor=has_doctor)


def _first_configuration(first: Stage | None, pretraining: Pretraining | None) -> dict:
    if first is None:
        return {}
    parts = {"frozen": pretraining.frozen, "branch": pretraining.branch}
    return {"pretraining": first.configuration() | parts}


def _default_workdir(name: str, training: dict, quiet: bool) -> str:
    """Return the default workdir; unless `quiet`, print why it is not that of the name, if so."""
    workdir, note = workdirs.default_workdir(name, training)
    if note and not quiet:
        print(note, flush=True)
    return workdir


def _announce(training: dict, base: pathlib.Path) -> None:
    """Print, before hours of training, that the run differs from the newest version, if so."""
    differences = publication.other_configuration(training, base)
    if differences:
        print(
            f"{base / str(publish.versions(base)[-1])} is of another training configuration ({differences[0]}): this "
            "run will not replace it as the newest version unless --publish, a gate or another NAME says so.",
            flush=True,
        )


def _describe(stages: list[Stage], folder: pathlib.Path, verbose: int) -> None:
    if verbose:
        descriptions = [line for part in stages for line in part.description()]
        print(*descriptions, f"workdir     {folder}", sep="\n", flush=True)


def _write(report: Report, output: str | None) -> None:
    """Print a report's table, and write the report if there is an output folder."""
    paths = writer.write_report(report, output) if output else ()
    print(render.console_table(report))
    for path in paths:
        if path.suffix == ".html":
            print(f"report      {path}")


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if not 1 <= value < 2**31:
            raise InputError(f"{name.upper()} is {value}; it must be at least 1 and below 2**31.")


def _check_replicas(
    scope: tf.distribute.Strategy, batch_size: int, pretrained: Pretrained | None, pretraining: Pretraining | None
) -> None:
    if pretrained is not None and pretraining is not None:
        raise InputError("train.pretrained and train.pretraining exclude each other: set only one of them.")
    sizes = {"BATCH_SIZE": batch_size, "Pretraining.batch_size": pretraining.batch_size if pretraining else 0}
    for name, size in sizes.items():
        if size % scope.num_replicas_in_sync:
            raise InputError(f"{name} {size} does not divide among {scope.num_replicas_in_sync} replicas.")


def _encoder(encoder: Callable[..., keras.Model], scope: tf.distribute.Strategy) -> keras.Model:
    """Build the encoder, with batch norm synchronized over the global batch if there are several replicas."""
    constructor = getattr(encoder, "func", encoder)
    synchronized = scope.num_replicas_in_sync > 1 and "synchronized" in configured.constructor_arguments(constructor)
    network = encoder(synchronized=True) if synchronized else encoder()
    if isinstance(network, Method):
        raise InputError(f"ENCODER is {type(network).__name__}, which is a method: name a network, such as @CNN.")
    return network


def _predictor(
    model: str,
    encoder: Callable[..., keras.Model] | None,
    logits_output: str | None,
    surrogate: str | None,
    use: Use,
    channels_first: bool = False,
) -> predictors.Predictor:
    if channels_first:
        return layout.channels_last(_predictor(model, encoder, logits_output, surrogate, use))
    if surrogate is not None:
        predictor = _predictor(model, encoder, logits_output, None, use)
        return predictor.with_surrogate(predictors.load(surrogate, use=use))
    if not weight_files.is_weights(model):
        return predictors.load(model, logits_output, use)
    weight_files.require_readable(model)
    if encoder is None:
        raise InputError(
            f"{weight_files.display_name(model)} holds only weights: name the network, such as by "
            "--gin_file=gin/models/resnet18.gin. Build other networks in Keras, copy the arrays, and save a .keras."
        )
    network, loaded = checkpoints.classifier(encoder(), model)
    print(f"{weight_files.display_name(model)}: {loaded}")
    return predictors.from_keras(network, logits_output)


def _input_shape(predictor: predictors.Predictor) -> tuple[int, int, int]:
    if predictor.is_text:
        raise InputError(f"{predictor.name} takes text, and --data names images: set evaluate.data in gin instead.")
    if None in predictor.image_shape:
        raise InputError(
            f"{predictor.name} takes images of any size, so that a folder does not define how to read its images: "
            "set evaluate.data = @ImageFolder() with ImageFolder.path and ImageFolder.image_shape, without --data."
        )
    return tuple(int(size) for size in predictor.image_shape)


def _evaluate_shard(evaluators: tuple, setting: Setting, shard: tuple[int, int], cache: pathlib.Path | None) -> None:
    if cache is None:
        raise InputError("a shard keeps its results in --output, the same for all shards; it is missing.")
    count = run_shard(evaluators, setting, Shard(*shard), cache_directory=cache)
    print(f"shard {shard[0]} of {shard[1]} is done: {count} images attacked; when all are, run without --shard")

"""The root functions, which build, train, stage, evaluate, report and publish. Commands call them, gin binds them."""

import pathlib
from collections.abc import Callable

import keras

from tfrobust import saving
from tfrobust.attacks.shared.engine import Votes
from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.outside import LocalPath
from tfrobust.data.sources.source import Source
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Evaluator
from tfrobust.evaluation.runner import refuse_clashes
from tfrobust.methods.shared.method import Method
from tfrobust.models.heads.linear import LinearHead
from tfrobust.report.gate import Gate
from tfrobust.report.schema import Report
from tfrobust.runs import workdir as workdirs
from tfrobust.runs.attachment import Attachment
from tfrobust.runs.budget import Budget
from tfrobust.runs.evaluation_run import EvaluationRun, ModelFile
from tfrobust.runs.first_stage import Pretraining
from tfrobust.runs.initial_encoder import Pretrained
from tfrobust.runs.plan import Plan
from tfrobust.runs.settings import EvaluationSettings, PublicationSettings
from tfrobust.runs.training_run import TrainingRun, TrainingSettings
from tfrobust.serving.export.smoothed import ServedSmoothing
from tfrobust.training import cluster


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

    Every argument is a setting of gin or a flag of the command, hence their number. `TrainingSettings`,
    `EvaluationSettings` and `PublicationSettings` take them further.

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
        attacked_examples: largest number of test examples of every attack or certificate, drawn by the seed; None: all.
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
        plan: assumptions under which a dry run also plans the training on many accelerators; None for no plan.
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
    training = TrainingSettings(
        method=method,
        encoder=encoder,
        optimizer=optimizer,
        data=data,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        strategy=strategy,
        head=head,
        augmentation=augmentation,
        validation=validation,
        callbacks=callbacks,
        pretrained=pretrained,
        pretraining=pretraining,
        precision=precision,
        jit_compile=jit_compile,
        deterministic=deterministic,
        checkpoint_seconds=checkpoint_seconds,
        profile=profile,
    )
    evaluation = EvaluationSettings(evaluators=evaluators, attacked_examples=attacked_examples, reference=reference)
    publication = PublicationSettings(
        name=name,
        export_dir=export_dir,
        version=version,
        gate=gate,
        weights=publish_weights,
        smoothing=smoothing,
        decided=publish_anyway or training_must_be_done,
    )
    training.check_numbers()
    evaluation.check_gate(gate)
    scope = training.prepared_strategy()
    if cluster.this_worker(scope).chief and not dry_run:
        workdirs.check_unused(workdir, name)
    run = TrainingRun.build(training, evaluation, publication, scope, configuration=configuration, verbose=verbose)
    if dry_run:
        return run.show_estimate(plan, budget)
    return run.execute(workdir, finished_only=training_must_be_done)


def evaluate(
    *,
    model: str,
    evaluators: tuple[Evaluator, ...],
    attacked_examples: int | None = None,
    data: Source | Callable[..., Source] | None = None,
    encoder: Callable[..., keras.Model] | None = None,
    seed: int | None = None,
    logits_output: str | None = None,
    signature: str | None = None,
    channels_first: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    surrogate: str | None = None,
    reference: LocalPath | None = None,
    batch_size: int = 128,
    chunk_size: int = 1000,
    votes: tuple[int, int] = (10, 5),
    output: str | None = None,
    shard: tuple[int, int] | None = None,
    verbose: int = 1,
    attach: bool = False,
    dry_run: bool = False,
    budget: Budget | None = None,
    configuration: Callable[[], str] = lambda: "",
) -> Report | None:
    """Evaluate a model: an export, any other SavedModel, a `.keras` or `.tflite` file, or weights from PyTorch.

    Every argument is a setting of gin or a flag of the command, hence their number. `ModelFile` and
    `EvaluationSettings` take them further.

    Args:
        model: a SavedModel folder, a folder of its versions, a `.keras` or `.tflite` file; or only the weights of a
            network from PyTorch, `.safetensors` or `.npz` (see `models.weights.checkpoints`).
        evaluators: the evaluators to run.
        attacked_examples: as for `train`.
        data: the test split of this source; None takes the data and split that the export's report names. A constructor
            is called as data(image_shape=) with the model's input shape, and with the `fit`, `short_side`,
            `interpolation` and `groups` of an export trained on an `ImageFolder`.
        encoder: constructor of the encoder, needed for weights only; the linear head is built to fit the weights.
        seed: seed of the attacks; None takes the seed of the export's own report, or else 0.
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
        votes: (draws, needed) for a stochastic model, as for `tfrobust.evaluation.engine.base.Setting`.
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
    file = ModelFile(
        path=model,
        encoder=encoder,
        logits_output=logits_output,
        signature=signature,
        channels_first=channels_first,
        bounds=bounds,
        surrogate=surrogate,
    )
    evaluation = EvaluationSettings(evaluators=evaluators, attacked_examples=attacked_examples, reference=reference)
    refuse_clashes(evaluators)
    Votes.of(votes)
    if attach and shard:
        raise InputError("--attach takes no --shard: run it when all shards are done.")
    attachment = Attachment.to(model, output) if attach else None
    saving.import_all()  # registers the classes that a .keras file may name
    run = EvaluationRun.build(file, evaluation, data, batch_size, quiet=not verbose)
    with run.setting(seed=seed, chunk_size=chunk_size, votes=votes, verbose=verbose) as setting:
        if attachment:
            attachment.check(run.earlier, run.dataset, run.evaluation.evaluators, setting)
        run.check_range(setting)
        if dry_run:
            return run.show_estimate(setting, budget)
        cache = pathlib.Path(output, "cache") if output else None
        if shard is not None:
            return run.evaluate_shard(setting, shard, cache)
        outcome, seconds = run.evaluate(setting, cache)
    report = run.report(outcome, setting, seconds, configuration())
    run.write(report, output)
    if attachment:
        attachment.publish(report)
    return report

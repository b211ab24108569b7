"""Forecast of a training on many accelerators: what a step computes, reads and sends, and how long that takes."""

from __future__ import annotations

import dataclasses
import math
import time

import keras
import tensorflow as tf

from tfrobust.common.console import duration
from tfrobust.data import pipeline
from tfrobust.errors import InputError
from tfrobust.runs.plan import Plan
from tfrobust.runs.stage import Stage

# A backward pass takes about twice as many operations as a forward pass.
BACKWARD = 2
# All-reduces of a synchronized batch norm in one training pass: the sums of values, of squares and of counts, forward
# and backward.
_SUMS_PER_NORM = 6
# Seconds and batches that the measurement of the input pipeline takes at most.
_LONGEST, _BATCHES, _ROWS = 2.0, 20, 64


@dataclasses.dataclass(frozen=True)
class Work:
    """Cost of one training step, independent of the hardware.

    Attributes:
        batch_size: examples of the global batch.
        steps: number of steps of the training.
        operations: operations of one step for one example.
        gradient_bytes: bytes of all gradients.
        example_bytes: bytes of one example as the accelerator receives it.
        sums: all-reduces of synchronized batch norm.
        images_per_core: examples per second that one core makes.
    """

    batch_size: int
    steps: int
    operations: float
    gradient_bytes: int
    example_bytes: int
    sums: int
    images_per_core: float


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds of the parts of one step on some replicas. Reading overlaps computing; sending does not.

    Attributes:
        computing: of forward and backward passes.
        reading: of the input pipeline.
        gradients: of the all-reduce of the gradients.
        normalization: of the all-reduces of batch norm, which are small and take the latency alone.
    """

    computing: float
    reading: float
    gradients: float
    normalization: float

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return max(self.computing, self.reading) + self.gradients + self.normalization

    @property
    def limit(self) -> str:
        """The name of the longest part."""
        return max(dataclasses.fields(self), key=lambda field: getattr(self, field.name)).name


def step_of(work: Work, plan: Plan, replicas: int) -> Step:
    """Return the parts of a step on `replicas` accelerators, each with an equal part of the global batch.

    Gradients: a ring, in which each replica sends 2 (N - 1) / N of the bytes over the slowest link. Batch norm: a tree,
    2 ceil(log2 N) hops for each sum.
    """
    rows = work.batch_size / replicas
    link = plan.inside if replicas <= plan.per_machine else plan.between
    return Step(
        computing=rows * work.operations / plan.rate(rows),
        reading=rows / (work.images_per_core * plan.cores),
        gradients=2 * (replicas - 1) / replicas * work.gradient_bytes / link,
        normalization=work.sums * 2 * math.ceil(math.log2(replicas)) * plan.latency,
    )


def speedup(work: Work, plan: Plan, replicas: int) -> float:
    """Return how many times as fast as one accelerator the replicas are."""
    return step_of(work, plan, 1).seconds / step_of(work, plan, replicas).seconds


def work_of(stage: Stage, plan: Plan) -> tuple[Work, tuple[str, ...]]:
    """Count the work of a stage's steps, and measure its input pipeline on this machine.

    Returns:
        The work, and the types of operations in the model whose cost TensorFlow does not know.
    """
    spec = stage.dataset.train.fetch(tf.range(1, dtype=tf.int64))
    forward, unknown = forward_operations(stage.method, tuple(spec.shape[1:]), spec.dtype)
    steps = stage.steps_per_epoch if plan.examples is None else plan.examples // stage.batch_size
    if steps == 0:
        raise InputError(f"Plan.examples is {plan.examples}, less than one batch of {stage.batch_size}.")
    adversary = getattr(stage.method, "adversary", None)
    outside = stage.passes_per_step - (adversary.attack.steps if adversary else 0)
    images_per_core = plan.images_per_core
    work = Work(
        batch_size=stage.batch_size,
        steps=stage.epochs * steps,
        operations=stage.passes_per_step * (1 + BACKWARD) * forward,
        gradient_bytes=sum(4 * math.prod(weight.shape) for weight in stage.method.trainable_variables),
        example_bytes=math.prod(spec.shape) * spec.dtype.size,
        # No sum can run inside an attack, which uses the moving statistics.
        sums=_SUMS_PER_NORM * norms(stage.method.encoder) * outside,
        images_per_core=measured_images_per_core(stage) if images_per_core is None else images_per_core,
    )
    return work, unknown


def norms(encoder: keras.Model) -> int:
    """Return the number of batch norms that one pass uses, all of which are synchronized on several replicas."""
    layers = encoder._flatten_layers()
    return sum(isinstance(layer, keras.layers.BatchNormalization) for layer in layers) // getattr(
        encoder, "branches", 1
    )


def forward_operations(model: keras.Model, shape: tuple, dtype="float32") -> tuple[float, tuple[str, ...]]:
    """Count the operations of a forward pass of one example, as TensorFlow's profiler does: two per multiply-add.

    Args:
        model: built.
        shape: of an example, without the batch.
        dtype: of the examples.

    Returns:
        The count, and the types of the products in the graph that the profiler does not count.
    """
    forward = tf.function(lambda examples: model(examples, training=False), autograph=False)
    graph = forward.get_concrete_function(tf.TensorSpec((1, *shape), dtype)).graph
    profiler, log = tf.compat.v1.profiler, tf.get_logger()
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
    level = log.level
    log.setLevel("ERROR")  # it warns about its own implementation
    try:
        counted = profiler.profile(graph, options=options.build()).total_float_ops
    finally:
        log.setLevel(level)
    types = {operation.type for operation in graph.get_operations()}
    return float(counted), tuple(sorted(types & {"Einsum", "While", "StatelessWhile", "XlaEinsum"}))


def measured_images_per_core(stage: Stage) -> float:
    """Return the training examples that the input pipeline makes in one CPU second of this process."""
    rows = min(_ROWS, stage.batch_size)
    drawn = {"seed": stage.seed, "augmentation": stage.augmentation, "views": stage.method.host_views}

    def seconds(batches: int) -> float:
        stream = pipeline.training_batches(stage.dataset.train, batch_size=rows, steps=batches, **drawn)
        began = time.process_time()
        for _ in stream:
            pass
        return max(time.process_time() - began, 1e-6)

    batches = max(1, min(_BATCHES, int(_LONGEST / seconds(1))))
    return batches * rows / seconds(batches)


def forecast_lines(stage: Stage, plan: Plan, attack_passes: int = 0) -> list[str]:
    """Return the plan of a stage as aligned lines: what is assumed, and one column for each number of replicas.

    Args:
        stage: built.
        plan: its assumptions.
        attack_passes: forward passes of one example that the attacks of the evaluation cost at most.

    Raises:
        InputError: a number of replicas does not divide the batch.
    """
    for count in plan.replicas:
        if stage.batch_size % count:
            raise InputError(f"BATCH_SIZE {stage.batch_size} does not divide among {count} replicas.")
    work, unknown = work_of(stage, plan)
    forward = work.operations / (stage.passes_per_step * (1 + BACKWARD))
    seconds = attack_passes * forward / plan.rate(_ROWS)
    tested = plan.test_examples or len(stage.dataset.test)
    attacks = {f"attacks on {tested:,}": [duration(seconds / count) for count in plan.replicas]}
    table = _table(work, plan, attacks if attack_passes else {})
    return [*_assumed(work, plan, stage, unknown), *table, _end(work, plan)]


def _assumed(work: Work, plan: Plan, stage: Stage, unknown: tuple[str, ...]) -> list[str]:
    source = "measured here" if plan.images_per_core is None else "Plan.images_per_core"
    forward = work.operations / (stage.passes_per_step * (1 + BACKWARD))
    lines = [
        f"{work.steps:,} steps of {work.batch_size:,} examples, {stage.passes_per_step} passes each, backward as "
        f"{BACKWARD} x forward",
        f"operations  {_amount(forward)} per example forward, {_amount(work.operations)} in a step",
        f"{plan.name:10}  {_amount(plan.rate(1e12))} operations/s, half of it at {plan.half_batch:g} examples each; "
        f"{plan.per_machine} per machine",
        f"links       {plan.inside / 1e9:g} GB/s inside a machine, {plan.between / 1e9:g} GB/s between, "
        f"{plan.latency * 1e6:g} us per hop",
        f"input       {work.images_per_core:,.3g} examples/s per core ({source}), {plan.cores:g} cores per replica",
        'to change   fields of Plan, such as --gin_param="Plan.between=12.5e9"',
    ]
    if unknown:
        lines.append(f"not counted {', '.join(unknown)}: computing takes longer")
    return [f"{'' if number else 'plan':12}{line}" for number, line in enumerate(lines)]


def _amount(count: float) -> str:
    """Format a large number: 8.22 billion."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,.0f}"


def _table(work: Work, plan: Plan, more: dict[str, list[str]]) -> list[str]:
    replicas = plan.replicas
    steps = [step_of(work, plan, count) for count in replicas]
    gradients = f"gradients, {work.gradient_bytes / 1e6:.3g} MB"
    columns = {
        "replicas": [f"{count:,}" for count in replicas],
        "examples each": [f"{work.batch_size / count:,.0f}" for count in replicas],
        "computing": [_milliseconds(step.computing) for step in steps],
        "reading": [_milliseconds(step.reading) for step in steps],
        gradients: [_milliseconds(step.gradients) for step in steps],
        f"batch norm, {work.sums} sums": [_milliseconds(step.normalization) for step in steps],
        "step": [_milliseconds(step.seconds) for step in steps],
        "longest part": [step.limit for step in steps],
        "examples/s": [f"{work.batch_size / step.seconds:,.0f}" for step in steps],
        "input of a replica": [
            f"{work.batch_size / count / step.seconds * work.example_bytes / 1e6:,.3g} MB/s"
            for count, step in zip(replicas, steps, strict=True)
        ],
        "training": [duration(work.steps * step.seconds) for step in steps],
        "times as fast as one": [f"{speedup(work, plan, count):.1f}" for count in replicas],
        **more,
    }
    label = max(map(len, columns))
    width = max(len(text) for texts in columns.values() for text in texts)
    return [f"  {name:{label}}" + "".join(f"  {text:>{width}}" for text in texts) for name, texts in columns.items()]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _end(work: Work, plan: Plan) -> str:
    """Return a line on the number of replicas above which less than half of each is used, and why."""
    count = 1
    while 2 * count <= work.batch_size and speedup(work, plan, 2 * count) >= count:
        count *= 2
    if 2 * count > work.batch_size:
        return f"            up to {count} replicas, the batch's limit, more than half of each is used"
    single, many = (step_of(work, plan, replicas) for replicas in (1, 2 * count))
    idle = many.computing - single.computing / (2 * count)  # small batches use an accelerator badly
    lost = {field.name: getattr(many, field.name) for field in dataclasses.fields(many)}
    lost |= {"computing": idle, "reading": max(0.0, many.reading - many.computing)}
    names = {"computing": "the small batches of each", "reading": "reading", "normalization": "batch norm's sums"}
    reason = max(lost, key=lost.get)
    several = f"{count} replica{'s' * (count > 1)}"
    return f"            beyond {several}, less than half of each is used, for {names.get(reason, reason)}"

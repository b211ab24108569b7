"""The plan that a dry run prints: what is assumed, and one column for each number of accelerators."""

from __future__ import annotations

import dataclasses

from tfrobust.common.console import duration
from tfrobust.errors import InputError
from tfrobust.runs.plan import Plan
from tfrobust.runs.plan_step import speedup, step_of
from tfrobust.runs.plan_work import Work, work_of
from tfrobust.runs.stage import BACKWARD, Stage

# Examples of one pass of an attack, which decide the rate of an accelerator.
_ROWS = 64


def plan_lines(stage: Stage, plan: Plan, attack_passes: int = 0) -> list[str]:
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

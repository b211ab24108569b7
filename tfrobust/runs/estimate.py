"""Cost estimate of a run before it begins: passes from the configuration, time from a few measured steps."""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.console import duration
from tfrobust.data.spec import Dataset
from tfrobust.evaluation.engine.base import Setting
from tfrobust.report.catalog.spelling import attack_name
from tfrobust.runs import budget as budgets
from tfrobust.runs.budget import Budget
from tfrobust.runs.plan import Plan
from tfrobust.runs.plan_lines import plan_lines
from tfrobust.runs.settings import EvaluationSettings
from tfrobust.runs.stage import BACKWARD, Stage
from tfrobust.training import strategy as strategies
from tfrobust.training.head_fit import fitted_at_once

# The longest step and the longest measurement in seconds, and the number of steps that a measurement takes at most.
_LONGEST_STEP, _LONGEST_MEASUREMENT, _STEPS = 3.0, 12.0, 5


@dataclasses.dataclass(frozen=True)
class Passes:
    """Upper bound on the passes of an evaluation's attacks, counted in passes of one image.

    The bound is reached if no attack succeeds: an image for which an attack succeeded takes no further passes.

    Attributes:
        forward: forward passes of all images.
        backward: their backward passes.
        per_image: forward and backward passes of an image that all attacks see.
        attacks: number of attacks.
        uncounted: names of the evaluators that are not included.
        shares: share of the cost by display name of the attack or member, largest first; {} if there is none.
        by_evaluator: searches of each evaluator, with the cost of each in units of forward passes and the number of
            examples that it sees; and the display names of their attacks. Evaluators may share searches.
        examples: the largest number of examples that an attack sees.
    """

    forward: int
    backward: int
    per_image: tuple[int, int]
    attacks: int
    uncounted: tuple[str, ...]
    shares: dict[str, float]
    by_evaluator: tuple[tuple[dict[Hashable, tuple[int, int]], str], ...]
    examples: int

    @property
    def forward_equivalents(self) -> int:
        """The cost in units of forward passes."""
        return self.forward + BACKWARD * self.backward


def show(
    configuration: str,
    stages: Sequence[Stage],
    evaluation: EvaluationSettings,
    strategy: tf.distribute.Strategy,
    jit_compile: bool | str,
    plan: Plan | None = None,
    budget: Budget | None = None,
) -> None:
    """Print the configuration, and estimates of the training stages and of the evaluation.

    Args:
        configuration: its text.
        stages: built, in the order in which they run.
        evaluation: of the run.
        strategy: that of the run; steps are measured only on a single device.
        jit_compile: of the run.
        plan: assumptions for a plan of the training on many accelerators; None for none.
        budget: time that the last lines fit the run into; None for no such lines.
    """
    print(configuration)
    per_pass, training = None, [0.0]  # seconds: forward, of one image; of each stage that is not fitted at once
    for stage in stages:
        stage.print_estimate()
        if fitted_at_once(stage.method.head):
            continue
        if plan:
            is_last = stage is stages[-1]
            passes = attack_passes(evaluation, stage.dataset, plan.test_examples).forward_equivalents if is_last else 0
            print(*plan_lines(stage, plan, passes), sep="\n")
        if strategy.num_replicas_in_sync > 1:
            print("time        unknown: steps are not measured on several replicas")
            continue
        seconds, rests_on = seconds_per_step(stage, strategy, jit_compile)
        total = duration(seconds * stage.epochs * stage.steps_per_epoch)
        print(f"time        about {total} ({duration(seconds)} per step: {rests_on})")
        per_pass = seconds / (stage.passes_per_step * (1 + BACKWARD) * stage.batch_size)
        training.append(seconds * stage.epochs * stage.steps_per_epoch)
    last = training.pop() if not fitted_at_once(stages[-1].method.head) else 0.0
    pace: dict[str, Any] = {"pace": "training's pace", "training": last, "first_stage": sum(training)}
    pace["epochs"] = stages[-1].epochs
    show_evaluation(evaluation, stages[-1].dataset, per_pass, budget, **pace)


def attack_steps(evaluation: EvaluationSettings, stage: Stage) -> float:
    """Return how many steps of a stage cost as much as the attacks of an evaluation if none succeeds."""
    passes = attack_passes(evaluation, stage.dataset).forward_equivalents
    return passes / (stage.passes_per_step * (1 + BACKWARD) * stage.batch_size)


def attack_passes(evaluation: EvaluationSettings, dataset: Dataset, count: int | None = None) -> Passes:
    """Count the passes of an evaluation's attacks if none succeeds; see `Attack.most_passes`.

    Evaluators that share a search take it once, so it counts once.

    Args:
        evaluation: of the run.
        dataset: its test split is evaluated.
        count: number of test examples to assume; None: those of the data set.
    """
    count = len(dataset.test) if count is None else count
    limit = evaluation.attacked_examples
    least = count if limit is None else min(count, limit)

    def subset(limit: int | None, first: int | None = None) -> np.ndarray:
        return np.arange(min(limit or least, first or least, least))

    setting = SimpleNamespace(images=range(count), subset=subset)
    examples = 0
    total, per_image = np.zeros(2, int), np.zeros(2, int)
    uncounted, costs = [], collections.Counter()
    by_evaluator: list[tuple[dict[Hashable, tuple[int, int]], str]] = []
    counted: dict[Hashable, tuple[int, int]] = {}
    for evaluator in evaluation.evaluators:
        try:
            searches = evaluator.attacks(setting)
        except AttributeError:  # its attacks depend on the model
            searches = ()
        if not searches:
            uncounted.append(type(evaluator).__name__)
        label = getattr(evaluator, "label", None)  # of an ensemble, whose members say more than its own name
        names = [attack_name(label if label and attack.members else attack.name) for attack, _ in searches]
        keys = [(repr(attack), positions.tobytes()) for attack, positions in searches]
        for key, (attack, positions) in zip(keys, searches, strict=True):
            if key in counted:
                continue
            before, examples = costs.total(), max(examples, len(positions))
            for member in attack.members or (attack,):
                passes = np.array(member.most_passes(dataset.class_count))
                total, per_image = total + len(positions) * passes, per_image + passes
                costs[attack_name(member.name)] += len(positions) * int(passes @ (1, BACKWARD))
            counted[key] = costs.total() - before, len(positions)
        by_evaluator.append(({key: counted[key] for key in keys}, " and ".join(dict.fromkeys(names))))
    shares = {name: cost / costs.total() for name, cost in costs.most_common()}
    return Passes(
        forward=int(total[0]),
        backward=int(total[1]),
        per_image=(int(per_image[0]), int(per_image[1])),
        attacks=len(counted),
        uncounted=tuple(dict.fromkeys(uncounted)),
        shares=shares,
        by_evaluator=tuple(by_evaluator),
        examples=examples,
    )


def seconds_per_step(stage: Stage, strategy: tf.distribute.Strategy, jit_compile: bool | str) -> tuple[float, str]:
    """Measure or estimate the seconds of a training step on this machine; return them and how they were obtained.

    A few steps of the training itself run in a temporary folder if a forward pass predicts that they are short;
    otherwise the estimate of the forward pass is returned. The method's weights change.
    """
    estimated = _from_a_forward_pass(stage)
    if estimated > _LONGEST_STEP:
        return estimated, "estimated from one forward pass, because a step would take too long here"
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as folder, strategy.scope():
        driven = {"checkpoint_seconds": math.inf, "jit_compile": strategies.use_xla(jit_compile, strategy)}
        loop = stage.loop(strategy, pathlib.Path(folder), [], verbose=0, **driven)
        loop.callbacks, loop.epochs = [watch], stage.epochs + 1  # at least two steps
        loop.run()
    count = len(watch.seconds)
    measured = "the second one" if count == 1 else f"the median of {count}"
    return statistics.median(watch.seconds), f"{measured} after compilation"


class _Stopwatch(keras.callbacks.Callback):
    """A callback that times steps after the first, which includes the compilation, and ends the training soon."""

    def __init__(self):
        super().__init__()
        self.seconds: list[float] = []
        self._compiled = False

    def on_train_batch_begin(self, batch, logs=None):
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if self._compiled:
            self.seconds.append(time.perf_counter() - self._began)
        self._compiled = True
        if len(self.seconds) >= _STEPS or sum(self.seconds) > _LONGEST_MEASUREMENT:
            self.model.stop_training = True


def _from_a_forward_pass(stage: Stage) -> float:
    """Estimate the seconds of a step from the best of three compiled forward passes of some images."""
    count = min(32, stage.batch_size, len(stage.dataset.train))
    images = stage.dataset.train.fetch(tf.range(count, dtype=tf.int64))
    forward = tf.function(lambda examples: stage.method(examples, training=False), autograph=False)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        forward(images)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:]) * (1 + BACKWARD) * stage.passes_per_step * math.ceil(stage.batch_size / count)


def show_evaluation(
    evaluation: EvaluationSettings,
    dataset: Dataset,
    per_pass: float | None,
    budget: Budget | None = None,
    pace: str = "the pace of one batch",
    training: float = 0.0,
    first_stage: float = 0.0,
    epochs: int = 0,
) -> None:
    """Print the cost of an evaluation's attacks, and what fits a budget.

    Args:
        evaluation: of the run.
        dataset: its test split is evaluated.
        per_pass: seconds of a forward pass of one image; None if unknown.
        budget: as for `show`.
        pace: where `per_pass` comes from.
        training: seconds of the last stage of the training before it.
        first_stage: seconds of a stage before that.
        epochs: of the last stage.
    """
    passes = attack_passes(evaluation, dataset)
    _print_passes(evaluation, passes)
    if per_pass and passes.attacks:
        total = duration(per_pass * passes.forward_equivalents)
        print(f"time        at most about {total} for these attacks, at {pace}")
    if budget and per_pass:
        searches = tuple(
            {key: (per_pass * cost, n) for key, (cost, n) in entries.items()} for entries, _ in passes.by_evaluator
        )
        names = tuple(name for _, name in passes.by_evaluator)
        for line in budgets.lines(budgets.Costs(training, epochs, searches, names, first_stage), budget):
            print(line)
    elif budget and budget.seconds:
        print("budget      unknown: no step was measured")


def _print_passes(evaluation: EvaluationSettings, passes: Passes) -> None:
    """Print the passes of an evaluation's attacks, and which evaluators they leave out."""
    if not evaluation.evaluators:
        print("evaluation  none")
        return
    forward, backward = passes.per_image
    print(f"evaluation  at most {forward} forward and {backward} backward passes per example, by", end=" ")
    count = f"{passes.attacks} attack{'s' * (passes.attacks != 1)}"
    print(f"{count} on {passes.examples} examples, fewer if attacks succeed early")
    print(f"            together {passes.forward} forward and {passes.backward} backward passes of one example")
    if len(passes.shares) > 1:
        parts = [f"{name} {share:.0%}" for name, share in passes.shares.items()]
        print(f"            largest parts: {', '.join(parts[:3])}")
    if passes.uncounted:
        print(f"            not counted: {', '.join(passes.uncounted)}")


def seconds_per_pass(setting: Setting) -> float:
    """Measure the seconds of a forward pass of one image: the best of three compiled batches."""
    images = setting.images[: setting.batch_size]
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        setting.predict(images)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:]) / len(images)

"""What a run will take, said before it begins: passes from the configuration, time from a few steps made."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from tfrobust.data.spec import Dataset
from tfrobust.evaluation.base import Evaluator
from tfrobust.pretraining import Stage
from tfrobust.report.reading import duration
from tfrobust.training import strategy as strategies
from tfrobust.training.head_fit import fitted_at_once

# Steps are made only where one seems to take no longer, and no more of them than fit into so many seconds.
_LONGEST_STEP, _LONGEST_MEASUREMENT, _STEPS = 3.0, 12.0, 5
# A pass backward takes about twice as long as one forward.
_BACKWARD = 2


@dataclasses.dataclass(frozen=True)
class Passes:
    """What the attacks of an evaluation take at most, in passes of one image: an image that falls takes no more.

    both: forward and backward. forward: forward alone, of black-box attacks. attacks: how many there are. uncounted:
    who else measures.
    """

    both: int
    forward: int
    attacks: int
    uncounted: tuple[str, ...]

    @property
    def forward_equivalents(self) -> int:
        """As passes forward."""
        return (1 + _BACKWARD) * self.both + self.forward


def show(
    configuration: str,
    stages: Sequence[Stage],
    evaluators: Sequence[Evaluator],
    strategy: tf.distribute.Strategy,
    jit_compile: bool | str,
) -> None:
    """Prints the configuration, and estimates of the trainings and of the evaluation behind them.

    Args:
        configuration: its text.
        stages: built, in the order in which they run.
        evaluators: of the run.
        strategy: that of the run; steps are made on one device alone.
        jit_compile: of the run.
    """
    print(configuration)
    seconds_per_pass = None  # forward, of one image
    for stage in stages:
        stage.print_estimate()
        if fitted_at_once(stage.method.head):
            continue
        if strategy.num_replicas_in_sync > 1:
            print("time        not known: no step is made on several replicas")
            continue
        seconds, rests_on = seconds_per_step(stage, strategy, jit_compile)
        whole = duration(seconds * stage.epochs * stage.steps_per_epoch)
        print(f"time        about {whole} ({duration(seconds)} a step: {rests_on})")
        seconds_per_pass = seconds / (stage.passes_per_step * (1 + _BACKWARD) * stage.batch_size)
    _show_evaluation(evaluators, stages[-1].dataset, seconds_per_pass)


def attack_passes(evaluators: Sequence[Evaluator], dataset: Dataset) -> Passes:
    """What the attacks of an evaluation take where nothing falls: images x rounds x steps of each.

    Args:
        evaluators: of the run.
        dataset: its test split is judged.
    """
    count = len(dataset.test)
    setting = SimpleNamespace(
        images=range(count), subset=lambda limit: np.arange(count if limit is None else min(limit, count))
    )
    both = forward = attacks = 0
    uncounted = []
    for evaluator in evaluators:
        try:
            found = evaluator.attacks(setting)
        except AttributeError:  # it asks the model first
            found = ()
        if not found:
            uncounted.append(type(evaluator).__name__)
        for attack, positions in found:
            attacks += 1
            for member in attack.members or (attack,):
                passes = len(positions) * member.rounds(dataset.class_count) * member.steps
                both += passes if member.needs_gradient else 0
                forward += 0 if member.needs_gradient else passes
    return Passes(both, forward, attacks, tuple(dict.fromkeys(uncounted)))


def seconds_per_step(stage: Stage, strategy: tf.distribute.Strategy, jit_compile: bool | str) -> tuple[float, str]:
    """How long a training step takes here, and what that rests on.

    A few steps of the training itself are made in a folder that is thrown away, where one pass forward says that they
    will not take long; else that pass is all there is to go by. The method's weights move.
    """
    forecast = _forecast(stage)
    if forecast > _LONGEST_STEP:
        return forecast, "a guess from one pass forward, for a step would take too long here"
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as folder, strategy.scope():
        driven = {"checkpoint_seconds": math.inf, "jit_compile": strategies.use_xla(jit_compile, strategy)}
        loop = stage.loop(strategy, pathlib.Path(folder), [], verbose=0, **driven)
        loop.callbacks = [watch]
        loop.run()
    if len(watch.seconds) < 2:
        return watch.seconds[0], "the first one, with its compilation"
    count = len(watch.seconds) - 1
    return statistics.median(watch.seconds[1:]), f"the median of {count}, made on this machine"


class _Stopwatch(keras.callbacks.Callback):
    """Times steps, and stops the training after some."""

    def __init__(self):
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch, logs=None):
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self._began)
        if len(self.seconds) > _STEPS or sum(self.seconds) > _LONGEST_MEASUREMENT:
            self.model.stop_training = True


def _forecast(stage: Stage) -> float:
    """Seconds of a step, from the best of three passes forward of some images, compiled."""
    count = min(32, stage.batch_size, len(stage.dataset.train))
    images = stage.dataset.train.fetch(tf.range(count, dtype=tf.int64))
    forward = tf.function(lambda examples: stage.method(examples, training=False), autograph=False)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        forward(images)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:]) * (1 + _BACKWARD) * stage.passes_per_step * math.ceil(stage.batch_size / count)


def _show_evaluation(evaluators: Sequence[Evaluator], dataset: Dataset, seconds_per_pass: float | None) -> None:
    passes = attack_passes(evaluators, dataset)
    if not evaluators:
        print("evaluation  none")
        return
    black_box = f" and {passes.forward} forward alone" if passes.forward else ""
    print(f"evaluation  at most {passes.both} passes of one image forward and backward{black_box}, by", end=" ")
    print(f"{passes.attacks} attacks on {len(dataset.test)} examples, fewer where these fall early")
    if passes.uncounted:
        print(f"            besides {', '.join(passes.uncounted)}")
    if seconds_per_pass and passes.attacks:
        print(
            f"time        at most about {duration(seconds_per_pass * passes.forward_equivalents)} for these attacks, at"
            " training's pace"
        )

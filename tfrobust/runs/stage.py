"""Stage: one training of a run, that is a method, its data and the number of epochs."""

from __future__ import annotations

import bisect
import dataclasses
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack, facts_of
from tfrobust.augment.augmentation import Augmentation
from tfrobust.common import configured
from tfrobust.data import pipeline
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation.progress import attack_title
from tfrobust.methods.shared import updates
from tfrobust.methods.shared.method import Method
from tfrobust.models.shared.normalization import slow_statistics_warning, synchronization_warning
from tfrobust.ops import keras_private, schedules
from tfrobust.pairs.false_negatives import REMAINING
from tfrobust.runs import workdir as workdirs
from tfrobust.runs.trained_line import trained_line
from tfrobust.training.callbacks.averaged_weights import AveragedWeights
from tfrobust.training.callbacks.collapse_warning import CollapseWarning
from tfrobust.training.callbacks.negatives_warning import NegativesWarning
from tfrobust.training.head_fit import HeadFit, fitted_at_once, refuse_method, unused_settings
from tfrobust.training.loop import Loop
from tfrobust.training.pseudo_labels import refreshers

_log = logging.getLogger(__name__)

# A backward pass takes about twice as many operations as a forward pass.
BACKWARD = 2
# A rate that is 0 only during a smaller share of the steps, at their end, causes no warning.
_IDLE_SHARE = 0.1


@dataclasses.dataclass(kw_only=True)
class Stage:
    """One training of a run: a method, its data, and the number of epochs.

    Attributes:
        method: as constructed; `build` prepares it.
        dataset: the examples.
        source: source of the examples.
        epochs: >= 1.
        batch_size: >= 1.
        seed: seed of all random draws.
        augmentation: of the training images, or None.
        callbacks: the user's.
        validation: constructor of the validation callback, or None.
        title: name in the progress output; "" if there is only one stage.
        last: True if its classifier is the run's; False if another stage takes its encoder over.
        frozen: True to train with a frozen encoder, False with one that is not; None leaves the encoder as it is.
    """

    method: Method
    dataset: Dataset
    source: Source
    epochs: int
    batch_size: int
    seed: int
    augmentation: Augmentation | None = None
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    validation: Callable | None = None
    title: str = ""
    last: bool = True
    frozen: bool | None = None

    def build(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Create the variables and compile, inside the strategy's scope.

        Raises:
            InputError: method, head and data do not fit each other.
        """
        model, shape = self.method, (None, *self.dataset.image_shape)
        if fitted_at_once(model.head):  # here, before a first stage is trained in vain
            refuse_method(model)
            parts = ("augmentation", "callbacks", "validation")
            warning = unused_settings(
                model.head, epochs=self.epochs, **{f"train.{name}": getattr(self, name) for name in parts}
            )
            if warning:
                _log.warning(warning)
        if self.last and getattr(model, "probe", True) is False:
            raise InputError(
                f"{type(model).__name__}.probe = False leaves the classifier untrained: use it as Pretraining.method, "
                "or keep the probe."
            )
        if self.batch_size < model.least_batch:
            name = type(model).__name__
            raise InputError(
                f"{name} learns nothing from batches of {self.batch_size}; it needs at least {model.least_batch}."
            )
        for part in (model, model.head):
            if hasattr(part, "examples"):  # it has state per training image
                part.examples = len(self.dataset.train)
        model.build(shape)
        logits = model.compute_output_shape(shape)[-1]
        if logits != self.dataset.class_count:
            name, count = self.dataset.name, self.dataset.class_count
            raise InputError(f"the head returns {logits} logits, but {name} has {count} classes.")
        model.check_ready(self.dataset.image_shape, self.dataset.class_count)
        # The loop itself decides whether XLA compiles the step.
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        model.compile(optimizer=optimizer, metrics=metrics, jit_compile=False)
        inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if self._updates < 1:
            raise InputError(
                f"{type(inner).__name__}.gradient_accumulation_steps is {updates.batches_per_update(inner)}, but the "
                f"training has {self.epochs * self.steps_per_epoch} steps, and so no update: lower it."
            )
        for schedule in schedules.over_training([model, vars(inner).get("decay")]):
            schedule.begin(self._updates)
        for schedule in schedules.over_training(keras_private.learning_rate(inner)):
            schedule.begin(self._batches)
        _refuse_silent(model.optimizer, self.callbacks, self.last)
        for sentence in () if fitted_at_once(model.head) else self.idle_parts():
            _log.warning(sentence)

    def idle_parts(self) -> list[str]:
        """Describe each part that its schedule or interval leaves without effect in so few steps, one sentence each."""
        name, steps = type(self.method).__name__, self._updates
        sentences = [
            f"{name} trains without its term {term}: its scheduled weight is 0 in all {steps} steps. Use more epochs, "
            "or a schedule that starts earlier."
            for term in self.silent_terms()
        ]
        optimizer = getattr(self.method.optimizer, "inner_optimizer", self.method.optimizer)
        learning_rate = keras_private.learning_rate(optimizer)
        rates = {
            "learning": (learning_rate, self._batches),
            "target": (getattr(self.method, "target_rate", None), steps),
        }
        for rate, (schedule, count) in rates.items():
            scheduled = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
            first = _first_of_zeros(schedule, count) if scheduled else count
            if count - first >= _IDLE_SHARE * count:
                sentences.append(
                    f"{name}: the {rate} rate is 0 from step {first} of {count}: set decay_steps to {count}, less "
                    "the steps of a warm-up."
                )
        boundaries = getattr(learning_rate, "boundaries", None) or ()
        late = [boundary for boundary in boundaries if boundary >= self._batches - 1]
        if late:
            sentences.append(
                f"{name}: the learning rate changes at steps {', '.join(map(str, boundaries))}, and {len(late)} of "
                f"these come after the last of {self._batches}: boundaries count steps of this BATCH_SIZE, so scale "
                "them."
            )
        rule = getattr(self.method, "false_negatives", None)
        if getattr(rule, "needs_pseudo_labels", False) and self.epochs <= rule.every:
            sentences.append(
                f"{name} trains without {type(rule).__name__}, which clusters first after epoch {rule.every} of "
                f"{self.epochs}. Use more epochs, or a smaller every."
            )
        sentences += [
            f"{type(callback).__name__} averages nothing: its start_epoch {callback.start_epoch} is after the last of "
            f"{self.epochs} epochs."
            for callback in self.callbacks
            if isinstance(callback, AveragedWeights) and callback.start_epoch > self.epochs
        ]
        return [*sentences, *self._unfinished_ramp(), *self._slow_statistics()]

    def _slow_statistics(self) -> list[str]:
        """Describe batch norms that the training is too short for, in one sentence or none."""
        sentence = "" if self.frozen else slow_statistics_warning(self.method, self.epochs * self.steps_per_epoch)
        return [f"{type(self.method).__name__}: {sentence}"] * bool(sentence)

    def _unfinished_ramp(self) -> list[str]:
        """Describe a ramp of the radius that the training ends before, in one sentence or none."""
        if self.method.radius_ramp is None:
            return []
        (ramp, radius), steps = self.method.radius_ramp, self._updates
        shares = [float(ramp(tf.constant(step, tf.int64))) for step in _sampled(steps)]
        share = shares[0]
        if not 0 <= min(shares) <= max(shares) <= 1 + 1e-6:
            raise InputError(
                f"{type(self.method).__name__}: the ramp of the radius goes from {min(shares):.3g} to "
                f"{max(shares):.3g}, but it multiplies the radius {radius:.3g}: it lies in [0, 1]."
            )
        if share >= 1 - 2 / steps:  # one over all steps is whole after the last one
            return []
        return [
            f"{type(self.method).__name__}: the ramp of the radius ends at {share * radius:.3g} of {radius:.3g} after "
            f"{steps} steps: use more epochs, or a shorter ramp."
        ]

    def silent_terms(self) -> list[str]:
        """Return the loss terms without effect: the schedule of their weight is 0 from the first step to the last."""
        steps = [tf.constant(step, tf.int64) for step in _sampled(self._updates)]
        weights = {name: self.method.weight_of(name) for name in self.method.all_terms}
        return [
            name for name, weight in weights.items() if callable(weight) and not any(float(weight(s)) for s in steps)
        ]

    @property
    def _updates(self) -> int:
        """Number of updates of the weights, which schedules count, but for that of the learning rate."""
        return self._batches // updates.batches_per_update(getattr(self.method, "optimizer", None))

    @property
    def _batches(self) -> int:
        """Number of batches whose gradients the optimizer is given; Keras evaluates the learning rate at each."""
        return self.epochs * self.steps_per_epoch * self.method.updates_per_step

    @property
    def steps_per_epoch(self) -> int:
        """Number of full batches in one pass over the training split."""
        return pipeline.steps_per_epoch(self.dataset.train, self.batch_size)

    @property
    def numbers(self) -> dict:
        """Epochs, batch size and seed."""
        return {"epochs": self.epochs, "batch_size": self.batch_size, "seed": self.seed}

    def configuration(self) -> dict:
        """Return all that determines the outcome, as JSON; a workdir must hold the same."""
        parts = {"method": self.method, "optimizer": self.method.optimizer, "data": self.source}
        parts["augmentation"] = self.augmentation
        parts["callbacks"] = [_callback_facts(callback) for callback in self.callbacks]
        if self.validation is not None and len(self.dataset.validation):  # it selects the best weights
            images, labels = self.dataset.validation.arrays(1)
            parts["validation"] = _callback_facts(self.validation(images=images, labels=labels))
        described = workdirs.canonical(configured.serialize(parts | self.numbers))
        return described | {"data_fingerprint": self.dataset.fingerprint}

    def facts(self) -> dict:
        """Return a short description of the training for the report."""
        facts = {"method": type(self.method).__name__, **self.numbers}
        adversary = getattr(self.method, "adversary", None)
        if adversary is not None:
            facts |= facts_of(adversary.attack) | {"batch_norm_mode_of_the_attack": adversary.mode}
        ramp = self._ramp_epochs()
        return facts if ramp is None else facts | {"epsilon_ramp": ramp}

    def _ramp_epochs(self) -> dict | None:
        """Return the numbers of epochs until the ramp of the radius begins and is whole, None without a ramp.

        A number is None if the training ends before.
        """
        if self.method.radius_ramp is None or fitted_at_once(self.method.head):
            return None
        ramp, steps = self.method.radius_ramp[0], self._updates

        def epochs(reached: Callable[[float], bool]) -> float | None:
            key = lambda step: reached(float(ramp(tf.constant(step, tf.int64))))  # noqa: E731
            first = bisect.bisect_left(range(steps + 1), True, key=key)
            return None if first > steps else round(first * self.epochs / steps, 3)

        return {"epochs_of_0": epochs(lambda share: share > 0), "epochs_until_whole": epochs(_is_whole)}

    @property
    def passes_per_step(self) -> int:
        """Number of forward and backward passes over the batch in one step, including those of a penalty."""
        penalty = self.method.penalty
        if penalty is None:
            return self.method.passes_per_step
        views = penalty.on or self.method.differentiable_views
        return self.method.passes_per_step + penalty.passes_per_view * len(views)

    def print_estimate(self) -> None:
        """Print the cost estimate of the training, for `--dry_run`."""
        passes, steps = self.passes_per_step, self.epochs * self.steps_per_epoch
        print("\n".join(self.description()))
        if not fitted_at_once(self.method.head):
            print(f"steps       {steps} ({self.steps_per_epoch} per epoch)")
            print(
                f"passes      {passes} forward and backward passes over the batch per step, {steps * passes} in total"
            )

    def description(self) -> list[str]:
        """Return lines on data, model, method and threat model of the training."""
        encoder, head, data = self.method.encoder, self.method.head, self.dataset
        sizes = ", ".join(f"{size:,} {split}" for split, size in data.sizes.items() if size)
        shape = "x".join(map(str, data.image_shape))
        name, count = type(self.method).__name__, encoder.count_params() + head.count_params()
        epochs = (
            f"{self.epochs} epoch{'s' * (self.epochs > 1)} of {self.steps_per_epoch} steps, batch {self.batch_size}"
        )
        adversary = getattr(self.method, "adversary", None)
        attack, budget = attack_title(adversary.attack) if adversary else ("", "")
        replicas, ramp = self.method.distribute_strategy.num_replicas_in_sync, self._ramp_epochs()
        rows = {
            "data": f"{data.name}: {sizes}; shape {shape}, {data.class_count} classes",
            "model": f"{type(encoder).__name__} and {type(head).__name__}, {count:,} parameters",
            "method": f"{name}, {'fitted at once' if fitted_at_once(head) else epochs}",
            "trains": trained_line(self.method, self.frozen),
            "threat": adversary and f"{budget}, {attack} in training",
            "radius": ramp and _ramp_line(ramp, self.epochs),
            "replicas": replicas > 1 and f"{replicas}. {synchronization_warning(self.method)}",
        }
        return [*filter(None, [self.title]), *(f"{label:12}{text}" for label, text in rows.items() if text)]

    def loop(
        self, strategy: tf.distribute.Strategy, folder: pathlib.Path, watchers: list, **keywords
    ) -> Loop | HeadFit:
        """Return the training loop with its state in `folder`, or a `HeadFit` for a head that is fitted at once."""
        if self.frozen is not None:
            self.method.encoder.trainable = not self.frozen
        if fitted_at_once(self.method.head):
            return HeadFit(self.method, self.dataset.train, self.batch_size, self.title, keywords.get("verbose", 1))
        drawn: dict[str, Any] = {"batch_size": self.batch_size, "seed": self.seed, "augmentation": self.augmentation}
        drawn["views"] = self.method.host_views
        callbacks = refreshers(self.method, self.dataset.train, seed=self.seed, batch_size=self.batch_size)
        if "embedding_deviation" in self.method.observations:
            callbacks.append(CollapseWarning())
        if REMAINING in self.method.observations:
            callbacks.append(NegativesWarning())
        return Loop(
            method=self.method,
            strategy=strategy,
            batches=lambda step, **share: pipeline.training_batches(
                self.dataset.train, start_step=step, **drawn, **share
            ),
            steps_per_epoch=self.steps_per_epoch,
            epochs=self.epochs,
            checkpoint_directory=str(folder / "checkpoints"),
            callbacks=[*watchers, *callbacks],
            history_file=str(folder / "history.csv"),
            title=self.title,
            **keywords,
        )


# The method's settings that clip the global gradient as those of an optimizer would on one replica.
_CLIPS = {
    "clipnorm": "set the method's clip_norm and clip_each",
    "global_clipnorm": "set the method's clip_norm",
    "clipvalue": "use one replica",
}


def _refuse_silent(optimizer: keras.optimizers.Optimizer, callbacks: tuple, last: bool = True) -> None:
    """Raise InputError for settings of Keras that a stage would silently ignore, or carry out in another way."""
    best, averaged = "leave it out", "set ema_overwrite_frequency"
    if last:  # the weights of a first stage are always those of its last step
        best += ", and set train.publish_weights = 'best'"
        averaged += ", or take @AveragedWeights() as a callback and train.publish_weights = 'averaged'"
    for callback in callbacks:
        name = type(callback).__name__
        if getattr(callback, "restore_best_weights", False):
            raise InputError(f"{name}.restore_best_weights: a resumed run does not have these weights; {best}.")
        if isinstance(callback, AveragedWeights) and not last:
            raise InputError(f"{name} has no effect on a first stage, which hands over its last weights; {best}.")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    name = type(inner).__name__
    if inner.use_ema and not inner.ema_overwrite_frequency:
        raise InputError(f"{name}.use_ema averages weights that no step uses; {averaged}.")
    for clip, instead in _CLIPS.items():
        if getattr(inner, clip) is not None and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise InputError(f"{name}.{clip} clips the gradient of each replica, before they are added; {instead}.")


def _ramp_line(ramp: dict, epochs: int) -> str:
    """Return the line of a summary on the ramp of the radius; `ramp` has the entries of a report."""
    zero, ramped = ramp.values()
    until = "never whole" if ramped is None else f"whole after {ramped:g} of {epochs}"
    return f"0 for {epochs if zero is None else zero:g} epochs, {until}"


def _is_whole(share: float) -> bool:
    """Return True if the ramp of a radius has reached its end, up to rounding."""
    return share >= 1 - 1e-6


def _sampled(steps: int) -> np.ndarray:
    """Return up to 50 of so many steps, the last one first."""
    return np.unique(np.linspace(steps - 1, 0, 50).astype(int))[::-1]


def _first_of_zeros(schedule: Callable, steps: int) -> int:
    """Return the first step from which on a schedule is 0; `steps` if it is not 0 at the last step."""

    def is_zero(step):
        return float(schedule(tf.constant(step, tf.int64))) == 0

    return bisect.bisect_left(range(steps), True, key=is_zero) if is_zero(steps - 1) else steps


def _callback_facts(callback) -> dict:
    return {type(callback).__name__: {k: v for k, v in vars(callback).items() if _is_setting(v) and k[0] != "_"}}


def _is_setting(value) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and _is_setting(list(value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_setting, value))
    return isinstance(
        value, (bool, int, float, str, type(None), Attack, keras.optimizers.schedules.LearningRateSchedule)
    )

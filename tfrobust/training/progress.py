"""The training's lines on standard output: one per epoch, with the main numbers or all of them."""

from __future__ import annotations

import statistics
import textwrap
import time

import keras

from tfrobust.common.console import Live, duration

_WIDTH = 80
# Steps that the estimate is measured on, or fewer if they take longer than some seconds.
_STEPS, _SECONDS = 5, 3.0
# Seconds of attacks from which on the estimate names them: below, their compilation takes longer.
_MENTIONED = 20.0


class EpochLines(keras.callbacks.Callback):
    """A callback that prints a line per epoch, and an estimate of the time after some steps; see `epoch_line`.

    It is the last in the list, since it prints the logs that other callbacks extended.

    Args:
        epochs: number of epochs.
        steps_per_epoch: number of steps per epoch.
        verbose: 0 prints nothing, 1 the main numbers, 2 all logs.
        steps_after: cost of the attacks after the training, at most, in training steps; for the estimate.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, verbose: int, steps_after: float = 0.0):
        super().__init__()
        self.epochs, self.steps_per_epoch, self.verbose = epochs, steps_per_epoch, verbose
        self.steps_after = steps_after
        self._live, self._estimated = Live(), False
        self._seconds: list[float] = []

    def on_epoch_begin(self, epoch, logs=None):
        """Start the epoch's clock."""
        self._epoch, self._started = epoch, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        """Start the step's clock."""
        self._began = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        """Move the bar, and print the estimate once enough steps were measured."""
        if not self.verbose:
            return
        self._seconds.append(time.monotonic() - self._began)
        done, total = self._epoch * self.steps_per_epoch + batch + 1, self.epochs * self.steps_per_epoch
        self._live.show(f"epoch {self._epoch + 1}/{self.epochs}  loss {number(logs['loss'])}", done, total)
        measured = self._seconds[1:]  # the first step includes the compilation
        if not self._estimated and (len(measured) == _STEPS or sum(measured) > _SECONDS):
            self._estimated = True
            step_seconds = statistics.median(measured)
            estimate = f"estimate    about {duration(step_seconds * (total - done))} for {total - done} more steps"
            after = step_seconds * self.steps_after
            attacks = f", then at most about {duration(after)} of attacks" if after > _MENTIONED else ""
            print(estimate + attacks, flush=True)

    def on_epoch_end(self, epoch, logs=None):
        """Print the epoch's line."""
        if self.verbose:
            seconds = time.monotonic() - self._started
            print(epoch_line(epoch + 1, self.epochs, logs, seconds), *self._rest(logs), sep="\n", flush=True)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self._live.close()

    def _rest(self, logs: dict) -> list[str]:
        """Return lines with all logs if they were requested."""
        words = "  ".join(f"{name}\0{number(value)}" for name, value in sorted(logs.items()))
        lines = textwrap.wrap(words, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        return [line.replace("\0", " ") for line in lines] if self.verbose > 1 else []


def epoch_line(epoch: int, epochs: int, logs: dict, seconds: float) -> str:
    """Return an epoch's line: "epoch 12/40  loss 7.89  accuracy 98.4  val 99.0 / 59.0 robust  0.6 s".

    Args:
        epoch: counted from 1.
        epochs: number of epochs.
        logs: of the epoch; `loss` is required. Accuracies lie in [0, 1] and are shown in percent.
        seconds: duration of the epoch.
    """
    parts = [f"epoch {epoch:{len(str(epochs))}}/{epochs}", f"loss {number(logs['loss'])}"]
    if "accuracy" in logs:
        parts.append(f"accuracy {100 * logs['accuracy']:.1f}")
    if "val_clean_accuracy" in logs:
        parts.append(f"val {100 * logs['val_clean_accuracy']:.1f} / {100 * logs['val_robust_accuracy']:.1f} robust")
    return "  ".join([*parts, duration(seconds)])


def number(value: float) -> str:
    """Format a number with about three significant digits: "7.89", "0.00213", "1.2e+04"."""
    return f"{value:.2f}" if 1 <= abs(value) < 1000 else f"{value:.3g}"

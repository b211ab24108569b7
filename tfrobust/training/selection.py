"""What watches a run, and which of its weights are handed on."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import keras

from tfrobust.errors import InputError
from tfrobust.training.callbacks import AveragedWeights, BestWeights
from tfrobust.training.head_fit import fitted_at_once
from tfrobust.training.observability import Throughput

PUBLISHED_WEIGHTS = ("last", "best", "averaged")


def check_choice(weights: str, validated: bool, callbacks: tuple, head: Callable) -> None:
    """Refuses a choice of weights that nothing in the run can serve, before it starts.

    Args:
        weights: one of `PUBLISHED_WEIGHTS`.
        validated: whether a validation callback and validation examples are there.
        callbacks: the user's callbacks.
        head: constructor of the classifier.
    """
    if weights not in PUBLISHED_WEIGHTS:
        raise InputError(f"publish_weights is {weights!r}; it is one of {list(PUBLISHED_WEIGHTS)}.")
    if weights != "last" and fitted_at_once(head):
        raise InputError(f"{head.__name__} is fitted at once, without epochs: publish_weights is 'last' then.")
    if weights == "best" and not validated:
        raise InputError("publish_weights = 'best' needs a validation_size above 0 and a validation callback.")
    if weights == "averaged" and not any(isinstance(one, AveragedWeights) for one in callbacks):
        raise InputError("publish_weights = 'averaged' needs an @AveragedWeights() among train.callbacks.")


def watch(
    folder: pathlib.Path, validation: tuple, make_validation: Callable | None, callbacks: tuple, batch_size: int
) -> list:
    """The callbacks of a run, in order: validation under attack, the user's, best weights, TensorBoard, throughput.

    Args:
        folder: the workdir; on workers that are not the chief one that is thrown away.
        validation: (images, labels) of the validation split.
        make_validation: called as make_validation(images=, labels=), or None.
        callbacks: the user's.
        batch_size: of the global batch.
    """
    watchers = list(callbacks)
    images, labels = validation
    if make_validation is not None and len(labels):
        # First: what it logs is there for the others.
        watchers.insert(0, make_validation(images=images, labels=labels))
        watchers.append(BestWeights(folder / "best"))
    watchers.append(keras.callbacks.TensorBoard(str(folder / "logs"), write_graph=False, profile_batch=0))
    watchers.append(Throughput(str(folder / "logs" / "speed"), batch_size))
    return watchers


def choose_weights(weights: str, watchers: list) -> dict:
    """Puts the weights to be published into the model.

    Args:
        weights: one of `PUBLISHED_WEIGHTS`.
        watchers: from `watch`, after training.

    Returns:
        `weights`, and `on`: what they were selected on, "last" (nothing) or "validation".
    """
    if weights == "last":
        return {"weights": "last", "on": "last"}
    kind = BestWeights if weights == "best" else AveragedWeights
    state = next(watcher for watcher in watchers if isinstance(watcher, kind)).restore()
    if state is None:
        raise InputError("publish_weights = 'best', but no epoch was validated: lower RobustAccuracy.every.")
    if weights == "averaged":
        return {"weights": "averaged", "on": "last", **state}
    return {"weights": "best", "on": "validation", "epoch": state["step"], "value": state["value"]}

"""The weights that a run publishes: the last ones, those of the best epoch, or an average."""

from __future__ import annotations

from collections.abc import Callable

import keras

from tfrobust.errors import InputError
from tfrobust.training.callbacks.averaged_weights import AveragedWeights
from tfrobust.training.callbacks.best_weights import BestWeights
from tfrobust.training.head_fit import fitted_at_once

PUBLISHED_WEIGHTS = ("last", "best", "averaged")


def check_choice(weights: str, validated: bool, callbacks: tuple, head: Callable) -> None:
    """Raise InputError, before the run starts, if nothing in it can provide the chosen weights.

    Args:
        weights: one of `PUBLISHED_WEIGHTS`.
        validated: True if there are a validation callback and validation examples.
        callbacks: the user's callbacks.
        head: constructor of the classifier.
    """
    if weights not in PUBLISHED_WEIGHTS:
        raise InputError(f"publish_weights is {weights!r}; it is one of {list(PUBLISHED_WEIGHTS)}.")
    if weights != "last" and fitted_at_once(head):
        raise InputError(f"{head.__name__} is fitted at once, without epochs: publish_weights is 'last' then.")
    if weights == "best" and not validated:
        raise InputError("publish_weights = 'best' needs a validation_size above 0 and a validation callback.")
    if weights == "averaged" and not any(isinstance(callback, AveragedWeights) for callback in callbacks):
        raise InputError("publish_weights = 'averaged' needs an @AveragedWeights() among train.callbacks.")


def check_validation(weights: str, validation: keras.callbacks.Callback, epochs: int) -> None:
    """Raise InputError if "best" was chosen, and the training has fewer epochs than one validation takes."""
    every = getattr(validation, "every", 1)
    if weights == "best" and every > epochs:
        raise InputError(
            f"publish_weights = 'best', but {type(validation).__name__}.every is {every}, and EPOCHS is {epochs}: no "
            "epoch would be validated."
        )


def choose_weights(weights: str, watchers: list) -> dict:
    """Assign the weights to be published to the model.

    Returns:
        `weights`, and `on`: the data they were selected on, "last" (none) or "validation". With "best" also its epoch
        and value, with "averaged" the kind of the average.

    Raises:
        InputError: "best" was chosen, but no epoch was validated.
    """
    if weights == "last":
        return {"weights": "last", "on": "last"}
    kind = BestWeights if weights == "best" else AveragedWeights
    state = next(watcher for watcher in watchers if isinstance(watcher, kind)).restore()
    if state is None:
        raise InputError(
            "publish_weights = 'best', but no epoch was validated, or the folder best/ is damaged: lower "
            "RobustAccuracy.every, in another --workdir if the training has ended."
        )
    if weights == "averaged":
        return {"weights": "averaged", "on": "last", **state}
    return {"weights": "best", "on": "validation", "epoch": state["step"], "value": state["value"]}

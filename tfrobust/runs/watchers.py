"""The Keras callbacks that watch a run."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import keras

from tfrobust.training.callbacks.best_weights import BestWeights
from tfrobust.training.observability import Throughput


def watch(
    folder: pathlib.Path, validation: tuple, make_validation: Callable | None, callbacks: tuple, batch_size: int
) -> list:
    """Return the callbacks of a run in order.

    The order is validation under attack, the user's, best weights, TensorBoard, throughput.

    Args:
        folder: the workdir; on workers other than the chief their own folder.
        validation: (images, labels) of the validation split.
        make_validation: called as make_validation(images=, labels=), or None.
        callbacks: the user's.
        batch_size: size of the global batch.
    """
    watchers = list(callbacks)
    images, labels = validation
    if make_validation is not None and len(labels):
        # First, so that the others see its logs.
        watchers.insert(0, make_validation(images=images, labels=labels))
        watchers.append(BestWeights(folder / "best"))
    watchers.append(keras.callbacks.TensorBoard(str(folder / "logs"), write_graph=False, profile_batch=0))
    watchers.append(Throughput(str(folder / "logs" / "speed"), batch_size))
    return watchers

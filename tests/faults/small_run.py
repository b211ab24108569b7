"""A training run that takes a second and has everything that must survive: an attack, momentum, a running
metric, an augmentation, a schedule by callback, a running average, the best weights."""

import hashlib
import json
import pathlib

import keras
import tensorflow as tf

from conformance import methods as battery
from tfrobust.augment.standard import RandomShift
from tfrobust.data import pipeline, spec
from tfrobust.keras.callbacks import AveragedWeights, BestWeights, RobustAccuracy
from tfrobust.training.loop import Loop

BATCH, STEPS_PER_EPOCH, EPOCHS = 6, 4, 3
LAST = EPOCHS * STEPS_PER_EPOCH


def batches(start: int) -> tf.data.Dataset:
    """Batches of 6 of 24 images from a step on."""
    return pipeline.training_batches(
        spec.ArrayExamples(*battery.data(BATCH * STEPS_PER_EPOCH)),
        batch_size=BATCH,
        seed=3,
        augmentation=RandomShift(fraction=0.2),
        start_step=start,
    )


def make_loop(directory, row: str = "ascl", callbacks=(), optimizer=None, **keywords) -> Loop:
    """A loop with a new model, a checkpoint after every step unless `checkpoint_seconds` says otherwise."""
    arguments = dict(
        method=battery.build(row, optimizer=optimizer),
        strategy=tf.distribute.get_strategy(),
        batches=batches,
        steps_per_epoch=STEPS_PER_EPOCH,
        epochs=EPOCHS,
        checkpoint_directory=str(pathlib.Path(directory) / "checkpoints"),
        callbacks=callbacks,
        checkpoint_seconds=0.0,
    )
    return Loop(**{**arguments, **keywords})


def all_callbacks(directory) -> list:
    """One callback of each kind that has a state. The plateau is met after epoch 2, if epoch 1 is remembered."""
    images, labels = battery.data(9)
    return [
        RobustAccuracy(images, labels, attack=battery.adversary().attack, batch_size=4),
        AveragedWeights(decay=0.8),
        keras.callbacks.ReduceLROnPlateau("learning_rate", mode="min", factor=0.5, patience=1),
        BestWeights(pathlib.Path(directory) / "best"),
    ]


def outcome(loop: Loop, history: dict) -> dict:
    """Digests of every variable that a run leaves, and its history."""
    method = loop.method
    groups = {
        "model": method.variables,
        "optimizer": method.optimizer.variables,
        "callbacks": [variable for callback in loop.callbacks for variable in getattr(callback, "variables", [])],
    }
    digests = {name: hashlib.sha256() for name in groups}
    for name, variables in groups.items():
        for variable in variables:
            digests[name].update(variable.numpy().tobytes())
    return {**{name: digest.hexdigest() for name, digest in digests.items()}, "history": history}


def main(directory: str, checkpoint_seconds: float = 0.0) -> None:
    """Runs it to its end and writes `outcome.json`."""
    tf.config.experimental.enable_op_determinism()
    loop = make_loop(
        directory, "adversarial_training", callbacks=all_callbacks(directory), checkpoint_seconds=checkpoint_seconds
    )
    result = outcome(loop, loop.run())
    pathlib.Path(directory, "outcome.json").write_text(json.dumps(result))

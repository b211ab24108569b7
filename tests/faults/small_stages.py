"""A run in two stages that takes seconds and publishes nothing: pre-training, then a probe on the frozen encoder.

Eight steps each on 128 digits. Nothing jumps: its nets are smooth and its adversaries take L2 steps, so that it may be
compared between numbers of replicas, too.
"""

import functools
import hashlib
import json
import pathlib
from unittest import mock

import keras

from tfrobust.data.sources.digits import Digits
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import ContrastiveViews, RandomShift
from tfrobust.keras.methods import ACL, DINO, InstanceAdversary, MoCoV3, RoCL, SimCLR, Supervised, SwAV
from tfrobust.keras.models import CNN, ProjectionHead, Prototypes
from tfrobust.runs import experiment, first_stage
from tfrobust.runs.artifact import Artifact
from tfrobust.training.optimizers import ScheduledAdamW

STEPS = 8  # of each stage


# No kinks; batch norm is synchronised where a run has several replicas.
SMOOTH = functools.partial(CNN, ((4,), (6,)), dense=(5,), activation="softplus", pooling="average")


def _first(kind, **makers):
    def make(**parts):
        components = {name: maker() for name, maker in makers.items()}
        return kind(projection=ProjectionHead((), dim=4), views=RandomShift(fraction=0.2), **components, **parts)

    return make


def _adversary() -> InstanceAdversary:
    return InstanceAdversary(attack=PGD(ThreatModel(norm="l2", epsilon=0.5), steps=1), group=8)


def _cosine(initial: float, **keywords):
    return lambda: keras.optimizers.schedules.CosineDecay(initial, STEPS, **keywords)


_CROPS = {
    "prototypes": lambda: Prototypes(6),
    "local_views": lambda: ContrastiveViews(crop=(0.3, 0.6), size=6),
    "local_count": lambda: 2,
    "frozen_steps": lambda: 3,
}
FIRST = {
    "simclr": _first(SimCLR),
    "rocl": _first(RoCL, adversary=_adversary),
    "acl": _first(ACL, adversary=_adversary),
    "moco_v3": _first(MoCoV3, target_rate=_cosine(0.5)),
    "dino": _first(
        DINO,
        **_CROPS | {"prototypes": lambda: Prototypes(6, lengths="weight_norm")},
        target_rate=_cosine(0.5),
        teacher_temperature=_cosine(0.04, alpha=2.0),
    ),
    # The queue, of two batches, is full when the run is killed.
    "swav": _first(SwAV, **_CROPS, queue_length=lambda: 64, queue_start=lambda: 1),
}
# Without a dense layer an encoder accepts views of any size.
ENCODERS = {"acl": {"branches": 2}, "dino": {"dense": ()}, "swav": {"dense": ()}}


def _optimizer(name: str):
    if name == "dino":
        return ScheduledAdamW(0.01, weight_decay=_cosine(0.04, alpha=10.0)())
    return keras.optimizers.SGD(0.05, momentum=0.9)


def run(folder, name: str, **changed) -> tuple:
    """The second stage's method, the first's, and the report's facts; histories are among them."""
    methods, handed = [], []

    def recorded(make):
        return lambda **parts: methods.append(make(**parts)) or methods[-1]

    arguments = {
        "name": "small",
        "method": recorded(Supervised),
        "encoder": functools.partial(SMOOTH, **ENCODERS.get(name, {})),
        "optimizer": lambda: keras.optimizers.SGD(0.1),
        "data": Digits(validation_size=1309),
        "epochs": 2,
        "batch_size": 32,
        "checkpoint_seconds": 0.0,
        "workdir": str(folder),
        "pretraining": first_stage.Pretraining(
            method=recorded(FIRST[name]),
            optimizer=lambda: _optimizer(name),
            epochs=2,
            batch_size=32,
            branch=int(name == "acl"),
        ),
    }
    with mock.patch.object(Artifact, "publish", lambda artifact: handed.append(artifact.trained)):
        experiment.train(**arguments | changed)
    (trained,) = handed
    return *methods, trained.facts | {"history": trained.history, "first_history": trained.first_history}


def main(folder: str, name: str) -> None:
    """Runs it to its end and writes `outcome.json`: digests of every variable of both stages, and the facts."""
    *methods, facts = run(pathlib.Path(folder, "run"), name)
    variables = [variable for method in methods for variable in (*method.variables, *method.optimizer.variables)]
    digests = [hashlib.sha256(variable.numpy().tobytes()).hexdigest() for variable in variables]
    pathlib.Path(folder, "outcome.json").write_text(json.dumps({"variables": digests, "facts": facts}))

"""A run in two stages that takes seconds and publishes nothing: pre-training, then a probe on the frozen encoder.

Eight steps each on 128 digits. Nothing jumps: its nets are smooth and its adversaries take L2 steps, so that it may be
compared between numbers of replicas, too.
"""

import hashlib
import json
import pathlib
import types

import keras

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.augment.standard import RandomShift
from tfrobust.data.sources.digits import Digits
from tfrobust.methods.acl import ACL
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.simclr import SimCLR
from tfrobust.methods.supervised import Supervised
from tfrobust.models.cnn import CNN
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.runs import experiment
from tfrobust.runs.first_stage import Pretraining

STEPS = 8  # of each stage


class SmoothCNN(CNN):
    """No kinks; its batch norm is synchronised where a run has several replicas."""

    def __init__(self, **keywords):
        super().__init__(((4,), (6,)), dense=(5,), activation="softplus", pooling="average", **keywords)


class DualCNN(SmoothCNN):
    """The same with two branches of batch norm."""

    def __init__(self, **keywords):
        super().__init__(branches=2, **keywords)


def _first(kind, **own):
    def make(**parts):
        if kind is not SimCLR:
            own["adversary"] = InstanceAdversary(attack=PGD(ThreatModel(norm="l2", epsilon=0.5), steps=1), group=8)
        return kind(projection=ProjectionHead((), dim=4), views=RandomShift(fraction=0.2), **own, **parts)

    return make


FIRST = {"simclr": _first(SimCLR), "rocl": _first(RoCL), "acl": _first(ACL)}


def run(folder, name: str, **changed) -> tuple:
    """The second stage's method, the first's, and the report's facts; histories are among them."""
    methods, handed = [], []

    def kept(make):
        return lambda **parts: methods.append(make(**parts)) or methods[-1]

    given = {
        "name": "small",
        "method": kept(Supervised),
        "encoder": DualCNN if name == "acl" else SmoothCNN,
        "optimizer": lambda: keras.optimizers.SGD(0.1),
        "data": Digits(validation_size=1309),
        "epochs": 2,
        "batch_size": 32,
        "checkpoint_seconds": 0.0,
        "workdir": str(folder),
        "pretraining": Pretraining(
            method=kept(FIRST[name]),
            optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.9),
            epochs=2,
            batch_size=32,
            branch=int(name == "acl"),
        ),
    }
    plain = experiment.artifacts
    publisher = types.SimpleNamespace(publish=lambda *_: None)
    experiment.artifacts = types.SimpleNamespace(Artifact=lambda *parts: handed.extend(parts) or publisher)
    try:
        experiment.train(**given | changed)
    finally:
        experiment.artifacts = plain
    facts, history, first_history = handed[5], handed[6], handed[9]
    return *methods, facts | {"history": history, "first_history": first_history}


def main(folder: str, name: str) -> None:
    """Runs it to its end and writes `outcome.json`: digests of every variable of both stages, and the facts."""
    *methods, facts = run(pathlib.Path(folder, "run"), name)
    variables = [variable for method in methods for variable in (*method.variables, *method.optimizer.variables)]
    digests = [hashlib.sha256(variable.numpy().tobytes()).hexdigest() for variable in variables]
    pathlib.Path(folder, "outcome.json").write_text(json.dumps({"variables": digests, "facts": facts}))

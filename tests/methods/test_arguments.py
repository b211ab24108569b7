"""Check all methods and their parts: the papers' defaults, and the arguments that they refuse."""

import keras
import numpy as np
import pytest
import refusals
import stored

from conformance import methods as battery
from oracles import tiny_network as tiny
from oracles.mixing import Staged
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import ASCL, FCL, TCLR, SimCLR, SupCon, SupervisedContrastive
from tfrobust.keras.models import LinearHead, LinearProjection, ProjectionHead

THREAT = ThreatModel(epsilon=0.2)
ATTACK = PGD(THREAT, steps=10)


def build(kind, **keywords):
    """A built method on the smallest encoder with batch norm."""
    method = kind(battery.encoder(), LinearHead(3), **keywords)
    method.build((None, *battery.IMAGE_SHAPE))
    return method


def staged(kind, **keywords):
    return kind(Staged(), tiny.parts()[1], **keywords)


def fcl(shape, **keywords):
    encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(4)])
    FCL(encoder, keras.layers.Dense(3), **keywords).build((None, *shape))


def clips(**settings):
    views = {"frames": 2, "parts": 2, "views": battery.NO_CHANGE, **settings}
    TCLR(battery.StagedClips(), LinearHead(2), **views).build((None, 5, 8, 8, 1))


def twice():
    return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)


def classifier(activation=None):
    layers = [keras.layers.Flatten(), keras.layers.Dense(3, activation, name="logits")]
    return keras.Sequential([keras.Input((4, 4, 1)), *layers], name="whole")


NAMES = {"battery": battery, "tiny": tiny, "build": build, "staged": staged, "fcl": fcl, "clips": clips, "twice": twice}
NAMES |= {"THREAT": THREAT, "ATTACK": ATTACK, "classifier": classifier}
NAMES |= {"VIEWS": {"views": battery.SHIFT, "projection": LinearProjection(4)}}


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_wrong_arguments_are_named(call, message):
    refusals.check(__file__, call, message, **NAMES)


@pytest.mark.parametrize(("kind", "message"), [(SimCLR, "probe=False trains without"), (SupCon, "SupCon needs labels")])
def test_images_without_labels_are_refused(kind, message):
    """Without any, all of SupCon's would be one class."""
    method = kind(battery.encoder(), LinearHead(3), probe=kind is SimCLR)
    method.compile("sgd", run_eagerly=True)
    with pytest.raises(ValueError, match=message):
        method.fit(np.zeros([4, *battery.IMAGE_SHAPE], np.float32), verbose=0)


NOISE = {"sparsity": 0.0, "scale": (2.0, 5.0)}
# Method, attribute by attribute what its paper or, where that is silent, its code says.
DEFAULTS = stored.cases(__file__, "defaults", globals(), "arguments.toml")["rows"]


@pytest.mark.parametrize(("make", "expected"), DEFAULTS)
def test_the_defaults_are_the_papers(make, expected):
    part = make()
    values = {name: getattr(part, name, None) or getattr(part.threat, name) for name in expected}
    assert values == expected


@pytest.mark.parametrize("kind", [ASCL, SupervisedContrastive, SimCLR])
def test_batch_norm_of_the_projection_is_synchronized_with_the_encoder_s(kind):
    head = ProjectionHead((6,), dim=4, normalization="hidden")
    settings = {"attack": ATTACK} if kind is ASCL else {}
    method = kind(battery.encoder(synchronized=True), LinearHead(3), projection=head, **settings)
    method.build((None, *battery.IMAGE_SHAPE))
    assert head.synchronized and all(norm.synchronized for norm in head.chain[1].norms)

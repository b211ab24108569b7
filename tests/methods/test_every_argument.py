"""Perturb each argument of each method once: the steps must have another result, or the constructor refuse it.

An argument without effect fails. `WITHOUT_EFFECT` lists the exceptions with their reasons.
"""

import inspect

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import methods as battery
from tfrobust import keras as robust
from tfrobust.common.configured import constructor_arguments
from tfrobust.errors import InputError
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import RandomShift
from tfrobust.keras.models import LinearHead, LinearProjection

M = robust.methods
METHODS = {
    name: kind
    for name, kind in sorted(vars(M).items())
    if inspect.isclass(kind) and issubclass(kind, M.Method) and kind is not M.Method
}
# Of Keras: `dtype` and `trainable` are those of the encoder and the head, which have their own.
OF_KERAS = ("name", "dtype", "trainable")
WITHOUT_EFFECT = {
    ("FreeAdversarialTraining", "seed"): "nothing in its step is random",
    **{
        (name, "bounds"): "a check of the pixels alone, in test_pixel_bounds.py"
        for name in ("CutMix", "ManifoldMixup", "Mixup", "Supervised")
    },
    **{
        (
            name,
            "examples",
        ): "the size of the table of IFND's pseudo-labels, which a run sets; without it IFND is refused"
        for name in ("ACL", "CVRL", "LayerWiseContrastive", "MoCoV3", "RoCL", "SimCLR", "SupCon")
    },
}
BATCH = 4
# Steps after which an argument shows: those of momentum networks and queues need more than one.
STEPS = {"BYOL": 2, "DINO": 2, "Mixup": 2, "MoCoV3": 2, "PuzzleMix": 2, "SwAV": 3}
# In the first tier; each of the others costs seconds.
SAMPLE = ("Mixup",)


def pgd(epsilon=0.1, **settings):
    return PGD(ThreatModel(epsilon=epsilon), steps=2, **settings)


HEAD = {"projection": LinearProjection(4)}
VIEWS = {"views": RandomShift(fraction=0.2)} | HEAD
ADVERSARIAL = {"attack": pgd()}
MIXING = M.Mixing(group=2)
RAMP = keras.optimizers.schedules.PolynomialDecay(0.2, 4, 1.0)
LOCAL = {"local_views": battery.LOCAL, "local_count": 1}

# What a method is built with, so that each argument can matter.
BASES = stored.cases(__file__, "bases", globals(), "arguments.toml")

# Another value of an argument, by its name, and where it differs by the method.
OTHER = stored.cases(__file__, "other", globals(), "arguments.toml")
VALUES = stored.cases(__file__, "values", globals(), "arguments.toml")
# The arguments that matter only together with others.
WITH = {
    "clip_each": {"clip_norm": 1e-3},
    "combine": {"teacher": lambda images, labels: images},
}
CLIPS = ("CVRL", "TCLR")


def network(name: str) -> keras.Model:
    if name in CLIPS:
        return battery.StagedClips()
    pooled = {"dense": ()} if "local_views" in BASES.get(name, {}) else {}  # for views of another size
    return battery.encoder(branches=1 + (name == "ACL"), **pooled)


def outcome(name: str, keywords: dict) -> dict[str, np.ndarray]:
    """The logs of a few eager steps and all variables, by name."""
    keras.utils.set_random_seed(1)
    keywords = {key: fresh(value) for key, value in keywords.items()}
    method = METHODS[name](network(name), LinearHead(3), **keywords)
    method.compile(keras.optimizers.SGD(0.1), jit_compile=False, run_eagerly=True)
    images, labels = battery.data(BATCH, "cvrl" if name in CLIPS else "supervised")
    results = {}
    for step in range(STEPS.get(name, 1)):
        logs = method.train_step((tf.constant(images), tf.constant(labels)))
        results |= {f"{key} {step}": np.asarray(value) for key, value in logs.items()}
    return results | {variable.path: variable.numpy() for variable in method.variables}


def fresh(value):
    """A layer that is not built yet, in place of one of the tables."""
    return type(value).from_config(value.get_config()) if isinstance(value, keras.layers.Layer) else value


def differ(first: dict, second: dict) -> bool:
    if [value.shape for value in first.values()] != [value.shape for value in second.values()]:
        return True
    pairs = zip(first.values(), second.values(), strict=True)
    return any(not np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True) for a, b in pairs)


def other(name: str, argument: str, default):
    """Another value of an argument than the one of its base."""
    if argument == "term_weights":
        return None
    value = VALUES.get(f"{name}.{argument}", OTHER.get(argument, "?"))
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return next(choice for choice in value if choice != default)
    return value


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # of branches without a view
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.rest) for name in METHODS]
)
def test_every_argument_has_an_effect(name):
    kind, base = METHODS[name], BASES.get(name, {})
    plain = {(): outcome(name, base)}
    silent = []
    for argument, parameter in constructor_arguments(kind).items():
        if argument in ("encoder", "head", *OF_KERAS) or (name, argument) in WITHOUT_EFFECT:
            continue
        together = WITH.get(argument, {})
        if tuple(together) not in plain:
            plain[tuple(together)] = outcome(name, base | together)
        value = other(name, argument, base.get(argument, parameter.default))
        keywords = base | together | {argument: value}
        if argument == "term_weights":
            keywords["term_weights"] = dict.fromkeys(kind(network(name), LinearHead(3), **base).terms, 0.3)
        if argument == "adversary":
            keywords.pop("attack", None)
        try:
            if not differ(plain[tuple(together)], outcome(name, keywords)):
                silent.append(argument)
        except InputError:
            continue
    assert not silent, f"{name}: without effect: {silent}"


# -------------------------------------------------------------------------------------------- parts of the methods

# What the host is built with besides, so that each argument of the part can matter.
HOSTS = {"Branches": {"mixing": M.Mixing(group=2, alpha=0.0)}}
NO_TRAINING = "it is of evaluation alone; a training takes one start"
# Host, its argument, the part, what the part is built with, and another value of each of its arguments.
PARTS = stored.cases(__file__, "parts", globals(), "arguments.toml")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "Mixing" else pytest.mark.rest) for name in PARTS]
)
def test_every_argument_of_a_part_has_an_effect(name):
    host, part, base, changes = PARTS[name]
    kind = getattr(M, name, None) or getattr(robust.attacks, name)
    replaced = {part, "attack"} if part == "adversary" else {part}
    rest = {key: value for key, value in BASES.get(host, {}).items() if key not in replaced} | HOSTS.get(name, {})
    described = set(constructor_arguments(kind)) - set(OF_KERAS)
    assert described - set(changes) <= {"attack", "threat"}, "an argument without another value"
    plain, silent = {}, []
    for argument, value in changes.items():
        if isinstance(value, str) and " " in value:
            continue  # the reason for which it has no effect here
        together, value = value if isinstance(value, tuple) and isinstance(value[0], dict) else ({}, value)
        try:
            changed = outcome(host, rest | {part: kind(**base | together | {argument: value})})
        except InputError:
            continue
        key = tuple(together)
        if key not in plain:
            plain[key] = outcome(host, rest | {part: kind(**base | together)})
        if not differ(plain[key], changed):
            silent.append(argument)
    assert not silent, f"{name}: without effect: {silent}"

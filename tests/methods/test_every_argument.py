"""Perturb each argument of each method once: the steps must have another result, or the constructor refuse it.

An argument without effect fails. `WITHOUT_EFFECT` lists the exceptions with their reasons.
"""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust import keras as robust
from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.standard import RandomShift
from tfrobust.common.configured import constructor_arguments
from tfrobust.errors import InputError
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.feature_objectives import FeatureMargin
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.models.heads.linear import LinearHead, LinearProjection
from tfrobust.models.heads.prototypes import Prototypes

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
BASES = {
    "ACL": VIEWS | ADVERSARIAL,
    "ADR": ADVERSARIAL,
    "ASCL": ADVERSARIAL,
    "AdversarialTraining": ADVERSARIAL,
    "AugMixTraining": {"augmentation": battery.SHIFT},
    "BYOL": VIEWS | {"target_rate": 0.5},
    "CROWNIBP": {"epsilon": 0.05, "ramp": RAMP},
    "CVRL": {"frames": 2, "stride": 1, "views": battery.CLIP_SHIFT} | HEAD,
    "CutMix": {"mixing": MIXING},
    "DINO": VIEWS | LOCAL | {"prototypes": Prototypes(7), "target_rate": 0.5},
    "FCL": {"perturbation": robust.augment.UtilityPerturbation(count=9)},
    "FreeAdversarialTraining": {"threat": ThreatModel(epsilon=0.1), "replays": 2, "rows": BATCH},
    "HAT": ADVERSARIAL | {"helper": battery.corner},
    "IBP": {"epsilon": 0.05, "ramp": RAMP},
    "LayerWiseContrastive": VIEWS,
    "MART": ADVERSARIAL,
    "ManifoldMixup": {"mixing": MIXING, "stages": (0, 1)},
    "Mixup": {"mixing": MIXING},
    "MoCoV3": VIEWS | {"target_rate": 0.5},
    "NFM": {"mixing": MIXING, "stages": (0, 1, 2)},
    "NoisyMix": {"augmentation": battery.SHIFT, "mixing": MIXING, "stages": (0, 1, 2)},
    "PuzzleMix": {"mixing": M.Mixing(group=4), "puzzle": M.Puzzle(blocks=(4,))},
    "RoCL": VIEWS | ADVERSARIAL,
    "SimCLR": VIEWS,
    "SmoothAdv": ADVERSARIAL,
    "SupCon": VIEWS,
    "Supervised": {"noise": AddGaussian()},
    "SupervisedContrastive": {"projection": LinearProjection(4)},
    "SwAV": VIEWS | LOCAL | {"prototypes": Prototypes(7), "queue_length": 4},
    "TCLR": {"frames": 2, "parts": 2, "views": battery.CLIP_SHIFT} | HEAD,
    "TRADES": ADVERSARIAL,
}

# Another value of an argument, by its name, and where it differs by the method.
OTHER = {
    "adversary": Adversary(attack=pgd(0.3)),
    "attack": pgd(0.3),
    "augmentation": RandomShift(fraction=0.4),
    "center_momentum": 0.1,
    "clip_each": True,
    "clip_norm": 1e-3,
    "code_temperature": 0.5,
    "combine": "add",
    "consistency": False,
    "contrast": M.Contrast(temperature=1.0),
    "copies": 3,
    "distance": 4.0,
    "enlargement": 2.0,
    "epsilon": 0.2,
    "false_negatives": M.AdaptiveFNC(threshold=-0.9),
    "final_beta": 0.5,
    "forward": ("joint", "separate"),
    "frames": 3,
    "frozen_steps": 2,
    "gap": "uniform",
    "helper": lambda images: 5.0 - battery.corner(images),
    "initialization": False,
    "iterations": 1,
    "kappa": 0.1,
    "label_scale": 0.5,
    "label_smoothing": 0.3,
    "local_count": 2,
    "local_views": None,
    "mixing": M.Mixing(group=2, alpha=8.0),
    "mode": "batch",
    "noise": AddGaussian(deviation=0.05),
    "norm": "l2",
    "objective": "trades",
    "parts": 1,
    "penalty": M.Tikhonov(weight=0.5),
    "perturbation": robust.augment.UtilityPerturbation(count=30),
    "prediction": LinearProjection(4),
    "probability": 0.0,
    "probe": False,
    "projection": LinearProjection(3),
    "prototypes": Prototypes(5),
    "puzzle": M.Puzzle(blocks=(2,)),
    "queue_length": 8,
    "queue_start": 2,
    "ramp": None,
    "regularization": 0.1,
    "replays": 1,
    "rows": 2,
    "scale": ("mean", "sum"),
    "seed": 1,
    "self_in_denominator": True,
    "sigma": 0.05,
    "slope": "zero",
    "stages": (1,),
    "stride": 2,
    "target_rate": 0.1,
    "teacher_temperature": 0.5,
    "temperature": 0.9,
    "threat": ThreatModel(epsilon=0.3),
    "vat_divide_by_classes": True,
    "views": RandomShift(fraction=0.4),
    "weight_perturbation": M.WeightPerturbation(gamma=0.1),
}
VALUES = {
    ("ACL", "adversary"): InstanceAdversary(attack=pgd(0.3)),
    ("ACL", "streams"): "adversarial_to_adversarial",
    ("ASCL", "transforms"): M.TwoTransforms(),
    ("CLGaussian", "objective"): FeatureMargin(),
    ("CVRL", "views"): battery.NO_CHANGE,
    ("DINO", "local_count"): 0,
    ("FCL", "objective"): FeatureMargin(),
    ("FCL", "teacher"): lambda images, labels: images,
    ("ManifoldMixup", "objective"): "binary_cross_entropy",
    ("NFM", "noise"): M.FeatureNoise(additive=2.0),
    ("NoisyMix", "stages"): (0,),
    ("NoisyMix", "branches"): M.Branches(strengths=(3.0, 3.0, 3.0)),
    ("NoisyMix", "noise"): M.FeatureNoise(additive=2.0),
    ("NFM", "stages"): (0,),
    ("PuzzleMix", "mixing"): M.Mixing(group=4, alpha=0.0),
    ("PuzzleMix", "objective"): "binary_cross_entropy",
    ("RoCL", "adversary"): InstanceAdversary(attack=pgd(0.3)),
    ("RoCL", "detached_keys"): True,
    ("RoCL", "regularizer_pass"): "own",
    ("SupCon", "base_temperature"): 0.07,
    ("SwAV", "local_count"): 0,
    ("TCLR", "across_parts"): False,
    ("TCLR", "views"): battery.NO_CHANGE,
}
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
    value = VALUES.get((name, argument), OTHER.get(argument, "?"))
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
PARTS = {
    "Adversary": ("TRADES", "adversary", {"attack": pgd()}, {"objective": "cross_entropy", "mode": "batch"}),
    "FastAdversary": (
        "AdversarialTraining",
        "adversary",
        {"attack": FGSM(ThreatModel(epsilon=0.1))},
        {"attack": FGSM(ThreatModel(epsilon=0.3)), "noise": 0.2, "step": 0.5, "projected": False}
        | {"objective": "kl", "mode": "batch"},
    ),
    "InstanceAdversary": (
        "RoCL",
        "adversary",
        {"attack": pgd()},
        {"mode": "batch", "negatives": "moving", "group": ({"negatives": "moving"}, 2)},
    ),
    "Contrast": (
        "ASCL",
        "contrast",
        {},
        {
            "selection": M.HardSelection(),
            "temperature": 0.5,
            "similarity": "linf",
            "normalized": ({"similarity": "linf"}, True),
            "scale": "code",
        },
    ),
    "TwoTransforms": ("ASCL", "transforms", {}, {"augmentation": RandomShift(fraction=0.4), "combine": "by_kind"}),
    "WeightPerturbation": ("TRADES", "weight_perturbation", {}, {"gamma": 0.3}),
    "Mixing": ("Mixup", "mixing", {"group": 4}, {"alpha": 8.0, "group": 1, "per_example": True}),
    "FeatureNoise": (
        "NFM",
        "noise",
        {},
        {"additive": 1.0, "multiplicative": 1.0, "sparsity": 0.5, "scale": None},
    ),
    "Branches": (
        "NoisyMix",
        "branches",
        {},
        {"strengths": (3.0, 3.0, 3.0), "noise": "shared", "noise_without_mixing": False},
    ),
    "Tikhonov": (
        "Supervised",
        "penalty",
        {"weight": 0.5},
        {"weight": 5.0, "on": ("noisy",), "form": "batch", "mode": "finite_difference"}
        | {"of": ({"on": ("images", "noisy")}, ("ce",)), "step": ({"mode": "finite_difference"}, 1.0)},
    ),
    "GradAlign": (
        "AdversarialTraining",
        "penalty",
        {"epsilon": 0.1},
        {"epsilon": 0.5, "weight": 5.0, "of": ("ce_adv",), "on": ("adversarial",)},
    ),
    "FeatureContrast": ("FCL", "objective", {}, {"scale": "sum", "temperature": 1.0}),
    "FeatureMargin": ("FCL", "objective", {}, {"scale": "sum", "margin": 5.0, "form": "inside"}),
    "AdaptiveFNC": (
        "SimCLR",
        "false_negatives",
        {"threshold": 0.975},  # between the cosines of the untrained network
        {"threshold": -1.0, "key_views": "all", "features": "embedding"},
    ),
    "FNC": (
        "SimCLR",
        "false_negatives",
        {"threshold": 0.99, "top_k": 4},
        {"threshold": 2.0, "top_k": 1, "combine": "union", "action": "cancel", "features": "embedding"},
    ),
    "PGD": (
        "TRADES",
        "attack",
        {"threat": ThreatModel(epsilon=0.1), "steps": 2},
        {"steps": 1, "step_size": 0.02, "random_start": "none", "start_scale": 0.1, "restarts": NO_TRAINING},
    ),
    "ThreatModel": (
        "FreeAdversarialTraining",
        "threat",
        {"epsilon": 0.1},
        {"norm": "l2", "epsilon": 0.3, "bounds": (0.2, 0.8), "l1_share": "only in L1, which this method refuses"}
        | {"per_frame": True, "max_frames": 1},
    ),
}


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

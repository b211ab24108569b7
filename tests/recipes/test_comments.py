"""Check combinations in comments of gin files: an augmentation, an adversary, Patch Gaussian and a shift."""

import re

import numpy as np
import pytest

from conformance.recipes import GIN, arguments
from tfrobust.data import pipeline
from tfrobust.keras.augment import AutoAugment, Compose, PadCrop, PatchGaussian, RandomFlip, RandomShift

METHODS = {"fcl": "FCL", "fcl_margin": "FCL", "cl_gaussian": "CLGaussian"}
# A step of seconds, in which the contrast counts from the start.
SMALL = ["BATCH_SIZE=4", "STEPS=2", "EPSILON=0.05", "CornerDigits.per_class=2", "CornerDigits.balanced=1"]
SMALL += ["feature/LinearRamp.delay=0", "feature/LinearRamp.length=0"]


def flags_in(file: str) -> list[str]:
    """Return the parameters that the comments of a gin file tell users to pass."""
    return re.findall(r'^#.*--gin_param="(.*)"', (GIN / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize(("name", "patch_first"), [("fcl", True), ("fcl_margin", False), ("cl_gaussian", True)])
def test_a_method_with_an_adversary_and_patch_gaussian_takes_two_steps(name, patch_first):
    from tfrobust.models.heads.linear import LinearHead

    adversary = flags_in("cl_gaussian.gin" if name == "cl_gaussian" else "fcl.gin")
    compose = flags_in("patch_gaussian_fcl.gin")
    assert adversary == [f"{METHODS[name]}.adversary=@Adversary()"]
    assert compose == ["train.augmentation=@Compose()", "Compose.augmentations=(@RandomShift(), @PatchGaussian())"]
    if patch_first:
        compose[1] = "Compose.augmentations=(@PatchGaussian(), @RandomShift())"
    bindings = arguments(f"{name}.gin", params=[*SMALL, *adversary, *compose, "PatchGaussian.patch=12"])
    kinds = [type(augmentation) for augmentation in bindings["augmentation"].augmentations]
    assert kinds == ([PatchGaussian, RandomShift] if patch_first else [RandomShift, PatchGaussian])
    dataset = bindings["data"].load()
    method = bindings["method"](encoder=bindings["encoder"](), head=LinearHead(class_count=15), seed=0)
    method.build((None, *dataset.image_shape))
    method.compile(optimizer=bindings["optimizer"](), jit_compile=False)
    assert (method.adversary.attack.steps, method.adversary.attack.threat.epsilon) == (2, 0.05)
    before = [variable.numpy() for variable in method.trainable_variables]
    batches = pipeline.training_batches(dataset.train, batch_size=4, seed=0, augmentation=bindings["augmentation"])
    for batch in batches.take(2):
        logs = {key: float(value) for key, value in method.train_step(batch).items()}
    assert {"ce", "feature_contrast", "ce_adv"} <= set(logs) and all(map(np.isfinite, logs.values())), logs
    weights = {"ce": 1, "ce_adv": 1, "feature_contrast": 1e-5 if name == "fcl_margin" else 1e-3}
    assert logs["loss"] == pytest.approx(sum(weight * logs[term] for term, weight in weights.items()), rel=1e-4)
    assert all(np.any(new.numpy() != old) for new, old in zip(method.trainable_variables, before, strict=True))


@pytest.mark.parametrize("name", ["fcl_margin", "cl_gaussian"])
def test_patch_gaussian_goes_behind_the_other_recipes_too(name):
    bindings = arguments(f"{name}.gin", params=[*flags_in("patch_gaussian_fcl.gin"), "PatchGaussian.deviation=0.2"])
    assert bindings["augmentation"].augmentations[1].deviation == 0.2 and bindings["method"].__name__ == METHODS[name]


def test_the_flags_for_an_augmentation_of_cifar_build_it():
    flags = flags_in("data/cifar.gin")[-3:]
    bindings = arguments("supervised.gin", "data/cifar.gin", params=flags)
    assert bindings["augmentation"] == Compose(augmentations=(RandomFlip(), PadCrop(), AutoAugment(policy="cifar10")))

"""What every training method must do. A new member adds a row to `ROWS`; its own formulas get their own test.

A row is name -> constructor of the method from (encoder, head, **keywords).
"""

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.adversary import Adversary
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.threat import ThreatModel
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.augment.standard import RandomShift
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.methods.adr import ADR
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL, TwoTransforms
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.cl_gaussian import CLGaussian
from tfrobust.methods.contrast import Contrast
from tfrobust.methods.cutmix import CutMix
from tfrobust.methods.fcl import FCL
from tfrobust.methods.feature_contrast import FeatureMargin
from tfrobust.methods.manifold_mixup import ManifoldMixup
from tfrobust.methods.mixup import Mixup
from tfrobust.methods.nfm import NFM
from tfrobust.methods.noisymix import Branches, NoisyMix
from tfrobust.methods.puzzlemix import PuzzleMix
from tfrobust.methods.supervised import Supervised
from tfrobust.methods.supervised_contrastive import SupervisedContrastive
from tfrobust.methods.trades import TRADES
from tfrobust.models.cnn import CNN
from tfrobust.models.heads import LinearHead, LinearProjection
from tfrobust.pairs.selection import HardSelection, LeakedSelection, SoftSelection

IMAGE_SHAPE = (8, 8, 1)
CLASSES = 3


def adversary(**keywords) -> Adversary:
    """Two cheap steps."""
    return Adversary(attack=PGD(ThreatModel(epsilon=0.1), steps=2), **keywords)


def _ascl(*, projected: bool = False, **own):
    def make(*parts, **keywords):
        projection = LinearProjection(4) if projected else None
        return ASCL(*parts, adversary=adversary(), projection=projection, **own, **keywords)

    return make


# Divides what a replica has of the smallest batch of the tests.
MIXING = Mixing(group=2)
# Cheap to trace, and XLA compiles it; AugMix itself is made for the input pipeline.
SHIFT = RandomShift(fraction=0.2)


def _noisymix(*, mixing=MIXING, **own):
    def make(*parts, **keywords):
        return NoisyMix(*parts, augmentation=SHIFT, mixing=mixing, stages=(0, 1, 2), **own, **keywords)

    return make


ROWS = {
    "supervised": Supervised,
    "supervised_noisy": lambda *parts, **k: Supervised(*parts, noise=AddGaussian(), forward="joint", **k),
    "supervised_contrastive": lambda *parts, **k: SupervisedContrastive(*parts, projection=LinearProjection(4), **k),
    "adversarial_training": lambda *parts, **k: AdversarialTraining(*parts, adversary=adversary(), **k),
    "adversarial_training_joint": lambda *parts, **k: AdversarialTraining(
        *parts, adversary=adversary(mode="batch"), forward="joint", **k
    ),
    "trades": lambda *parts, **k: TRADES(*parts, adversary=adversary(objective="kl"), **k),
    "adr": lambda *parts, **k: ADR(*parts, adversary=adversary(), **k),
    "adr_trades": lambda *parts, **k: ADR(*parts, objective="trades", adversary=adversary(objective="kl"), **k),
    "ascl": _ascl(),
    "ascl_hard": _ascl(contrast=Contrast(selection=HardSelection())),
    "ascl_soft": _ascl(contrast=Contrast(selection=SoftSelection(), similarity="linf", normalized=True)),
    "ascl_leaked": _ascl(contrast=Contrast(selection=LeakedSelection()), projected=True),
    "ascl_trades": lambda *parts, **k: ASCL(*parts, objective="trades", adversary=adversary(objective="kl"), **k),
    "mixup": lambda *parts, **k: Mixup(*parts, mixing=MIXING, **k),
    "cutmix": lambda *parts, **k: CutMix(*parts, mixing=Mixing(group=2, per_example=True), **k),
    "manifold_mixup": lambda *parts, **k: ManifoldMixup(*parts, mixing=MIXING, **k),
    "nfm": lambda *parts, **k: NFM(*parts, mixing=MIXING, stages=(0, 1, 2), **k),
    "puzzlemix": lambda *parts, **k: PuzzleMix(*parts, mixing=MIXING, puzzle=Puzzle(blocks=(2, 4)), **k),
    "augmix": lambda *parts, **k: AugMixTraining(*parts, augmentation=SHIFT, **k),
    "noisymix": _noisymix(branches=Branches(strengths=(1.0, 2.0, 3.0), noise_without_mixing=False)),
    "noisymix_paper": _noisymix(
        mixing=Mixing(group=2, per_example=True),
        noise=FeatureNoise(additive=0.1, multiplicative=0.1, scale=None),
        branches=Branches(noise="shared"),
    ),
    "fcl": lambda *parts, **k: FCL(*parts, perturbation=UtilityPerturbation(count=9), **k),
    "fcl_margin_adversarial": lambda *parts, **k: FCL(
        *parts,
        perturbation=UtilityPerturbation(count=0.2),
        objective=FeatureMargin(),
        adversary=adversary(),
        forward="joint",
        **k,
    ),
    "cl_gaussian": CLGaussian,
    "ascl_two_transforms": _ascl(transforms=TwoTransforms(combine="by_kind"), vat_divide_by_classes=True),
}


def encoder(**keywords) -> keras.Model:
    """The smallest encoder with batch norm."""
    return CNN(stages=((4,), (6,)), dense=(5,), **keywords)


def build(row: str, *, seed: int = 0, compiled: bool = True, optimizer=None, **keywords):
    """A built method of a row, its initial weights the same for the same seed."""
    keras.utils.set_random_seed(seed + 1)
    method = ROWS[row](encoder(), LinearHead(CLASSES), seed=seed, **keywords)
    method.build((None, *IMAGE_SHAPE))
    if compiled:
        method.compile(
            optimizer=optimizer or keras.optimizers.SGD(0.05, momentum=0.9),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            jit_compile=False,
        )
        method.optimizer.build(method.trainable_variables)
    return method


def data(count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Images that a small network can tell apart: each class lights its own rows."""
    images = tf.random.stateless_uniform([count, *IMAGE_SHAPE], [1, 2], 0.0, 0.4).numpy()
    labels = (np.arange(count) % CLASSES).astype(np.int32)
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 0.5
    return images, labels


def weights(method) -> list[np.ndarray]:
    """All variables of a method but the clock, as arrays."""
    return [variable.numpy() for variable in method.variables]

"""Check all methods and their parts: the papers' defaults, and the arguments that they refuse."""

import keras
import numpy as np
import pytest

from conformance import methods as battery
from oracles import tiny_network as tiny
from oracles.mixing import Staged
from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.augment.augmix import AugMix
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.methods.acl import ACL
from tfrobust.methods.adr import ADR
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.byol import BYOL
from tfrobust.methods.cl_gaussian import CLGaussian
from tfrobust.methods.cutmix import CutMix
from tfrobust.methods.dino import DINO
from tfrobust.methods.fcl import FCL
from tfrobust.methods.free_adversarial_training import FreeAdversarialTraining
from tfrobust.methods.hat import HAT
from tfrobust.methods.ibp import IBP
from tfrobust.methods.layer_wise import LayerWiseContrastive
from tfrobust.methods.manifold_mixup import ManifoldMixup
from tfrobust.methods.mart import MART
from tfrobust.methods.mixup import Mixup
from tfrobust.methods.moco_v3 import MoCoV3
from tfrobust.methods.nfm import NFM
from tfrobust.methods.noisymix import Branches, NoisyMix
from tfrobust.methods.puzzlemix import PuzzleMix
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.batch_contrast import Contrast
from tfrobust.methods.shared.fast_adversary import FastAdversary
from tfrobust.methods.shared.feature_objectives import FeatureContrast, FeatureMargin
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.simclr import SimCLR
from tfrobust.methods.smooth_adv import SmoothAdv
from tfrobust.methods.supcon import SupCon
from tfrobust.methods.supervised_contrastive import SupervisedContrastive
from tfrobust.methods.swav import SwAV
from tfrobust.methods.trades import TRADES
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.pairs.false_negatives import IFND, AdaptiveFNC

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


# Call, part of the message.
REFUSED = [
    (lambda: build(AdversarialTraining, attack=ATTACK, term_weights={"ce_advv": 1.0}), "ce_advv"),
    (lambda: build(AdversarialTraining, attack=ATTACK, clip_norm=-1.0), "clip_norm"),
    (lambda: ADR(*tiny.parts(), objective="pgd", attack=ATTACK), "objective"),
    (lambda: ADR(*tiny.parts(), label_scale=3.0, attack=ATTACK), "label_scale is 3.0"),
    (lambda: ASCL(*tiny.parts(), objective="pgd", attack=ATTACK), "objective"),
    (lambda: Contrast(temperature=0.0), "temperature > 0 and similarity one of"),
    (lambda: Contrast(similarity="cosin"), "temperature > 0 and similarity one of"),
    (lambda: tiny.build(AugMixTraining, forward="stacked"), "forward is 'stacked'"),
    (lambda: CutMix(*tiny.parts(), probability=1.5), r"CutMix\.probability is 1\.5"),
    *(
        (lambda kind=kind: kind(*tiny.parts()), rf"{kind.__name__} mixes hidden states .* Sequential has none")
        for kind in (ManifoldMixup, NFM, NoisyMix)
    ),
    *(
        (
            lambda kind=kind: staged(kind, stages=(0, 3)).build((None, *tiny.SHAPE)),
            rf"{kind.__name__}\.stages is \(0, 3\); Staged has the stages 0 to 2",
        )
        for kind in (ManifoldMixup, NFM, NoisyMix)
    ),
    (lambda: staged(ManifoldMixup, objective="mse"), r"ManifoldMixup\.objective is 'mse'"),
    (lambda: PuzzleMix(*tiny.parts(), objective="mse"), r"PuzzleMix\.objective is 'mse'"),
    (lambda: Branches(strengths=(1.0, 2.0)), r"Branches\.strengths is \(1\.0, 2\.0\); it must be three numbers"),
    (lambda: Branches(strengths=(1.0, float("nan"), 3.0)), r"Branches\.strengths is \(1\.0, nan, 3\.0\)"),
    (lambda: Branches(noise="fresh"), r"Branches\.noise is 'fresh'; it is one of \['own', 'shared'\]"),
    (
        lambda: staged(NoisyMix, augmentation="augmix"),
        r"NoisyMix\.augmentation is 'augmix'; it must be an Augmentation",
    ),
    (
        lambda: staged(NoisyMix, stages=(0, 1), consistency=False, term_weights={"jsd": 1.0}).build(
            (None, *tiny.SHAPE)
        ),
        r"names \['jsd'\]; its terms are \['ce'\]",
    ),
    (lambda: FeatureContrast(temperature=0.0), "temperature is 0.0"),
    (lambda: FeatureContrast(scale="total"), "scale is 'total'"),
    (lambda: FeatureMargin(margin=-1.0), "margin > 0"),
    (lambda: FeatureMargin(form="printed"), "margin > 0"),
    (lambda: tiny.build(FCL, combine="mean"), "combine is 'mean'"),
    (lambda: tiny.build(FCL, combine="add"), "combine 'add' .* needs a teacher"),
    (lambda: tiny.build(FCL, mode="test"), "mode 'test'"),
    (
        lambda: fcl((8, 8, 1), perturbation=TokenRemoval()),
        r"@TokenRemoval\(\), and the examples are images, \[8, 8, 1\]: take @Utility",
    ),
    (
        lambda: fcl((6,), perturbation=UtilityPerturbation()),
        r"@UtilityPerturbation\(\), and the examples are text, \[6\]: take @TokenR",
    ),
    (lambda: fcl((8, 8, 1)), "count is 256, but an image has 64 values"),
    (lambda: build(SimCLR, temperature=0.0), "SimCLR.temperature is 0.0"),
    (lambda: build(SimCLR, scale="paper"), "SimCLR.scale is 'paper'"),
    (lambda: build(SimCLR, views=(battery.SHIFT,)), "SimCLR.views has 1 augmentations"),
    (lambda: build(SimCLR, forward="both"), "forward is 'both'"),
    (lambda: build(SimCLR, false_negatives=IFND()), "IFND needs a pseudo-label of each training image"),
    (lambda: build(SupCon, base_temperature=0.0), "SupCon.base_temperature is 0"),
    (lambda: build(SupCon, false_negatives=AdaptiveFNC()), "set false_negatives=None"),
    (lambda: build(BYOL, target_rate=1.5), "BYOL.target_rate is 1.5"),
    (
        lambda: build(BYOL, prediction=ProjectionHead(dim=3)),
        "BYOL.prediction has 3 output features; the projection has 256",
    ),
    (lambda: build(MoCoV3, temperature=0.0), r"MoCoV3\.temperature is 0\.0"),
    (lambda: build(MoCoV3, prediction=ProjectionHead(dim=3)), "MoCoV3.prediction has 3 output features"),
    (lambda: build(DINO, teacher_temperature=0.0), "DINO.teacher_temperature is 0.0"),
    (lambda: build(DINO, center_momentum=1.5), r"DINO\.center_momentum is 1\.5; it lies in \[0, 1\]"),
    (lambda: build(DINO, local_count=2), "DINO.local_count is 2 and DINO.local_views is None: set both"),
    (lambda: build(DINO, local_views=battery.SHIFT), "DINO.local_count is 0 and DINO.local_views is"),
    (
        lambda: build(SwAV, local_views=battery.LOCAL, local_count=1),
        r"SwAV\.local_views have the shape \(4, 4, 1\), which CNN does not accept: use an encoder with global pooling",
    ),
    (lambda: build(SwAV, temperature=0.0), "SwAV.temperature is 0.0"),
    (lambda: build(SwAV, code_temperature=0.0), "SwAV.code_temperature is 0.0"),
    (lambda: build(SwAV, iterations=-1), "SwAV.iterations is -1"),
    (lambda: build(SwAV, frozen_steps=-1), "SwAV.frozen_steps is -1"),
    (lambda: build(SwAV, queue_start=3), "SwAV.queue_start is 3, but there is no queue"),
    (lambda: build(SwAV, clip_each=True), "clip_each of SwAV has no effect without clip_norm"),
    (lambda: Prototypes(0), "Prototypes.count must be an integer >= 1, got 0"),
    (lambda: Prototypes(3, lengths="unit"), "Prototypes.lengths is 'unit'"),
    (lambda: ProjectionHead(activation="tanh"), "ProjectionHead.activation is 'tanh'"),
    (lambda: build(RoCL, attack=ATTACK, regularizer_pass="twice"), "regularizer_pass is 'twice'"),
    (lambda: InstanceAdversary(negatives="all", attack=ATTACK), "negatives is 'all'"),
    (lambda: InstanceAdversary(group=1, attack=ATTACK), "group is 1"),
    (lambda: InstanceAdversary(mode="eval", attack=ATTACK), "eval"),
    (lambda: build(ACL, attack=ATTACK, streams="triple"), "streams is 'triple'"),
    (lambda: build(ACL, attack=ATTACK, streams="dual_stream"), "with branches=2"),
    (
        lambda: build(
            ACL,
            streams="standard_to_standard",
            adversary=InstanceAdversary(attack=ATTACK),
        ),
        "'standard_to_standard' contrasts clean views only: set adversary=None",
    ),
    (lambda: tiny.build(LayerWiseContrastive), "Sequential has none"),
    # No radius fits all data, so that there is no default.
    (lambda: ThreatModel(), "ThreatModel.epsilon is not set.*8/255 for photographs.*0.3 for MNIST"),
    (lambda: PGD(steps=3), "PGD needs a threat model with a radius.*8/255"),
    (lambda: FGSM(), "FGSM needs a threat model"),
    (lambda: Adversary(mode="batch"), "Adversary needs an attack with a radius.*8/255"),
    (lambda: TRADES(*tiny.parts()), "TRADES needs an attack with a radius"),
    (lambda: ACL(*tiny.parts()), "ACL needs an attack"),
    (lambda: IBP(*tiny.parts()), "IBP.epsilon is not set.*8/255"),
    (lambda: IBP(*tiny.parts(), epsilon=0.1, norm="l2"), "IBP.norm is 'l2'"),
    (lambda: FreeAdversarialTraining(*tiny.parts()), "FreeAdversarialTraining needs a threat model"),
    (lambda: MART(*tiny.parts(), attack=ATTACK, adversary=Adversary(attack=ATTACK)), "an adversary and an attack"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("kind", "message"), [(SimCLR, "probe=False trains without"), (SupCon, "SupCon needs labels")])
def test_images_without_labels_are_refused(kind, message):
    """Without any, all of SupCon's would be one class."""
    method = kind(battery.encoder(), LinearHead(3), probe=kind is SimCLR)
    method.compile("sgd", run_eagerly=True)
    with pytest.raises(ValueError, match=message):
        method.fit(np.zeros([4, *battery.IMAGE_SHAPE], np.float32), verbose=0)


NOISE = {"sparsity": 0.0, "scale": (2.0, 5.0)}
# Method, attribute by attribute what its paper or, where that is silent, its code says.
DEFAULTS = [
    (lambda: Mixup(*tiny.parts()), {"mixing": Mixing(alpha=1.0)}),
    (lambda: CutMix(*tiny.parts()), {"mixing": Mixing(alpha=1.0)}),
    (lambda: staged(ManifoldMixup), {"mixing": Mixing(alpha=2.0), "stages": (0, 1, 2)}),
    (
        lambda: staged(NFM, stages=(0, 1, 2)),
        {"mixing": Mixing(alpha=1.0), "noise": FeatureNoise(additive=0.4, multiplicative=0.2, **NOISE)},
    ),
    (
        lambda: PuzzleMix(*tiny.parts()),
        {
            "mixing": Mixing(alpha=1.0),
            "objective": "cross_entropy",
            "puzzle": Puzzle(
                blocks=(2, 4, 8, 16),
                prior=0.2,
                smoothness=1.2,
                contrast=0.5,
                neighbourhood=4,
                transport=True,
                transport_side=4,
                transport_cost=0.8,
            ),
        },
    ),
    (
        lambda: tiny.build(AugMixTraining),
        {"augmentation": AugMix(), "forward": "joint", "passes_per_step": 3, "default_weights": {"jsd": 12.0}},
    ),
    (
        lambda: staged(NoisyMix, stages=(0, 1, 2)),
        {
            "branches": Branches(strengths=(1.0, 1.0, 1.0), noise="own", noise_without_mixing=True),
            "noise": FeatureNoise(additive=0.5, multiplicative=0.5, **{**NOISE, "sparsity": 0.65}),
            "mixing": Mixing(alpha=1.0),
            "augmentation": AugMix(),
            "passes_per_step": 3,
            "default_weights": {"jsd": 12.0},
            "terms": ("ce", "jsd"),
        },
    ),
    (lambda: SupervisedContrastive(*tiny.parts()), {"passes_per_step": 2}),
    (lambda: ADR(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: ADR(*tiny.parts(), objective="trades", attack=ATTACK).adversary, {"objective": "kl"}),
    (lambda: ASCL(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: ASCL(*tiny.parts(), objective="trades", attack=ATTACK).adversary, {"objective": "kl"}),
    (lambda: HAT(*tiny.parts(), helper=len, attack=ATTACK).adversary, {"objective": "kl"}),
    (lambda: MART(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: SmoothAdv(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: FCL(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: CLGaussian(*tiny.parts(), attack=ATTACK).adversary, {"objective": "cross_entropy"}),
    (lambda: TRADES(*tiny.parts(), attack=ATTACK).adversary, {"objective": "kl"}),
    # The same with an adversary that names no objective, and its own if it names one.
    (lambda: TRADES(*tiny.parts(), adversary=Adversary(attack=ATTACK, mode="batch")).adversary, {"objective": "kl"}),
    (
        lambda: TRADES(*tiny.parts(), adversary=Adversary(attack=ATTACK, objective="cross_entropy")).adversary,
        {"objective": "cross_entropy"},
    ),
    (lambda: TRADES(*tiny.parts(), adversary=FastAdversary(attack=FGSM(THREAT))).adversary, {"objective": "kl"}),
    (lambda: RoCL(*tiny.parts(), attack=ATTACK).adversary, {"mode": "inference", "negatives": "clean"}),
]


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

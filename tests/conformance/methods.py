"""Check what every training method must do. A new member adds a row to `ROWS`; its own formulas get their own test.

A row is name -> constructor of the method from (encoder, head, **keywords).
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from conformance import backbones
from tfrobust.keras import methods as M
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel
from tfrobust.keras.augment import AddGaussian, EveryFrame, RandomFlip, RandomShift, TokenRemoval, UtilityPerturbation
from tfrobust.models import cnn, text_transformer
from tfrobust.models.heads.linear import LinearHead, LinearProjection
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.models.shared.blocks import ConvolutionUnit
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.vit import ViT

IMAGE_SHAPE = (8, 8, 1)
SENTENCE_LENGTH, WORDS = 7, 12
FRAMES = 4
CLASSES = 3
RATE = 0.05
# Of a radius: half of it in the first step.
HALF = keras.optimizers.schedules.PolynomialDecay(0.5, 4, 1.0)


def adversary(**keywords) -> M.Adversary:
    """Two cheap steps."""
    return M.Adversary(attack=PGD(ThreatModel(epsilon=0.1), steps=2), **keywords)


SEVERAL = tuple(PGD(ThreatModel(norm=norm, epsilon=0.1), steps=2) for norm in ("linf", "l1"))


def _ascl(*, projected: bool = False, **settings):
    def make(*parts, **keywords):
        projection = LinearProjection(4) if projected else None
        return M.ASCL(*parts, adversary=adversary(), projection=projection, **settings, **keywords)

    return make


# Divides what a replica has of the smallest batch of the tests.
MIXING = M.Mixing(group=2)
# Cheap to trace, and XLA compiles it; AugMix itself is made for the input pipeline.
SHIFT = RandomShift(fraction=0.2)


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True, kw_only=True)
class HalvedShift(RandomShift):
    """The same in half of the size."""

    def apply(self, images, draw):
        return tf.nn.avg_pool2d(super().apply(images, draw), 2, 2, "VALID")


LOCAL = HalvedShift(fraction=0.2)
CLIP_SHIFT = EveryFrame(augmentation=SHIFT)
NO_CHANGE = EveryFrame(augmentation=RandomFlip(probability=0.0))


@keras.saving.register_keras_serializable(package="tests")
class StagedClips(Encoder):
    """A smooth encoder of clips of any length, whose only stage keeps the frames."""

    input_rank = 5

    def __init__(self, **keywords):
        super().__init__(**keywords)
        style = self.style(activation="softplus", symmetric=True)
        unit = ConvolutionUnit(4, size=(3, 3, 3), stride=(1, 2, 2), style=style, dtype=self.dtype_policy)
        self.compose([[unit]], [keras.layers.GlobalAveragePooling3D(dtype=self.dtype_policy)], dim=4)


def _noisymix(*, mixing=MIXING, **settings):
    def make(*parts, **keywords):
        return M.NoisyMix(*parts, augmentation=SHIFT, mixing=mixing, stages=(0, 1, 2), **settings, **keywords)

    return make


def fast(*parts, projected=True, **keywords):
    """Adversarial training with a single step, from noise."""
    fast_adversary = M.FastAdversary(
        attack=FGSM(ThreatModel(norm="l2", epsilon=0.06)), noise=2.0, step=1.0, projected=projected, ramp=HALF
    )
    return M.AdversarialTraining(*parts, adversary=fast_adversary, **keywords)


@keras.saving.register_keras_serializable(package="tests")
def corner(images):
    """Logits of a helper: the pixels of a corner."""
    return tf.reshape(images, [-1, 64])[:, :CLASSES]


def _head() -> ProjectionHead:
    return ProjectionHead((6,), dim=4)


def _crops(**settings) -> dict:
    """Views of two sizes."""
    return {"projection": _head(), "views": SHIFT, "local_views": LOCAL, **settings}


def _instances(kind, *, projection=None, branches=1, adversary_of=(), **settings):
    """RoCL or ACL, its adversary compared within groups that divide what a replica has."""

    def make(single, head, **keywords):
        attacker = M.InstanceAdversary(attack=adversary().attack, group=2, ramp=HALF, **dict(adversary_of))
        parts = (single if branches == 1 else encoder(branches=branches)), head
        return kind(*parts, adversary=attacker, projection=projection or _head(), views=SHIFT, **settings, **keywords)

    return make


ROWS = {
    "supervised": M.Supervised,
    "supervised_noisy": lambda *parts, **k: M.Supervised(*parts, noise=AddGaussian(), forward="joint", **k),
    "supervised_tikhonov": lambda *parts, **k: M.Supervised(
        *parts, noise=AddGaussian(), penalty=M.Tikhonov(weight=0.1), **k
    ),
    # Hidden tokens that are mixed, and attention differentiated twice.
    "nfm_vit": lambda _, head, **k: M.NFM(vit(), head, mixing=MIXING, stages=(0, 1, 2), **k),
    "supervised_tikhonov_vit": lambda _, head, **k: M.Supervised(
        vit(), head, noise=AddGaussian(), penalty=M.Tikhonov(weight=0.1), **k
    ),
    "supervised_contrastive": lambda *parts, **k: M.SupervisedContrastive(*parts, projection=LinearProjection(4), **k),
    "supervised_contrastive_tikhonov": lambda *parts, **k: M.SupervisedContrastive(
        *parts, penalty=M.Tikhonov(form="batch", of=("contrastive",)), **k
    ),
    "adversarial_training": lambda *parts, **k: M.AdversarialTraining(*parts, adversary=adversary(), **k),
    "adversarial_training_joint": lambda *parts, **k: M.AdversarialTraining(
        *parts, adversary=adversary(mode="batch"), forward="joint", **k
    ),
    "adversarial_training_clips": lambda _, head, **k: M.AdversarialTraining(
        clip_encoder(), head, adversary=adversary(), **k
    ),
    "trades": lambda *parts, **k: M.TRADES(*parts, adversary=adversary(objective="kl"), **k),
    # A functional model with batch norm, of Keras's own layers.
    "trades_backbone": lambda _, head, **k: M.TRADES(
        backbones.functional(), head, adversary=adversary(objective="kl"), **k
    ),
    "adr": lambda *parts, **k: M.ADR(*parts, adversary=adversary(), **k),
    "adr_trades": lambda *parts, **k: M.ADR(*parts, objective="trades", adversary=adversary(objective="kl"), **k),
    "ascl": _ascl(),
    "ascl_hard": _ascl(contrast=M.Contrast(selection=M.HardSelection())),
    "ascl_soft": _ascl(contrast=M.Contrast(selection=M.SoftSelection(), similarity="linf", normalized=True)),
    "ascl_leaked": _ascl(contrast=M.Contrast(selection=M.LeakedSelection()), projected=True),
    "ascl_trades": lambda *parts, **k: M.ASCL(*parts, objective="trades", adversary=adversary(objective="kl"), **k),
    "ibp": lambda *parts, **k: M.IBP(*parts, epsilon=0.05, **k),
    "crown_ibp": lambda *parts, **k: M.CROWNIBP(*parts, epsilon=0.05, final_beta=0.5, **k),
    "mtl_ibp": lambda *parts, **k: M.MTLIBP(*parts, epsilon=0.05, kappa=0.7, adversary=adversary(), **k),
    "relu_stability": lambda *parts, **k: M.ReLUStability(*parts, epsilon=0.05, adversary=adversary(), **k),
    "mixup": lambda *parts, **k: M.Mixup(*parts, mixing=MIXING, **k),
    "cutmix": lambda *parts, **k: M.CutMix(*parts, mixing=M.Mixing(group=2, per_example=True), **k),
    "manifold_mixup": lambda *parts, **k: M.ManifoldMixup(*parts, mixing=MIXING, **k),
    "nfm": lambda *parts, **k: M.NFM(*parts, mixing=MIXING, stages=(0, 1, 2), **k),
    "puzzlemix": lambda *parts, **k: M.PuzzleMix(*parts, mixing=MIXING, puzzle=M.Puzzle(blocks=(2, 4)), **k),
    "augmix": lambda *parts, **k: M.AugMixTraining(*parts, augmentation=SHIFT, **k),
    "noisymix": _noisymix(branches=M.Branches(strengths=(1.0, 2.0, 3.0), noise_without_mixing=False)),
    "noisymix_paper": _noisymix(
        mixing=M.Mixing(group=2, per_example=True),
        noise=M.FeatureNoise(additive=0.1, multiplicative=0.1, scale=None),
        branches=M.Branches(noise="shared"),
    ),
    "fcl": lambda *parts, **k: M.FCL(*parts, perturbation=UtilityPerturbation(count=9), **k),
    "fcl_margin_adversarial": lambda *parts, **k: M.FCL(
        *parts,
        perturbation=UtilityPerturbation(count=0.2),
        objective=M.FeatureMargin(scale="sum"),
        adversary=adversary(),
        forward="joint",
        **k,
    ),
    "fcl_text": lambda _, head, **k: M.FCL(text_encoder(), head, perturbation=TokenRemoval(fraction=0.3), **k),
    "cl_gaussian": M.CLGaussian,
    "simclr": lambda *parts, **k: M.SimCLR(*parts, projection=_head(), views=SHIFT, **k),
    "simclr_adaptive_fnc": lambda *parts, **k: M.SimCLR(
        *parts,
        projection=_head(),
        views=(SHIFT, AddGaussian()),
        forward="separate",
        false_negatives=M.AdaptiveFNC(threshold=0.5),
        scale="sum",
        self_in_denominator=True,
        **k,
    ),
    "supcon": lambda *parts, **k: M.SupCon(*parts, projection=_head(), views=SHIFT, base_temperature=0.07, **k),
    "byol": lambda *parts, **k: M.BYOL(*parts, projection=_head(), views=SHIFT, target_rate=0.5, **k),
    "moco_v3": lambda *parts, **k: M.MoCoV3(*parts, projection=_head(), views=SHIFT, target_rate=0.5, **k),
    "moco_v3_adaptive_fnc": lambda *parts, **k: M.MoCoV3(
        *parts,
        projection=_head(),
        views=SHIFT,
        target_rate=0.5,
        false_negatives=M.AdaptiveFNC(threshold=0.9, features="embedding"),
        **k,
    ),
    "dino": lambda _, head, **k: M.DINO(
        encoder(dense=()),
        head,
        **_crops(local_count=2, prototypes=Prototypes(7, lengths="trained"), target_rate=0.5) | k,
    ),
    "swav": lambda *parts, **k: M.SwAV(*parts, projection=_head(), prototypes=Prototypes(7), views=SHIFT, **k),
    "swav_queue": lambda _, head, **k: M.SwAV(
        encoder(dense=()), head, **_crops(local_count=1, prototypes=Prototypes(7), queue_length=8, frozen_steps=1) | k
    ),
    "rocl": _instances(M.RoCL, false_negatives=M.AdaptiveFNC(threshold=0.9)),
    "rocl_released": _instances(
        M.RoCL, adversary_of={"negatives": "moving"}, detached_keys=True, regularizer_pass="own", forward="separate"
    ),
    "acl": _instances(M.ACL, branches=2),
    "acl_to_standard": _instances(M.ACL, branches=2, streams="adversarial_to_standard"),
    "layer_wise": lambda *parts, **k: M.LayerWiseContrastive(
        *parts,
        projection=_head(),
        views=SHIFT,
        penalty=M.LayerWiseTikhonov(betas={"layer_1": 0.1, "contrastive": 1.0}),
        **k,
    ),
    "cvrl": lambda _, head, **k: M.CVRL(
        StagedClips(synchronized=True), head, frames=2, stride=1, projection=_head(), views=CLIP_SHIFT, **k
    ),
    "tclr": lambda _, head, **k: M.TCLR(
        StagedClips(synchronized=True), head, frames=2, parts=2, projection=_head(), views=CLIP_SHIFT, **k
    ),
    "ascl_two_transforms": _ascl(transforms=M.TwoTransforms(combine="by_kind"), vat_divide_by_classes=True),
    "trades_awp": lambda *parts, **k: M.TRADES(
        *parts, adversary=adversary(objective="kl"), weight_perturbation=M.WeightPerturbation(), **k
    ),
    "n_fgsm": lambda *parts, **k: fast(*parts, projected=False, **k),
    "grad_align": lambda *parts, **k: fast(*parts, penalty=M.GradAlign(epsilon=0.1), **k),
    "free_adversarial_training": lambda *parts, **k: M.FreeAdversarialTraining(
        *parts, threat=ThreatModel(norm="l2", epsilon=0.5), replays=1, rows=12, **k
    ),
    "multi_norm_training": lambda *parts, **k: M.MultiNormTraining(*parts, attacks=SEVERAL, **k),
    "multi_norm_average": lambda *parts, **k: M.MultiNormTraining(*parts, attacks=SEVERAL, rule="average", **k),
    "mart": lambda *parts, **k: M.MART(*parts, adversary=adversary(ramp=HALF), label_smoothing=0.1, **k),
    "hat": lambda *parts, **k: M.HAT(*parts, helper=corner, adversary=adversary(objective="kl"), **k),
    "fare": lambda *parts, **k: M.FARE(*parts, adversary=adversary(), **k),
    "noise_consistency": lambda *parts, **k: M.NoiseConsistency(*parts, sigma=0.1, **k),
    "smooth_adv": lambda *parts, **k: M.SmoothAdv(
        *parts, sigma=0.1, copies=3, adversary=adversary(mode="batch"), forward="separate", **k
    ),
}


# These train on sentences or clips, with an encoder of their own; all others on images.
TEXT_ROWS = ("fcl_text",)
CUT_ROWS = ("cvrl", "tclr")  # whose views are parts of the clips
CLIP_ROWS = ("adversarial_training_clips", *CUT_ROWS)


def encoder(**keywords) -> keras.Model:
    """The smallest encoder with batch norm."""
    return cnn.CNN(stages=((4,), (6,)), **{"dense": (5,)} | keywords)


def text_encoder() -> keras.Model:
    """The smallest transformer; smooth, and without dropout, which does not follow the seed of a method."""
    style = text_transformer.TransformerStyle(activation="tanh", dropout=0.0)
    return text_transformer.TextTransformer(WORDS, SENTENCE_LENGTH, width=4, depth=1, heads=2, inner=5, style=style)


def clip_encoder() -> keras.Model:
    """The smallest encoder of clips with batch norm; it is smooth."""
    clips = keras.Input((FRAMES, *IMAGE_SHAPE))
    hidden = keras.layers.Conv3D(4, 3, strides=(1, 4, 4), padding="same", use_bias=False)(clips)
    hidden = keras.layers.BatchNormalization(momentum=0.9, synchronized=True)(hidden)
    hidden = keras.layers.Activation("softplus")(hidden)
    return keras.Model(clips, keras.layers.Dense(5, activation="tanh")(keras.layers.Flatten()(hidden)))


def vit() -> keras.Model:
    """The smallest vision transformer."""
    return ViT(4, width=8, depth=2, heads=2)


def example_shape(row: str) -> tuple[int, ...]:
    if row in CLIP_ROWS:
        return (FRAMES, *IMAGE_SHAPE)
    return (SENTENCE_LENGTH,) if row in TEXT_ROWS else IMAGE_SHAPE


def build(row: str, *, seed: int = 0, compiled: bool = True, optimizer=None, **keywords):
    """A built method of a row, its initial weights the same for the same seed."""
    keras.utils.set_random_seed(seed + 1)
    method = ROWS[row](encoder(), LinearHead(CLASSES), seed=seed, **keywords)
    method.build((None, *example_shape(row)))
    if compiled:
        method.compile(
            optimizer=optimizer or keras.optimizers.SGD(RATE, momentum=0.9),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            jit_compile=False,
        )
        method.optimizer.build(method.trainable_variables)
    return method


def data(count: int = 12, row: str = "supervised") -> tuple[np.ndarray, np.ndarray]:
    """Return a row's training data, which a small network can classify: each class lights its own rows of an image.

    In sentences, of several lengths, each class has its own words. The frames of a clip show an image moving down.
    """
    if row in CLIP_ROWS:
        images, labels = data(count)
        return np.stack([np.roll(images, frame, axis=1) for frame in range(FRAMES)], axis=1), labels
    if row in TEXT_ROWS:
        places, labels = np.indices((count, SENTENCE_LENGTH)), (np.arange(count) % CLASSES).astype(np.int32)
        words = 2 + (3 * labels[:, None] + places[1] * places[0]) % (WORDS - 2)
        return np.where(places[1] < 3 + places[0] % 5, words, 0).astype(np.int32), labels
    images = tf.random.stateless_uniform([count, *IMAGE_SHAPE], [1, 2], 0.0, 0.4).numpy()
    labels = (np.arange(count) % CLASSES).astype(np.int32)
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 0.5
    return images, labels


def prepared(method) -> tuple:
    """(Batch, Context) of the images of a row, as its first step has them."""
    batch = method.as_batch(tuple(tf.constant(part) for part in data()))
    return batch, method.context(batch)


def changed_otherwise(method) -> set[int]:
    """Ids of the trained variables that not only the optimizer changes, or not in the first step."""
    prototypes = getattr(method, "prototypes", None)
    special = prototypes is not None and (prototypes.lengths == "projected" or method.frozen_steps)
    return {id(variable) for variable in prototypes.trainable_variables} if special else set()


def frozen(method) -> set[int]:
    """Ids of the variables that no step changes: those of a copy of the encoder at the start."""
    return {id(variable) for variable in getattr(getattr(method, "original", None), "variables", ())}


def weights(method) -> list[np.ndarray]:
    """All variables of a method but the clock, as arrays."""
    return [variable.numpy() for variable in method.variables]

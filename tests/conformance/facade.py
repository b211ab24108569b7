"""Everything `tfrobust.keras` offers, walked from its own lists, and how one of each is made.

`OFFERED` has every public name. A class without a row in `ROWS` is made from the defaults of its kind (`instance`), so
that a new one is tested by being offered; a row has small sizes, and what is not the default: that a round trip can
lose.
"""

import inspect
import types

import keras
import numpy as np
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.attacks.shared.attack import Attack

SHAPE, SIZE, CLASSES, WORDS = (8, 8, 1), 64, 3, 20
attacks, augment, layers, losses = robust.attacks, robust.augment, robust.layers, robust.losses
methods, metrics, models = robust.methods, robust.metrics, robust.models

# Methods of clips alone, and the frames that they get.
OF_CLIPS, FRAMES = ("CVRL", "TCLR"), 16
THREAT = attacks.ThreatModel(norm="l2", epsilon=0.1)
SEVERAL = (THREAT, attacks.ThreatModel(norm="l1", epsilon=0.5))
ADVERSARY = methods.Adversary(attack=attacks.PGD(THREAT, steps=1), mode="batch")
INSTANCES = methods.InstanceAdversary(attack=attacks.PGD(THREAT, steps=1), negatives="moving", group=3)


SHIFTED = (augment.RandomShift(fraction=0.2), augment.PadCrop(padding=1))


def narrow():
    return layers.ProjectionHead((4,), dim=3, normalization="hidden", output_bias=False)


NARROW = narrow()


def small_cnn(**keywords):
    return models.CNN(((4,), (4,)), dense=(5,), **keywords)


def method(cls, **keywords):
    keywords = {"seed": 3, "term_weights": {"ce": 0.5}, **keywords}
    return lambda: cls(small_cnn(), models.LinearHead(CLASSES), **keywords)


@keras.saving.register_keras_serializable(package="tests")
def first_values(images):
    """Logits of a helper: the first values of each image."""
    return tf.reshape(images, [tf.shape(images)[0], -1])[:, :CLASSES]


# What is not the default is what a round trip can lose.
PARTS = {
    "ThreatModel": lambda: THREAT,
    "FGSM": lambda: attacks.FGSM(THREAT),
    "PGD": lambda: attacks.PGD(THREAT, steps=3, step_size=0.05, random_start="gaussian", restarts=2),
    "MomentumPGD": lambda: attacks.MomentumPGD(THREAT, steps=3, decay=0.5),
    "MSD": lambda: attacks.MSD(SEVERAL, steps=3, step_sizes=(0.05, 0.1)),
    "APGDCrossEntropy": lambda: attacks.APGDCrossEntropy(THREAT, steps=20, restarts=2),
    "APGDDLR": lambda: attacks.APGDDLR(THREAT, expectation_samples=3),
    "APGDTargeted": lambda: attacks.APGDTargeted(
        attacks.ThreatModel(norm="l1", epsilon=0.2), targets=5, large_radii=False
    ),
    "FAB": lambda: attacks.FAB(THREAT, targets=3, beta=0.8),
    "FABUntargeted": lambda: attacks.FABUntargeted(THREAT, restarts=2),
    "Square": lambda: attacks.Square(THREAT, steps=50, initial_share=0.5),
    "AutoAttack": lambda: attacks.AutoAttack(THREAT, version="rand", expectation_samples=3),
    "Ensemble": lambda: attacks.Ensemble((attacks.FGSM(THREAT), attacks.Square(THREAT, steps=9))),
    "FMN": lambda: attacks.FMN(attacks.ThreatModel(norm="l0", epsilon=3), steps=7),
    "DDN": lambda: attacks.DDN(attacks.ThreatModel(norm="l2", epsilon=0.5), first_radius=0.3),
    "HopSkipJump": lambda: attacks.HopSkipJump(THREAT, steps=2, first_samples=9),
    "ProxLogBarrier": lambda: attacks.ProxLogBarrier(attacks.ThreatModel(norm="l0", epsilon=3), outer_steps=4),
    "Transfer": lambda: attacks.Transfer(attacks.PGD(THREAT, steps=3)),
    "UniformNoise": lambda: attacks.UniformNoise(THREAT, draws=4),
    "GaussianNoise": lambda: attacks.GaussianNoise(THREAT, deviation=0.2),
    "MultiTargetedPGD": lambda: attacks.MultiTargetedPGD(THREAT, steps=3, include_true_class=True),
    "RandomFlip": lambda: augment.RandomFlip(probability=0.25),
    "RandomShift": lambda: augment.RandomShift(fraction=0.2, fill="constant", whole_pixels=True),
    "PadCrop": lambda: augment.PadCrop(padding=1),
    "EveryFrame": lambda: augment.EveryFrame(augmentation=augment.RandomShift(fraction=0.2)),
    "RandomResizedCrop": lambda: augment.RandomResizedCrop(scale=(0.2, 0.9), ratio=(0.5, 1.5)),
    "AugMix": lambda: augment.AugMix(width=2, depth=1, severity=5.0, alpha=0.5, all_operations=True),
    "AddGaussian": lambda: augment.AddGaussian(deviation=(0.0, 0.4)),
    "PatchGaussian": lambda: augment.PatchGaussian(patch=(1, 6), deviation=0.5, probability=0.7, centres="edges"),
    "AutoAugment": lambda: augment.AutoAugment(policy="imagenet", ranges="code"),
    "RandAugment": lambda: augment.RandAugment(count=3, magnitude=5.0, operations=("invert", "rotate")),
    "Compose": lambda: augment.Compose(augmentations=(augment.PadCrop(padding=1), augment.RandomFlip())),
    "ContrastiveViews": lambda: augment.ContrastiveViews(crop=(0.2, 1.0), blur=0.1, order="rocl", colors="mean"),
    "Adversary": lambda: ADVERSARY,
    "FastAdversary": lambda: methods.FastAdversary(attack=attacks.FGSM(THREAT), noise=2.0, projected=False),
    "WeightPerturbation": lambda: methods.WeightPerturbation(gamma=0.05),
    "GradAlign": lambda: methods.GradAlign(epsilon=0.1, weight=0.5, of=("ce_adv",)),
    "TeacherLogits": lambda: methods.TeacherLogits(path="exported/helper"),
    "Contrast": lambda: methods.Contrast(selection=methods.HardSelection(), temperature=0.3, similarity="l2"),
    "GlobalSelection": methods.GlobalSelection,
    "HardSelection": methods.HardSelection,
    "SoftSelection": methods.SoftSelection,
    "FNC": lambda: methods.FNC(threshold=0.5, top_k=3, combine="union", action="cancel", features="embedding"),
    "IFND": lambda: methods.IFND(clusters=5, every=2, acceptance=0.5, temperature=0.2, action="attract"),
    "AdaptiveFNC": lambda: methods.AdaptiveFNC(threshold=0.8, key_views="all", features="embedding"),
    "LeakedSelection": lambda: methods.LeakedSelection(counterpart="code"),
    "Mixing": lambda: methods.Mixing(alpha=0.2, group=8, per_example=True),
    "UtilityPerturbation": lambda: augment.UtilityPerturbation(count=0.1, deviation=0.2, unit="pixels"),
    "TokenRemoval": lambda: augment.TokenRemoval(fraction=0.3, smallest_utility=1e-6),
    "TransformerStyle": lambda: models.TransformerStyle(positions="none", normalization="behind", dropout=0.0),
    "FeatureContrast": lambda: methods.FeatureContrast(temperature=0.5, scale="mean"),
    "FeatureMargin": lambda: methods.FeatureMargin(margin=0.5, form="inside"),
    "TeacherUtility": lambda: methods.TeacherUtility(path="exported/teacher"),
    "LinearRamp": lambda: robust.schedules.LinearRamp(0.5, delay=3, length=2, steps_per_unit=4),
    "OverTraining": lambda: robust.schedules.OverTraining(robust.schedules.SmoothedRamp(length=5), units=5, updates=9),
    "Branches": lambda: methods.Branches(strengths=(1.0, 2.0, 3.0), noise="shared", noise_without_mixing=False),
    "Tikhonov": lambda: methods.Tikhonov(weight=0.1, of=("ce",), form="batch", mode="finite_difference"),
    "InstanceAdversary": lambda: INSTANCES,
    "LayerWiseTikhonov": lambda: methods.LayerWiseTikhonov(betas={"layer_1": 0.01, "contrastive": 0.1}, on=("view_1",)),
    "Puzzle": lambda: methods.Puzzle(blocks=(2, 4), prior=0.1, transport=False),
    "FeatureNoise": lambda: methods.FeatureNoise(additive=0.5, sparsity=0.65, scale=None),
    "TwoTransforms": lambda: methods.TwoTransforms(augmentation=augment.PadCrop(padding=1), combine="by_kind"),
}
LOSSES = {
    "SupervisedContrastiveLoss": lambda: losses.SupervisedContrastiveLoss(temperature=0.5, similarity="l2"),
    "LogitsKLDivergence": lambda: losses.LogitsKLDivergence(reduction="sum", name="other"),
}
METRICS = {
    "ExpectedCalibrationError": lambda: metrics.ExpectedCalibrationError(bins=7, from_logits=False, name="other"),
    "BrierScore": lambda: metrics.BrierScore(from_logits=False),
    "NegativeLogLikelihood": lambda: metrics.NegativeLogLikelihood(from_logits=False),
    "RMSCalibrationError": lambda: metrics.RMSCalibrationError(bin_size=50, bins="code", from_logits=False),
    "AURRA": lambda: metrics.AURRA(from_logits=False),
}
OPTIMIZERS = {
    "LARS": lambda: robust.optimizers.LARS(0.1, nesterov=True, weight_decay=0.1, exclude=("gamma",), denominator="sum"),
    "LAMB": lambda: robust.optimizers.LAMB(0.1, beta_2=0.9, weight_decay=0.1, exclude=("gamma",)),
    "ScheduledAdamW": lambda: robust.optimizers.ScheduledAdamW(
        0.1, beta_2=0.9, weight_decay=keras.optimizers.schedules.CosineDecay(0.1, 9, alpha=2.0), exclude=("gamma",)
    ),
}
IMAGE_LAYERS = {
    "AugMixLayer": lambda **k: layers.AugMix(width=2, depth=1, severity=5.0, seed=4, **k),
    "Augment": lambda **k: layers.Augment(augment.RandomShift(fraction=0.3), seed=4, **k),
    "Backbone": lambda **k: models.Backbone(plain("functional"), pixel_range=(0, 255), **k),
    "BranchedBatchNormalization": lambda **k: layers.BranchedBatchNormalization(2, momentum=0.8, **k),
    "CNN": lambda **k: models.CNN(((4,), (4,)), dense=(5,), branches=2, pixel_mean=0.5, pixel_std=(0.2,), **k),
    "Corrupt": lambda **k: layers.Corrupt("fog", severity=2, seed=4, **k),
    "DigitsCNN": lambda **k: models.DigitsCNN(activation="gelu", **k),
    "PaperCNN": lambda **k: models.PaperCNN("mnist", kernel_regularization=0.01, **k),
    "LeNet": lambda **k: models.LeNet(filters=(2, 3), dense=(4,), **k),
    "PreActResNet18": lambda **k: models.PreActResNet18(width=2, shortcut="activated", **k),
    "ResNet18": lambda **k: models.ResNet18(width=2, **k),
    "ResNet": lambda **k: models.ResNet(8, widths=(4, 4, 8), **k),
    "ResNet50": lambda **k: models.ResNet50("bottleneck_v2", stem="imagenet", width=2, symmetric=True, **k),
    "ViT": lambda **k: models.ViT(4, width=8, depth=2, heads=2, drop_path=0.1, pooling="class_and_average", **k),
    "WideResNet": lambda **k: models.WideResNet(10, 1, dropout=0.2, variant="noisymix", **k),
}
VECTOR_LAYERS = {
    "GroupSort": lambda **k: layers.GroupSort(4, **k),
    "LinearHead": lambda **k: layers.LinearHead(CLASSES, kernel_initializer="zeros", normalized=True, **k),
    "MLPHead": lambda **k: layers.MLPHead(CLASSES, hidden=5, normalized=True, **k),
    "LogisticRegression": lambda **k: layers.LogisticRegression(CLASSES, regularization=0.1, normalized=True, **k),
    "KNearestNeighbours": lambda **k: layers.KNearestNeighbours(CLASSES, neighbours=3, examples=4, **k),
    "LinearProjection": lambda **k: layers.LinearProjection(6, use_bias=True, **k),
    "MLPProjection": lambda **k: layers.MLPProjection(5, dim=6, **k),
    "Prototypes": lambda **k: layers.Prototypes(6, lengths="trained", **k),
    "ProjectionHead": lambda **k: layers.ProjectionHead((4, None), dim=6, normalization="hidden", branches=2, **k),
}
METHODS = {
    "Supervised": method(methods.Supervised, clip_norm=1.0, noise=PARTS["AddGaussian"](), forward="joint"),
    "SupervisedContrastive": method(methods.SupervisedContrastive, projection=layers.MLPProjection(4, dim=3)),
    "AdversarialTraining": method(methods.AdversarialTraining, adversary=ADVERSARY, forward="joint"),
    "TRADES": method(methods.TRADES, adversary=ADVERSARY),
    "MART": method(methods.MART, adversary=ADVERSARY, label_smoothing=0.1, term_weights={"bce": 0.5}),
    "FARE": method(methods.FARE, adversary=ADVERSARY, term_weights={"probe": 0.5}),
    "HAT": method(methods.HAT, helper=first_values, distance=3.0, adversary=ADVERSARY),
    "FreeAdversarialTraining": method(
        methods.FreeAdversarialTraining, threat=THREAT, replays=2, rows=16, term_weights={"ce_adv": 0.5}
    ),
    "Mixup": method(methods.Mixup, mixing=PARTS["Mixing"](), term_weights={"ce_mixed": 0.5}),
    "CutMix": method(methods.CutMix, probability=0.5, term_weights=None),
    "ManifoldMixup": method(
        methods.ManifoldMixup, stages=(0, 2), objective="binary_cross_entropy", term_weights={"ce_mixed": 0.5}
    ),
    "PuzzleMix": method(
        methods.PuzzleMix, puzzle=PARTS["Puzzle"](), objective="binary_cross_entropy", term_weights={"ce_mixed": 0.5}
    ),
    "AugMixTraining": method(methods.AugMixTraining, augmentation=PARTS["AugMix"](), forward="separate"),
    "FCL": method(
        methods.FCL, perturbation=PARTS["UtilityPerturbation"](), objective=PARTS["FeatureMargin"](), mode="batch"
    ),
    "CLGaussian": method(methods.CLGaussian, noise=PARTS["AddGaussian"](), objective=PARTS["FeatureContrast"]()),
    "NoisyMix": method(
        methods.NoisyMix, augmentation=PARTS["AugMix"](), branches=PARTS["Branches"](), stages=(1, 2), consistency=False
    ),
    "NFM": method(methods.NFM, stages=(1, 2), noise=PARTS["FeatureNoise"](), term_weights=None),
    "SimCLR": method(
        methods.SimCLR, temperature=0.2, scale="sum", self_in_denominator=True, forward="separate", term_weights=None
    ),
    "SupCon": method(methods.SupCon, base_temperature=0.07, views=SHIFTED, term_weights={"probe": 0.5}),
    "BYOL": method(methods.BYOL, projection=NARROW, target_rate=0.1, term_weights={"regression": 0.5}),
    "MoCoV3": method(methods.MoCoV3, projection=NARROW, temperature=0.2, term_weights={"contrastive": 0.5}),
    "DINO": method(
        methods.DINO,
        projection=NARROW,
        prototypes=layers.Prototypes(6, lengths="weight_norm"),
        center_momentum=0.5,
        frozen_steps=1,
        term_weights=None,
    ),
    "SwAV": method(
        methods.SwAV,
        projection=NARROW,
        prototypes=layers.Prototypes(6),
        queue_length=8,
        term_weights={"swapped_prediction": 0.5},
    ),
    "RoCL": method(methods.RoCL, adversary=INSTANCES, detached_keys=True, regularizer_pass="own", term_weights=None),
    "ACL": method(methods.ACL, adversary=INSTANCES, streams="adversarial_to_adversarial", term_weights={"probe": 0.5}),
    "CVRL": lambda: methods.CVRL(
        models.R3D18("small", width=2),
        models.LinearHead(CLASSES),
        frames=FRAMES,
        stride=1,
        gap="uniform",
        views=PARTS["EveryFrame"](),
        projection=narrow(),
        term_weights={"contrastive": 0.5},
    ),
    "TCLR": lambda: methods.TCLR(
        models.R3D18("small", width=2, dilated=True),
        models.LinearHead(CLASSES),
        frames=FRAMES // 2,
        parts=2,
        across_parts=False,
        views=PARTS["EveryFrame"](),
        projection=narrow(),
        term_weights={"local_local": 0.5},
    ),
    "LayerWiseContrastive": method(
        methods.LayerWiseContrastive, penalty=PARTS["LayerWiseTikhonov"](), term_weights={"layer_1": 0.5}
    ),
    "IBP": method(methods.IBP, epsilon=0.05, kappa=0.3),
    "CROWNIBP": method(methods.CROWNIBP, epsilon=0.05, final_beta=0.2),
    "MTLIBP": method(methods.MTLIBP, epsilon=0.05, kappa=0.8, adversary=ADVERSARY, term_weights={"ce_adv": 0.5}),
    "ReLUStability": method(methods.ReLUStability, epsilon=0.05, adversary=ADVERSARY, term_weights={"stability": 0.5}),
    "MultiNormTraining": method(
        methods.MultiNormTraining,
        attacks=tuple(attacks.PGD(threat, steps=1) for threat in SEVERAL),
        rule="average",
        term_weights={"ce_adv": 0.5},
    ),
    "SmoothAdv": method(methods.SmoothAdv, adversary=ADVERSARY, copies=3, term_weights=None),
    "ADR": method(methods.ADR, adversary=ADVERSARY, label_scale=0.9),
    "ASCL": method(
        methods.ASCL, adversary=ADVERSARY, transforms=PARTS["TwoTransforms"](), contrast=PARTS["Contrast"]()
    ),
}
CALLBACKS = {
    "RobustAccuracy": lambda folder: robust.callbacks.RobustAccuracy(*data(), attack=attacks.FGSM(THREAT)),
    "BestWeights": lambda folder: robust.callbacks.BestWeights(folder, monitor="val_accuracy"),
    "AveragedWeights": lambda folder: robust.callbacks.AveragedWeights(decay=0.5),
    "CollapseWarning": lambda folder: robust.callbacks.CollapseWarning(threshold=0.1),
    "OverfittingWarning": lambda folder: robust.callbacks.OverfittingWarning(
        *data(), attack=attacks.PGD(THREAT, steps=2)
    ),
    "NegativesWarning": lambda folder: robust.callbacks.NegativesWarning(),
}
# Layers whose input is no image and no vector.
TOKEN_LAYERS = {
    "TextTransformer": lambda **k: models.TextTransformer(
        WORDS, 6, width=8, depth=1, heads=2, inner=8, style=PARTS["TransformerStyle"](), **k
    )
}
PAIR_LAYERS = {
    "UtilityPerturbationLayer": lambda **k: layers.UtilityPerturbation(count=0.1, unit="pixels", seed=4, **k)
}
CLIP_LAYERS = {
    "R2Plus1D18": lambda **k: models.R2Plus1D18("small", width=2, dilated=True, **k),
    "R3D18": lambda **k: models.R3D18("small", width=2, **k),
}
LAYERS = IMAGE_LAYERS | VECTOR_LAYERS | TOKEN_LAYERS | PAIR_LAYERS | CLIP_LAYERS
ROWS = PARTS | LOSSES | METRICS | OPTIMIZERS | LAYERS | METHODS
ABSTRACT = ("Augmentation", "Encoder", "Method")

# ---------------------------------------------------------------------------------------------- what is offered


def _offered() -> dict:
    items = {}
    for name in robust.__all__:
        item = getattr(robust, name)
        inner = {f"{name}.{member}": getattr(item, member) for member in getattr(item, "__all__", ())}
        items |= inner if isinstance(item, types.ModuleType) else {name: item}
    for name, item in vars(attacks.objectives).items():
        # Those that end so are of logits; the factories of objectives are what users take.
        if inspect.isfunction(item) and not name.startswith("_") and not name.endswith("_of"):
            items[f"attacks.objectives.{name}"] = item
    return {path: item for path, item in items.items() if not isinstance(item, types.ModuleType)}


# Path below `tfrobust.keras` -> what stands there; the members of a module in place of the module.
OFFERED = _offered()
# Modules of parts of a gin file, which are no Keras objects: their batteries are in tests/data and tests/evaluation.
IN_GIN = ("data.", "evaluators.")
KINDS = {
    "method": methods.Method,
    "layer": keras.layers.Layer,
    "loss": keras.losses.Loss,
    "metric": keras.metrics.Metric,
    "optimizer": keras.optimizers.Optimizer,
    "schedule": keras.optimizers.schedules.LearningRateSchedule,
    "callback": keras.callbacks.Callback,
    "augmentation": augment.Augmentation,
    "attack": Attack,
}


def kind_of(item) -> str:
    """The first of `KINDS` that it is; "function"; or "part", which is an argument of a method or an attack."""
    if not inspect.isclass(item):
        return "function"
    return next((kind for kind, base in KINDS.items() if issubclass(item, base)), "part")


def file_name(cls: type) -> str:
    """Return the name of a class in `.keras` files and in the tables here: `layers.AugMix` is AugMixLayer."""
    return keras.saving.get_registered_name(cls).removeprefix("tfrobust>")


# Every class once, by its name in files.
CLASSES_OFFERED = {
    file_name(item): item for path, item in OFFERED.items() if inspect.isclass(item) and not path.startswith(IN_GIN)
}


def names(kind: str) -> list[str]:
    """Return the names of all concrete classes of a kind."""
    return [name for name, cls in CLASSES_OFFERED.items() if kind_of(cls) == kind and name not in ABSTRACT]


def instance(name: str, **keywords):
    """One of a class: as its row says, else from the defaults of its kind."""
    if name in ROWS:
        return ROWS[name](**keywords)
    cls = CLASSES_OFFERED[name]
    arguments = {"method": (small_cnn(), models.LinearHead(CLASSES)), "attack": (THREAT,), "optimizer": (0.1,)}
    return cls(*arguments.get(kind_of(cls), ()), **keywords)


# -------------------------------------------------------------------------------------------- models around them


def data(count: int = 12):
    """Images and labels that a small network can tell apart: each class lights its own rows."""
    images = np.random.default_rng(1).uniform(0.0, 0.4, (count, *SHAPE)).astype("float32")
    labels = np.arange(count) % CLASSES
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 0.5
    return images, labels


def data_of(name: str):
    """Return `data()`; for methods of clips alone, clips in which these images move down."""
    images, labels = data()
    if name in OF_CLIPS:
        images = np.stack([np.roll(images, frame, axis=1) for frame in range(FRAMES)], axis=1)
    return images, labels


def inputs_of(name: str) -> list[np.ndarray]:
    """Return the inputs of a model around a layer: images; for some layers tokens, clips, or a pair."""
    images, _ = data()
    if name in CLIP_LAYERS:
        return [np.stack([images, images[:, ::-1]], axis=1)]
    if name in TOKEN_LAYERS:
        return [np.random.default_rng(3).integers(1, WORDS, (len(images), 6)).astype("int32")]
    return [images, images] if name in PAIR_LAYERS else [images]


def takes_images(name: str) -> bool:
    """Return True if a layer belongs at the input of a model; the others take features."""
    return name not in VECTOR_LAYERS and (name in LAYERS or issubclass(CLASSES_OFFERED[name], models.Encoder))


def through(layer, name: str, inputs: list, training=None):
    """Apply a layer to the input, or to the flattened image, and return one tensor [b, d]."""
    if not takes_images(name):
        return layer(keras.ops.reshape(inputs[0], (-1, SIZE)))
    outputs = layer(*inputs, training=training)
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return keras.ops.reshape(first, (-1, int(np.prod(first.shape[1:]))))


def functional(name: str, **keywords) -> keras.Model:
    """A functional classifier with a layer inside."""
    inputs = [keras.Input(example.shape[1:], dtype=example.dtype.name) for example in inputs_of(name)]
    hidden = through(instance(name, **keywords), name, inputs)
    return keras.Model(inputs[0] if len(inputs) == 1 else inputs, keras.layers.Dense(CLASSES)(hidden))


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.Model):
    """A subclassed classifier with a layer inside."""

    def __init__(self, row: str, **keywords):
        super().__init__(**keywords)
        self.row, self.inner, self.dense = row, instance(row), keras.layers.Dense(CLASSES)

    def call(self, inputs, training=None):
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        return self.dense(through(self.inner, self.row, inputs, training))

    def get_config(self):
        return {**super().get_config(), "row": self.row}


def plain(kind: str = "functional", activation=None) -> keras.Model:
    """An ordinary Keras classifier with nothing of ours in it."""
    chain = [keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=activation)]
    if kind == "functional":
        return keras.Sequential([keras.Input(SHAPE), *chain])
    return PlainSubclass(activation)


@keras.saving.register_keras_serializable(package="tests")
class PlainSubclass(keras.Model):
    """The same, subclassed."""

    def __init__(self, activation=None, **keywords):
        super().__init__(**keywords)
        self.activation = activation
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=activation)

    def call(self, pictures):
        return self.dense(self.flatten(pictures))

    def get_config(self):
        return {**super().get_config(), "activation": self.activation}


KINDS_OF_MODELS = ("functional", "subclassed")


def compiled(model, loss=None, optimizer=None, **keywords):
    """Compiled as anybody would."""
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **keywords)
    return model


def stream(inputs, labels, batch: int = 5) -> tf.data.Dataset:
    """Batches of unlike sizes, as a data set of any length has them."""
    inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    return tf.data.Dataset.from_tensor_slices((tuple(inputs) if len(inputs) > 1 else inputs[0], labels)).batch(batch)


def call(model, inputs: list) -> np.ndarray:
    """Return a model's outputs in inference mode."""
    return np.asarray(model(inputs if len(inputs) > 1 else inputs[0], training=False), np.float32)


def copies(model, folder):
    """The model again: from a `.keras` file, and by `clone_model` with its weights."""
    model.save(folder / "model.keras")
    yield keras.saving.load_model(folder / "model.keras", safe_mode=True)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    yield clone

"""One table of everything the facade offers as an object, and what a good neighbour in a Keras project must do."""

import inspect
import types

import keras
import numpy as np
import pytest

from tfrobust import keras as robust

SHAPE, CLASSES = (8, 8, 1), 3
attacks, augment, layers, losses = robust.attacks, robust.augment, robust.layers, robust.losses
methods, metrics, models = robust.methods, robust.metrics, robust.models

THREAT = attacks.ThreatModel(norm="l2", epsilon=0.1)
ADVERSARY = methods.Adversary(attack=attacks.PGD(THREAT, steps=1), mode="batch")
INSTANCES = methods.InstanceAdversary(attack=attacks.PGD(THREAT, steps=1), negatives="moving", group=3)


SHIFTED = (augment.RandomShift(fraction=0.2), augment.PadCrop(padding=1))
NARROW = layers.ProjectionHead((4,), dim=3, normalization="hidden", output_bias=False)


def small_cnn(**keywords):
    return models.CNN(((4,), (4,)), dense=(5,), **keywords)


def method(cls, **keywords):
    keywords = {"seed": 3, "term_weights": {"ce": 0.5}, **keywords}
    return lambda: cls(small_cnn(), models.LinearHead(CLASSES), **keywords)


# What is not the default is what a round trip can lose.
PARTS = {
    "ThreatModel": lambda: THREAT,
    "FGSM": lambda: attacks.FGSM(THREAT),
    "PGD": lambda: attacks.PGD(THREAT, steps=3, step_size=0.05, random_start="gaussian", restarts=2),
    "MomentumPGD": lambda: attacks.MomentumPGD(THREAT, steps=3, decay=0.5),
    "APGDCrossEntropy": lambda: attacks.APGDCrossEntropy(THREAT, steps=20, restarts=2),
    "APGDDLR": lambda: attacks.APGDDLR(THREAT, expectation_samples=3),
    "APGDTargeted": lambda: attacks.APGDTargeted(attacks.ThreatModel(norm="l1"), targets=5, large_radii=False),
    "FAB": lambda: attacks.FAB(THREAT, targets=3, beta=0.8),
    "FABUntargeted": lambda: attacks.FABUntargeted(THREAT, restarts=2),
    "Square": lambda: attacks.Square(THREAT, steps=50, initial_share=0.5),
    "AutoAttack": lambda: attacks.AutoAttack(THREAT, version="rand", expectation_samples=3),
    "Ensemble": lambda: attacks.Ensemble((attacks.FGSM(THREAT), attacks.Square(THREAT, steps=9))),
    "ProxLogBarrier": lambda: attacks.ProxLogBarrier(attacks.ThreatModel(norm="l0", epsilon=3), outer_steps=4),
    "UniformNoise": lambda: attacks.UniformNoise(THREAT, draws=4),
    "GaussianNoise": lambda: attacks.GaussianNoise(THREAT, deviation=0.2),
    "MultiTargetedPGD": lambda: attacks.MultiTargetedPGD(THREAT, steps=3, include_true_class=True),
    "RandomFlip": lambda: augment.RandomFlip(probability=0.25),
    "RandomShift": lambda: augment.RandomShift(fraction=0.2, fill="constant", whole_pixels=True),
    "PadCrop": lambda: augment.PadCrop(padding=1),
    "RandomResizedCrop": lambda: augment.RandomResizedCrop(scale=(0.2, 0.9), ratio=(0.5, 1.5)),
    "AugMix": lambda: augment.AugMix(width=2, depth=1, severity=5.0, alpha=0.5, all_operations=True),
    "AddGaussian": lambda: augment.AddGaussian(deviation=(0.0, 0.4)),
    "PatchGaussian": lambda: augment.PatchGaussian(patch=(1, 6), deviation=0.5, probability=0.7, centres="edges"),
    "AutoAugment": lambda: augment.AutoAugment(policy="imagenet", ranges="code"),
    "RandAugment": lambda: augment.RandAugment(count=3, magnitude=5.0, operations=("invert", "rotate")),
    "Compose": lambda: augment.Compose(augmentations=(augment.PadCrop(padding=1), augment.RandomFlip())),
    "ContrastiveViews": lambda: augment.ContrastiveViews(crop=(0.2, 1.0), blur=0.1, order="rocl", colors="mean"),
    "Adversary": lambda: ADVERSARY,
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
    "Branches": lambda: methods.Branches(strengths=(1.0, 2.0, 3.0), noise="shared", noise_without_mixing=False),
    "Tikhonov": lambda: methods.Tikhonov(weight=0.1, of=("ce",), form="batch", mode="finite_difference"),
    "InstanceAdversary": lambda: INSTANCES,
    "LayerWise": lambda: methods.LayerWise(betas={"layer_1": 0.01, "contrastive": 0.1}, on=("view_1",)),
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
}
IMAGE_LAYERS = {
    "AugMixLayer": lambda **k: layers.AugMix(width=2, depth=1, severity=5.0, seed=4, **k),
    "Augment": lambda **k: layers.Augment(augment.RandomShift(fraction=0.3), seed=4, **k),
    "BranchedBatchNormalization": lambda **k: layers.BranchedBatchNormalization(2, momentum=0.8, **k),
    "CNN": lambda **k: models.CNN(((4,), (4,)), dense=(5,), branches=2, pixel_mean=0.5, pixel_std=(0.2,), **k),
    "Corrupt": lambda **k: layers.Corrupt("fog", severity=2, seed=4, **k),
    "DigitsCNN": lambda **k: models.DigitsCNN(activation="gelu", **k),
    "PaperCNN": lambda **k: models.PaperCNN("mnist", kernel_regularization=0.01, **k),
    "LeNet": lambda **k: models.LeNet(filters=(2, 3), dense=(4,), **k),
    "PreActResNet18": lambda **k: models.PreActResNet18(width=2, shortcut="activated", **k),
    "ResNet": lambda **k: models.ResNet(8, widths=(4, 4, 8), **k),
    "WideResNet": lambda **k: models.WideResNet(10, 1, dropout=0.2, variant="noisymix", **k),
}
VECTOR_LAYERS = {
    "LinearHead": lambda **k: layers.LinearHead(CLASSES, kernel_initializer="zeros", normalized=True, **k),
    "MLPHead": lambda **k: layers.MLPHead(CLASSES, hidden=5, normalized=True, **k),
    "LogisticRegression": lambda **k: layers.LogisticRegression(CLASSES, regularization=0.1, normalized=True, **k),
    "KNearestNeighbours": lambda **k: layers.KNearestNeighbours(CLASSES, neighbours=3, examples=4, **k),
    "LinearProjection": lambda **k: layers.LinearProjection(6, use_bias=True, **k),
    "MLPProjection": lambda **k: layers.MLPProjection(5, dim=6, **k),
    "ProjectionHead": lambda **k: layers.ProjectionHead((4, None), dim=6, normalization="hidden", branches=2, **k),
}
METHODS = {
    "Supervised": method(methods.Supervised, clip_norm=1.0, noise=PARTS["AddGaussian"](), forward="joint"),
    "SupervisedContrastive": method(methods.SupervisedContrastive, projection=layers.MLPProjection(4, dim=3)),
    "AdversarialTraining": method(methods.AdversarialTraining, adversary=ADVERSARY, forward="joint"),
    "TRADES": method(methods.TRADES, adversary=ADVERSARY),
    "Mixup": method(methods.Mixup, mixing=PARTS["Mixing"](), term_weights={"ce_mixed": 0.5}),
    "CutMix": method(methods.CutMix, probability=0.5, term_weights=None),
    "ManifoldMixup": method(
        methods.ManifoldMixup, stages=(0, 2), objective="binary_cross_entropy", term_weights={"ce_mixed": 0.5}
    ),
    "PuzzleMix": method(
        methods.PuzzleMix,
        puzzle=PARTS["Puzzle"](),
        objective="binary_cross_entropy",
        term_weights={"ce_mixed": 0.5},
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
    "RoCL": method(methods.RoCL, adversary=INSTANCES, detached_keys=True, regularizer_pass="own", term_weights=None),
    "ACL": method(methods.ACL, adversary=INSTANCES, streams="adversarial_to_adversarial", term_weights={"probe": 0.5}),
    "LayerWiseContrastive": method(
        methods.LayerWiseContrastive, penalty=PARTS["LayerWise"](), term_weights={"layer_1": 0.5}
    ),
    "ADR": method(methods.ADR, adversary=ADVERSARY, label_scale=0.9),
    "ASCL": method(
        methods.ASCL, adversary=ADVERSARY, transforms=PARTS["TwoTransforms"](), contrast=PARTS["Contrast"]()
    ),
}
LAYERS = IMAGE_LAYERS | VECTOR_LAYERS
# Never built here: it is large, and tests/models does.
LARGE = {"ResNet50": lambda: models.ResNet50("cifar_6n+2", kernel_regularization=0.01)}
# Takes tokens, not images; tests/models builds it.
TEXT = {"TextTransformer": lambda: models.TextTransformer(20, 6, width=16, style=PARTS["TransformerStyle"]())}
# It takes two tensors, and has a test of its own.
PAIR_LAYERS = {"UtilityPerturbationLayer": lambda: layers.UtilityPerturbation(count=0.1, unit="pixels", seed=4)}
ROWS = PARTS | LOSSES | METRICS | OPTIMIZERS | LAYERS | METHODS | LARGE | TEXT | PAIR_LAYERS
ABSTRACT = {"Augmentation", "Encoder", "Method"}
# Callbacks are made anew for each training; two masks are a tuple.
WITHOUT_CONFIG = {"AveragedWeights", "BestWeights", "CollapseWarning", "RobustAccuracy", "PairMasks"}


def data(count=12):
    images = np.random.default_rng(1).uniform(0.0, 0.4, (count, *SHAPE)).astype("float32")
    labels = np.arange(count) % CLASSES
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 0.5
    return images, labels


def around(name, **keywords) -> keras.Model:
    """A functional classifier with the layer of a row inside."""
    shape = (28, 28, 1) if name == "LeNet" else SHAPE
    inputs = keras.Input(shape)
    hidden = inputs if name in IMAGE_LAYERS else keras.layers.Flatten()(inputs)
    hidden = keras.layers.Flatten()(LAYERS[name](**keywords)(hidden))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(hidden))


class Wrapped(keras.Model):
    """A subclassed classifier around the layer of a row."""

    def __init__(self, name):
        super().__init__()
        self.flatten, self.dense, self.inner = keras.layers.Flatten(), keras.layers.Dense(CLASSES), LAYERS[name]()
        self.first = name in IMAGE_LAYERS

    def call(self, images, training=None):
        hidden = images if self.first else self.flatten(images)
        return self.dense(self.flatten(self.inner(hidden, **({"training": training} if self.first else {}))))


def classifier(kind="functional", activation=None) -> keras.Model:
    """An ordinary Keras classifier with nothing of ours in it."""
    chain = [keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=activation)]
    if kind == "functional":
        return keras.Sequential([keras.Input(SHAPE), *chain])

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.chain = chain

        def call(self, pictures):
            return self.chain[1](self.chain[0](pictures))

    return Subclassed()


def compiled(model, loss=None, **keywords):
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False, **keywords)
    return model


def reloaded(model, path):
    model.save(path)
    return keras.saving.load_model(path, safe_mode=True)


# --------------------------------------------------------------------------------------------- the surface


def submodules():
    return [item for name in robust.__all__ if isinstance(item := getattr(robust, name), types.ModuleType)]


def test_the_table_holds_every_class_of_the_facade():
    offered = [getattr(module, name) for module in submodules() for name in module.__all__]
    # The names in files: `augment.AugMix` and `layers.AugMix` have one each.
    names = {keras.saving.get_registered_name(item) for item in offered if inspect.isclass(item)}
    assert {name.removeprefix("tfrobust>") for name in names} == set(ROWS) | ABSTRACT | WITHOUT_CONFIG


def test_names_are_listed_in_order_and_real_keras_is_not_hidden():
    for module in [robust, *submodules()]:
        assert module.__all__ == sorted(module.__all__) and len(set(module.__all__)) == len(module.__all__)
    assert robust.__name__ == "tfrobust.keras" and keras.__name__ == "keras"
    assert robust.layers.keras is keras


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_registered_and_comes_back_from_its_config(name):
    made = ROWS[name]()
    assert keras.saving.get_registered_name(type(made)) == f"tfrobust>{name}"
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made), safe_mode=True)
    assert type(copy) is type(made)
    assert copy.get_config() == made.get_config()
    assert type(made).from_config(made.get_config()).get_config() == made.get_config()


# ------------------------------------------------------------------------------------------ layers, models


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_saved_loaded_and_cloned_inside_a_functional_model(name, tmp_path):
    model = around(name)
    images = np.random.default_rng(2).uniform(size=(2, *model.input_shape[1:])).astype("float32")
    expected = model.predict(images, verbose=0)
    assert np.all(np.isfinite(expected))
    np.testing.assert_array_equal(reloaded(model, tmp_path / "model.keras").predict(images, verbose=0), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone.predict(images, verbose=0), expected)


@pytest.mark.parametrize("name", sorted({"Augment", "BranchedBatchNormalization", "CNN", *VECTOR_LAYERS}))
def test_a_layer_trains_inside_a_functional_and_a_subclassed_model(name):
    images, labels = data()
    for model in (around(name), Wrapped(name)):
        history = compiled(model).fit(images, labels, epochs=2, batch_size=5, verbose=0).history
        assert history["loss"][1] < history["loss"][0]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_obeys_mixed_precision(name):
    model = around(name, dtype="mixed_float16")
    images = np.random.default_rng(2).uniform(size=(2, *model.input_shape[1:])).astype("float32")
    single = around(name)
    single.set_weights(model.get_weights())
    assert all(variable.dtype in ("float32", "int64") for variable in model.weights)
    np.testing.assert_allclose(model(images), single(images), rtol=0.05, atol=0.05)


def test_a_functional_model_in_mixed_precision_trains():
    images, labels = data()
    history = compiled(around("CNN", dtype="mixed_float16")).fit(images, labels, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


# ------------------------------------------------------------------------------------------ losses, metrics


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_trains_a_plain_model(name, kind, tmp_path):
    images, labels = data()
    targets = np.eye(CLASSES, dtype="float32")[labels] * 4.0 if name == "LogitsKLDivergence" else labels
    model = compiled(classifier(kind), LOSSES[name]())
    history = model.fit(images, targets, epochs=4, batch_size=len(labels), verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    if kind == "functional":
        again = reloaded(model, tmp_path / "model.keras")
        assert again.evaluate(images, targets, verbose=0) == model.evaluate(images, targets, verbose=0)


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_metrics_stream_through_fit_and_evaluate_and_are_saved(kind, tmp_path):
    images, labels = data()
    ids = {
        "expected_calibration_error": "calibration.ece",
        "rms_calibration_error": "calibration.rms",
        "aurra": "calibration.aurra",
        "brier_score": "calibration.brier",
        "negative_log_likelihood": "calibration.nll",
    }
    model = compiled(classifier(kind), metrics=[getattr(metrics, name)() for name in metrics.__all__])
    assert set(ids) < set(model.fit(images, labels, verbose=0).history)
    found = model.evaluate(images, labels, batch_size=5, verbose=0, return_dict=True)
    outcome = robust.evaluate(model, images, labels, epsilon=0.1, steps=1)
    report = {measurement.id: measurement.value for measurement in outcome.measurements}
    for name, identity in ids.items():
        # Twelve examples may share cells of the ranking metrics.
        assert found[name] == pytest.approx(report[identity], abs=0.02 if name == "aurra" else 1e-6), name
    if kind == "functional":
        again = reloaded(model, tmp_path / "model.keras")
        assert again.evaluate(images, labels, batch_size=5, verbose=0, return_dict=True) == found


# -------------------------------------------------------------------------------------------------- methods


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_judged_as_it_stands_and_from_its_file(name, tmp_path):
    from tfrobust.evaluation import predictor

    images, _ = data()
    made = METHODS[name]()
    made.build((None, *SHAPE))
    robust.save_model(made, tmp_path / "model.keras")
    expected = made.predict(images, verbose=0)
    for judged in (predictor.from_keras(made), predictor.load(tmp_path / "model.keras")):
        assert judged.image_shape == SHAPE and judged.class_count == CLASSES
        np.testing.assert_allclose(judged.logits(images), expected, atol=1e-5)
        np.testing.assert_allclose(judged.embedding(images), made.embed(images), atol=1e-5)
        deployable = [*made.encoder.variables, *made.head.variables]
        assert judged.parameters == sum(int(np.prod(variable.shape)) for variable in deployable)


def test_a_method_that_fit_has_built_is_evaluated_in_one_line(tmp_path):
    images, labels = data()
    made = METHODS["AdversarialTraining"]()
    made.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"], jit_compile=False)
    made.fit(images, labels, batch_size=6, epochs=2, verbose=0)
    robust.save_model(made, tmp_path / "model.keras")
    for judged in (made, tmp_path / "model.keras"):
        outcome = robust.evaluate(judged, images, labels, epsilon=0.05, steps=2)
        report = {measurement.id: measurement.value for measurement in outcome.measurements}
        clean = np.mean(made.predict(images, verbose=0).argmax(-1) == labels)
        assert report["accuracy.clean"] == pytest.approx(clean)
        assert report["attack.pgd_linf_0.05.accuracy"] <= report["accuracy.clean"]


def test_a_plain_functional_model_serves_as_encoder():
    images, labels = data()
    encoder = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), keras.layers.Dense(6, "relu")])
    made = methods.TRADES(encoder, keras.layers.Dense(CLASSES), adversary=ADVERSARY)
    made.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
    history = made.fit(images, labels, epochs=3, verbose=0).history
    assert history["ce"][-1] < history["ce"][0]
    clone = type(made).from_config(made.get_config())
    clone.build((None, *SHAPE))
    assert clone.predict(images, verbose=0).shape == (len(images), CLASSES)

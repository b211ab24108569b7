"""The recipes of paper 003 hold the numbers that the paper prints: all of them literal here, none read from gin/."""

import functools
import re

import pytest

from conformance import recipes
from conformance.recipes import method_of, rates

bound = functools.partial(recipes.bound, "ascl")

# stem -> Nat., PGD, mPGD, AA of Tables 2 to 7, in percent.
PUBLISHED = {
    "cifar10_resnet20_scl": (88.7, 0.0, 0.0, 0.0),
    "cifar10_resnet20_adv": (78.8, 48.1, 36.4, 36.1),
    "cifar10_resnet20_adr": (76.8, 51.5, 38.9, 38.6),
    "cifar10_resnet20_ascl": (76.4, 52.7, 40.4, 40.9),
    "cifar10_resnet20_ascl_hard": (75.5, 53.1, 41.0, 41.3),
    "cifar10_resnet20_ascl_soft": (75.5, 53.4, 40.6, 40.4),
    "cifar10_resnet20_ascl_leaked": (75.5, 53.7, 41.0, 42.0),
    "cifar10_resnet20_trades": (76.1, 51.9, 38.2, 36.3),
    "cifar10_resnet20_trades_adr": (72.3, 53.3, 40.1, 39.5),
    "cifar10_resnet20_trades_ascl": (72.5, 54.8, 40.8, 40.3),
    "cifar10_resnet20_trades_ascl_leaked": (71.9, 55.2, 40.6, 40.2),
    "cifar100_resnet20_adv": (60.7, 35.7, 25.3, 25.7),
    "cifar100_resnet20_adr": (59.1, 40.0, 29.1, 28.6),
    "cifar100_resnet20_ascl": (57.6, 41.3, 29.8, 30.2),
    "cifar100_resnet20_ascl_leaked": (59.0, 42.5, 31.1, 31.9),
    "cifar100_resnet20_trades": (59.0, 37.2, 25.3, 25.7),
    "cifar100_resnet20_trades_adr": (58.3, 41.1, 30.0, 30.3),
    "cifar100_resnet20_trades_ascl": (56.5, 42.2, 30.7, 29.0),
    "cifar100_resnet20_trades_ascl_leaked": (56.7, 43.4, 31.2, 32.0),
    "cifar10_resnet50_adv": (82.2, 48.6, 38.2, 38.7),
    "cifar10_resnet50_adr": (80.6, 51.8, 41.4, 41.5),
    "cifar10_resnet50_ascl": (79.4, 54.4, 42.8, 42.8),
    "cifar10_resnet50_ascl_leaked": (78.7, 55.8, 43.8, 43.6),
    "cifar10_resnet20_ascl_p1": (77.3, 53.3, 41.1, 41.3),
    "cifar10_resnet20_ascl_p2": (76.6, 52.3, 40.0, 39.7),
    "cifar10_resnet20_ascl_leaked_p1": (76.5, 54.1, 41.9, 42.3),
    "cifar10_resnet20_ascl_leaked_p2": (75.7, 52.9, 40.7, 41.1),
    "cifar10_resnet20_scl1_vat0": (80.1, 46.5, 35.2, 34.7),
    "cifar10_resnet20_scl2_vat0": (79.5, 46.7, 35.2, 34.7),
    "cifar10_resnet20_scl3_vat0": (79.6, 45.8, 34.3, 34.4),
    "cifar10_resnet20_scl4_vat0": (79.2, 45.6, 34.2, 34.3),
    "cifar10_resnet20_scl0_vat1": (77.4, 50.6, 39.4, 38.2),
    "cifar10_resnet20_scl0_vat2": (75.4, 53.0, 40.6, 40.0),
    "cifar10_resnet20_scl0_vat3": (73.3, 54.4, 41.5, 42.3),
    "cifar10_resnet20_scl0_vat4": (71.2, 55.0, 42.2, 43.1),
}
ADR = {
    "local_compactness": 1.0,
    "local_smoothness": 1.0,
    "global_compactness": 1.0,
    "global_smoothness": 0.0,
    "confidence": 1.0,
}
# What a stem says -> class, objective of the loss, term weights, what the adversary climbs, from where.
METHODS = {
    "scl": ("SupervisedContrastive", None, {"ce": 1.0, "contrastive": 1.0}, None, None),
    "adv": ("AdversarialTraining", None, {"ce": 1.0, "ce_adv": 1.0}, "cross_entropy", "uniform"),
    "adr": ("ADR", "adversarial_training", {"ce": 1.0, "ce_adv": 1.0, **ADR}, "cross_entropy", "uniform"),
    "ascl": (
        "ASCL",
        "adversarial_training",
        {"ce": 1.0, "ce_adv": 1.0, "contrastive": 1.0, "vat": 2.0},
        "cross_entropy",
        "uniform",
    ),
    "trades": ("TRADES", None, {"ce": 1.0, "kl": 6.0}, "kl", "gaussian"),
    "trades_adr": ("ADR", "trades", {"ce": 1.0, "kl": 6.0, **ADR}, "kl", "gaussian"),
    "trades_ascl": ("ASCL", "trades", {"ce": 1.0, "kl": 6.0, "contrastive": 1.0, "vat": 2.0}, "kl", "uniform"),
}
SELECTIONS = {"_hard": "HardSelection", "_soft": "SoftSelection", "_leaked": "LeakedSelection"}


def test_there_is_a_recipe_for_each_row_and_for_nothing_else():
    assert recipes.names("ascl") == {*PUBLISHED, "cifar10_cnn_adv"} and len(PUBLISHED) == 35


@pytest.mark.parametrize("stem", PUBLISHED)
def test_the_page_has_the_published_numbers_and_the_cost(stem):
    row = recipes.ROWS[f"ascl/{stem}"]
    assert row.published == "Nat. {}, PGD {}, mPGD {}, AA {}".format(*PUBLISHED[stem]) and "Table" in row.tables
    passes = 2 if stem.endswith("_scl") else 10 + 2
    forward = " and 78,000 forward" if "trades" in stem else ""
    assert row.cost == f"78,000 x {passes} = {200 * 390 * passes:,}{forward}"


@pytest.mark.parametrize("stem", PUBLISHED)
def test_a_recipe_is_the_row_s(stem):
    bindings = bound(stem)
    check_training(stem, bindings)
    check_method(stem, method_of(bindings))


def check_training(stem: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"]) == (200, 128)
    hundred = "cifar100" in stem
    assert bindings["data"].path == f"data/cifar-{100 if hundred else 10}-python.tar.gz"
    assert bindings["data"].validation_size == 0
    optimizer = bindings["optimizer"]()
    assert type(optimizer).__name__ == "Adam"
    epochs = (0, 79, 80, 119, 120, 159, 160, 199)
    ends = [390 * epoch + step for epoch in epochs for step in (0, 389)]  # the first and the last of the epoch
    assert rates(optimizer, ends) == pytest.approx([1e-3] * 4 + [1e-4] * 4 + [1e-5] * 4 + [1e-6] * 4)
    encoder = bindings["encoder"]()
    expected = ("ResNet50", 2048) if "resnet50" in stem else ("ResNet", 64)
    assert (type(encoder).__name__, encoder.dim) == expected and encoder.kernel_regularization == 1e-4
    assert encoder.pixel_mean is None and getattr(encoder, "depth", 20) == 20
    pipeline = bindings["augmentation"]
    if stem.endswith("_scl"):
        assert pipeline is None
        pipeline = method_of(bindings).augmentation
    flip, shift = pipeline.augmentations
    assert (flip.probability, shift.fraction, shift.fill) == (0.5, 0.1, "nearest")


def check_method(stem: str, method) -> None:
    row = re.sub(r"^cifar100?_resnet\d\d_", "", stem)
    sweep = re.fullmatch(r"scl(\d)_vat(\d)", row)
    parts = re.fullmatch(r"(\w+?)(_hard|_soft|_leaked)?(_p1|_p2)?", "ascl" if sweep else row)
    kind, selection, head = parts.groups()
    name, objective, weights, climbed, start = METHODS[kind]
    if sweep:
        weights = {**weights, "contrastive": float(sweep[1]), "vat": float(sweep[2])}
    assert type(method).__name__ == name and getattr(method, "objective", None) == objective
    assert method.term_weights == weights and set(weights) == set(method.terms)
    if climbed:
        adversary, threat = method.adversary, method.adversary.attack.threat
        epsilon, step = (0.01, 0.001) if "cifar100" in stem else (8 / 255, 2 / 255)
        assert (threat.norm, threat.epsilon) == ("linf", pytest.approx(epsilon, rel=1e-7))
        assert (adversary.attack.steps, adversary.attack.step_size) == (10, pytest.approx(step, rel=1e-7))
        assert (adversary.objective, adversary.attack.random_start, adversary.mode) == (climbed, start, "inference")
        assert adversary.attack.start_scale == (0.001 if start == "gaussian" else None)
    if name in ("ASCL", "SupervisedContrastive"):
        contrast = method.contrast
        assert type(contrast.selection).__name__ == SELECTIONS.get(selection, "GlobalSelection")
        assert getattr(contrast.selection, "counterpart", "paper") == "paper"
        assert (contrast.temperature, contrast.similarity, contrast.scale) == (0.07, "cosine", "paper")
        widths = {"_p1": [128], "_p2": [200, 128], None: None}[head]
        layers = method.projection and method.projection.chain
        assert (layers and [layer.units for layer in layers]) == widths
        assert not any(layer.use_bias for layer in layers or ())
    if name == "ASCL":
        assert method.transforms is None and method.vat_divide_by_classes is False
    if name == "ADR":
        assert method.label_scale == 0.99


@pytest.mark.parametrize("stem", ["cifar10_resnet20_ascl_leaked", "cifar100_resnet20_trades", "cifar10_resnet50_adv"])
def test_the_evaluation_is_the_paper_s(stem):
    epsilon, step = (0.01, 0.001) if "cifar100" in stem else (8 / 255, 2 / 255)
    attacks = {}
    for evaluator in bound(stem)["evaluators"]:
        attack = getattr(evaluator, "attack", None)
        if attack is not None:
            assert attack.threat.norm == "linf" and attack.threat.epsilon == pytest.approx(epsilon, rel=1e-7)
            attacks[type(evaluator).__name__, attack.name] = attack
    for evaluator, name in (("AttackAccuracy", "pgd"), ("AttackAccuracy", "multi_targeted_pgd"), ("Divergence", "pgd")):
        attack = attacks[evaluator, name]
        assert (attack.steps, attack.step_size) == (250, pytest.approx(step, rel=1e-7))


@pytest.mark.parametrize("stem", ["cifar10_resnet20_ascl", "released_code"])
def test_ids_name_the_steps_that_were_taken(stem):
    shared = [
        evaluator
        for evaluator in bound(stem)["evaluators"]
        if getattr(evaluator, "label", None) not in (None, "", "apgd")
    ]
    assert [type(evaluator).__name__ for evaluator in shared] == ["Calibration", "AdversarialExamples"]
    assert all(".pgd250_linf_0.03" in evaluator.ids()[0] for evaluator in shared), [
        evaluator.ids() for evaluator in shared
    ]


def test_the_cnn_has_a_constant_rate():
    for stem in ("cifar10_cnn", "cifar100_cnn", "cifar10_cnn_adv"):
        bindings, variant = bound(stem), "cifar100" if "100" in stem else "cifar10"
        encoder = bindings["encoder"]()
        assert (type(encoder).__name__, encoder.variant, encoder.dim) == ("PaperCNN", variant, 256)
        assert float(bindings["optimizer"]().learning_rate) == pytest.approx(1e-3)


def test_the_released_setting_differs_where_the_facts_say():
    """FACTS 1.3 to 1.10, PvC-1 to PvC-9; run_cifar10.py @ ca78d7b."""
    bindings = bound("released_code")
    method = method_of(bindings)
    assert method.term_weights == {"ce": 0.0, "ce_adv": 1.0, "contrastive": 1.0, "vat": 2.0}
    contrast = method.contrast
    assert (contrast.selection.counterpart, contrast.scale) == ("code", "code")
    assert (contrast.similarity, contrast.normalized, contrast.temperature) == ("linf", True, 0.2)
    assert method.vat_divide_by_classes is True and method.transforms.combine == "joint"
    crop, flip = method.transforms.augmentation.augmentations
    assert (crop.padding, flip.probability) == (4, 0.5) and bindings.get("augmentation") is None
    (layer,) = method.projection.chain
    assert layer.units == 128 and layer.use_bias
    adversary = method.adversary
    assert (adversary.mode, adversary.objective) == ("train", "cross_entropy")
    attack = adversary.attack
    assert (attack.threat.epsilon, attack.step_size, attack.steps) == (0.031, 0.007, 10)
    encoder, head = bindings["encoder"](), bindings["head"](class_count=10)
    assert tuple(encoder.pixel_mean) == (0.4914, 0.4822, 0.4465)
    assert tuple(encoder.pixel_std) == (0.2471, 0.2435, 0.2616)
    assert encoder.kernel_regularization == head.kernel_regularization == 5e-4 / 2
    assert (type(encoder).__name__, encoder.dim) == ("ResNet18", 512) and encoder.get_config()["stem"] == "cifar"
    optimizer = bindings["optimizer"]()
    assert (bindings["epochs"], type(optimizer).__name__, optimizer.momentum) == (120, "SGD", 0.9)
    updates = [390 * epoch for epoch in (0, 99, 100, 104, 105, 109, 110, 119)]
    assert rates(optimizer, updates) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    (pgd,) = [
        e.attack for e in bindings["evaluators"] if type(e).__name__ == "AttackAccuracy" and e.attack.name == "pgd"
    ]
    assert (pgd.steps, pgd.step_size, pgd.threat.epsilon) == (200, 0.007, 0.031)

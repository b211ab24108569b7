"""The recipes of paper 004 hold the numbers that it prints: literal here, none read from gin/."""

import functools
import shlex

import gin
import pytest

from conformance import recipes
from conformance.recipes import method_of, rates
from tfrobust.commands import evaluate
from tfrobust.commands.run import prepare

bound = functools.partial(recipes.bound, "susceptibility")

# Table 1: clean, FGSM 8/255 and 16/255, PGD L2 0.1 and 0.25, PGD L1 8, AutoAttack 1/255.
TABLE_1 = {
    "cifar10_ce": "95.4 29.6 20.1 31.2 15.7 16.5 18.6",
    "cifar10_supcon": "95.5 38.8 31.8 34.2 18.4 20.7 24.3",
    "cifar10_simclr": "92.7 26.8 13.4 20.9 8.3 11.5 13.7",
    "cifar100_ce": "74.9 14.3 8.4 23.1 11.5 12.1 13.6",
    "cifar100_supcon": "76.3 12.6 6.7 21.9 9.2 13.4 11.9",
    "cifar100_simclr": "68.9 9.40 3.0 13.7 4.4 6.8 8.7",
}
# Table 4: clean, FGSM 8/255 and 16/255, AutoAttack 1/255 and 2/255.
TABLE_4 = {
    "cifar10_simclr_fnc": "94.9 28.6 16.3 14.7 6.6",
    "cifar10_simclr_ifnd": "95.1 29.2 18.8 15.1 7.1",
    "cifar10_simclr_fixed_fnc": "93.1 30.1 21.3 17.4 7.5",
    "cifar10_simclr_adaptive_fnc_09": "93.2 31.3 21.6 19.1 8.6",
    "cifar10_simclr_adaptive_fnc": "93.5 33.6 24.9 19.3 8.7",
}
# Table 5: clean, PGD Linf 8/255 and 16/255, PGD L2 0.25, PGD L1 12, AutoAttack 8/255 and 16/255.
TABLE_5 = {
    "cifar10_rocl": "86.0 43.6 11.4 70.9 80.0 40.8 11.2",
    "cifar10_augmented_rocl": "87.9 45.9 13.2 72.8 82.1 43.1 12.1",
    "cifar10_acl": "86.2 41.2 12.1 72.3 80.7 39.8 10.2",
    "cifar10_augmented_acl": "87.9 42.5 13.2 75.9 83.5 41.3 10.8",
}
# Table 2: clean, FGSM 0.25/255 and 1/255, PGD 0.25/255 and 1/255, PGD L2 0.5, AutoAttack 0.25/255.
TABLE_2 = {
    "supervised": "76.71 38.20 11.53 28.22 0.65 11.3 16.16",
    "simclr": "68.95 24.33 8.85 10.89 0.24 5.2 4.41",
    "swav": "75.34 23.35 5.95 11.73 0.20 4.1 10.81",
    "byol": "74.56 39.40 13.50 32.61 1.89 12.51 17.34",
}
# Table 3: clean, FGSM 1/255, 2/255 and 4/255, PGD 1/255 and 2/255, AutoAttack 1/255.
TABLE_3 = {
    "ucf101_supervised": "59.4 26.6 12.2 3.9 15.6 5.2 12.6",
    "ucf101_tclr": "75.5 10.8 6.1 3.3 6.30 3.1 4.00",
    "ucf101_cvrl": "60.2 6.00 3.0 1.6 4.70 1.9 3.70",
    "hmdb51_supervised": "24.8 12.2 6.4 3.0 7.2 2.7 6.2",
    "hmdb51_tclr": "47.6 5.7 2.7 1.7 2.7 2.0 2.0",
    "hmdb51_cvrl": "35.2 3.7 1.7 0.5 2.2 1.0 1.7",
}
TABLE_2_VIT = {
    "supervised": "81.07 61.44 43.38 59.57 27.53 42.2 46.99",
    "moco_v3": "76.66 46.69 13.21 39.89 2.42 19.6 27.88",
    "dino": "77.99 58.36 22.17 57.95 14.14 36.6 51.46",
}
FORM_2 = "clean {}; FGSM 0.25/255 {}, 1/255 {}; PGD 0.25/255 {}, 1/255 {}; PGD L2 0.5 {}; AutoAttack 0.25/255 {}"
FORMS = (
    (TABLE_1, "clean {}; FGSM 8/255 {}, 16/255 {}; PGD L2 0.1 {}, 0.25 {}; PGD L1 8 {}; AutoAttack 1/255 {}"),
    (TABLE_4, "clean {}; FGSM 8/255 {}, 16/255 {}; AutoAttack 1/255 {}, 2/255 {}"),
    (TABLE_5, "clean {}; PGD Linf 8/255 {}, 16/255 {}; PGD L2 0.25 {}; PGD L1 12 {}; AutoAttack 8/255 {}, 16/255 {}"),
)
PUBLISHED = {
    row.replace("_", "_resnet50_", 1): form.format(*cells.split())
    for table, form in FORMS
    for row, cells in table.items()
}
# Method of the first stage, passes a step; the thresholds of false negatives at the first and the last step.
METHODS = {"simclr": ("SimCLR", 2), "supcon": ("SupCon", 2), "rocl": ("RoCL", 13), "acl": ("ACL", 14)}
THRESHOLDS = {
    "fixed_fnc": (0.9, 0.9),
    "adaptive_fnc_09": (0.9, 0.5),
    "adaptive_fnc": (0.99, 0.7),
    "augmented": (0.99, 0.7),
}
ATTACKS = {
    *(f"fgsm_linf_{size}" for size in (8, 16)),
    *(f"pgd_linf_{size}" for size in (8, 16)),
    *("pgd_l2_0.1", "pgd_l2_0.25", "pgd_l1_8.0", "pgd_l1_12.0"),
    *(f"autoattack_linf_{size}" for size in (1, 2, 8, 16)),
}


def test_there_is_a_recipe_for_each_row_and_for_nothing_else():
    evaluated = {f"imagenet_{kind}_{row}" for kind in ("resnet50", "c_resnet50") for row in TABLE_2}
    evaluated |= {f"imagenet_vit_base16_{row}" for row in TABLE_2_VIT} | {f"r2plus1d18_{row}" for row in TABLE_3}
    assert recipes.names("susceptibility") == {*PUBLISHED, *evaluated} and len(PUBLISHED) == 6 + 5 + 4


@pytest.mark.parametrize("stem", PUBLISHED)
def test_a_recipe_is_the_row_s(stem):
    bindings, (data, _, row), printed = bound(stem), stem.split("_", 2), recipes.ROWS[f"susceptibility/{stem}"]
    assert printed.published.startswith(PUBLISHED[stem]) and printed.tables.startswith("Table")
    assert bindings["data"].path == f"data/cifar-{data.removeprefix('cifar')}-python.tar.gz"
    assert bindings["data"].validation_size == 0
    check_encoder(row, bindings["encoder"](), data)
    check_attacks(bindings["evaluators"])
    if row == "ce":
        assert bindings.get("pretraining") is None and (bindings["epochs"], bindings["batch_size"]) == (1000, 1024)
        assert bindings["augmentation"].jitter == (0.2, 0.2, 0.2, 0.05)
        check_cosine(bindings["optimizer"](), 480, 48_000, 0.01, 0.8, 0.0008)
    else:
        check_stages(row, bindings, printed.cost)


def evaluation_of(stem: str) -> tuple:
    """Return the printed row of a page, the flags of its command, and the bindings of gin."""
    printed = recipes.ROWS[f"susceptibility/{stem}"]
    flags = evaluate.parser().parse_args(shlex.split(printed.command)[3:])
    prepare(flags, "evaluate")
    return printed, flags, gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)


@pytest.mark.parametrize("row", TABLE_2)
def test_somebody_s_weights_are_judged_as_the_row_was(row):
    printed, flags, bindings = evaluation_of(f"imagenet_resnet50_{row}")
    assert printed.published == FORM_2.format(*TABLE_2[row].split()) and "Weights: " in printed.deviations
    assert (flags.model, flags.output) == (f"data/resnet50_{row}.safetensors", f"runs/resnet50_{row}")
    encoder, data = bindings["encoder"](), bindings["data"]
    assert (encoder.stem, encoder.symmetric, encoder.dim) == ("imagenet", True, 2048)
    pixels = {"simclr": None, "swav": (0.228, 0.224, 0.225)}
    assert encoder.pixel_std == pixels.get(row, (0.229, 0.224, 0.225)) and (encoder.pixel_mean is None) == (
        row == "simclr"
    )
    check_images_and_attacks(data, bindings["evaluators"])


@pytest.mark.parametrize("row", TABLE_2_VIT)
def test_a_transformer_is_judged_as_the_row_was(row):
    printed, flags, bindings = evaluation_of(f"imagenet_vit_base16_{row}")
    assert printed.published == FORM_2.format(*TABLE_2_VIT[row].split()) and "Weights: " in printed.deviations
    assert (flags.model, flags.output) == (f"data/vit_base16_{row}.safetensors", f"runs/vit_base16_{row}")
    encoder = bindings["encoder"]()
    assert (encoder.patch_size, encoder.width, encoder.depth, encoder.heads, encoder.grid) == (16, 768, 12, 12, 14)
    assert (encoder.pixel_mean, encoder.pixel_std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert encoder.positions == ("sinusoidal" if row == "moco_v3" else "learned")
    assert encoder.dim == (1536 if row == "dino" else 768)
    assert bindings["data"].interpolation == ("bicubic" if row == "dino" else "bilinear")
    check_images_and_attacks(bindings["data"], bindings["evaluators"])


@pytest.mark.parametrize("row", TABLE_3)
def test_videos_are_judged_as_the_row_was(row):
    printed, flags, bindings = evaluation_of(f"r2plus1d18_{row}")
    form = "clean {}; FGSM 1/255 {}, 2/255 {}, 4/255 {}; PGD 1/255 {}, 2/255 {}; AutoAttack 1/255 {}"
    assert printed.published == form.format(*TABLE_3[row].split()) and "Weights: not published" in printed.deviations
    assert (flags.model, flags.output) == (f"data/r2plus1d18_{row}.safetensors", f"runs/r2plus1d18_{row}")
    encoder, data = bindings["encoder"](), bindings["data"]
    assert (type(encoder).__name__, encoder.width, encoder.dilated) == ("R2Plus1D18", 64, "tclr" in row)
    assert encoder.dim == 512 and encoder.pixel_mean is None
    assert type(data).__name__.lower() == row.partition("_")[0]
    assert (data.split, data.frames, data.stride, data.clips, data.size) == (1, 16, 2, 1, (112, 112))
    attacks = [evaluator.attack for evaluator in bindings["evaluators"] if hasattr(evaluator, "attack")]
    sizes = [(attack.name, attack.threat.norm, round(attack.threat.epsilon * 255, 6)) for attack in attacks]
    assert sizes == [
        *(("fgsm", "linf", size) for size in (1.0, 2.0, 4.0)),
        *(("pgd", "linf", size) for size in (1.0, 2.0)),
        ("autoattack", "linf", 1.0),
    ]
    assert {attack.steps for attack in attacks if attack.name == "pgd"} == {40}
    flags.gin_file.append("gin/eval/video.gin")  # as the file recommends
    prepare(flags, "evaluate")
    bindings = gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)
    attacks = [evaluator.attack for evaluator in bindings["evaluators"] if hasattr(evaluator, "attack")]
    assert [round(attack.threat.epsilon * 255, 6) for attack in attacks] == [1.0, 1.0]


@pytest.mark.parametrize("row", TABLE_2)
def test_figure_3_has_the_weights_of_table_2_and_the_lowest_severity(row):
    _, flags, bindings = evaluation_of(f"imagenet_c_resnet50_{row}")
    _, of_table, table = evaluation_of(f"imagenet_resnet50_{row}")
    assert flags.model == of_table.model and flags.output == f"runs/c_resnet50_{row}"
    assert bindings["data"] == table["data"] and bindings["encoder"]().get_config() | {"name": ""} == table[
        "encoder"
    ]().get_config() | {"name": ""}
    _, corruptions = bindings["evaluators"]
    assert corruptions.severities == (1,) and len(corruptions.names) == 15
    assert type(corruptions.source).__name__ == "ImageNetC"


def check_images_and_attacks(data, evaluators) -> None:
    assert (data.image_shape, data.short_side, data.test_size) == ((224, 224, 3), 256, 1.0)
    attacks = [evaluator.attack for evaluator in evaluators if hasattr(evaluator, "attack")]
    sizes = [
        (attack.name, attack.threat.norm, round(attack.threat.epsilon * (1 if attack.threat.norm == "l2" else 255), 6))
        for attack in attacks
    ]
    assert sizes == [
        *(("fgsm", "linf", size) for size in (0.25, 1.0)),
        *(("pgd", "linf", size) for size in (0.25, 1.0)),
        ("pgd", "l2", 0.5),
        ("autoattack", "linf", 0.25),
    ]
    assert all(attack.steps == 40 for attack in attacks if attack.name == "pgd")


# The pixels of the released codes, SupContrast's by data set; all of them are PyTorch's networks.
PIXELS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "acl": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "rocl": (None, None),
}


def check_encoder(row: str, encoder, data: str) -> None:
    assert (type(encoder).__name__, encoder.dim, encoder.stem, encoder.symmetric) == ("ResNet50", 2048, "cifar", True)
    assert (encoder.pixel_mean, encoder.pixel_std) == PIXELS.get(row.removeprefix("augmented_"), PIXELS[data])


def check_attacks(evaluators) -> None:
    names = set()
    for evaluator in evaluators:
        attack = getattr(evaluator, "attack", None)
        if attack is None:
            continue
        threat = attack.threat
        size = round(255 * threat.epsilon) if threat.norm == "linf" else threat.epsilon
        assert threat.norm != "linf" or threat.epsilon == pytest.approx(size / 255, rel=1e-6)
        names.add(f"{attack.name}_{threat.norm}_{size}")
        assert attack.name != "pgd" or attack.steps == 40
    assert names == ATTACKS
    kinds = {type(evaluator).__name__: evaluator for evaluator in evaluators}
    assert kinds["EmbeddingGeometry"].distance == "euclidean" and kinds["FeatureMap"].natural == 1000


def check_cosine(optimizer, warmup: int, steps: int, first: float, peak: float, last: float) -> None:
    expected = [first, (first + peak) / 2, peak, (peak + last) / 2, last]
    places = (0, warmup // 2, warmup, warmup + (steps - warmup) // 2, steps)
    assert rates(optimizer, places) == pytest.approx(expected, rel=1e-3, abs=1e-7)


def check_stages(row: str, bindings: dict, cost: str) -> None:
    first = bindings["pretraining"]
    name, passes = METHODS[next(part for part in row.split("_") if part in METHODS)]
    batch, steps = (512, 97_000) if name in ("RoCL", "ACL") else (1024, 48_000)
    assert (first.epochs, first.batch_size, 50_000 // batch * 1000) == (1000, batch, steps) and first.frozen
    if name == "ACL":
        from tfrobust.models.cnn import CNN
        from tfrobust.models.heads.linear import LinearHead

        method = first.method(encoder=CNN(((1,),), dense=(), branches=2), head=LinearHead(10), seed=0)
    else:
        method = method_of({"method": first.method})
    assert type(method).__name__ == name and cost.startswith(f"{steps:,} x {passes} = {steps * passes:,}")
    assert method.passes_per_step == passes and method.temperature == (0.1 if name == "SupCon" else 0.5)
    rates_of = {"SimCLR": (0.01, 0.5, 0.0005), "SupCon": (0.01, 0.5, 0.0005), "RoCL": (0.1, 1.5, 0), "ACL": (0, 5.0, 0)}
    check_cosine(first.optimizer(), steps // 100, steps, *rates_of[name])
    check_false_negatives(row, method, steps)
    probe = bindings["optimizer"]()
    assert (bindings["method"].__name__, probe.momentum) == ("Supervised", 0.9)
    if batch == 1024:
        peak, places = (5.0 if name == "SupCon" else 1.0), (0, 5819, 5820, 7274, 7275, 8729, 8730)
        assert (bindings["epochs"], bindings["batch_size"]) == (100, 512) and 50_000 // 512 == 97
        assert rates(probe, places) == pytest.approx([peak] * 2 + [peak / 5] * 2 + [peak / 25] * 2 + [peak / 125])
        assert [type(augmentation).__name__ for augmentation in bindings["augmentation"].augmentations] == [
            "RandomResizedCrop",
            "RandomFlip",
        ]
    else:
        assert (bindings["epochs"], bindings["batch_size"], bindings["augmentation"]) == (150, 1024, None)
        assert rates(probe, (1439, 1440, 2400, 4800)) == pytest.approx([0.1, 0.01, 0.001, 0.0001])
        check_adversary(name, method)
        check_projection(name, method.projection)


def check_false_negatives(row: str, method, steps: int) -> None:
    rule = method.false_negatives
    if row == "simclr_ifnd":
        assert (rule.clusters, rule.every, rule.action) == (10, 10, "cancel")
        assert [float(rule.acceptance(step)) for step in (0, steps // 2, steps)] == [0, 0.5, 1]
    elif row == "simclr_fnc":
        assert (rule.threshold, rule.top_k, rule.combine, rule.action) == (0.7, 10, "union", "cancel")
    elif key := next((key for key in THRESHOLDS if key in row), None):
        ends = [rule.threshold] * 2 if isinstance(rule.threshold, float) else map(rule.threshold, (0, steps))
        assert [float(end) for end in ends] == pytest.approx(THRESHOLDS[key]) and rule.action == "cancel"
    else:
        assert rule is None


def check_adversary(name: str, method) -> None:
    attack = method.adversary.attack
    size, step, steps = (0.0314, 0.007, 7) if name == "RoCL" else (8 / 255, 2 / 255, 5)
    assert (attack.threat.epsilon, attack.step_size) == pytest.approx((size, step), rel=1e-6)
    assert (attack.threat.norm, attack.steps, method.adversary.mode) == ("linf", steps, "inference")
    assert method.adversary.group == (256 if name == "RoCL" else None)  # images of one of RoCL's two GPUs
    weights = {term: float(method._weight(term)) for term in method.terms}
    expected = (
        {"contrastive": 2.0, "adversarial": 1 / 256} if name == "RoCL" else {"contrastive": 0.5, "adversarial": 0.5}
    )
    assert weights == expected | {"probe": 1.0}


def check_projection(name: str, projection) -> None:
    """RoCL's two layers; ACL's three, as wide as the features, a norm of each branch behind each."""
    projection.build((None, 2048))
    kinds = [type(layer).__name__ for layer in projection.chain]
    assert projection.activation == "relu"
    assert [layer.units for layer in projection.dense] == ([2048, 128] if name == "RoCL" else [2048, 2048, 2048])
    if name == "RoCL":
        assert kinds == ["Dense", "Activation", "Dense"]
    else:
        hidden = ("Dense", "BranchedBatchNormalization", "Activation")
        assert kinds == [*hidden, *hidden, "Dense", "BranchedBatchNormalization"]
        assert projection.branches == 2 and not any(layer.use_bias for layer in projection.dense)

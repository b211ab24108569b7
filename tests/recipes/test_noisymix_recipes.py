"""The recipes of paper 001 hold the numbers that the paper prints: all of them literal here, none read from gin/."""

import functools
import math
import re

import pytest

from conformance import recipes
from conformance.recipes import method_of, rates

bound = functools.partial(recipes.bound, "noisymix")

# Tables 2 and 3: CIFAR-10, CIFAR-10-C, CIFAR-100, CIFAR-100-C, mean (least / largest) over 5 seeds, in percent.
CLASSIFIED = {
    "resnet18": """
baseline 95.3 (95.2 / 95.4) 73.8 (73.5 / 74.2) 77.7 (77.5 / 78.1) 48.4 (48.0 / 48.8)
mixup 95.8 (95.3 / 96.1) 80.4 (79.7 / 80.9) 79.7 (79.5 / 79.9) 54.2 (53.9 / 54.8)
manifold_mixup 95.9 (95.7 / 96.1) 77.7 (77.3 / 78.2) 80.3 (79.8 / 80.7) 53.4 (52.9 / 53.6)
cutmix 96.5 (96.4 / 96.6) 73.0 (71.8 / 73.9) 79.3 (78.8 / 80.0) 47.9 (47.6 / 48.3)
puzzlemix 96.5 (96.3 / 96.6) 84.1 (83.7 / 84.3) 79.4 (79.1 / 79.6) 57.4 (56.9 / 57.8)
nfm 95.4 (95.2 / 95.6) 83.3 (82.7 / 83.9) 79.4 (78.9 / 79.8) 59.7 (59.2 / 60.2)
augmix 95.5 (95.0 / 95.8) 88.8 (88.1 / 89.3) 77.0 (76.6 / 77.3) 64.6 (64.4 / 64.8)
noisymix 95.3 (95.2 / 95.3) 91.2 (91.1 / 91.3) 79.7 (79.6 / 79.9) 71.0 (70.3 / 71.3)""",
    "wrn28": """
baseline 96.0 (95.9 / 96.1) 74.9 (74.5 / 75.4) 79.0 (78.8 / 79.1) 47.4 (47.0 / 48.0)
mixup 96.7 (96.6 / 96.8) 80.8 (80.7 / 81.0) 80.9 (80.8 / 81.0) 53.9 (53.1 / 54.3)
manifold_mixup 96.6 (96.5 / 96.7) 77.7 (76.3 / 78.4) 81.8 (81.5 / 82.0) 53.2 (52.4 / 53.7)
cutmix 96.7 (96.6 / 96.8) 71.6 (71.1 / 71.9) 80.3 (80.0 / 80.6) 48.5 (48.1 / 48.9)
puzzlemix 97.0 (96.9 / 97.2) 82.6 (82.1 / 83.0) 81.2 (81.0 / 81.6) 56.3 (55.8 / 56.7)
nfm 96.2 (96.1 / 96.3) 82.3 (81.8 / 82.8) 80.2 (79.6 / 80.6) 58.7 (58.2 / 59.2)
augmix 96.5 (96.4 / 96.6) 90.2 (89.7 / 90.7) 80.5 (79.9 / 80.8) 66.7 (65.9 / 67.2)
noisymix 96.3 (96.2 / 96.4) 91.8 (91.2 / 92.7) 81.3 (81.0 / 81.6) 71.9 (71.7 / 72.3)""",
}
# Tables 13, 14 and 12: flips in percent by sequence, and their mean.
FLIPPED = {
    "resnet18": """
baseline 44.6 27.6 9.2 0.4 2.5 0.5 2.1 2.8 0.8 3.1 9.4
mixup 26.3 17.2 6.1 0.4 1.8 0.6 2.2 2.4 0.8 2.5 6.0
manifold_mixup 33.4 21.6 7.8 0.4 2.1 0.6 2.2 2.6 0.8 2.9 7.4
nfm 11.5 7.5 6.8 0.3 1.5 0.4 1.8 2.0 0.6 2.2 3.5
cutmix 72.3 50.8 9.1 0.5 1.9 0.6 1.9 2.3 0.8 3.1 14.3
puzzlemix 16.1 11.2 6.3 0.3 1.4 0.4 2.3 1.8 0.6 2.5 4.3
augmix 11.4 7.1 2.4 0.2 1.0 0.4 1.9 1.2 0.5 1.8 2.8
noisymix 6.6 4.5 2.3 0.1 0.9 0.4 1.6 1.0 0.4 1.4 1.9""",
    "wrn28": """
baseline 42.7 27.6 8.2 0.3 2.1 0.4 1.4 2.4 0.6 2.6 8.8
mixup 30.9 18.5 5.7 0.3 1.5 0.5 1.6 1.8 0.7 2.1 6.4
manifold_mixup 43.8 26.6 7.0 0.3 1.6 0.4 1.3 1.9 0.6 2.2 8.6
nfm 13.1 7.8 8.0 0.3 1.4 0.4 1.4 2.0 0.6 2.1 3.7
cutmix 78.0 60.1 9.6 0.5 1.9 0.6 1.5 2.4 0.8 3.2 15.9
puzzlemix 14.6 9.5 7.1 0.4 1.3 0.5 1.8 1.9 0.7 2.5 4.0
augmix 11.2 6.6 2.1 0.2 0.9 0.3 1.3 1.0 0.4 1.3 2.5
noisymix 6.3 4.2 2.0 0.1 0.7 0.3 1.0 0.8 0.3 1.1 1.7""",
    "imagenet": """
baseline 59.4 57.8 64.5 72.1 63.2 61.9 44.2 51.9 56.9 48.1 58.0
adversarial 25.6 40.1 26.9 33.1 18.3 60.6 25.7 31.3 30.5 40.4 33.3
autoaugment 53.7 49.9 63.8 79.3 66.5 58.2 43.2 49.0 57.7 43.6 56.6
mixup 47.6 47.2 60.8 73.9 58.9 62.1 51.2 55.0 61.1 46.3 56.4
manifold_mixup 49.1 46.2 66.1 72.4 62.6 59.9 46.5 53.7 58.8 45.2 56.0
cutmix 54.7 52.7 69.4 77.4 73.1 59.2 43.2 51.6 59.1 46.1 58.6
puzzlemix 50.1 48.3 64.6 72.5 63.3 56.7 44.3 50.4 57.9 46.6 55.5
augmix 40.9 37.8 30.0 54.8 37.3 46.1 26.9 32.3 36.4 33.8 37.6
noisymix 25.1 22.8 30.2 41.5 32.4 34.1 20.5 24.5 27.7 26.3 28.5""",
}
# Table 1: ImageNet, ImageNet-C (without noise), ImageNet-R, mean flip rate (without noise).
IMAGENET = """
baseline 76.1 39.2 (42.3) 36.2 58.0 (57.8)
adversarial 63.9 32.1 (35.4) 38.9 33.3 (33.4)
autoaugment 77.6 45.7 (47.3) 39.0 56.5 (57.7)
mixup 77.5 46.2 (48.4) 39.6 56.4 (58.7)
manifold_mixup 76.7 43.9 (46.5) 39.7 56.0 (58.2)
cutmix 78.6 41.0 (43.1) 34.8 58.6 (59.9)
puzzlemix 78.7 44.6 (46.4) 39.5 55.5 (57.0)
augmix 77.5 48.3 (50.5) 41.0 37.6 (37.2)
noisymix 77.6 52.3 (52.4) 45.7 28.5 (29.7)"""
# Table 5: CIFAR-10, CIFAR-10-C, its noise, the others; the same of CIFAR-100.
TRANSFER = """
baseline 97.0 77.1 48.8 86.5 84.3 57.1 28.0 66.8
puzzlemix 97.1 77.3 47.7 87.2 84.5 57.2 26.1 67.6
mixup 97.1 78.6 51.7 87.6 84.5 57.3 26.4 67.6
autoaugment 97.2 78.7 54.6 86.7 84.9 57.6 27.3 67.6
augmix 97.7 79.9 53.9 88.6 86.5 58.8 24.2 66.8
noisymix 97.7 81.8 60.3 88.9 85.9 60.3 34.5 68.8"""
# Table 4 beyond the rows that are Table 3's: CIFAR-100, CIFAR-100-C and its row, where section 4.4 tells which it is;
# augmentations, mixing, noise, JSD loss.
ABLATION = {
    "noise": ("CIFAR-100 79.1, CIFAR-100-C 49.5 (row 2)", (False, False, True, False)),
    "aug": ("CIFAR-100 79.1, CIFAR-100-C 64.0 (row 5)", (True, False, False, False)),
    "aug_mix": (None, (True, True, False, False)),
    "aug_noise": (None, (True, False, True, False)),
    "aug_mix_noise": ("CIFAR-100 82.1, CIFAR-100-C 69.3 (row 9)", (True, True, True, False)),
    "aug_mix_jsd": (None, (True, True, False, True)),
    "aug_noise_jsd": (None, (True, False, True, True)),
}
OPEN = "one of rows 6 to 8 or none of them: CIFAR-100 80.9, CIFAR-100-C 66.7; 80.5, 66.9; 80.4, 68.6"
SEQUENCES = ("White", "Shot", "Motion", "Zoom", "Snow", "Bright", "Translate", "Rotate", "Tilt", "Scale")


def table(text: str) -> dict[str, list[str]]:
    """Row -> its cells; a cell is a number with what stands in parentheses behind it."""
    rows = [line.split(" ", 1) for line in text.strip().splitlines()]
    return {name: re.findall(r"[\d.]+(?: \([^)]*\))?", cells) for name, cells in rows}


def flips(name: str, network: str, row: str) -> str:
    *flip_rates, mean = table(FLIPPED[network])[row]
    return f"{name} {', '.join(map(' '.join, zip(SEQUENCES, flip_rates, strict=True)))}, mean {mean}"


def published() -> dict[str, str]:
    """stem -> what its page must print."""
    texts = {}
    for network, text in CLASSIFIED.items():
        for row, (ten, ten_c, hundred, hundred_c) in table(text).items():
            sequences = flips("CIFAR-10-P", network, row)
            texts[f"cifar10_{network}_{row}"] = f"CIFAR-10 {ten}, CIFAR-10-C {ten_c}. {sequences}"
            texts[f"cifar100_{network}_{row}"] = f"CIFAR-100 {hundred}, CIFAR-100-C {hundred_c}"
    for row, (clean, corrupted, renditions, rate) in table(IMAGENET).items():
        text = f"ImageNet {clean}, ImageNet-C {corrupted}, ImageNet-R {renditions}, mean flip rate {rate}; "
        sequences = flips("ImageNet-P", "imagenet", row)
        texts[f"imagenet_resnet50_{row}"] = f"{text}in parentheses without noise. {sequences}"
    for row, cells in table(TRANSFER).items():
        for data, (clean, mean, noise, rest) in (("10", cells[:4]), ("100", cells[4:])):
            text = f"CIFAR-{data} {clean}, CIFAR-{data}-C {mean} (noise {noise}, the others {rest})"
            texts[f"transfer_cifar{data}_{row}"] = text
    return texts | {f"cifar100_wrn28_ablation_{row}": text or OPEN for row, (text, _) in ABLATION.items()}


PUBLISHED = published()
ADDED = {"mixing": 1.0, "stages": (0, 1, 2, 3)}
# Row -> class, passes a step, attributes; `mixing` is its alpha, `noise` its levels, sparsity and scale.
METHODS = {
    "baseline": ("Supervised", 1, {}),
    "autoaugment": ("Supervised", 1, {}),
    "adversarial": ("AdversarialTraining", 5, {"weights": {"ce": 0.0, "ce_adv": 1.0}}),
    "mixup": ("Mixup", 1, {"mixing": 1.0}),
    "manifold_mixup": ("ManifoldMixup", 1, {"mixing": 2.0, "stages": (0, 1, 2), "objective": "cross_entropy"}),
    "cutmix": ("CutMix", 1, {"mixing": 1.0}),
    "puzzlemix": ("PuzzleMix", 2, {"mixing": 1.0, "objective": "cross_entropy"}),
    "nfm": ("NFM", 1, {**ADDED, "noise": (0.4, 0.2, 0.0, (2.0, 5.0))}),
    "augmix": ("AugMixTraining", 3, {"weights": {"ce": 1.0, "jsd": 12.0}}),
    "noisymix": (
        "NoisyMix",
        3,
        {**ADDED, "noise": (0.5, 0.5, 0.65, (2.0, 5.0)), "weights": {"ce": 1.0, "jsd": 12.0}, "consistency": True},
    ),
}


def row_of(stem: str) -> str:
    return re.sub(r"^(cifar100?_(resnet18|wrn28)|imagenet_resnet50|transfer_cifar100?)_", "", stem)


def test_there_is_a_recipe_for_each_row_and_for_nothing_else():
    assert recipes.names("noisymix") == set(PUBLISHED) and len(PUBLISHED) == 4 * 8 + 9 + 2 * 6 + 7


@pytest.mark.parametrize("stem", PUBLISHED)
def test_a_recipe_is_the_row_s(stem):
    bindings, row, printed = bound(stem), row_of(stem), recipes.ROWS[f"noisymix/{stem}"]
    assert printed.published == PUBLISHED[stem] and printed.tables.startswith("Table")
    method = method_of(bindings)
    passes = method.passes_per_step
    steps = 1_000_800 if stem.startswith("imagenet") else 117_150 if stem.startswith("transfer") else 78_000
    assert printed.cost.startswith(f"{steps:,} x {passes} = {steps * passes:,}")
    assert bindings["data"].validation_size == 0
    check = check_imagenet if stem.startswith("imagenet") else check_transfer if "transfer" in stem else check_cifar
    check(stem, bindings)
    if stem.startswith("transfer"):
        assert bindings["pretrained"].path == f"exported/imagenet_resnet50_{row}" and not bindings["pretrained"].frozen
        row = "baseline"
    if "ablation" in row:
        check_ablation(row.removeprefix("ablation_"), method)
    else:
        check_method(row, method, passes)


def check_cifar(stem: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"]) == (200, 128)
    check_cifar_data("100" if "cifar100" in stem else "10", bindings, sequences="cifar10_" in stem)
    check_optimizer(bindings, 78_000, 2.5e-4)
    encoder = bindings["encoder"]()
    assert (encoder.pixel_mean, encoder.pixel_std) == (0.5, 0.5)
    if "wrn28" in stem:
        assert (encoder.depth, encoder.width, encoder.dropout, encoder.variant) == (28, 4, 0.1, "noisymix")
        assert (encoder.dim, encoder.stage_count) == (256, 3)
    else:
        assert (encoder.shortcut, encoder.final_normalization, encoder.dim) == ("activated", False, 512)
    flip, crop = bindings["augmentation"].augmentations
    assert (flip.probability, crop.padding) == (0.5, 4)


def check_cifar_data(classes: str, bindings: dict, *, sequences: bool) -> None:
    assert bindings["data"].path == f"data/cifar-{classes}-python.tar.gz"
    evaluators = {type(evaluator).__name__: evaluator for evaluator in bindings["evaluators"]}
    kinds = {"CleanAccuracy", "CorruptionAccuracy", "Calibration"}
    assert set(evaluators) == (kinds | {"Stability"} if sequences else kinds)
    corruption = evaluators["CorruptionAccuracy"]
    assert (type(corruption.source).__name__, corruption.source.folder) == ("CifarC", f"data/CIFAR-{classes}-C")
    assert len(corruption.names) == 15 and corruption.severities == (1, 2, 3, 4, 5) and corruption.limit is None


def check_optimizer(bindings: dict, steps: int, decay: float) -> None:
    """SGD with Nesterov momentum and half a cosine: lr(t) = 1e-6 + (0.1 - 1e-6) (1 + cos(pi t / T)) / 2."""
    optimizer = bindings["optimizer"]()
    assert (type(optimizer).__name__, optimizer.momentum, optimizer.nesterov) == ("SGD", 0.9, True)
    places = (0, 1, steps // 4, steps // 2, steps - 1, steps)
    expected = [1e-6 + (0.1 - 1e-6) * (1 + math.cos(math.pi * step / steps)) / 2 for step in places]
    assert rates(optimizer, places) == pytest.approx(expected, rel=1e-3)
    assert (
        bindings["encoder"]().kernel_regularization == bindings["head"](class_count=10).kernel_regularization == decay
    )


def check_imagenet(stem: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"]) == (200, 256) and 1_281_167 // 256 * 200 == 1_000_800
    check_optimizer(bindings, 1_000_800, 5e-5)
    encoder, data = bindings["encoder"](), bindings["data"]
    assert (encoder.reading, encoder.stem, encoder.dim) == ("bottleneck", "imagenet", 2048)
    assert (encoder.pixel_mean, encoder.pixel_std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (data.image_shape, data.short_side) == ((224, 224, 3), 256)
    assert (data.training_crop.scale, data.training_crop.ratio) == ((0.08, 1.0), (3 / 4, 4 / 3))
    flip, *policy = bindings["augmentation"].augmentations
    assert flip.probability == 0.5 and [augmentation.policy for augmentation in policy] == ["imagenet"] * (
        "autoaugment" in stem
    )
    evaluators = {type(evaluator).__name__: evaluator for evaluator in bindings["evaluators"]}
    sources = [type(evaluators[name].source).__name__ for name in ("CorruptionAccuracy", "ShiftAccuracy")]
    assert sources == ["ImageNetC", "ImageNetR"] and evaluators["ShiftAccuracy"].rms_bins == "code"
    assert evaluators["CorruptionAccuracy"].baseline["name"] == evaluators["Stability"].baseline["name"] == "AlexNet"


def check_transfer(stem: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"]) == (150, 64) and 50_000 // 64 * 150 == 117_150
    check_cifar_data("100" if "cifar100" in stem else "10", bindings, sequences=False)
    optimizer = bindings["optimizer"]()
    assert (type(optimizer).__name__, optimizer.momentum, optimizer.nesterov) == ("SGD", 0.9, False)
    updates = [781 * epoch + step for epoch in (0, 49, 50, 99, 100, 149) for step in (0, 780)]
    assert rates(optimizer, updates) == pytest.approx([1e-3] * 4 + [1e-4] * 4 + [1e-5] * 4)
    encoder = bindings["encoder"]()
    assert (encoder.reading, encoder.stem, encoder.resize_to) == ("bottleneck", "imagenet", 224)
    assert encoder.kernel_regularization == 2.5e-4 and encoder.pixel_mean == (0.485, 0.456, 0.406)
    crop, flip = bindings["augmentation"].augmentations
    assert (crop.scale, flip.probability) == ((0.08, 1.0), 0.5)


def check_method(row: str, method, passes: int) -> None:
    name, expected_passes, attributes = METHODS[row]
    assert (type(method).__name__, passes) == (name, expected_passes)
    described = {
        "mixing": lambda: method.mixing.alpha,
        "noise": lambda: tuple(
            getattr(method.noise, name) for name in ("additive", "multiplicative", "sparsity", "scale")
        ),
        "weights": lambda: {term: float(method._weight(term)) for term in method.terms},
    }
    for attribute, value in attributes.items():
        assert described.get(attribute, lambda attribute=attribute: getattr(method, attribute))() == value, attribute
    if name in ("AugMixTraining", "NoisyMix"):
        augmix = method.augmentation
        assert (augmix.width, augmix.depth, augmix.severity, augmix.alpha) == (3, None, 3.0, 1.0)
        assert not augmix.all_operations
    if name == "NoisyMix":
        assert method.branches.strengths == (1.0, 2.0, 3.0) and not method.branches.noise_without_mixing
    if name == "AdversarialTraining":
        attack = method.adversary.attack
        assert (attack.threat.norm, attack.steps) == ("linf", 3)
        assert (attack.threat.epsilon, attack.step_size) == pytest.approx((4 / 255, 2 / 3 * 4 / 255), rel=1e-6)


def check_ablation(row: str, method) -> None:
    """Which of the four parts are at work."""
    mixes = method.mixing.alpha > 0
    noisy = method.noise.additive > 0 and method.noise.multiplicative > 0
    noisy = noisy and (mixes or method.branches.noise_without_mixing)
    assert (method.augmentation is not None, mixes, noisy, method.consistency) == ABLATION[row][1]
    assert set(method.term_weights) <= set(method.terms)
    assert method.noise.sparsity == 0.65 and method.branches.strengths == (1.0, 2.0, 3.0)


def test_the_two_rows_that_cut_differ_in_how_often():
    assert method_of(bound("cifar100_wrn28_cutmix")).probability == 0.5
    assert method_of(bound("imagenet_resnet50_cutmix")).probability == 1.0


def test_puzzlemix_has_the_constants_of_its_data_set():
    puzzles = [method_of(bound(f"{stem}_puzzlemix")).puzzle for stem in ("cifar10_resnet18", "imagenet_resnet50")]
    constants = [
        (puzzle.smoothness, puzzle.neighbourhood, puzzle.transport_side, puzzle.transport_cost) for puzzle in puzzles
    ]
    assert constants == [(1.2, 4, 4, 0.8), (1.5, 2, 224, 0.8)]

"""The recipes of report 002 hold the numbers that it prints: literal here, none read from gin/."""

import functools
import re

import pytest

from conformance import recipes
from conformance.recipes import method_of, rates

bound = functools.partial(recipes.bound, "simclr_tikhonov")

# Table 1: 100, 10 and 1 % of the labels. Table 2: lambda 0.1, 1 and 10.
PUBLISHED = {
    "supervised": (93.93, 64.39, 30.92),
    "simclr": (74.79, 70.83, 67.56),
    "fine_tuned": (77.05, 71.36, 66.94),
    "supervised_tikhonov": (93.34, 93.3, 89.69),
    "simclr_tikhonov": (71.9, 67.76, 60.71),
}
FRACTIONS, WEIGHTS = {"100": 1.0, "10": 0.1, "1": 0.01}, {"01": 0.1, "1": 1.0, "10": 10.0}
ROWS = {
    f"cifar10_resnet50_{kind}_{word}": (kind, word, number)
    for kind, numbers in PUBLISHED.items()
    for word, number in zip(WEIGHTS if "tikhonov" in kind else FRACTIONS, numbers, strict=True)
}


def test_there_is_a_recipe_for_each_row_and_for_nothing_else():
    assert recipes.names("simclr_tikhonov") == set(ROWS) and len(ROWS) == 15


@pytest.mark.parametrize("stem", ROWS)
def test_a_recipe_is_the_row_s(stem):
    kind, word, number = ROWS[stem]
    bindings, printed = bound(stem), recipes.ROWS[f"simclr_tikhonov/{stem}"]
    assert printed.published == str(number) and printed.tables == f"Table {2 if 'tikhonov' in kind else 1}"
    encoder = bindings["encoder"]()
    assert bindings["batch_size"] == 128 and (type(encoder).__name__, encoder.dim) == ("ResNet50", 512)
    check_evaluators(bindings["evaluators"])
    fraction = 1.0 if "tikhonov" in kind else FRACTIONS[word]
    source = bindings["data"]
    if fraction < 1:
        assert (source.fraction, source.seed) == (fraction, 0)
        source = source.source
    assert (source.path, source.validation_size) == ("data/cifar-10-python.tar.gz", 0)
    check = check_supervised if "supervised" in kind else check_head
    steps = round(fraction * 50_000) // 128
    check(kind, bindings, steps, fraction)
    assert "supervised" in kind or re.search(rf"then the (probe|head) {100 * steps:,} x 1$", printed.cost)
    method = method_of(bindings if "supervised" in kind else {"method": bindings["pretraining"].method})
    if "tikhonov" in kind:
        form, term = ("released", "ce") if "supervised" in kind else ("batch", "contrastive")
        assert (method.penalty.weight, method.penalty.form, method.penalty.of) == (WEIGHTS[word], form, (term,))
    else:
        assert method.penalty is None


def check_evaluators(evaluators) -> None:
    _, pgd, curve, barrier = evaluators
    for attack in (pgd.attack, curve.attack, barrier.attack):
        assert (attack.threat.norm, attack.threat.epsilon) == ("l2", 0.5)
    assert (pgd.attack.steps, pgd.attack.step_size, pgd.attack.random_start) == (20, 0.05, "none")
    assert barrier.attack.noise_scale == 0.1


def check_supervised(kind: str, bindings: dict, steps: int, fraction: float) -> None:
    assert bindings.get("pretraining") is None and bindings["epochs"] == 200
    optimizer, peak = bindings["optimizer"](), 0.01 if fraction == 0.01 else 0.1
    assert (type(optimizer).__name__, optimizer.momentum) == ("SGD", 0.9)
    places = [steps * epoch + step for epoch in (60, 120, 160) for step in (-1, 0)]
    assert rates(optimizer, places) == pytest.approx([peak / 5**power for power in (0, 1, 1, 2, 2, 3)])
    assert (
        bindings["encoder"]().kernel_regularization == bindings["head"](class_count=10).kernel_regularization == 2.5e-4
    )
    assert bindings["head"](class_count=10).batch_normalized and not bindings["head"](class_count=10).normalized
    crop, flip = bindings["augmentation"].augmentations
    assert (crop.padding, flip.probability) == (4, 0.5)


def check_head(kind: str, bindings: dict, steps: int, fraction: float) -> None:
    first = bindings["pretraining"]
    assert (first.epochs, first.batch_size, first.frozen) == (100, 128, True) and 47_500 // 128 == 371
    assert (first.data.path, first.data.validation_size) == ("data/cifar-10-python.tar.gz", 2500)
    adam = first.optimizer()
    # 3e-4 (1 + cos(pi e / 371)) / 2 at epoch e: 0.83 of it after 100.
    assert rates(adam, (0, 37_100)) == pytest.approx([3e-4, 0.8312 * 3e-4], rel=1e-3)
    method = method_of({"method": first.method})
    assert (type(method).__name__, method.forward, method.temperature) == ("SimCLR", "separate", 0.5)
    assert method.views.jitter == (0.8, 0.8, 0.8, 0.2) and bindings["encoder"]().kernel_regularization == 5e-6
    optimizer, head = bindings["optimizer"](), bindings["head"](class_count=10)
    assert head.normalized and bindings["augmentation"] is None and bindings["epochs"] == 100
    if kind == "fine_tuned":
        assert (type(head).__name__, head.hidden, optimizer.momentum) == ("MLPHead", 512, 0.9)
        assert rates(optimizer, (60 * steps - 1, 60 * steps)) == pytest.approx([0.8, 0.16])
    else:
        assert (type(head).__name__, optimizer.momentum) == ("LinearHead", 0.0) and not head.batch_normalized
        places = [20 * steps * number - 1 for number in range(1, 6)]
        assert rates(optimizer, places) == pytest.approx([0.8, 1.2, 1.8, 2.7, 4.05], rel=1e-6)

"""The recipes of the papers hold what the papers say: the values in rows.toml are literal, none is read from gin/."""

import bisect
import collections
import math
import pathlib
import re
import shlex
import tomllib

import gin
import make_recipe_tables as tables
import numpy as np
import pytest

from conformance import recipes
from conformance.recipes import rates
from tfrobust.commands import evaluate, run
from tfrobust.keras.models import CNN, LinearHead

TABLE = tomllib.loads(pathlib.Path(__file__).with_name("rows.toml").read_text("utf-8"))
# Recipes that are complete without a method.
NAMES = [*recipes.ROWS, "ascl/cifar10_cnn", "ascl/cifar100_cnn", "ascl/released_code"]


def kind(part) -> str:
    return type(part).__name__


def attributes(part, names: str) -> list:
    return [getattr(part, name) for name in names.split()]


def ends(steps: int, *epochs: int) -> list[int]:
    """Return the first and the last update of these epochs."""
    return [steps * epoch + step for epoch in epochs for step in (0, steps - 1)]


def cosine(steps: int, first: float, last: float) -> list[float]:
    """Return six rates of half a cosine, at the places of `cosine_places`."""
    return [last + (first - last) * (1 + math.cos(math.pi * step / steps)) / 2 for step in cosine_places(steps)]


def cosine_places(steps: int) -> list[int]:
    return [0, 1, steps // 4, steps // 2, steps - 1, steps]


def warm_places(warmup: int, steps: int) -> list[int]:
    return [0, warmup // 2, warmup, warmup + (steps - warmup) // 2, steps]


def jump(weight) -> list[float]:
    """Return the first step whose weight is not zero, and the weight from there on."""
    first = bisect.bisect(range(10**6), 0.0, key=lambda step: float(weight(step)))
    return [first, *{float(weight(first)), float(weight(10**6))}]


def weights(method) -> dict[str, float]:
    return {term: float(method._weight(term)) for term in method.terms}


def attacks(evaluators) -> list[list]:
    """Return evaluator, attack, norm, radius (of L∞ in 255ths), steps and label of each evaluator that attacks."""
    rows = []
    for evaluator in evaluators:
        if getattr(evaluator, "attack", None) is not None:
            threat = evaluator.attack.threat
            size = threat.epsilon * (255 if threat.norm == "linf" else 1)
            steps = getattr(evaluator.attack, "steps", 0)
            rows.append([kind(evaluator), evaluator.attack.name, threat.norm, round(size, 4), steps])
    return rows


def costs(steps: int, passes: float) -> str:
    return f"{steps:,} x {passes:.3g} = {steps * passes:,.0f}"


HELPERS = {
    function.__name__: function
    for function in (attacks, attributes, cosine, cosine_places, costs, ends, jump, kind, rates, warm_places, weights)
}


def parts(name: str) -> dict:
    """Return what an expression of rows.toml may name: the arguments of a recipe, its networks and optimizer built."""
    row = recipes.ROWS.get(name)
    if row and row.evaluated:
        flags = evaluate.parser().parse_args(shlex.split(row.command)[3:])
        run.prepare(flags, "evaluate")
        bindings = gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)
        return {**bindings, "encoder": bindings["encoder"](), "row": row, "flags": flags, "name": name}
    bindings = {"augmentation": None, "pretraining": None, **recipes.bound(*name.split("/"))}
    stand_in = CNN(((1,), (1,), (1,)), dense=(), branches=2)
    method = recipes.first_stage(bindings)["method"](encoder=stand_in, head=LinearHead(10), seed=0)
    pipeline = bindings["augmentation"] or getattr(method, "augmentation", None)
    built = {
        "encoder": bindings["encoder"](),
        "head": bindings.get("head", LinearHead)(class_count=10),
        "optimizer": bindings["optimizer"](),
        "method": method,
        "augmentations": getattr(pipeline, "augmentations", []),
        "evaluator": {kind(evaluator): evaluator for evaluator in bindings["evaluators"]},
    }
    return {**bindings, "last_method": bindings["method"], **built, "row": row, "name": name}


def plain(value):
    """Return a value as TOML would hold it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def equal(value, expected) -> bool:
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(equal(value[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(equal, value, expected))
    return value == (pytest.approx(expected, rel=1e-3, abs=1e-8) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_the_row_s(name):
    names = {**HELPERS, "re": re, **parts(name)}
    checked = 0
    for group in TABLE["group"]:
        if re.fullmatch(group["rows"], name):
            for expression, expected in group["holds"].items():
                value = plain(eval(expression, names))
                assert equal(value, expected), (group["rows"], expression, value)
                checked += 1
    assert checked >= 5
    assert names["row"] is None or names["row"].tables and names["row"].published


def test_there_is_a_recipe_for_each_row_of_a_paper_and_for_nothing_else():
    counts = collections.Counter(name.partition("/")[0] for name in recipes.ROWS)
    assert counts == TABLE["counts"]
    assert not [group["rows"] for group in TABLE["group"] if not any(re.fullmatch(group["rows"], n) for n in NAMES)]


def test_the_mean_of_all_is_over_19_corruptions_of_cifar_and_over_15_of_imagenet():
    """Check what cifar_c.gin and imagenet_c_resnet50_v2.gin state about Table 3."""
    gaps = collections.defaultdict(list)
    for row in tables.rows("fcl"):
        if row.published.startswith("All"):
            total, *_ = map(float, re.findall(r"0\.\d+", row.published))
            each = np.float64(re.findall(r"0\.\d+", row.published.partition("digital")[2])[1:])
            assert len(each) == 15
            gaps["imagenet" in row.name].append(total - each.mean())
    assert np.abs(gaps[True]).max() < 1e-4 and 0.007 < min(gaps[False]) < max(gaps[False]) < 0.011


def test_videos_may_also_be_evaluated_by_the_file_for_videos():
    flags = parts("susceptibility/r2plus1d18_ucf101_supervised")["flags"]
    flags.gin_file.append("gin/eval/video.gin")  # as the file recommends
    run.prepare(flags, "evaluate")
    bindings = gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)
    assert [row[3] for row in attacks(bindings["evaluators"])] == [1.0, 1.0]


def test_figure_3_has_the_weights_and_the_network_of_table_2():
    for row in ("supervised", "simclr", "swav", "byol"):
        figure, table = (parts(f"susceptibility/imagenet_{kind_}resnet50_{row}") for kind_ in ("c_", ""))
        assert figure["flags"].model == table["flags"].model and figure["data"] == table["data"]
        configs = [part["encoder"].get_config() | {"name": ""} for part in (figure, table)]
        assert configs[0] == configs[1]

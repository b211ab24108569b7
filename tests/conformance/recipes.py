"""Shared by the tests of papers' recipes: the arguments from gin, rows as their pages print them, rates."""

import functools
import pathlib
from collections.abc import Iterable

import gin
import make_recipe_tables as tables
import stored

from tfrobust.commands.run import configure

GIN = pathlib.Path(__file__).resolve().parents[2] / "gin"
ROWS = {f"{paper}/{row.name}": row for paper in tables.papers() for row in tables.rows(paper)}
# Recipes that take a step in test_gin_files.py, with what trains first: each network and each method of a paper once.
TRACED = stored.table(globals(), "traced")


def arguments(*names: str, params=()) -> dict:
    """Return the arguments of `runs.experiment.train` as these files below gin/ hand them over."""
    configure([str(GIN / name) for name in names], list(params))
    return gin.get_bindings("tfrobust.runs.experiment.train", resolve_references=True)


def first_stage(bindings: dict) -> dict:
    """Return the method that trains first: of two stages the pre-training's."""
    pretraining = bindings.get("pretraining")
    if pretraining is None:
        return bindings
    return bindings | {
        name: getattr(pretraining, name) for name in ("method", "optimizer", "batch_size", "augmentation")
    }


def recipe(name: str, params=()) -> dict:
    """The arguments of a row, of a base alone (both as <paper>/<name>), or of a file gin/<name>.gin."""
    if name in ROWS:
        return arguments(*ROWS[name].files, params=[*ROWS[name].all_params, *params])
    return arguments(f"papers/{name}.gin" if "/" in name else f"{name}.gin", params=params)


def names(paper: str) -> set[str]:
    """The names of the rows of a paper's page."""
    return {row.name for row in tables.rows(paper)}


def bound(paper: str, stem: str) -> dict:
    """The arguments of a recipe as a page prints its command, after what holds for all of them was checked.

    Each call of its encoder gives the same one: constructing a ResNet takes longer than all the rest.
    """
    bindings, row = recipe(f"{paper}/{stem}"), ROWS.get(f"{paper}/{stem}")
    check_complete(bindings, stem)
    if row:
        assert getattr(bindings["data"], "path", "") in tables.header(GIN / row.files[0])["Data"]
    for names, part in zip(zip(*TRACED.values(), strict=True), ("encoder", "method"), strict=True):
        assert first_stage(bindings)[part].__name__ in names, "a network or method that no recipe of TRACED has"
    return bindings | {"encoder": functools.cache(bindings["encoder"])}


def check_complete(bindings: dict, stem: str) -> None:
    """A complete file names its run after itself, and no two results alike."""
    ids = [identity for evaluator in bindings["evaluators"] for identity in evaluator.ids()]
    assert ids and len(ids) == len(set(ids)) and bindings["name"] == stem


def method_of(bindings: dict):
    """The method with stand-ins for its networks: only its own numbers matter here."""
    from tfrobust.models.cnn import CNN
    from tfrobust.models.heads.linear import LinearHead

    return bindings["method"](encoder=CNN(((1,), (1,), (1,)), dense=()), head=LinearHead(10), seed=0)


def rates(optimizer, updates: Iterable[int]) -> list[float]:
    """The learning rate of each of these updates, counted from 0."""
    values = []
    for update in updates:
        optimizer.iterations.assign(update)
        values.append(float(optimizer.learning_rate))
    return values

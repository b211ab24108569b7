"""Check promises of the guides of the facade that tests/test_documentation.py does not execute or look up."""

import importlib
import inspect
import pathlib
import re

import keras
import numpy as np
import pytest

from tfrobust import keras as robust
from tfrobust.common.configured import constructor_arguments

GUIDES = pathlib.Path(robust.__file__).resolve().parents[1] / "guides"
LIBRARIES = ("Foolbox", "Adversarial Robustness Toolbox", "CleverHans", "TensorFlow Similarity", "TensorFlow Addons")


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", (GUIDES / "migration.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def resolve(name: str):
    first, *rest = name.split(".")
    item = {"robust": robust, "keras": keras}.get(first) or importlib.import_module(first)
    for part in rest:
        item = getattr(item, part, None) or importlib.import_module(f"{item.__name__}.{part}")
    return item


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_row_of_a_migration_table_names_something_or_says_none(library):
    text = sections()[library]
    assert text.count("```python") == 1 and len(rows(text)) >= 10
    for theirs, ours, _ in rows(text):
        assert theirs.startswith(("`", "none")) and ours, theirs
        named = re.findall(r"`((?:robust|tfrobust|keras)(?:\.\w+)+)", ours)
        assert all(resolve(name) is not None for name in named)
        words = (
            "the Keras model",
            "the labels",
            "`attack.with_epsilon",
            "`attack.perturb",
            "`model.predict",
            "the probe",
        )
        assert named or ours.startswith(("none", *words)), ours


def test_arguments_in_the_tables_exist():
    """`robust.attacks.PGD(random_start="none")` and the like: each keyword is one of the constructor's."""
    count = 0
    for text in sections().values():
        for name, arguments in re.findall(r"`((?:robust|keras)(?:\.\w+)+)\(([^`]*)\)`", text):
            item = resolve(name)
            parameters = constructor_arguments(item) if inspect.isclass(item) else inspect.signature(item).parameters
            for keyword in re.findall(r"(\w+)=", arguments):
                assert keyword in parameters, (name, keyword)
                count += 1
    assert count > 10


def test_simclr_of_tf_similarity_is_twice_the_contrastive_loss_on_image_ids():
    """Their loss from its description: softmax over the other view of all images and the own view of the others."""
    first, second = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    temperature, views = 0.05, [view / np.linalg.norm(view, axis=1, keepdims=True) for view in (first, second)]
    theirs = 0.0
    for queries, other in (views, views[::-1]):
        across, inside = queries @ other.T / temperature, queries @ queries.T / temperature
        np.fill_diagonal(inside, -np.inf)
        scores = np.concatenate([across, inside], axis=1)
        peak = scores.max(axis=1)
        theirs = theirs + peak + np.log(np.exp(scores - peak[:, None]).sum(axis=1)) - np.diag(across)
    loss = robust.losses.SupervisedContrastiveLoss(temperature=temperature)
    half = loss(np.tile(np.arange(6), 2), np.concatenate([first, second]))
    assert float(half) == pytest.approx(theirs.mean() / 2, rel=1e-5)

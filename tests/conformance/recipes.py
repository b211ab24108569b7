"""What the tests of papers' recipes share: what gin hands to the training, headers, rates."""

import pathlib
from collections.abc import Iterable

import gin

from tfrobust import cli

PAPERS = pathlib.Path(__file__).resolve().parents[2] / "gin" / "papers"


def bound(paper: str, stem: str) -> dict:
    """The arguments of `experiment.train`, as the recipe gin/papers/<paper>/<stem>.gin hands them over."""
    cli.configure([str(PAPERS / paper / f"{stem}.gin")])
    return gin.get_bindings("tfrobust.experiment.train", resolve_references=True)


def method_of(given: dict):
    """The method with stand-ins for its networks: only its own numbers matter here."""
    from tfrobust.models.cnn import CNN
    from tfrobust.models.heads import LinearHead

    return given["method"](encoder=CNN(((1,), (1,), (1,)), dense=()), head=LinearHead(10), seed=0)


def header_of(paper: str, stem: str) -> list[str]:
    """The comment above a recipe, wrapped lines put together, after its form was checked."""
    header = (PAPERS / paper / f"{stem}.gin").read_text().partition("include")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert f"python -m tfrobust.train --gin_file=gin/papers/{paper}/{stem}.gin" in header
    joined = header.replace("\n#             ", " ").splitlines()
    words = [line[2:].partition(":")[0] for line in joined[2:]]
    assert words == ["Run", "Data", "Cost", "Published", "Deviations"]
    return joined


def rates(optimizer, updates: Iterable[int]) -> list[float]:
    """The learning rate of each of these updates, counted from 0."""
    found = []
    for update in updates:
        optimizer.iterations.assign(update)
        found.append(float(optimizer.learning_rate))
    return found

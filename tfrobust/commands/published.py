"""The tables of the papers in gin/papers, for the command `compare`: numbers of other code, which are not measured."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from tfrobust.commands.configuration.files import folders
from tfrobust.commands.configuration.statements import shown
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError

NOTE = "Published numbers, of the papers' own code, training and evaluation, in the units of gin/papers/*/README.md."
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BASE = re.compile(r"^Base: \[(\w+)\.gin\]", re.MULTILINE)
_ROW = re.compile(r"^\| (?!row |---)(.+?) \| (.+?) \|", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Table:
    """The published rows of one base file.

    Attributes:
        base: stem of the gin file, such as "cifar10_resnet20".
        title: the paper and the setting.
        rows: (what was trained, its numbers).
    """

    base: str
    title: str
    rows: tuple[tuple[str, str], ...]


def tables(name: str, data: Sequence[str]) -> list[Table]:
    """Return the tables of one base file, or of all that are about some data sets.

    Args:
        name: of a base file, such as "cifar10_resnet20"; "" for those about the data.
        data: names of data sets, such as "cifar10".

    Raises:
        InputError: there is no such table.
    """
    every_table = [table for folder in folders() for page in _pages(folder) for table in _of_page(page)]
    every_table = list({table.base + table.title: table for table in every_table}.values())
    if name:
        chosen = [table for table in every_table if table.base == name]
        bases = [table.base for table in every_table]
        hint = ", ".join(nearest(name, bases) or bases)
    else:
        chosen = [table for table in every_table if any(table.base.startswith(f"{dataset}_") for dataset in data)]
        hint = ", ".join(table.base for table in every_table)
    if not chosen:
        about = shown(name) if name else " and ".join(data)
        raise InputError(f"--published: no table in gin/papers is about {about}; name one of {hint}")
    return chosen


def text(chosen: Sequence[Table]) -> str:
    """Return the tables for the console."""
    lines = [NOTE]
    for table in chosen:
        width = max(len(row) for row, _ in table.rows)
        lines += ["", f"{table.title} ({table.base})", *(f"  {row:{width}}  {numbers}" for row, numbers in table.rows)]
    return "\n".join(lines)


def markdown(chosen: Sequence[Table]) -> str:
    """Return the tables as Markdown."""
    lines = [NOTE]
    for table in chosen:
        lines += ["", f"{table.title} (`{table.base}`)", "", "| row | published |", "|---|---|"]
        lines += [f"| {row} | {numbers} |" for row, numbers in table.rows]
    return "\n".join(lines)


def _pages(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted((folder / "papers").glob("*/README.md"))


def _of_page(path: pathlib.Path) -> list[Table]:
    page = path.read_text("utf-8")
    paper = re.search(r"^# (.+? \d{4})\b", page, re.MULTILINE)
    title = paper[1].strip() if paper else path.parent.name
    listed = []
    for heading, content in _SECTION.findall(page):
        base, rows = _BASE.search(content), _ROW.findall(content)
        if base and rows:
            listed.append(Table(base[1], f"{title}: {heading}", tuple(rows)))
    return listed

#!/usr/bin/env python3
"""Write the pages of the recipes: tfrobust/guides/recipes.md and gin/papers/<paper>/README.md.

Usage: tools/make_recipe_tables.py [--check]

recipes.md has the method and the terms of each gin/*.gin. A paper's page has the command, the published numbers, the
cost and the deviations of each row. The rows are in gin/papers/<paper>/rows.toml; data, costs and deviations of bases
and methods are in the comments of their gin files. With --check nothing is written: prints the pages that are not
current, and exits with 1 if there are any.

In rows.toml, `[rows.<base>]` has a line for each row, in order: its key, and `tables`, `published`, and as far as they
differ from the rule: `method` (the key names the file methods/<key>.gin; "" for none), `params` (--gin_param), `title`
(the first line of the method's file), `deviations` and `weights` of this row. The run of a row is called <base>_<key>.
`[passes]` has the passes a step of a method, if not 1, and `[steps]` the steps of a base; `[notes]` adds to that cost,
and `[cost]` replaces it.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
PAPERS = ROOT / "gin" / "papers"
RECIPES = ROOT / "tfrobust" / "guides" / "recipes.md"
_MADE = "<!-- Made by tools/make_recipe_tables.py from the gin files and the terms of their methods; do not edit. -->"
_HEADER = "<!-- Made by tools/make_recipe_tables.py from rows.toml and the comments of the gin files; do not edit. -->"
_INTRODUCTION = (
    "The gin files that train one method each: `python -m tfrobust.train --gin_file=gin/trades.gin`. The terms of the",
    "loss have the same names in logs, gin and report, and a weight each: `TRADES.term_weights = {'kl': 3.0}`.",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A published row: what it is called, its command, and what is known about it."""

    paper: str
    base: str
    key: str
    method: str
    params: tuple[str, ...]
    title: str
    tables: str
    published: str
    cost: str
    deviations: str
    evaluated: bool

    @property
    def name(self) -> str:
        """The NAME of its run."""
        return f"{self.base}_{self.key}"

    @property
    def files(self) -> tuple[str, ...]:
        """Its gin files below gin/: base, then method."""
        files = (f"{self.base}.gin", f"methods/{self.method}.gin")
        return tuple(f"papers/{self.paper}/{file}" for file in files[: 2 if self.method else 1])

    @property
    def all_params(self) -> tuple[str, ...]:
        """Its values of --gin_param, with NAME unless the files' names say it."""
        named = self.evaluated or self.name == "_".join(pathlib.Path(file).stem for file in self.files)
        return self.params if named else (*self.params, f"NAME={self.name!r}")

    @property
    def command(self) -> str:
        """Its command, on one line."""
        words = ["python -m tfrobust.train"]
        if self.evaluated:
            run = f"{self.base.removeprefix('imagenet_')}_{self.key}"
            model = run.removeprefix("c_")  # the weights that are evaluated on ImageNet, too
            words = [f"python -m tfrobust.evaluate --model=data/{model}.safetensors --output=runs/{run}"]
        words += [f"--gin_file=gin/{file}" for file in self.files]
        return " ".join([*words, *(f'--gin_param="{param}"' for param in self.all_params)])


# ------------------------------------------------------------------------------------------------- reading


def papers() -> list[str]:
    """Return the names of the papers' folders."""
    return sorted(path.parent.name for path in PAPERS.glob("*/rows.toml"))


def rows(paper: str) -> list[Row]:
    """Return the rows of a paper, in the order of its page."""
    recipe = _recipe(paper)
    return [
        _row(paper, recipe, base, key, entry) for base, some in recipe["rows"].items() for key, entry in some.items()
    ]


def bases(paper: str) -> list[str]:
    """Return the stems of the gin files that are complete alone."""
    return list(_recipe(paper)["rows"])


def header(path: pathlib.Path) -> dict[str, str]:
    """Return the comment above a gin file by label: title (its first line), Data, Cost and Deviations."""
    lines = []
    for line in path.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line)
    joined = "\n".join(lines).replace("\n#             ", " ").splitlines()
    fields = dict(match.groups() for line in joined if (match := re.match(r"# (Data|Cost|Deviations): +(.*)", line)))
    return {"title": joined[0].removeprefix("# "), **fields}


def _recipe(paper: str) -> dict:
    return tomllib.loads((PAPERS / paper / "rows.toml").read_text("utf-8"))


def _row(paper: str, recipe: dict, base: str, key: str, entry: dict) -> Row:
    method = entry.get("method", key)
    about = header(PAPERS / paper / "methods" / f"{method}.gin") if method else {}
    deviations = [
        entry.get("deviations"),
        entry.get("weights") and f"Weights: {entry['weights']}.",
        about.get("Deviations"),
    ]
    evaluated = base in recipe.get("evaluated", ())
    return Row(
        paper=paper,
        base=base,
        key=key,
        method=method,
        params=tuple(entry.get("params", ())),
        title=entry.get("title") or about["title"],
        tables=entry["tables"],
        published=entry["published"],
        cost="" if evaluated else _cost(recipe, base, method),
        deviations=" ".join(filter(None, deviations)),
        evaluated=evaluated,
    )


def _cost(recipe: dict, base: str, method: str) -> str:
    if method in recipe.get("cost", ()):
        return recipe["cost"][method]
    steps, passes = recipe["steps"][base], recipe["passes"].get(method, 1)
    note = recipe.get("notes", {}).get(method, "")
    return f"{steps:,} x {passes:.3g} = {steps * passes:,.0f} {note}".rstrip()


# ------------------------------------------------------------------------------------------------- writing


def page(paper: str) -> str:
    """Return the page of a paper."""
    recipe, all_rows = _recipe(paper), rows(paper)
    title = f"[{recipe['paper']}]({recipe['address']})" if "address" in recipe else recipe["paper"]
    lines = [_HEADER, "", f"# {recipe['paper'].partition(', ')[0]}", "", f"{title}."]
    files = sorted((PAPERS / paper).glob("*.gin"))
    shared = [path.name for path in files if path.stem not in recipe["rows"]] or [path.name for path in files]
    lines += [
        "The settings that all rows share, the choices where the paper is open, and the meaning of numbers and costs",
        f"are in the comments of {', '.join(f'[{name}]({name})' for name in shared)}.",
        "A pass is one forward and backward pass over a batch. Deviations from the paper that all rows of a base share",
        "are above its table. The tests build every recipe and run training steps with some; none has been trained to",
        "completion.",
    ]
    for base in recipe["rows"]:
        lines += ["", *_section(paper, base, [row for row in all_rows if row.base == base])]
    return "\n".join(lines) + "\n"


def _section(paper: str, base: str, rows_of_base: list[Row]) -> list[str]:
    about = header(PAPERS / paper / f"{base}.gin")
    lines = [f"## {about['title']}", "", f"Base: [{base}.gin]({base}.gin)", ""]
    lines += [f"- {label}: {_marked(about[label])}" for label in ("Data", "Cost", "Deviations") if label in about]
    if not rows_of_base:
        return [*lines, "", f"    python -m tfrobust.train --gin_file=gin/papers/{paper}/{base}.gin"]
    lines += ["", "| row | published | steps x passes | command | deviations |", "|---|---|---|---|---|"]
    for row in rows_of_base:
        cells = (f"{row.title} ({row.tables})", row.published, row.cost, f"`{row.command}`", _marked(row.deviations))
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return lines


def _marked(text: str) -> str:
    """Return a comment as Markdown: flags and names of parameters in backticks, links to web pages."""
    text = re.sub(r'--gin_(?:param="[^"]*"|file=\S+)|\b[A-Za-z]+\d*\.[a-z_]+ = \'\w+\'', r"`\g<0>`", text)
    return re.sub(r"https://[^\s,;]+[^\s,;.]", r"<\g<0>>", text)


# ----------------------------------------------------------------------------------------------- gin/*.gin


def recipes_page() -> str:
    """Return the page of the gin files that train one method each."""
    rows = ["| recipe | what | method | terms |", "|---|---|---|---|"]
    for path in sorted((ROOT / "gin").glob("*.gin")):
        stages = built_stages(path)
        terms = "; then ".join(map(terms_of, stages))
        what = first_sentence(path).replace("*", r"\*").replace("|", r"\|")
        rows.append(f"| `gin/{path.name}` | {what} | `robust.methods.{type(stages[0]).__name__}` | {terms} |")
    return "\n".join([_MADE, "", "# Recipes", "", *_INTRODUCTION, "", *rows]) + "\n"


def built_stages(path: pathlib.Path) -> list:
    """Return the methods that a gin file trains, one after the other."""
    import gin

    from tfrobust.commands.run import configure
    from tfrobust.models.heads.linear import LinearHead

    configure([str(path)])
    bindings = gin.get_bindings("tfrobust.runs.experiment.train")
    encoder, first = bindings["encoder"](), bindings.get("pretraining")
    methods = [first.method, bindings["method"]] if first is not None else [bindings["method"]]
    return [method(encoder=encoder, head=LinearHead(10), seed=0) for method in methods]


def terms_of(method) -> str:
    """Return the names of a method's terms, with those that are only logged marked."""
    unused = [term for term in method.terms if isinstance(weight := method.weight_of(term), float) and not weight]
    return ", ".join(f"`{term}`{' (weight 0)' if term in unused else ''}" for term in method.terms)


def first_sentence(path: pathlib.Path) -> str:
    """Return the first sentence of the comment that begins a gin file."""
    comment = " ".join(re.match(r"(?:#.*\n)+", path.read_text("utf-8"))[0].replace("#", " ").split())
    return re.match(r".*?(?<! al)(?<! eq)[.:](?= |$)", comment)[0].rstrip(".:")


def paper_pages() -> dict[pathlib.Path, str]:
    """Return file -> text of the pages of the papers."""
    return {PAPERS / paper / "README.md": page(paper) for paper in papers()}


def stale(pages: dict[pathlib.Path, str]) -> dict[pathlib.Path, str]:
    """Return those of the pages whose files are missing or differ."""
    return {path: text for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text}


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or compare them; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not current")
    check, changed = flags.parse_args(arguments).check, stale({RECIPES: recipes_page(), **paper_pages()})
    for path, text in changed.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is not current' if check else 'written'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

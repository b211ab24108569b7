#!/usr/bin/env python3
"""Build the documentation site from README, the guides, the notebooks, the pages of recipes and the docstrings.

Usage: tools/build_site.py [--output=build/site] [--no_notebooks]

Needs the extra `docs`. The site is in the folder html of the output; open its index.html. A warning of Sphinx is an
error: exits with 1. With --no_notebooks their outputs are left out, which saves most of the time.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SITE = ROOT / "tools" / "site"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The pages that are not guides, and their place on the site.
_PAGES = {
    "README.md": "index.md",
    "gin/README.md": "recipes/index.md",
    "exported/README.md": "models.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "tfrobust/keras/__init__.py": "api/index.rst",
    "tfrobust/commands/__main__.py": "commands.rst",
    "tfrobust/runs/experiment.py": "api/run.rst",
}
# "[73.9, 75.7]" and "(1.01 to 1.13)": lines of narrow columns break before them, not inside.
_INTERVAL = re.compile(r"[\[(][-+]?[\d.]+(?:,| to) [-+]?[\d.]+[\])]")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))|(?<=<img src=\")([^\"]+)(?=\")")
# Blocks and spans of code, which hold no links. A name of the facade in backticks becomes a link.
_CODE = re.compile(r"(^```.*?^```$|^ {4,}\S.*?$|(?<!`)`[^`]+`(?!`))", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`(robust(?:\.\w+)+)`")
_LANGUAGES = {".py": "python", ".gin": "gin", ".cff": "yaml"}


def page_paths() -> dict[str, str]:
    """Return path in the repository -> path on the site of every page, picture and module of the facade."""
    paths = dict(_PAGES)
    guides = ROOT / "tfrobust" / "guides"
    for path in sorted(guides.rglob("*")):
        if path.suffix in (".md", ".ipynb", ".png"):
            paths[_relative(path)] = path.relative_to(guides.parent).as_posix()
    for path in sorted((ROOT / "gin" / "papers").glob("*/README.md")):
        paths[_relative(path)] = f"recipes/{path.parent.name}.md"
    for path in sorted((ROOT / "tfrobust" / "keras").glob("[a-z]*.py")):
        paths[_relative(path)] = f"api/{path.stem}.rst"
    return paths


def _relative(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -------------------------------------------------------------------------------------------------- sources


def sources(texts: dict[str, str], names: set[str]) -> dict[str, bytes]:
    """Return path -> content of all files that Sphinx reads."""
    paths = page_paths()
    files = {f"{name}.rst": text.encode() for name, text in texts.items()}
    linked: set[str] = set()
    for source, target in paths.items():
        content = (ROOT / source).read_bytes()
        if source.endswith(".md"):
            files[target] = rewritten(content.decode(), source, paths, linked, names).encode()
        elif source.endswith(".ipynb"):
            notebook = json.loads(content)
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = rewritten("".join(cell["source"]), source, paths, linked, names)
            files[target] = json.dumps(notebook).encode()
        elif source.endswith(".png"):
            files[target] = content
    files |= {f"files/{path}.md": _file_page(path).encode() for path in linked}
    papers = [path for path in paths.values() if path.startswith("recipes/") and path != "recipes/index.md"]
    files["index.md"] += _contents(paths).encode()
    files["recipes/index.md"] += _toctree("Papers", [posixpath.basename(path) for path in papers]).encode()
    return files


def rewritten(text: str, source: str, paths: dict[str, str], linked: set[str], names: set[str]) -> str:
    """Return the text of a page with its links as they are on the site; add the linked files to `linked`."""

    def link(match) -> str:
        target, hash_sign, anchor = match[0].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path not in paths:
            linked.add(path)
        target_page = paths.get(path, f"files/{path}.md")
        return posixpath.relpath(target_page, posixpath.dirname(paths[source]) or ".") + hash_sign + anchor

    def code(span: str) -> str:
        name = _NAME.fullmatch(span)
        return f"{{py:obj}}{span}" if name and name[1] in names else span

    def prose(part: str) -> str:
        return _INTERVAL.sub(lambda match: match[0].replace(" ", "\u00a0"), _LINK.sub(link, part))

    parts = _CODE.split(text)
    return "".join(code(part) if number % 2 else prose(part) for number, part in enumerate(parts))


def _file_page(path: str) -> str:
    """Return the page of a file of the repository that other pages link to; the search leaves it out."""
    language = _LANGUAGES.get(pathlib.PurePath(path).suffix, "text")
    text = (ROOT / path).read_text("utf-8")
    return f"---\norphan: true\nnosearch: true\n---\n# {path}\n\n``````{language}\n{text}``````\n"


def _contents(paths: dict[str, str]) -> str:
    """Return the tables of contents: the groups and the order of the guides in README, then reference and project."""
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Guides\n")[2].partition("\n## ")[0]
    toctrees = []
    for group in section.split("\n- **")[1:]:
        links = [match[0] for match in _LINK.finditer(group) if match[0].startswith("tfrobust/guides/")]
        toctrees.append(_toctree(group.partition("**")[0], [paths[link] for link in links]))
    reference = ["api/index.rst", "commands.rst", "recipes/index.md", "models.md"]
    return "".join(
        [*toctrees, _toctree("Reference", reference), _toctree("Project", ["changelog.md", "contributing.md"])]
    )


def _toctree(caption: str, places: list[str]) -> str:
    entries = "\n".join(path.rpartition(".")[0] for path in places)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def write(files: dict[str, bytes], folder: pathlib.Path) -> None:
    """Write the files whose content has changed, and delete those that are no more."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


# ---------------------------------------------------------------------------------------------------- build


def main(arguments: list[str] | None = None) -> int:
    """Write the sources and build the site; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", default=str(ROOT / "build" / "site"), metavar="DIR", help="default: build/site")
    flags.add_argument("--no_notebooks", action="store_true", help="leave out the outputs of the notebooks")
    parsed = flags.parse_args(arguments)
    if importlib.util.find_spec("sphinx") is None:
        print("error: the site needs the extra docs: pip install -e '.[docs]'", file=sys.stderr)
        return 2
    from sphinx.cmd import build

    sys.path[:0] = [str(ROOT), str(SITE), str(SITE.parent)]
    import api

    output = pathlib.Path(parsed.output)
    api.publish_names()
    texts = api.pages()
    write(sources(texts, api.names(texts)), output / "source")
    options = ["-q", "-W", "--keep-going", "-c", str(SITE), "-d", str(output / "doctrees")]
    options += ["-D", "nb_execution_mode=off"] if parsed.no_notebooks else []
    code = build.build_main([*options, str(output / "source"), str(output / "html")])
    if code == 0:
        print(output / "html" / "index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Write tfrobust/guides/api/*.md from the docstrings: signature, description, arguments, example, source.

Usage: tools/make_api_pages.py [--check]

There is a page for each module of the facade `tfrobust.keras`, one each for other objects that a gin file or a user's
program names (the run itself, serving), and a table of the recipes, gin/*.gin. Nothing in the pages depends on the
machine. With --check nothing is written: prints the pages that are not current, and exits with 1 if there are any.
"""

import argparse
import dataclasses
import importlib
import inspect
import os
import pathlib
import re
import sys
import types

import make_facade

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tfrobust" / "guides" / "api"
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_ORDER = ("Returns", "Raises", "Yields", "Example", "Source")
_SECTION = re.compile(
    rf"^(Args(?: beyond [^:]+)?|Attributes|Attributes of a subclass|Draw|{'|'.join(_ORDER)}):(?: (.+))?$"
)
_HEADER = "<!-- Made by tools/make_api_pages.py from the docstrings; do not edit. -->"
# Modules outside the facade whose functions and classes programs use.
_PROGRAMS = {
    "run": ("runs.experiment", "runs.stage", "runs.first_stage", "runs.initial_encoder", "runs.plan", "report.gate"),
    "serving": ("serving.client", "serving.scan"),
}
_TITLES = {
    "keras": ("tfrobust.keras", "One-line evaluation, and `.keras` files."),
    "run": ("A run", "What the commands call, and what gin files say of it."),
    "serving": ("Serving", "What talks to a served model, and what looks at one before it is loaded."),
}


@dataclasses.dataclass
class Page:
    """The objects of one page, by the names under which users reach them."""

    title: str
    introduction: str
    items: dict[str, object]


# ---------------------------------------------------------------------------------------- what there is


def collect() -> dict[str, Page]:
    """Return page name -> page, by walking the facade, then the modules of _PROGRAMS."""
    from tfrobust import keras as facade

    pages = {"keras": Page(*_TITLES["keras"], {})}
    for name in facade.__all__:
        item = getattr(facade, name)
        if not isinstance(item, types.ModuleType):
            pages["keras"].items[f"robust.{name}"] = item
            continue
        items = {f"robust.{name}.{inner}": getattr(item, inner) for inner in item.__all__}
        modules = {path: inner for path, inner in items.items() if isinstance(inner, types.ModuleType)}
        for path, inner in modules.items():
            items.update(
                {
                    f"{path}.{function_name}": function
                    for function_name, function in defined_objects(inner).items()
                    if "_of" not in function_name
                }
            )
        items = {path: inner for path, inner in items.items() if path not in modules}
        pages[name] = Page(f"tfrobust.keras.{name}", paragraphs(inspect.getdoc(item)), items)
    for name, modules in _PROGRAMS.items():
        pages[name] = Page(*_TITLES[name], {})
        for path in modules:
            module = importlib.import_module(f"tfrobust.{path}")
            pages[name].items.update(
                {f"{module.__name__}.{item_name}": item for item_name, item in defined_objects(module).items()}
            )
    return pages


def defined_objects(module: types.ModuleType) -> dict[str, object]:
    """Return the public classes and functions with docstrings that a module itself defines or lists in `__all__`."""
    listed = getattr(module, "__all__", None)
    return {
        name: item
        for name, item in sorted(vars(module).items())
        if (inspect.isclass(item) or inspect.isfunction(item))
        and item.__doc__
        and (name in listed if listed else not name.startswith("_") and item.__module__ == module.__name__)
    }


# ------------------------------------------------------------------------------------------- signatures


def signature(item) -> str:
    """Format arguments with annotations and defaults, without anything that differs between processes or machines."""
    if inspect.isclass(item) and not issubclass(item, tuple):
        arguments = list(inspect.signature(item.__init__).parameters.values())[1:]
        if item.__init__ is object.__init__:
            arguments = []
    else:
        arguments = list(inspect.signature(item).parameters.values())
    fields, written, star = getattr(item, "__dataclass_fields__", {}), [], False
    for argument in arguments:
        if argument.kind is argument.KEYWORD_ONLY and not star:
            written.append("*")
        star = star or argument.kind in (argument.KEYWORD_ONLY, argument.VAR_POSITIONAL)
        prefix = {argument.VAR_POSITIONAL: "*", argument.VAR_KEYWORD: "**"}.get(argument.kind, "")
        hint = annotation(argument.annotation)
        default = "" if argument.default is argument.empty else value(argument.default)
        factory = getattr(fields.get(argument.name), "default_factory", dataclasses.MISSING)
        if factory is not dataclasses.MISSING:  # its own mark has no name
            default = f"{value(factory)}()" if inspect.isclass(factory) else "..."
        hint = f": {hint}" if hint else ""
        equals = f" = {default}" if hint else f"={default}"
        written.append(f"{prefix}{argument.name}{hint}{equals if default else ''}")
    return written_out(item.__name__, written)


def written_out(name: str, arguments: list[str]) -> str:
    """Format a signature on one line if it fits, else one argument per line."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), ")"])


def annotation(hint) -> str:
    """Format a type as in the source, without the modules' names."""
    if hint is inspect.Parameter.empty:
        return ""
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    text = re.sub(r"Annotated\[(.+?), <object object at 0x[0-9a-f]+>\]", r"\1", text)  # the marks of common.outside
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    return re.sub(r"(?:\b\w+\.)+(\w+)", r"\1", text).replace("NoneType", "None")


def value(default) -> str:
    """Format a default as it would be typed."""
    if isinstance(default, (tuple, list)) and not hasattr(default, "_fields"):
        inside = ", ".join(map(value, default)) + ("," if isinstance(default, tuple) and len(default) == 1 else "")
        return f"({inside})" if isinstance(default, tuple) else f"[{inside}]"
    if default is None or isinstance(default, (bool, int, float, str)):
        return repr(default)
    if inspect.isclass(default) or inspect.isfunction(default):
        return default.__name__
    return f"{type(default).__name__}(...)"


# ------------------------------------------------------------------------------------------- docstrings


def sections(text: str) -> list[tuple[str, str]]:
    """Split a docstring into (title, text) in its own order; prose has no title."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    at_the_margin = False
    for number, line in enumerate(text.splitlines()):
        match = _SECTION.match(line)
        title, lines = parts[-1]
        # The entries of a docstring that begins with its arguments are not indented. A section whose text begins on
        # the line of its title extends to the next empty line.
        inside = not title or at_the_margin or (bool(lines) and lines[0] != "" and "" not in lines)
        if match:
            at_the_margin = number == 0
            parts.append((match[1], [match[2] or ""]))
        elif line and not line.startswith(" ") and not inside:
            parts.append(("", [line]))
        else:
            lines.append(line)
    return [(title, inspect.cleandoc("\n".join(lines))) for title, lines in parts if any(lines)]


def paragraphs(text: str) -> str:
    """Convert a docstring's prose to Markdown: indented formulas become blocks, lists stay lists."""
    written = []
    for part in re.split(r"\n{2,}", text.strip("\n")):
        lines = part.splitlines()
        if all(line.startswith("    ") for line in lines) or re.search(r"\S {3,}\S", part):
            written.append("```text\n" + inspect.cleandoc("\n" + part) + "\n```")
        elif lines[0].startswith("|") and lines[0].endswith("|"):
            written.append(part)
        elif re.match(r"(- |\d+\. )", lines[0]):
            written.append(escaped(re.sub(r"\n +", " ", part)))
        else:
            written.append(escaped(" ".join(line.strip() for line in lines)))
    return "\n\n".join(written)


def escaped(text: str, table: bool = False) -> str:
    """Escape plain text for Markdown, except for code in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    for number in range(0, len(parts), 2):
        part = parts[number].replace("\\", "\\\\").replace("<", "&lt;").replace("*", r"\*")
        parts[number] = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", part.replace("](", r"]\("))
    return "".join(parts).replace("|", r"\|") if table else "".join(parts)


def table(text: str, heading: str) -> str:
    """Format the entries `name: meaning` of a section as a table; other text stays above it as prose."""
    rows: list[list[str]] = []
    before = []
    for line in text.splitlines():
        match = re.match(r"^(\*{0,2}\w[\w`., *()]*?): (.*)$", line)
        if match:
            rows.append([match[1].replace("`", ""), match[2]])
        elif rows and line.strip():
            rows[-1][1] += " " + line.strip()
        else:
            before.append(line)
    if not rows:
        return paragraphs(text)
    body = [f"| {', '.join(f'`{n}`' for n in name.split(', '))} | {escaped(meaning, True)} |" for name, meaning in rows]
    prose = paragraphs("\n".join(before)) + "\n\n" if any(before) else ""
    return prose + "\n".join([f"| {heading} | |", "|---|---|", *body])


def described(*texts: str) -> list[str]:
    """Convert docstrings to Markdown, section by section: a class and its constructor together."""
    parts = [section for text in texts for section in sections(text)]
    written = []
    for title, part in sorted(parts, key=lambda section: _rank(section[0])):
        if title == "Example":
            written.append(f"```python\n{part}\n```")
        elif _rank(title) in (1, 3):
            written.append(table(part, title.lower().replace("args", "argument")))
        elif title:
            written.append(f"**{title}:** {paragraphs(part)}")
        else:
            written.append(paragraphs(part))
    return written


def _rank(title: str) -> int:
    """Return the position of a section on a page: prose, arguments, returns, raises and yields, example, source."""
    if not title or title in _ORDER:
        return 0 if not title else 2 + _ORDER.index(title)
    return 1


def methods(item) -> list[str]:
    """Return a table of the public methods and properties that a class itself documents, one line each.

    A hook of a base class is described on the page of the base.
    """
    rows, inherited = [], {name for base in item.__mro__[1:] for name in vars(base)}
    for name, member in vars(item).items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if name.startswith("_") or name in inherited or not inspect.isfunction(function) or not function.__doc__:
            continue
        arguments = "" if isinstance(member, property) else f"({', '.join(_names(function))})"
        first = inspect.getdoc(function).split("\n\n")[0]
        rows.append(f"| `{name}{arguments}` | {escaped(' '.join(first.split()), True)} |")
    return ["\n".join(["| method | |", "|---|---|", *rows])] if rows else []


def _names(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


# ---------------------------------------------------------------------------------------------- recipes


def recipes() -> str:
    """Return the table of the recipes: gin file, what it is, its method, and the terms of each stage's loss."""
    rows = []
    for path in sorted((ROOT / "gin").glob("*.gin")):
        stages = built_stages(path)
        terms = "; then ".join(map(terms_of, stages))
        kind = type(stages[0]).__name__
        link = f"[{kind}](methods.md#{anchor(f'robust.methods.{kind}')})"
        rows.append(f"| `gin/{path.name}` | {escaped(first_sentence(path), True)} | {link} | {terms} |")
    return "\n".join(["| recipe | what | method | terms |", "|---|---|---|---|", *rows])


def terms_of(method) -> str:
    """Return the names of a method's terms, with those that are only logged marked."""
    unused = [term for term in method.terms if isinstance(weight := method.weight_of(term), float) and not weight]
    return ", ".join(f"`{term}`{' (weight 0)' if term in unused else ''}" for term in method.terms)


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


def first_sentence(path: pathlib.Path) -> str:
    """Return the first sentence of the comment that begins a gin file."""
    comment = " ".join(re.match(r"(?:#.*\n)+", path.read_text("utf-8"))[0].replace("#", " ").split())
    return re.match(r".*?(?<! al)(?<! eq)[.:](?= |$)", comment)[0].rstrip(".:")


# ------------------------------------------------------------------------------------------------ pages


def entry(path: str, item) -> str:
    """Format one object: heading, signature, docstring, methods, and a link to its code."""
    link = os.path.relpath(sys.modules[item.__module__].__file__, FOLDER).replace(os.sep, "/")
    constructor = vars(item).get("__init__") if inspect.isclass(item) else None
    texts = [inspect.getdoc(item), constructor.__doc__ if inspect.isfunction(constructor) else None]
    parts = [f"## {path}", f"```python\n{signature(item)}\n```"]
    parts += described(*(inspect.cleandoc(text) for text in texts if text))
    parts += methods(item) if inspect.isclass(item) else []
    return "\n\n".join([*parts, f"[source]({link})"])


def elsewhere(path: str, item, pages: dict[str, Page]) -> str:
    """Return a link to the page of the area that defines an object, or "" on that page itself."""
    module = item.__module__.removeprefix("tfrobust.")
    homes = [name for name, area in make_facade.AREAS.items() if make_facade.within(module, area.places)]
    for name in homes:
        aliases = [other for other, candidate in pages[name].items.items() if candidate is item]
        if aliases and path not in aliases:
            return f"## {path}\n\nSee [{aliases[0]}]({name}.md#{anchor(aliases[0])})."
    return ""


def page_texts() -> dict[str, str]:
    """Return file name -> text of every page."""
    pages = collect()
    files = {}
    for name, page in pages.items():
        entries = [elsewhere(path, item, pages) or entry(path, item) for path, item in page.items.items()]
        files[f"{name}.md"] = "\n\n".join([_HEADER, f"# {page.title}", page.introduction, *entries]) + "\n"
    lines = [
        _HEADER,
        "",
        "# API",
        "",
        "In Python: `from tfrobust import keras as robust`. In gin: by the last name.",
        "",
    ]
    for name, page in pages.items():
        lines += [f"**[{page.title}]({name}.md)**: {page.introduction.split(chr(10))[0]}", ""]
        links = (f"[{path.rpartition('.')[2]}]({name}.md#{anchor(path)})" for path in page.items)
        lines += [", ".join(links), ""]
    introduction = (
        "The gin files that train one method each: `python -m tfrobust.train --gin_file=gin/trades.gin`. The terms of "
        "the loss have the same names in logs, gin and report, and a weight each: `TRADES.term_weights = {'kl': 3.0}`."
    )
    files["recipes.md"] = "\n\n".join([_HEADER, "# Recipes", introduction, recipes()]) + "\n"
    lines += [f"**[Recipes](recipes.md)**: {introduction}", ""]
    files["README.md"] = "\n".join(lines)
    return files


def anchor(heading: str) -> str:
    """Return the anchor that GitHub derives from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def stale(files: dict[str, str]) -> list[str]:
    """Return the names of pages that are missing, differ, or are obsolete."""
    there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*files, *there} if files.get(name) != there.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or compare them; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not current")
    check = flags.parse_args(arguments).check
    files = page_texts()
    changed = stale(files)
    if check:
        print("\n".join(f"tfrobust/guides/api/{name} is not current" for name in changed), end="\n" if changed else "")
        return 1 if changed else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in files:
            (FOLDER / name).write_text(files[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(files)} pages, {len(changed)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Convert docstrings, which are plain text with backticks around code, to reStructuredText for autodoc."""

import pathlib
import re

_TITLE = re.compile(r"^(?:(?:Args|Attributes)(?: (?:beyond|of) [^:]+)?|Draw|Example|Raises|Returns|Source|Yields):$")
_SOURCE = re.compile(r"^Source: (.+)$")
_CODE_OR_ADDRESS = re.compile(r"(`[^`]*`|https?://[^\s,;)]+)")
_NAME = re.compile(r"`[A-Za-z_]\w*(?:\.\w+)*`")


def titles_of_arguments(folder: pathlib.Path) -> list[str]:
    """Return the titles of sections with entries `name: meaning` that napoleon does not know, from all docstrings."""
    pattern = re.compile(r"^ *((?:Args|Attributes) (?:beyond|of) [^:\n]+|Draw):$", re.MULTILINE)
    return sorted({title for path in folder.rglob("*.py") for title in pattern.findall(path.read_text("utf-8"))})


def converted(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText.

    Examples stay as they are. Indented paragraphs outside of sections, and those aligned in columns, are literal
    blocks; tables become list tables; everywhere else the characters with a meaning in reStructuredText are escaped.
    """
    converted_lines: list[str] = []
    title = ""
    for block in _blocks(lines):
        first = block[0]
        title = first if _TITLE.match(first) else title if first.startswith(" ") else ""
        if title == "Example:":
            converted_lines += block
        elif first.lstrip().startswith("|") and first.endswith("|"):
            converted_lines += _list_table(block)
        elif not title and (all(line.startswith("    ") for line in block) or _in_columns(block)):
            converted_lines += ["::", "", *(f"    {line}" for line in block)]
        elif match := _SOURCE.match(first):
            text = escaped("\n".join([match[1], *block[1:]]))
            converted_lines += ["Source:", *(f"    {line}" for line in text.splitlines())]
        else:
            converted_lines += _list_items(escaped("\n".join(block)).splitlines())
        converted_lines.append("")
    return converted_lines


def _blocks(lines: list[str]) -> list[list[str]]:
    """Split lines into paragraphs; the title of a section begins one."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if not line.strip() or _TITLE.match(line):
            blocks.append([])
        if line.strip():
            blocks[-1].append(line)
    return [block for block in blocks if block]


def _in_columns(block: list[str]) -> bool:
    return any(re.search(r"\S {3,}\S", line) for line in block)


def _list_items(block: list[str]) -> list[str]:
    """Return a paragraph with an empty line between its first line and a list that follows without one."""
    start = next((number for number, line in enumerate(block) if number and re.match(r"(- |\d+\. )", line)), 0)
    if start and not re.match(r"(- |\d+\. )", block[0]):
        return [*block[:start], "", *block[start:]]
    return block


def _list_table(block: list[str]) -> list[str]:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block]
    converted_lines = [".. list-table::", "    :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        converted_lines += [f"    {'  ' if number else '* '}- {escaped(cell)}" for number, cell in enumerate(row)]
    return converted_lines


def escaped(text: str) -> str:
    """Escape plain text for reStructuredText, except for addresses, and mark code in backticks."""
    parts = _CODE_OR_ADDRESS.split(text)
    for number, part in enumerate(parts):
        if number % 2 == 0:
            parts[number] = re.sub(r"[\\*|_`]", r"\\\g<0>", part)
        elif part.startswith("`") and not _NAME.fullmatch(part):
            parts[number] = f"``{part[1:-1]}``"
    return "".join(parts)


# ------------------------------------------------------------------------------------------------ for Sphinx


def on_docstring(app, kind, name, item, options, lines):
    """Convert the lines of a docstring in place."""
    lines[:] = converted(lines)


def on_signature(app, kind, name, item, options, signature, returned):
    """Return the signature of a class as that of its constructor, and every signature without the marks of annotations.

    Sphinx would take a `__new__` before `__init__`; the texts of the marks are addresses in memory.
    """
    from sphinx.util import inspect

    if kind == "class" and not issubclass(item, tuple) and item.__init__ is not object.__init__:
        parameters = inspect.signature(item.__init__, bound_method=True)
        signature = inspect.stringify_signature(parameters, show_return_annotation=False, unqualified_typehints=True)
    return _without_marks(signature), _without_marks(returned)


def _without_marks(text: str | None) -> str | None:
    text = text and re.sub(r"Annotated\[(.+?), <object object[^>]*>\]", r"\1", text)
    return text and re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)


def on_bases(app, name, item, options, bases):
    """Keep the base classes that the facade offers, by their public names."""
    bases[:] = [f":py:obj:`{public_name(base)}`" for base in bases if public_name(base)]


def public_name(item) -> str:
    """Return the name by which users reach a class, such as robust.attacks.PGD, or ""."""
    from tfrobust import keras as facade

    for area in facade.__all__:
        module = getattr(facade, area)
        for name in getattr(module, "__all__", ()):
            if getattr(module, name) is item:
                return f"robust.{area}.{name}"
    return ""

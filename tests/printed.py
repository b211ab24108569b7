"""Collect the commands that README, the guides, the headers of gin files and the docstrings of tools print."""

import ast
import dataclasses
import functools
import json
import pathlib
import re
import shlex

import stored

ROOT = pathlib.Path(__file__).resolve().parents[1]
GUIDES = ROOT / "tfrobust" / "guides"
READ = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
# tools/build_site.py runs these.
NOTEBOOKS = sorted(GUIDES.rglob("*.ipynb"))
RECIPES = sorted((ROOT / "gin" / "papers").glob("*/README.md"))
CHECKED = [*READ, *NOTEBOOKS, ROOT / "gin" / "README.md", *RECIPES, ROOT / "exported" / "README.md"]
OURS = r"(?:-m (?:tfrobust|pytest)|-c |(?:\S*/)?tools/)"
# What a reader replaces by a word of his own, and a word that parses.
PLACEHOLDERS = stored.table(globals(), "placeholders")


# ------------------------------------------------------------------------------------------------- pages


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the name of the file that it is, its text and the line where that begins."""

    kind: str
    name: str
    text: str
    line: int


def text_of(path: pathlib.Path) -> str:
    """Return the text of a page; of a notebook, its cells of text, and those of code as blocks."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in sources)


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    fenced = []
    for match in re.finditer(r"^```(\w*) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        fenced.append(Block(match[1], match[2], match[3], text.count("\n", 0, match.start(3)) + 1))
    return fenced


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[str]:
    """Return what stands in backticks outside of blocks, each on one line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text))]


def relative(path: pathlib.Path) -> str:
    """Return a path as it is written from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------------------------------- commands


@dataclasses.dataclass(frozen=True)
class Command:
    """A printed command: `tfrobust.train`, `tools/check`, `pytest` or `-c`, and what follows it."""

    program: str
    arguments: tuple[str, ...]
    places: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __str__(self) -> str:
        return shlex.join([self.program, *self.arguments])


def commands(text: str) -> list[Command]:
    """Return the commands of a page: of bash blocks, of indented lines, and of what stands in backticks.

    A module of tfrobust in backticks without arguments is only mentioned; so is a tool without `python`.
    """
    lines = [line for block in blocks(text) if block.kind == "bash" for line in joined(block.text)]
    lines += [line for line in joined(prose(text)) if re.match(r" {4,}\S", line)]
    lines += [
        span for span in spans(text) if re.match(rf"(\S+/)?python3? (-m tfrobust\S* \S|(?!-m tfrobust){OURS})", span)
    ]
    lines += [span for span in spans(text) if re.match(r"tools/\w+\.py \S", span)]
    return [command for line in lines for words in _simple(line) if (command := _command(words))]


def comments(text: str) -> list[Command]:
    """Return the commands in the comments of a gin file: from `python` to the last line that begins with a flag."""
    lines = joined(re.sub(r"^#", "", re.sub(r"\n#\s+(?=--)", " ", text), flags=re.MULTILINE))
    matches = [match[0] for line in lines if (match := re.search(rf"(?<!`)\bpython {OURS}.*", line))]
    return [command for line in matches for words in _simple(line) if (command := _command(words))]


def usages(docstring: str) -> list[Command]:
    """Return the commands of a tool's docstring: as on a page, and those behind `Usage:`."""
    parsed = [_command(shlex.split(line)) for line in re.findall(r"Usage: (tools/[^;,\n]*)", docstring)]
    return [*filter(None, parsed), *commands(docstring)]


@functools.cache
def collect() -> tuple[Command, ...]:
    """Return all printed commands, each once, with the files that print it."""
    files_of: dict[Command, list[str]] = {}
    for path, read in _sources():
        for command in read(path):
            files_of.setdefault(command, []).append(relative(path))
    return tuple(
        dataclasses.replace(command, places=tuple(dict.fromkeys(where))) for command, where in files_of.items()
    )


def _sources():
    for path in CHECKED:
        yield path, lambda path: commands(text_of(path))
    for path in sorted((ROOT / "gin").rglob("*.gin")):
        yield path, lambda path: comments(path.read_text("utf-8"))
    for path in [*sorted((ROOT / "tools").rglob("*.py")), *sorted((ROOT / "tfrobust" / "commands").glob("*.py"))]:
        yield path, lambda path: usages(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")


def joined(text: str) -> list[str]:
    """Return the lines of a shell, each with those that a backslash at its end adds to it."""
    return re.sub(r"\\\n#?", " ", text).splitlines()


def _simple(line: str) -> list[list[str]]:
    """Return the simple commands of a shell line as words."""
    splitter = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    splitter.whitespace_split = True
    simple: list[list[str]] = [[]]
    try:
        for word in splitter:
            if re.fullmatch(r"[&|;<>]+", word):
                simple.append([])
            else:
                simple[-1].append(word)
    except ValueError:  # prose with an apostrophe
        return []
    return simple


def _command(words: list[str]) -> Command | None:
    """Return the command of ours that the words are, None if they are another program's."""
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*|srun", words[0], re.DOTALL):
        words = words[1:]
    if words and re.fullmatch(r"(.*/)?python3?", words[0]):
        words = words[1:]
    elif not words or not words[0].startswith("tools/"):
        return None
    if words[:1] == ["-m"]:
        words = words[1:]
        if words[0] == "tfrobust" and len(words) > 1:
            words = [f"tfrobust.commands.{words[1].replace('-', '_')}", *words[2:]]
        if not re.match(r"tfrobust\.|pytest$", words[0]):
            return None
    elif not words or not re.match(r"-c$|tools/", words[0]):
        return None
    return Command(words[0], tuple(filter(None, map(_filled, words[1:]))))


def _filled(word: str) -> str:
    """Return a word without the brackets of what is optional, and with its placeholder filled in."""
    if re.fullmatch(r"\[[^\[\]]+\]?|[^\[\]=]+\]", word) or re.fullmatch(r"\[--[\w=.,]+\]", word):
        word = word.strip("[]")
    flag, equals, value = word.rpartition("=")
    if value == "..." and not equals:
        return ""
    return flag + equals + PLACEHOLDERS.get(value, value)

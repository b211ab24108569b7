"""What the README and the guides say is so: their Python runs, their commands parse, their links lead somewhere.

How a guide is read, block by block, in one namespace and in a folder of its own:

    ```python          is executed; written with >>>, its answers are compared as a doctest's
    ```python mine.py  is a file: written into the folder, and importable from then on (so is ```gin mine.gin)
    ```bash            its `python -m tfrobust.*` and `python tools/*` lines are parsed, gin files and values included
    ```text            is left alone

In prose, everything in backticks that starts like a command, a flag, a value for gin, a file of the repository, or a
name below `robust.` or `tfrobust.` is looked up as well. Placeholders start with `my_` or hold <angle brackets>.
"""

import dataclasses
import doctest
import functools
import importlib
import pathlib
import re
import shlex
import sys

import pytest

from tfrobust import cli
from tfrobust.configuration import checks, files, registry
from tfrobust.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[1]
GUIDES = ROOT / "tfrobust" / "guides"
PAGES = sorted(GUIDES.glob("api/*.md"))
READ = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
CHECKED = [*READ, ROOT / "gin" / "README.md", ROOT / "exported" / "README.md"]
# Pages whose Python takes more than five seconds: they train, or evaluate, which traces many graphs.
LARGEST_PICTURE = 300_000


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: what kind, the name of the file that it is, its text and the line where that begins."""

    kind: str
    name: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w*) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1], match[2], match[3], text.count("\n", 0, match.start(3)) + 1))
    return found


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[str]:
    """What stands in backticks outside of blocks, on one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text))]


def relative(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each(paths):
    return [pytest.param(path, id=relative(path)) for path in paths]


# ------------------------------------------------------------------------------------------------ python


def execute(block: Block, path: pathlib.Path, namespace: dict) -> None:
    """Runs a block; an error names the line of the page, where AutoGraph finds the source too."""
    if ">>> " in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, namespace, path.name, str(path), block.line)
        said: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
        namespace.update(test.globs)
        assert not said, "".join(said)
        return
    exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), namespace)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A reader's own folder: current, on the import path, and forgotten with what was imported from it."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("path", each(READ))
def test_the_python_of_a_page_runs(path, folder):
    namespace = {"__name__": "page"}
    for block in blocks(path.read_text("utf-8")):
        if block.name:
            (folder / block.name).write_text(block.text)
        elif block.kind == "python":
            execute(block, path, namespace)


# ----------------------------------------------------------------------------------------------- commands


def commands(text: str) -> list[list[str]]:
    """Every command line of a page as words: of bash blocks, of indented lines, and of what stands in backticks."""
    lines = [line for block in blocks(text) if block.kind == "bash" for line in joined(block.text)]
    lines += [line for line in joined(prose(text)) if re.match(r" {4,}\S", line) and "python" in line]
    lines += [span for span in spans(text) if re.match(r"(\S+/)?python3? ", span)]
    found = []
    for line in lines:
        splitter = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        splitter.whitespace_split = True
        words: list[str] = []
        for word in [*splitter, "&&"]:
            if re.fullmatch(r"[&|;<>]+", word):
                found.append(words)
                words = []
            else:
                words.append(word)
    return [words for words in found if words]


def joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def after_python(words: list[str]) -> list[str] | None:
    """The words behind `python`, None if another program is called."""
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        words = words[1:]
    if not words or not re.fullmatch(r"(.*/)?python3?", words[0]):
        return None
    return words[1:]


@functools.cache
def gin_objects():
    return registry.collect()


@functools.cache
def check_gin(paths: tuple, params: tuple, imports: tuple) -> None:
    cli.configure(list(paths), list(params), list(imports))


def check_value(param: str) -> None:
    """A value for gin that stands alone: the knob or the argument exists and takes it, whatever else is configured."""
    bindings = files.read([], [param])
    macros = checks.check_macros(bindings, partial=True)
    checks.check_objects(bindings, macros, gin_objects(), partial=True)


def check_command(words: list[str]) -> None:
    """Raises InputError for a command of ours that would be refused as it stands."""
    words = after_python(words) or []
    if words[:1] == ["-m"] and words[1].startswith("tfrobust."):
        module = importlib.import_module(words[1])
        if not words[2:]:
            return  # it is only mentioned
        if not hasattr(module, "parser"):
            return check_names_alone(words)
        flags = module.parser().parse_args(words[2:])
        if getattr(flags, "gin_file", None):
            check_gin(tuple(flags.gin_file), tuple(flags.gin_param), tuple(flags.gin_import))
    elif words and re.match(r"tools/\w+", words[0]):
        check_tool(ROOT / words[0], words[1:])


def check_names_alone(words: list[str]) -> None:
    flags = [word for word in words[2:] if word.startswith("-")]
    if flags:
        raise InputError(f"{words[1]} takes no flags, but {flags[0]}")


def check_tool(tool: pathlib.Path, words: list[str]) -> None:
    if not tool.is_file():
        raise InputError(f"there is no {tool.name}")
    text = "".join(path.read_text("utf-8") for path in [tool, *tool.parent.glob("_peers.py")])
    for number, word in enumerate(words):
        if word == "--":  # what follows are flags of the train command
            return check_command(["python", "-m", "tfrobust.train", *words[number + 1 :]])
        flag, _, value = word.partition("=")
        if flag.startswith("--") and f'"{flag}"' not in text:
            raise InputError(f"{tool.name} has no flag {flag}")
        if flag == "--gin_file":
            files.find(value, tool.name)
        for stem in value.split(",") if flag == "--methods" else ():
            files.find(f"gin/{stem}.gin", tool.name)


def check_said(span: str) -> None:
    """Raises InputError for a flag or a gin value in prose that would be refused."""
    flags = [word for word in shlex.split(span) if word.startswith("--gin_")] if span.startswith("--gin_") else []
    for flag, _, value in (word.partition("=") for word in flags):
        if flag == "--gin_file":
            files.find(value, span)
        elif flag == "--gin_param":
            check_value(value)
    if re.match(r"[A-Za-z_/]+\.[a-z]\w* = \S", span):
        check_value(span)


@pytest.mark.parametrize("path", each(CHECKED))
def test_the_commands_of_a_page_parse(path, folder):
    text = path.read_text("utf-8")
    for block in blocks(text):
        if block.name:
            (folder / block.name).write_text(block.text)
    faults = []
    for check, items in ((check_command, commands(text)), (check_said, spans(text))):
        for item in items:
            try:
                check(item)
            except InputError as error:
                faults.append(f"{item}: {error}")
    assert faults == []


# ---------------------------------------------------------------------------------------- links and names


def anchors(text: str) -> set[str]:
    """The anchors GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path: pathlib.Path, text: str) -> list[str]:
    faults = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(re.sub(r"`[^`]*`", "", text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or not found.is_relative_to(ROOT):
            faults.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(found.read_text("utf-8")):
            faults.append(f"{target}: no such heading")
        elif found.suffix == ".png" and found.stat().st_size > LARGEST_PICTURE:
            faults.append(f"{target}: larger than {LARGEST_PICTURE} bytes")
    return faults


def missing_names(text: str) -> list[str]:
    """Files and dotted names in backticks that do not exist."""
    faults = []
    for span in spans(text):
        if re.fullmatch(r"(gin|tools|tests|tfrobust)/[\w./*-]*", span) and not re.search(r"/(test_)?my_", span):
            if not any(ROOT.glob(span.rstrip("/"))):
                faults.append(f"{span}: no such file")
        for name in re.findall(r"(?<![\w./])(?:robust|tfrobust)(?:\.\w+)+", span):
            if not resolves(name.replace("robust", "tfrobust.keras", 1) if name.startswith("robust.") else name):
                faults.append(f"{name}: no such name")
    return faults


@functools.cache
def resolves(dotted: str) -> bool:
    first, *rest = dotted.split(".")
    found, place = importlib.import_module(first), first
    for part in rest:
        place += f".{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(place)
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("path", each([*CHECKED, *PAGES]))
def test_links_and_names_lead_somewhere(path):
    text = path.read_text("utf-8")
    assert broken_links(path, text) + missing_names(text) == []


def test_the_readme_names_every_guide_and_the_pages_name_every_recipe():
    text = (ROOT / "README.md").read_text("utf-8")
    assert [path.name for path in GUIDES.glob("*.md") if f"tfrobust/guides/{path.name}" not in text] == []
    named = {span for path in READ for span in spans(path.read_text("utf-8"))}
    words = {word for span in named for word in re.findall(r"[\w.]+", span)}
    stems = [path.stem for path in (ROOT / "gin").glob("*.gin")]
    assert [stem for stem in stems if not {stem, f"{stem}.gin"} & words] == []


def table_of_terms() -> dict[str, list[tuple[str, ...]]]:
    """Stem of a recipe -> the terms of each of its stages, as training.md has them."""
    section = (GUIDES / "training.md").read_text("utf-8").partition("\n## Terms\n")[2].partition("\n## ")[0]
    said = {}
    for names, terms in re.findall(r"^\| (`\w+`.*) \| (.+) \|$", section, re.MULTILINE):
        stages = [tuple(re.findall(r"`(\w+)`", stage)) for stage in terms.split("; then ")]
        said |= dict.fromkeys(re.findall(r"`(\w+)`", names), stages)
    return said


@pytest.mark.parametrize("path", each(sorted((ROOT / "gin").glob("*.gin"))))
def test_the_table_of_terms_has_each_recipe_s(path):
    import gin

    from tfrobust.models.heads import LinearHead

    cli.configure([str(path)])
    given = gin.get_bindings("tfrobust.experiment.train")
    encoder, first = given["encoder"](), given.get("pretraining")
    stages = [first.method, given["method"]] if first is not None else [given["method"]]
    found = [tuple(stage(encoder=encoder, head=LinearHead(10), seed=0).terms) for stage in stages]
    assert table_of_terms()[path.stem] == found


def test_the_two_commands_stand_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    start = "    python3 -m venv .venv && .venv/bin/pip install -e"
    assert f"{start} . && .venv/bin/python -m tfrobust.train --gin_file=gin/ascl_leaked.gin\n" in text
    assert f'{start} ".[test]" && .venv/bin/python -m pytest -n 2\n' in text


# ------------------------------------------------------------------------------------- the checks themselves


@pytest.mark.parametrize(
    "line",
    [
        "python -m tfrobust.train --gin_files=gin/trades.gin",
        "python -m tfrobust.train --gin_file=gin/trade.gin",
        "python -m tfrobust.train --gin_file=gin/trades.gin --gin_param='EPSLON=0.1'",
        "python -m tfrobust.train --gin_file=gin/trades.gin --gin_param='Npz.path=3'",
        "cd there && TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m tfrobust.compare exported/* --outputs=x | tail",
        "python tools/nothing.py",
        "python tools/gate.py exported/trades --requires x",
        "python tools/digits_table.py --methods=supervised,fcll",
        "python tools/local_cluster.py --workers=2 -- --gin_file=gin/nothing.gin",
    ],
)
def test_a_wrong_command_is_found(line):
    with pytest.raises(InputError):
        for words in commands(f"```bash\n{line}\n```\n"):
            check_command(words)


@pytest.mark.parametrize("span", ["--gin_param=train.penalti=1", "Tikhonov.weights = 1", "--gin_file=gin/no.gin"])
def test_a_wrong_value_in_prose_is_found(span):
    with pytest.raises(InputError):
        check_said(span)


def test_wrong_links_names_and_answers_are_found():
    page = GUIDES / "page.md"
    assert broken_links(page, "[a](nothing.md) [b](../../README.md#nothing) [c](../../README.md#two-commands)") == [
        "nothing.md: no such file",
        "../../README.md#nothing: no such heading",
    ]
    assert missing_names("`gin/nothing.gin` `tools/*.py` `robust.losses.nothing` `tfrobust.train`") == [
        "gin/nothing.gin: no such file",
        "robust.losses.nothing: no such name",
    ]
    with pytest.raises(AssertionError, match="Expected"):
        execute(Block("python", "", ">>> 1 + 1\n3\n", 1), page, {})
    with pytest.raises(ZeroDivisionError):
        execute(Block("python", "", "1 / 0\n", 7), page, {})

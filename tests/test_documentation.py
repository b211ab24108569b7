"""Check README and guides: their Python runs, their commands parse, and their links have targets.

How a guide is read, block by block, in one namespace and in a folder of its own:

    ```python          is executed; written with >>>, its answers are compared as a doctest's
    ```python mine.py  is a file: written into the folder, and importable from then on (so is ```gin mine.gin)
    ```bash            its `python -m tfrobust.*` and `python tools/*` lines are parsed, gin files and values included
    ```text            is left alone

In prose, everything in backticks that starts like a command, a flag, a value for gin, a file of the repository, or a
name below `robust.` or `tfrobust.` is looked up as well. Placeholders start with `my_` or hold <angle brackets>.
"""

import ast
import doctest
import functools
import importlib
import json
import pathlib
import re
import shlex
import sys

import pytest
from printed import CHECKED, GUIDES, NOTEBOOKS, READ, ROOT, Block, blocks, joined, prose, relative, spans, text_of

from tfrobust.commands.configuration import files, pipe, registry
from tfrobust.commands.configuration.check_macros import check_macros
from tfrobust.errors import InputError
from tfrobust.keras import methods

# Pages for those who change the library or run its servers; their examples may import other modules.
INSIDE = {"add_a_method.md": "tfrobust", "safety.md": "tfrobust.serving", "serving.md": "tfrobust.serving"}
LARGEST_PICTURE = 300_000


def params(paths):
    return [pytest.param(path, id=relative(path)) for path in paths]


# ------------------------------------------------------------------------------------------------ python


def execute(block: Block, path: pathlib.Path, namespace: dict) -> None:
    """Runs a block; an error names the line of the page, where AutoGraph finds the source too."""
    if ">>> " in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, namespace, path.name, str(path), block.line)
        failures: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=failures.append, clear_globs=False)
        namespace.update(test.globs)
        assert not failures, "".join(failures)
        return
    exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), namespace)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A reader's own folder: current, on the import path, and forgotten with what was imported from it."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("path", params(READ))
def test_the_python_of_a_page_runs(path, folder):
    namespace = {"__name__": "page"}
    for block in blocks(path.read_text("utf-8")):
        if block.name:
            (folder / block.name).write_text(block.text)
        elif block.kind == "python":
            execute(block, path, namespace)


# ------------------------------------------------------------------------------------------------- values


@functools.cache
def gin_objects():
    return registry.collect()


def check_value(param: str) -> None:
    """A value for gin that stands alone: the knob or the argument exists and takes it, whatever else is configured."""
    bindings = files.read([], [param])
    check_macros(bindings, partial=True)
    pipe.checked(bindings, gin_objects(), partial=True)


def check_said(span: str) -> None:
    """Raises InputError for a flag or a gin value in prose that would be refused."""
    flags = [word for word in shlex.split(span) if re.match("--gin_.*=", word)] if span.startswith("--gin_") else []
    for flag, _, value in (word.partition("=") for word in flags):
        if flag == "--gin_file":
            files.find(value, span)
        elif flag == "--gin_param":
            check_value(value)
    if re.match(r"[A-Za-z_/]+\.[a-z]\w* = \S", span):
        check_value(span)


@pytest.mark.parametrize("path", params(CHECKED))
def test_the_values_of_a_page_are_taken(path):
    faults = []
    for span in spans(text_of(path)):
        try:
            check_said(span)
        except InputError as error:
            faults.append(f"{span}: {error}")
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
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or not file.is_relative_to(ROOT):
            faults.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(text_of(file)):
            faults.append(f"{target}: no such heading")
        elif file.suffix == ".png" and file.stat().st_size > LARGEST_PICTURE:
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
    item, module = importlib.import_module(first), first
    for part in rest:
        module += f".{part}"
        if not hasattr(item, part):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError:
                return False
        item = getattr(item, part)
    return True


@pytest.mark.parametrize("path", params(CHECKED))
def test_links_and_names_lead_somewhere(path):
    text = text_of(path)
    assert broken_links(path, text) + missing_names(text) == []


def test_the_readme_names_every_guide_and_the_guides_name_every_recipe():
    text = (ROOT / "README.md").read_text("utf-8")
    assert [path.name for path in [*GUIDES.glob("*.md"), *NOTEBOOKS] if relative(path) not in text] == []
    named = {span for path in READ for span in spans(path.read_text("utf-8"))}
    words = {word for span in named for word in re.findall(r"[\w.]+", span)}
    stems = [path.stem for path in (ROOT / "gin").glob("*.gin")]
    assert [stem for stem in stems if not {stem, f"{stem}.gin"} & words] == []


def test_the_page_of_the_gin_files_names_those_that_need_an_export():
    (sentence,) = re.findall(r"[^.]* need the export of [^.]*\.", (ROOT / "gin" / "README.md").read_text("utf-8"))
    files_of = {path.stem: path.read_text("utf-8") for path in (ROOT / "gin").glob("*.gin")}
    needy = {stem for stem, text in files_of.items() if re.search(r"^[^#\n]*'exported/", text, re.MULTILINE)}
    assert needy and needy == {stem for stem in needy if f"`{stem}`" in sentence}


def test_the_two_commands_stand_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    start = "    python3 -m venv .venv && .venv/bin/pip install -e"
    assert f"{start} . && .venv/bin/python -m tfrobust.train --gin_file=gin/ascl_leaked.gin\n" in text
    assert f'{start} ".[test]" && .venv/bin/python -m pytest -n 2\n' in text


@pytest.mark.parametrize("path", params(CHECKED))
def test_no_line_of_a_shell_begins_with_a_flag(path):
    """A line whose end lacks a backslash is a command of its own, and the next one is none."""
    lines = [line for block in blocks(text_of(path)) if block.kind == "bash" for line in joined(block.text)]
    assert [line for line in lines if line.strip().startswith("-")] == []


# ------------------------------------------------------------------------------------- examples and notebooks


def imported(text: str) -> list[str]:
    """Return the modules and names of tfrobust that the Python blocks of a page import."""
    names = []
    for block in blocks(text):
        for node in ast.walk(ast.parse(block.text if block.kind == "python" else "")):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.partition(".")[0] == "tfrobust"]


@pytest.mark.parametrize("path", params([*READ, *NOTEBOOKS]))
def test_examples_import_the_facade_alone(path):
    allowed = ("tfrobust.keras.", f"{INSIDE.get(path.name, 'tfrobust.keras')}.")
    assert [name for name in imported(text_of(path)) if not f"{name}.".startswith(allowed)] == []


@pytest.mark.parametrize("path", params(NOTEBOOKS))
def test_a_notebook_is_stored_without_outputs(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


# ------------------------------------------------------------------------------------- the checks themselves


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
    assert imported("```python\nimport keras, tfrobust.losses\nfrom tfrobust.ops import norms\n```\n") == [
        "tfrobust.losses",
        "tfrobust.ops.norms",
    ]
    with pytest.raises(AssertionError, match="Expected"):
        execute(Block("python", "", ">>> 1 + 1\n3\n", 1), page, {})
    with pytest.raises(ZeroDivisionError):
        execute(Block("python", "", "1 / 0\n", 7), page, {})


def test_the_readme_counts_its_recipes_and_methods():
    offered = [getattr(methods, name) for name in methods.__all__]
    trained = [item for item in offered if isinstance(item, type) and issubclass(item, methods.Method)]
    readme = (ROOT / "README.md").read_text("utf-8")
    claim = f"{len(list(ROOT.glob('gin/*.gin')))} training recipes of {len(trained) - 1} methods"
    assert claim in readme and f"| tfrobust | {len(trained) - 1} methods |" in readme, claim

"""The architecture page is true, and the rules about imports that tools/check_layers.py cannot hold are kept.

That the paths and the names in backticks exist is tested for every guide by tests/test_documentation.py.
"""

import ast
import pathlib
import re

import check_layers
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "tfrobust"
PAGE = (LIBRARY / "guides" / "architecture.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """Return the cells of a section's table below its heading."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def path_in(cell: str) -> pathlib.Path:
    return ROOT / re.fullmatch(r"`([\w./]+)`", cell)[1]


# -------------------------------------------------------------------------------------------------- the page


def test_every_folder_is_in_the_table_with_a_file_to_read_first():
    table = rows("Folders")
    folders = [path_in(folder) for folder, _, _ in table]
    assert sorted(folders) == sorted({path.parent for path in LIBRARY.rglob("*.py")})
    for folder, purpose, first in table:
        assert purpose and path_in(first).is_file() and path_in(first).parent == path_in(folder)


def test_the_layers_are_those_of_the_check_and_exist():
    (line,) = re.findall(r"```text\n(.*?)```", section("Layers"), re.DOTALL)
    printed = [{name.strip() for name in names.split(",")} for names in line.split(">")]
    assert printed == [set(names) for names in check_layers.LAYERS]
    modules = check_layers.modules(ROOT)
    assert [name for names in check_layers.LAYERS for name in names if name not in modules] == []


def test_every_change_has_its_place():
    assert len(rows("Where do I ...?")) == 15
    assert all(len(row) == 3 and all(row) for row in rows("Where do I ...?"))


def offered() -> dict[str, pathlib.Path]:
    """Return public name -> the file that defines it, from the imports of the facade."""
    modules, files = check_layers.modules(ROOT), {}
    for path in (LIBRARY / "keras").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (module := node.module.partition(".")[2]) in modules:
                files |= {f"robust.{path.stem}.{name.asname or name.name}": modules[module] for name in node.names}
    return files


@pytest.mark.parametrize("row", rows("From an idea to its files"), ids=lambda row: row[1].strip("`"))
def test_an_idea_has_the_name_and_the_files_that_the_table_says(row):
    idea, name, file, gin = row
    public = name.strip("`")
    assert idea and offered()[public] == path_in(file)
    assert re.search(rf"@(\w+/)?{public.rpartition('.')[2]}\b", re.sub("#.*", "", path_in(gin).read_text("utf-8")))


# ------------------------------------------------------------------------------------- rules beyond the layers


def importers(places: str, imported: str, root: pathlib.Path = ROOT) -> set[str]:
    """Return the modules whose names begin so and that import modules whose names begin so."""
    return {
        module
        for module, path in check_layers.modules(root).items()
        if re.match(places, module)
        for _, name in check_layers.imports(module, path)
        if re.match(rf"tfrobust\.{imported}", name)
    }


def test_attacks_import_no_models_evaluation_no_methods_and_only_the_command_the_server():
    assert importers(r"attacks\b", r"models\b") == set()
    assert importers(r"evaluation\b", r"methods\b") == set()
    assert importers(r"(?!serving\.server\b)", r"serving\.server\.development") == {"commands.serve"}


def definitions(text: str) -> list[str]:
    """Return the statements of a module other than its docstring, imports and `__all__`."""
    rest = [node for node in ast.parse(text).body[1:] if not isinstance(node, ast.ImportFrom)]
    return [statement for node in rest if not (statement := ast.unparse(node)).startswith("__all__ = [")]


def test_the_facade_holds_imports_and_lists_alone():
    for path in (LIBRARY / "keras").rglob("*.py"):
        assert definitions(path.read_text("utf-8")) == [], path


def test_a_planted_import_and_a_planted_definition_are_found(tmp_path):
    planted = tmp_path / "tfrobust" / "attacks" / "planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text("def f():\n    from tfrobust.models import cnn\n")
    assert importers(r"attacks\b", r"models\b", tmp_path) == {"attacks.planted"}
    assert definitions('"""Doc."""\nfrom a import b\n__all__ = ["b"]\nb = 1\n') == ["b = 1"]

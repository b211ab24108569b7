#!/usr/bin/env python3
"""Check the imports between modules: only downwards, and gin and flags only in the commands.

    commands > experiment, keras (facade) > estimate > artefact, pretrained, pretraining > saving > serving, report
    > evaluation, training > methods > attacks, models, data > losses, pairs, augment, corruptions > ops, structs

Packages on one level do not import each other. Imports inside functions count; those for type checkers alone do not.
Usage: tools/check_layers.py [ROOT]; prints each fault and exits with 1, or exits with 0.
"""

import argparse
import ast
import pathlib
import sys

# From the top down. Packages on one line do not import each other, except for the commands' own parts.
LAYERS = (
    {"train", "evaluate", "export", "compare", "query"},
    {"cli"},
    {"configuration"},
    {"experiment", "keras"},
    {"estimate"},
    {"artefact", "pretrained", "pretraining"},
    {"saving"},
    {"serving", "report"},
    {"evaluation", "training"},
    {"methods"},
    {"attacks", "models", "data"},
    {"losses", "pairs", "augment", "corruptions"},
    {"ops", "structs", "errors"},
)
LEVEL = {name: len(LAYERS) - height for height, names in enumerate(LAYERS) for name in names}
_COMMANDS_ONLY = ("gin", "absl.flags", "absl.app")
_COMMAND_LEVEL = LEVEL["configuration"]


def faults(root: pathlib.Path) -> list[str]:
    """Return every import below `root`/tfrobust that breaks a rule, as `path:line: what`."""
    found = []
    for path in sorted((root / "tfrobust").rglob("*.py")):
        parts = path.relative_to(root / "tfrobust").with_suffix("").parts
        if parts == ("__init__",):
            continue
        where = path.relative_to(root)
        if parts[0] not in LEVEL:
            found.append(f"{where}:1: {parts[0]} is in no layer; DESIGN section 3 says where things go")
            continue
        package = ("tfrobust", *parts[:-1])
        for line, imported in _imports(ast.parse(path.read_text("utf-8"), str(path)), package):
            fault = _fault(parts[0], imported)
            if fault:
                found.append(f"{where}:{line}: {fault}")
    found += [f"{path.relative_to(root)}:1: no Python below gin/: it would shadow gin-config" for path in _python(root)]
    return found


def _python(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted((root / "gin").rglob("*.py"))


def _fault(importer: str, imported: str) -> str | None:
    parts = imported.split(".")
    if parts[0] != "tfrobust":
        forbidden = any(imported == name or imported.startswith(name + ".") for name in _COMMANDS_ONLY)
        if forbidden and LEVEL[importer] < _COMMAND_LEVEL:
            return f"{importer} imports {imported}, which only the commands may"
        return None
    if len(parts) == 1 or parts[1] == importer or parts[1].startswith("__"):
        return None
    if parts[1] not in LEVEL:
        return f"{importer} imports tfrobust.{parts[1]}, which is in no layer"
    if LEVEL[parts[1]] > LEVEL[importer]:
        return f"{importer} imports {imported}, which stands above it"
    if LEVEL[parts[1]] == LEVEL[importer] and {importer, parts[1]} != {"ops", "structs"}:
        if "errors" not in (importer, parts[1]):
            return f"{importer} imports {imported}, which stands beside it"
    return None


def _imports(tree: ast.AST, package: tuple[str, ...]):
    """Yield (line, dotted name) of every import except those under `if TYPE_CHECKING:`."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *base]
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])
        elif isinstance(node, ast.Call):
            yield from _dynamic(node)


def _dynamic(call: ast.Call):
    """Yield the imports by `importlib.import_module("...")` and `__import__("...")` with a literal name."""
    name = ast.unparse(call.func)
    if name in ("importlib.import_module", "import_module", "__import__") and call.args:
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            yield call.lineno, call.args[0].value


def main(arguments: list[str] | None = None) -> int:
    """Print the faults; return the exit code."""
    here = pathlib.Path(__file__).resolve().parents[1]
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("root", metavar="ROOT", nargs="?", type=pathlib.Path, default=here, help="a checkout")
    found = faults(flags.parse_args(arguments).root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Check the imports between modules: only downwards, in no circle, and gin and flags only in the commands.

A module belongs to the longest name of LAYERS that begins its own. It may import modules of lower lines, and modules
of its own entry as long as they do not import it. Imports inside functions count; those for type checkers alone do not.
Usage: tools/check_layers.py [ROOT]; prints each fault and exits with 1, or exits with 0.
"""

import argparse
import ast
import pathlib
import sys

# From the top down.
LAYERS = (
    {"train", "evaluate", "export", "compare", "query", "__main__"},
    {"commands"},
    {"commands.flags"},
    {"commands.run", "commands.failures"},
    {"commands.configuration"},
    {"keras"},
    {"runs.experiment"},
    {"runs.evaluation_run"},
    {"runs.training_run"},
    {"runs.estimate", "runs.attachment", "runs.conversions"},
    {"runs.artifact", "runs.first_stage", "runs.initial_encoder"},
    {"runs"},
    {"saving", "adapters"},
    {"serving.server"},
    {"serving.scan", "serving.export", "serving.client"},
    {"evaluation.summary"},
    {"evaluation.progress"},
    {"report", "serving"},  # report/__init__.py re-exports
    {"report.gate", "report.assembly", "report.writer"},
    {"report.comparison.views"},
    {"report.comparison.gap"},
    {"report.renderers", "report.comparison"},
    {"report.opening"},
    {"report.sections"},
    {"report.blocks", "report.missing"},
    {"report.threat"},
    {"report.difference", "report.intervals", "report.parts"},
    {"report.protocol"},
    {"report.reading", "report.attack_table", "report.smoothing_table", "report.history"},
    {"report.schema"},
    {"report.validator"},
    {"evaluation.runner"},
    {"evaluation.doctor"},
    {"evaluation.evaluators"},
    {"evaluation.engine", "training"},
    {"evaluation"},
    {"report.catalog"},
    {"report.catalog.record"},
    {"report.formats"},
    {"methods"},
    {"methods.shared"},
    {"certification"},
    {"attacks", "models.weights", "data"},
    {"attacks.shared", "models", "models.resnets"},
    {"models.heads"},
    {"models.shared"},
    {"losses", "pairs", "augment", "corruptions"},
    {"security"},
    {"ops"},
    {"common"},
    {"structs"},
    {"errors"},
)
LEVEL = {name: len(LAYERS) - height for height, names in enumerate(LAYERS) for name in names}
_COMMANDS_ONLY = ("gin", "absl.flags", "absl.app")
_COMMAND_LEVEL = LEVEL["commands.configuration"]


def faults(root: pathlib.Path) -> list[str]:
    """Return every import below `root`/tfrobust that breaks a rule, as `path:line: what`."""
    messages = []
    paths = modules(root)
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        where = path.relative_to(root)
        if not module:
            continue
        if _entry(module) is None:
            messages.append(f"{where}:1: {module} is in no layer")
            continue
        graph[module] = set()
        for line, imported in imports(module, path):
            fault = _fault(_entry(module), imported, paths)
            if fault:
                messages.append(f"{where}:{line}: {fault}")
            if imported.startswith("tfrobust."):
                graph[module].add(_imported_module(imported, paths))
    if circle := _circle(graph):
        messages.append(f"{paths[circle[0]].relative_to(root)}:1: import circle {' > '.join([*circle, circle[0]])}")
    messages += [
        f"{path.relative_to(root)}:1: no Python below gin/: it would shadow gin-config" for path in _python(root)
    ]
    return messages


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the file of every module below `root`/tfrobust by its dotted name, which is "" for tfrobust itself."""
    return {_module(path, root): path for path in sorted((root / "tfrobust").rglob("*.py"))}


def imports(module: str, path: pathlib.Path) -> list[tuple[int, str]]:
    """Return (line, complete dotted name) of every import of a module except those for type checkers."""
    package = ("tfrobust", *module.split(".")[: None if path.name == "__init__.py" else -1])
    return list(_imports(ast.parse(path.read_text("utf-8"), str(path)), package))


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import circle, in the order of the imports; none if there is no circle."""
    graph = {module: imported - {module} for module, imported in graph.items()}
    while free := [module for module, imported in graph.items() if not imported & graph.keys()]:
        for module in free:
            del graph[module]
    path = [min(graph)] if graph else []
    while path and (following := min(graph[path[-1]] & graph.keys())) not in path:
        path.append(following)
    return path[path.index(following) :] if path else []


def _python(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted((root / "gin").rglob("*.py"))


def _module(path: pathlib.Path, root: pathlib.Path) -> str:
    """Return a module's dotted name below tfrobust."""
    parts = path.relative_to(root / "tfrobust").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _entry(module: str) -> str | None:
    """Return the name in LAYERS that a module belongs to, None if there is none."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in LEVEL), None)


def _fault(importer: str, imported: str, module_names) -> str | None:
    if imported.partition(".")[0] != "tfrobust":
        forbidden = any(imported == name or imported.startswith(name + ".") for name in _COMMANDS_ONLY)
        if forbidden and LEVEL[importer] < _COMMAND_LEVEL:
            return f"{importer} imports {imported}, which only the commands may"
        return None
    inner = _imported_module(imported, module_names)
    other = _entry(inner)
    if not inner or inner.startswith("__") or other == importer:
        return None
    if other is None:
        return f"{importer} imports {imported}, which is in no layer"
    if LEVEL[other] >= LEVEL[importer]:
        return f"{importer} imports {imported}, which is {'above' if LEVEL[other] > LEVEL[importer] else 'beside'} it"
    return None


def _imported_module(imported: str, module_names) -> str:
    """Return the name below tfrobust of an imported module, or of the module that holds an imported name."""
    inner = imported.partition(".")[2]
    return inner if inner in module_names or inner.rpartition(".")[0] not in module_names else inner.rpartition(".")[0]


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
    messages = faults(flags.parse_args(arguments).root)
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Write the lists of the facade, tfrobust/keras/*.py, from the code below tfrobust/, which is not imported.

A function or a class is public if its docstring has an `Example:`; a class also if it descends from one of BASES. The
docstring of a facade module is written by hand, everything below it is written here.
Usage: tools/make_facade.py [--check]; with --check nothing is written: prints the modules that are not current, and
exits with 1 if there are any.
"""

import argparse
import ast
import dataclasses
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 120


@dataclasses.dataclass(frozen=True)
class Area:
    """A module of the facade.

    Attributes:
        places: modules and folders below tfrobust/ whose public names belong to it.
        also: places of other areas whose names users look for here too.
        modules: modules that are offered as a whole.
    """

    places: tuple[str, ...]
    also: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


# Classes whose concrete descendants are public even without an example.
BASES = {
    *("Attack", "Augmentation", "Callback", "Encoder", "Evaluator", "FalseNegatives", "FeatureObjective"),
    *("GradientPenalty", "LearningRateSchedule", "Loss", "Method", "Metric", "Optimizer", "PublishedSet"),
    *("Selection", "Source"),
}
AREAS = {
    "attacks": Area(("attacks",), modules=("attacks.shared.objectives",)),
    "augment": Area(("augment",), modules=("augment.operations",)),
    "callbacks": Area(("training.callbacks",)),
    "certification": Area(("certification",)),
    "corruptions": Area(("corruptions",)),
    "data": Area(("data",)),
    "evaluators": Area(("evaluation.evaluators", "evaluation.doctor", "evaluation.engine")),
    "layers": Area(
        ("adapters.layers",), also=("models.heads", "models.shared.group_sort", "models.shared.normalization")
    ),
    "losses": Area(("losses", "adapters.losses"), also=("structs",)),
    "methods": Area(
        ("methods",),
        also=("augment.mixing", "augment.puzzlemix", "losses.gradient_penalty", "losses.gradient_alignment", "pairs"),
    ),
    "metrics": Area(("adapters.metrics",)),
    "models": Area(("models",)),
    "optimizers": Area(("training.optimizers",)),
    "schedules": Area(("ops.schedules",)),
    "selections": Area(("pairs",)),
}
# The facade's own functions, beside its modules.
TOP = Area(("saving", "evaluation.summary", "evaluation.own_gradient"))
# Names that say too little, or clash, outside their module.
_NAMES = {
    "adapters.layers.AugMixLayer": "AugMix",
    "adapters.layers.UtilityPerturbationLayer": "UtilityPerturbation",
    "models.weights.checkpoints.classifier": "classifier_from_checkpoint",
    "models.weights.checkpoints.load": "load_checkpoint",
    "models.weights.checkpoints.shapes": "checkpoint_shapes",
    "saving.load": "load_model",
    "saving.save": "save_model",
}


@dataclasses.dataclass(frozen=True)
class Member:
    """A class or a function at the top of a module, and the other names that the module gives it."""

    module: str
    name: str
    bases: tuple[str, ...]
    registered: bool
    example: bool
    aliases: tuple[str, ...]


class Code:
    """The definitions in the modules of the areas. Elsewhere, a section of the report may have the same name."""

    def __init__(self, root: pathlib.Path):
        places = [prefix for area in (*AREAS.values(), TOP) for prefix in (*area.places, *area.also)]
        defined = [
            member for path in _sources(root / "tfrobust") for member in _defined_members(path, root / "tfrobust")
        ]
        self.members = [member for member in defined if within(member.module, places)]
        self._bases = {member.name: member.bases for member in self.members}
        self._parents = {base for member in self.members for base in member.bases}

    def offered_members(self, area: Area) -> list[Member]:
        """Return the public members of an area, with those that it re-exports."""
        inside = [member for member in self.members if within(member.module, (*area.places, *area.also))]
        inside = [member for member in inside if member.name[0] != "_" and not within(member.module, area.modules)]
        return [member for member in inside if member.example or self._concrete(member)]

    def _concrete(self, member: Member) -> bool:
        """Return True for a descendant of BASES that is registered with Keras, or is itself no base."""
        leaf = member.registered or member.name not in self._parents
        return leaf and not BASES.isdisjoint(self._ancestors(member.name))

    def _ancestors(self, name: str) -> set[str]:
        bases = self._bases.get(name, ())
        return {*bases}.union(*map(self._ancestors, bases))


def _sources(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*.py") if folder / "keras" not in path.parents)


def _defined_members(path: pathlib.Path, folder: pathlib.Path) -> list[Member]:
    parts = path.relative_to(folder).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    body = ast.parse(path.read_text("utf-8"), str(path)).body
    aliases: dict[str, list[str]] = {}
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and isinstance(node.targets[0], ast.Name):
            aliases.setdefault(node.value.id, []).append(node.targets[0].id)
    return [
        Member(
            module=module,
            name=node.name,
            bases=tuple(ast.unparse(base).rpartition(".")[2] for base in getattr(node, "bases", ())),
            registered=any(
                "register_keras_serializable" in ast.unparse(decorator) for decorator in node.decorator_list
            ),
            example="\nExample:\n" in (ast.get_docstring(node) or ""),
            aliases=tuple(aliases.get(node.name, ())),
        )
        for node in body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    ]


def within(module: str, places: tuple[str, ...]) -> bool:
    """Return True if a module is one of the places, or in one of them."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in places)


# ------------------------------------------------------------------------------------------------ writing


def statement(module: str, names: list[tuple[str, str]]) -> list[str]:
    """Return the imports of (name, public name) from a module, in the order of ruff."""
    plain = sorted((name for name, public in names if name == public), key=_rank)
    lines = [_list(f"from {module} import ", plain, "()", quote="")] if plain else []
    renamed = sorted(pair for pair in names if pair[0] != pair[1])
    return [*lines, *(f"from {module} import {name} as {public}" for name, public in renamed)]


def _rank(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name.lower())


def _list(start: str, names: list[str], brackets: str, quote: str = '"') -> str:
    """Write names on one line if they fit, else one a line."""
    quoted = [f"{quote}{name}{quote}" for name in names]
    line = start + (", ".join(quoted) if brackets == "()" else f"[{', '.join(quoted)}]")
    if len(line) <= WIDTH:
        return line
    return "\n".join([start + brackets[0], *(f"    {name}," for name in quoted), brackets[1]])


def module_text(docstring: str, imports: dict[str, list[tuple[str, str]]]) -> str:
    """Return the text of a facade module: docstring, imports by module, and `__all__`."""
    names = [public for pairs in imports.values() for _, public in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(f"two objects would be offered as {', '.join(twice)}; name one of them in _NAMES")
    lines = [line for module in sorted(imports) for line in statement(module, imports[module])]
    return "\n".join([docstring, "", *lines, "", _list("__all__ = ", sorted(names), "[]"), ""])


def module_texts(root: pathlib.Path) -> dict[str, str]:
    """Return module name -> text for every module of the facade."""
    code, folder = Code(root), root / "tfrobust" / "keras"
    texts = {}
    for name, area in {**AREAS, "__init__": TOP}.items():
        imports: dict[str, list[tuple[str, str]]] = {}
        for member in code.offered_members(area):
            public = _NAMES.get(f"{member.module}.{member.name}", member.name)
            member_name = public if public in member.aliases else member.name
            imports.setdefault(f"tfrobust.{member.module}", []).append((member_name, public))
        for module in area.modules:
            package, _, last = module.rpartition(".")
            imports.setdefault(f"tfrobust.{package}", []).append((last, last))
        if area is TOP:
            imports["tfrobust.keras"] = [(inner, inner) for inner in AREAS]
        texts[name] = module_text(_docstring(folder / f"{name}.py"), imports)
    return texts


def _docstring(path: pathlib.Path) -> str:
    """Return the docstring of a file as it is written there, quotes included."""
    if not path.exists():
        return '"""..."""'
    text = path.read_text("utf-8")
    body = ast.parse(text, str(path)).body
    if not body or not isinstance(body[0], ast.Expr):
        raise SystemExit(f"{path} has no docstring, which is written by hand")
    return "\n".join(text.splitlines()[body[0].lineno - 1 : body[0].end_lineno])


def stale(texts: dict[str, str], folder: pathlib.Path) -> list[str]:
    """Return the modules that are missing, differ, or belong to no area."""
    there = {path.stem: path.read_text("utf-8") for path in folder.glob("*.py")}
    return sorted(name for name in {*texts, *there} if texts.get(name) != there.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, or compare them; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is not current")
    check = flags.parse_args(arguments).check
    folder, texts = ROOT / "tfrobust" / "keras", module_texts(ROOT)
    changed = stale(texts, folder)
    if check:
        messages = [f"tfrobust/keras/{name}.py is not current; run python tools/make_facade.py" for name in changed]
        print("\n".join(messages), end="\n" if messages else "")
        return 1 if changed else 0
    for name in changed:
        if name in texts:
            (folder / f"{name}.py").write_text(texts[name], encoding="utf-8")
        else:
            (folder / f"{name}.py").unlink()
    print(f"{len(texts)} modules, {len(changed)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every public member of a family is offered by the facade, passes its battery and is named by a gin file.

The members are found in the source code of the library, by the base classes that files state, not in the lists of
the facade or of the batteries, which are what is checked. A new family is one row of `FAMILIES`.
"""

import ast
import dataclasses
import functools
import pathlib
import re

import pytest
import stored

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Family:
    """The descendants of `root`, or without a root the public functions of a folder.

    facade: modules of tfrobust.keras that offer them. tests: file or folder whose code names each of them.
    gin: folder below gin/ where `@Name` occurs, "." for any, or "" where no file needs to name them.
    """

    name: str
    root: str
    tests: str
    facade: tuple[str, ...] = ()
    gin: str = ""
    folder: str = "tfrobust"


FAMILIES = stored.table(globals(), "families")
# (name, what is not needed) -> why.
EXEMPT = {
    ("Ensemble", "tests"): "of several attacks: tests/attacks/test_ensemble.py",
    ("AutoAttack", "tests"): "of several attacks: tests/attacks/test_ensemble.py and test_autoattack_parity.py",
    ("MixedPrecisionPGD", "tests"): "needs a Keras model, not a function: tests/attacks/test_mixed_precision.py",
    ("CorruptedTensorFlowDatasets", "gin"): "the comments of eval/cifar10_c.gin show it as the alternative",
    ("adversarial_divergence", "facade"): "the loss of ADR, made of terms of four inputs",
    ("EveryFrame", "tests"): "of clips: tests/augment/test_clips.py",
    **{(name, "gin"): "the comments of data/fashion_mnist.gin show it as the alternative" for name in ("Idx", "Mnist")},
    ("ReferenceAccuracies", "gin"): "train.reference makes it from the path of a report",
    ("R3D18", "gin"): "the comments of models/r2plus1d18.gin show it as the alternative",
    ("GlobalSelection", "tests"): "the default of ASCL, so every row of it without a selection",
}
_PARTS = (
    # The training loop adds these callbacks itself.
    *("EpochLines", "PseudoLabels", "Throughput"),
    # Parts of the losses of ADR and of the mixing methods, which are tested as a whole.
    *("pair_weights", "local_compactness", "local_smoothness", "global_compactness", "global_smoothness"),
    *("mixed_loss", "checked_objective", "smoothed"),
)
EXEMPT |= {(name, need): "a part" for name in _PARTS for need in ("facade", "tests")}


# ------------------------------------------------------------------------------------------------ the guard


@functools.cache
def read(root: pathlib.Path) -> dict[str, str]:
    """Return the text of every source, test and gin file by its path below the root."""
    patterns = ("tfrobust/**/*.py", "tests/**/*.py", "gin/**/*.gin")
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for p in patterns for path in root.glob(p)}


@functools.cache
def parse(text: str) -> ast.Module:
    return ast.parse(text)


@functools.cache
def identifiers(text: str) -> frozenset[str]:
    """Return the names that code uses; what it only imports is not among them."""
    nodes = ast.walk(parse(text))
    return frozenset(node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in nodes)


@functools.cache
def bases_of(text: str) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return (last parts of the names of the bases, registered with Keras) of every class at the top of a file."""
    return {
        node.name: (
            tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases),
            any("register_keras_serializable" in ast.unparse(decorator) for decorator in node.decorator_list),
        )
        for node in parse(text).body
        if isinstance(node, ast.ClassDef)
    }


def members(files: dict[str, str], family: Family) -> list[str]:
    """Return the public, concrete members. Abstract is a base of other classes that is not registered with Keras."""
    sources = [path for path in files if path.startswith(f"{family.folder}/") and path.endswith(".py")]
    sources = [path for path in sources if not path.startswith("tfrobust/keras/")]
    if not family.root:
        functions = [node for path in sources for node in parse(files[path]).body if isinstance(node, ast.FunctionDef)]
        return [function.name for function in functions if function.name[0] != "_"]
    classes = {name: facts for path in sources for name, facts in bases_of(files[path]).items()}
    parents = {base for bases, _ in classes.values() for base in bases}

    def ancestors(name: str) -> set[str]:
        bases = classes.get(name, ((), False))[0]
        return {*bases}.union(*map(ancestors, bases))

    names = [name for name in classes if family.root in ancestors(name) and name[0] != "_"]
    if family.name == "encoder":  # methods are Keras models too
        names = [name for name in names if not {name, *ancestors(name)} & {"Method"} and name != "Encoder"]
    return [name for name in names if classes[name][1] or name not in parents]


def offered(files: dict[str, str], module: str) -> set[str]:
    """Return `__all__` of a module of the facade."""
    body = parse(files[f"tfrobust/keras/{module}.py"]).body
    lists = [node.value for node in body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    return set(ast.literal_eval(lists[0]))


def named_by_gin(files: dict[str, str], folder: str) -> set[str]:
    """Return what gin files refer to by `@Name` or `@scope/module.Name`, outside comments."""
    start = "gin/" if folder == "." else f"gin/{folder}/"
    texts = [re.sub(r"#.*", "", text) for path, text in files.items() if path.startswith(start)]
    return {name for text in texts for name in re.findall(r"@(?:\w+/)*(?:\w+\.)*(\w+)", text)}


def used_by(files: dict[str, str], start: str) -> set[str]:
    """Return the names that the code of a test file, or of the files of a folder, uses."""
    texts = [text for path, text in files.items() if path == start or path.startswith(f"{start}/")]
    return set().union(*map(identifiers, texts))


def missing(files: dict[str, str], family: Family) -> list[tuple[str, str]]:
    """Return (member, what it lacks: "facade", "tests" or "gin")."""
    needs = {"tests": used_by(files, family.tests)}
    if family.facade:
        needs["facade"] = set.intersection(*(offered(files, module) for module in family.facade))
    if family.gin:
        needs["gin"] = named_by_gin(files, family.gin)
    return [(name, need) for name in members(files, family) for need, names in needs.items() if name not in names]


# ---------------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_member_is_offered_tested_and_configured(family):
    files = read(ROOT)
    assert members(files, family)
    assert [lack for lack in missing(files, family) if lack not in EXEMPT] == []


def test_a_method_has_a_gin_file_of_its_own():
    files = read(ROOT)
    (family,) = [family for family in FAMILIES if family.name == "method"]
    for name in members(files, family):
        (module,) = [path for path, text in files.items() if path.startswith("tfrobust/") and name in bases_of(text)]
        stem = pathlib.PurePath(module).stem
        assert f"@{name}" in files.get(f"gin/{stem}.gin", ""), f"gin/{stem}.gin is missing or does not name {name}"


def test_every_exemption_is_needed():
    assert set(EXEMPT) <= {lack for family in FAMILIES for lack in missing(read(ROOT), family)}


PLANTED = stored.table(globals(), "planted")


@pytest.mark.parametrize(("path", "text", "lacks"), PLANTED, ids=[path for path, *_ in PLANTED])
def test_a_planted_member_is_found(path, text, lacks):
    files = read(ROOT) | {path: text}
    lacking = {lack for family in FAMILIES for lack in missing(files, family)} - set(EXEMPT)
    assert lacking == {("Planted", lack) for lack in lacks}


@pytest.mark.parametrize("start, old, new, lack", stored.rows(globals(), "a_member_taken_from_its_place_is_found"))
def test_a_member_taken_from_its_place_is_found(start, old, new, lack):
    files = read(ROOT)
    changed = {path: text.replace(old, new) if path.startswith(start) else text for path, text in files.items()}
    lacking = {entry for family in FAMILIES for entry in missing(changed, family)} - set(EXEMPT)
    assert lacking == {("Mixup", lack)}

"""Plant faults in copies of the library, one at a time, and check whether the tests find them (mutation testing).

    python tools/mutants.py                              # every fault of mutants.toml against the first tier
    python tools/mutants.py --packages=methods,attacks   # those of two packages
    python tools/mutants.py --all                        # the survivors against every test
    python tools/mutants.py --draw=40 --seed=1           # prints 40 drawn faults in the form of mutants.toml

A fault is a file, its old text and its new text; the file must hold the old text exactly once. For each fault only the
test files run that import the mutated file, directly or through one of their helpers; the run stops at the first
failure. Results are kept in runs/mutants.json, so an interrupted run resumes; `--again` discards them.
"""

import argparse
import ast
import functools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutants.toml"
MEMORY = 8 << 30  # bytes for a fault's tests: some faults make a loop collect without end


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--packages", default="", help="only faults of these folders of tfrobust/, comma-separated")
    flags.add_argument("--all", action="store_true", help="run the first tier's survivors against every test")
    flags.add_argument("--again", action="store_true", help="forget kept results")
    flags.add_argument("--limit", type=float, default=900.0, help="seconds after which a fault counts as found")
    flags.add_argument("--workers", type=int, default=2, help="faults tried at once")
    flags.add_argument("--results", type=pathlib.Path, default=ROOT / "runs" / "mutants.json", help="kept results")
    flags.add_argument("--draw", type=int, default=0, help="print so many drawn faults and stop")
    flags.add_argument("--seed", type=int, default=0, help="seed of --draw")
    return flags


def main(arguments=None) -> int:
    """Run the faults and print the results; return 1 if a fault survived, else 0."""
    flags = parser().parse_args(arguments)
    if flags.draw:
        print("\n".join(entry(fault) for fault in draw(flags.draw, flags.seed)))
        return 0
    faults = [fault for fault in read() if not flags.packages or package(fault) in flags.packages.split(",")]
    stored = {} if flags.again or not flags.results.exists() else json.loads(flags.results.read_text("utf-8"))
    if flags.all:
        faults = [fault for fault in faults if stored.get(key(fault), {}).get("killed") is False]
    todo = [fault for fault in faults if flags.all or key(fault) not in stored]
    for fault, outcome in run(todo, flags):
        stored[key(fault)] = outcome
        flags.results.parent.mkdir(parents=True, exist_ok=True)
        flags.results.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
        print(row(fault, outcome), flush=True)
    print(table(faults, stored))
    return int(any(not stored[key(fault)]["killed"] for fault in faults))


# ------------------------------------------------------------------------------------------------------ the list


def read(path: pathlib.Path = LIST, root: pathlib.Path = ROOT) -> list[dict]:
    """Return the faults of the list; raise ValueError for an old text that its file does not hold exactly once."""
    faults = tomllib.loads(path.read_text("utf-8"))["fault"]
    for fault in faults:
        file = root / "tfrobust" / fault["file"]
        count = file.read_text("utf-8").count(fault["old"]) if file.is_file() else 0
        if count != 1:
            raise ValueError(
                f"{path.name}: tfrobust/{fault['file']} holds the old text {count} times: {fault['old']!r}"
            )
    return faults


def key(fault: dict) -> str:
    """Return a string that identifies a fault among the results."""
    return json.dumps([fault["file"], fault["old"], fault["new"]])


def package(fault: dict) -> str:
    """Return the folder of the library, or the module, that holds a fault."""
    return fault["file"].partition("/")[0].removesuffix(".py")


def entry(fault: dict) -> str:
    """Format a fault as in mutants.toml."""
    lines = [f"{name} = {json.dumps(fault[name])}" for name in ("file", "old", "new")]
    return "\n".join(["[[fault]]", *lines, "drawn = true", ""])


def row(fault: dict, outcome: dict) -> str:
    """Format a line of the table."""
    text = "killed  " if outcome["killed"] else "SURVIVED"
    change = difference(fault["old"], fault["new"])
    return f"{text} {outcome['tier']:5} {outcome['seconds']:5.0f} s  {fault['file']:40} {change:60} {outcome['by']}"


def table(faults: list[dict], outcomes: dict) -> str:
    """Format the totals: killed of tried, by hand and drawn."""
    lines = []
    for name, drawn in (("by hand", False), ("drawn", True)):
        of = [outcomes[key(fault)] for fault in faults if fault.get("drawn", False) is drawn and key(fault) in outcomes]
        first = sum(outcome["killed"] and outcome["tier"] == "first" for outcome in of)
        lines.append(
            f"{name}: {len(of)} faults, {first} killed by the first tier, {sum(f['killed'] for f in of)} in all"
        )
    return "\n".join(lines)


def difference(old: str, new: str) -> str:
    """Return the first line that differs, old -> new, without the common beginning and end."""
    pairs = zip(old.splitlines() + [""], new.splitlines() + [""], strict=False)
    before, after = next(pair for pair in pairs if pair[0] != pair[1])
    start = len(os.path.commonprefix([before, after]))
    start = before.rfind(" ", 0, start) + 1
    end = len(os.path.commonprefix([before[start:][::-1], after[start:][::-1]]))
    return f"{before[start : len(before) - end]} -> {after[start : len(after) - end]}"[:60]


# --------------------------------------------------------------------------------------------------- the drawing

SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
}  # fmt: skip


def draw(count: int, seed: int) -> list[dict]:
    """Draw random faults: a changed operator, number or truth value."""
    generator, faults = random.Random(seed), []
    files = sorted(path for path in (ROOT / "tfrobust").rglob("*.py") if path.stat().st_size > 500)
    weights = [path.stat().st_size for path in files]
    while len(faults) < count:
        path = generator.choices(files, weights)[0]
        text = path.read_text("utf-8")
        candidates = list(changes(text))
        if candidates:
            old, new = generator.choice(candidates)
            faults.append({"file": path.relative_to(ROOT / "tfrobust").as_posix(), "old": old, "new": new})
    return faults


def changes(text: str):
    """Yield (old line, new line) for each change of an expression whose line occurs once in the file."""
    lines, tree = text.splitlines(), ast.parse(text)
    # Changes of error messages, f-strings and decorators would not change results.
    spared = [node for node in ast.walk(tree) if isinstance(node, (ast.Raise, ast.JoinedStr))]
    spared += [decorator for node in ast.walk(tree) for decorator in getattr(node, "decorator_list", ())]
    skipped = {id(part) for node in spared for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped or not hasattr(node, "lineno") or node.lineno != node.end_lineno:
            continue
        line = lines[node.lineno - 1]
        if text.count(line) != 1 or len(line.encode()) != len(line):
            continue
        for start, end, new in replacements(node):
            yield line, line[:start] + new + line[end:]


def replacements(node):
    """Yield (first column, last column, new text) of each change of a node."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        other = not node.value if isinstance(node.value, bool) else node.value + 1
        yield node.col_offset, node.end_col_offset, repr(other)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield node.left.end_col_offset, node.comparators[0].col_offset, f" {SWAPS[type(node.ops[0])]} "
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and node.left.end_lineno == node.right.lineno:
        if not isinstance(node.left, (ast.BinOp, ast.Constant)) and not isinstance(node.right, ast.BinOp):
            yield node.left.end_col_offset, node.right.col_offset, f" {SWAPS[type(node.op)]} "
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.col_offset, node.operand.col_offset, ""


# --------------------------------------------------------------------------------------------------- the running


def importers(file: str) -> list[str]:
    """Return the test files that import a file of the library, directly or through a helper; its own test first."""
    module = "tfrobust." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    helpers = {}  # module below tests/ -> modules it imports
    tests = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT / "tests").with_suffix("").as_posix().replace("/", ".")
        (tests if path.name.startswith("test_") else helpers)[name] = imports(path)
    for name, modules in helpers.items():
        helpers[name] = modules.union(*(helpers[other] for other in modules if other in helpers))
    own_test = f"test_{module.rpartition('.')[2]}"

    def reaches(modules):
        return module in modules or any(module in helpers[other] for other in modules if other in helpers)

    # Also the tests that may reach the file through other modules: those of its folder, the batteries, the facade's.
    folders = (package({"file": file}) + ".", "methods.test_conformance", "attacks.test_battery", "facade.")
    chosen = [name for name, modules in tests.items() if reaches(modules) or name.startswith(folders)]
    sizes = {name: (ROOT / "tests" / (name.replace(".", "/") + ".py")).stat().st_size for name in chosen}
    chosen.sort(key=lambda name: (name.rpartition(".")[2] != own_test, not reaches(tests[name]), sizes[name]))
    return ["tests/" + name.replace(".", "/") + ".py" for name in chosen]


def imports(path: pathlib.Path) -> set[str]:
    """Return the modules that a file imports; for `from a import b` both a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names | {facade()[name] for name in names & facade().keys()}


@functools.cache
def facade() -> dict[str, str]:
    """Return the module of each public object by its name in the facade."""
    modules = {}
    for path in (ROOT / "tfrobust" / "keras").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                modules |= {f"tfrobust.keras.{path.stem}.{alias.name}": node.module for alias in node.names}
    return modules


def run(faults: list[dict], flags):
    """Yield (fault, result) as they end; TensorFlow is imported once, and each fault runs in its own fork."""
    if not faults:
        return
    import keras  # noqa: F401 - imported before the forks, which share it
    import pytest  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="tfrobust-mutants-") as folder:
        copies = [copy_checkout(pathlib.Path(folder, str(number))) for number in range(flags.workers)]
        running, waiting = {}, list(faults)
        while waiting or running:
            while waiting and copies:
                fault, copy = waiting.pop(0), copies.pop()
                running[start(fault, copy, flags)] = (fault, copy, time.monotonic())
            pid, status = os.waitpid(-1, os.WNOHANG)
            for late, (_, _, started) in running.items():
                if time.monotonic() - started > flags.limit and pid == 0:
                    os.killpg(late, signal.SIGKILL)
            if pid == 0:
                time.sleep(0.1)
                continue
            fault, copy, started = running.pop(pid)
            mutated = pathlib.Path("tfrobust", fault["file"])
            shutil.copyfile(ROOT / mutated, copy / mutated)  # here: a run that was killed restores nothing
            copies.append(copy)
            yield fault, result(copy, os.waitstatus_to_exitcode(status), time.monotonic() - started, flags)


def copy_checkout(folder: pathlib.Path) -> pathlib.Path:
    """Copy the checkout, without history and results, into a folder, and return the folder."""
    anywhere = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
    at_the_top = shutil.ignore_patterns(".git", "runs", "exported", ".venv*")

    def ignored_names(path, names):
        return anywhere(path, names) | (at_the_top(path, names) if pathlib.Path(path) == ROOT else set())

    shutil.copytree(ROOT, folder, ignore=ignored_names)
    return folder


def start(fault: dict, copy: pathlib.Path, flags) -> int:
    """Fork a process that runs the tests of a fault in a copy; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        path = copy / "tfrobust" / fault["file"]
        output = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        path.write_text(path.read_text("utf-8").replace(fault["old"], fault["new"]), "utf-8")
        os.chdir(copy)
        sys.path[:0] = [str(copy)]
        sys.dont_write_bytecode = True
        import pytest

        tier = ["--all"] if flags.all else []
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tier, *importers(fault["file"])])
    except BaseException as error:
        print(error)
        code = 70
    finally:
        os._exit(int(code))


def result(copy: pathlib.Path, code: int, seconds: float, flags) -> dict:
    """Return the result of a fault's run; exit codes 1 and 2 are failures of tests and of their collection."""
    text = (copy / "output").read_text("utf-8", "replace")
    named = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if code not in (0, 1, 2) and code >= 0:
        raise RuntimeError(f"pytest ended with code {code}:\n{text[-2000:]}")
    by = named[0] if named else ("" if code == 0 else "no end in time" if code == -signal.SIGKILL else f"code {code}")
    return {"killed": code != 0, "by": by, "seconds": round(seconds), "tier": "all" if flags.all else "first"}


if __name__ == "__main__":
    sys.exit(main())

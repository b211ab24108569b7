#!/usr/bin/env python3
"""Make the table of the fast ensemble beside AutoAttack: accuracies on the same images, and passes per image.

Each row of the plan is a model. A row is trained or read, attacked by gin/eval/fast.gin and gin/eval/autoattack.gin,
and stored at once; running again continues with the rows that are missing:

    python tools/benchmarks/fast_table.py --run                       # all rows of plans/fast.toml
    python tools/benchmarks/fast_table.py --run --rows=trades,ibp     # these only
    python tools/benchmarks/fast_table.py                             # the table of what is stored, in Markdown

Two reports of one model, or a report and a result of `results_table.py`, are compared without a plan:

    python tools/benchmarks/fast_table.py --pair NAME runs/evaluate/MODEL/fast runs/evaluate/MODEL/autoattack

Where AutoAttack's passes were not counted, they are bounded from below: an image that remains after a member took all
passes of that member.
"""

import argparse
import base64
import dataclasses
import json
import pathlib
import sys
import time

import _fast_rows
import numpy as np
from _result_tables import row
from digits_table import forget

from tfrobust.attacks.ensemble import AutoAttack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.commands import failures
from tfrobust.common import files
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.report.catalog.under_attack import PASSES

PLAN = pathlib.Path(__file__).parent / "plans" / "fast.toml"
RESULTS = pathlib.Path(__file__).parent / "results" / "fast.json"
HEADER = ("Model", "images", "AutoAttack", "fast", "fast - AutoAttack", "AutoAttack's passes", "fast passes", "share")


def outcome(path: pathlib.Path, attack: str) -> dict:
    """Return what a report or a result says of an attack: its measurements by id, and the outcome of each image.

    Raises:
        InputError: the file has no such attack, or not the outcome of each image.
    """
    content = json.loads(files.read_bounded(path / "robustness_report.json" if path.is_dir() else path))
    return outcome_in(content, attack, str(path))


def outcome_in(content: dict, attack: str, source: str) -> dict:
    """Return what `outcome` does, from the content of a file, or of an `Outcome` as a dictionary; `source` names it."""
    measured = content["measurements"]
    measured = measured if isinstance(measured, dict) else {item["id"]: item for item in measured}
    name = next((name for name in measured if name.startswith(f"attack.{attack}_") and name.count(".") <= 3), None)
    name = name and f"{name.rpartition('.')[0]}.accuracy"
    if "outcomes" in content:
        rows = {key: unpacked(value) for key, value in content["outcomes"].items()}
    else:
        series = {item["id"]: item["columns"] for item in content["series"]}
        rows = {
            key.removeprefix("outcomes."): c["right"][0] for key, c in series.items() if key.startswith("outcomes.")
        }
    if name not in rows:
        raise InputError(f"{source} has no outcomes of {attack}.")
    correct = np.array([digit == "1" for digit in rows[name]])
    return {"settings": measured[name]["settings"], "measured": measured, "id": name, "correct": correct}


def unpacked(packed: dict) -> str:
    """Return the digits 0 and 1 that `results_table.pack` has stored."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(packed["bits"]), np.uint8))
    return "".join(map(str, bits[: packed["images"]]))


def passes(measured: dict) -> tuple[list[float], bool]:
    """Return forward and backward passes per image, and if they were counted; else they are a lower bound."""
    settings, attack = measured["settings"], AutoAttack(ThreatModel(epsilon=measured["settings"]["epsilon"]))
    if PASSES[0] in settings:
        return [settings[name] for name in PASSES], True
    least, prefix = np.zeros(2), measured["id"].rpartition(".")[0]
    for member in attack.members:
        rounds, remaining = member.rounds(10), measured["measured"][f"{prefix}.{member.name}.accuracy"]["value"]
        least += remaining * (np.array(member.round_passes(10)) * rounds + (1, 0))
    return least.tolist(), False


def compared(name: str, fast: dict, reference: dict) -> dict:
    """Return the row of a model.

    Raises:
        InputError: other images.
    """
    if len(fast["correct"]) != len(reference["correct"]):
        counts = f"{len(fast['correct'])} and {len(reference['correct'])}"
        raise InputError(f"{name}: the two accuracies are of {counts} images.")
    difference = statistics.paired_difference(fast["correct"], reference["correct"])
    (ours, _), (theirs, counted) = passes(fast), passes(reference)
    return {
        "model": name,
        "norm": fast["settings"]["norm"],
        "epsilon": fast["settings"]["epsilon"],
        "images": len(fast["correct"]),
        "autoattack": float(reference["correct"].mean()),
        "fast": float(fast["correct"].mean()),
        "difference": list(difference),
        "autoattack_passes": [round(count, 1) for count in theirs],
        "counted": counted,
        "fast_passes": [round(count, 1) for count in ours],
        "black_box": fast["settings"].get("black_box", ""),
    }


def table(rows: list[dict]) -> str:
    """Return the table in Markdown, with a line on how many rows keep the aims."""
    lines = row(*HEADER) + row("---", *["---:"] * (len(HEADER) - 1))
    for item in rows:
        value, low, high = (100 * number for number in item["difference"])
        ours, theirs = (sum(item[f"{side}_passes"]) for side in ("fast", "autoattack"))
        lines += row(
            item["model"] + (" (with Square)" if item["black_box"].endswith("ran") else ""),
            str(item["images"]),
            f"{100 * item['autoattack']:.1f}",
            f"{100 * item['fast']:.1f}",
            f"{value:+.1f} [{low:+.1f}, {high:+.1f}]",
            ("" if item["counted"] else "at least ") + _sum(item["autoattack_passes"]),
            _sum(item["fast_passes"]),
            # A lower bound of 0, where the first attack succeeds on all images, bounds no share.
            f"{'' if item['counted'] else 'at most '}{ours / theirs:.2f}" if theirs else "",
        )
    near = [item["difference"][0] <= 0.003 + 1e-9 for item in rows]
    below = sum(item["difference"][0] < -0.003 - 1e-9 for item in rows)
    cheap = [5 * sum(item["fast_passes"]) <= sum(item["autoattack_passes"]) for item in rows]
    mean = 100 * np.mean([item["difference"][0] for item in rows])
    both = sum(pair == (True, True) for pair in zip(near, cheap, strict=True))
    return (
        f"{lines}\nOn {both} of {len(rows)} models the fast ensemble is at most 0.3 points above AutoAttack in at most "
        f"a fifth of its passes: on {sum(near)} at most 0.3 points above (on {below} of these more than 0.3 below, "
        f"that is, stronger), on {sum(cheap)} in a fifth. The mean difference is {mean:+.2f} points."
    )


def _sum(counts: list[float]) -> str:
    return " + ".join(f"{count:.0f}" for count in counts)


def parser() -> argparse.ArgumentParser:
    """Return the flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--run", action="store_true", help="measure the rows of the plan that are not stored")
    flags.add_argument("--rows", default="", help="names of rows, by comma; default: all of the plan")
    flags.add_argument("--plan", type=pathlib.Path, default=PLAN)
    flags.add_argument("--pair", nargs=3, action="append", default=[], metavar=("NAME", "FAST", "AUTOATTACK"))
    flags.add_argument("--results", type=pathlib.Path, default=RESULTS)
    return flags


def stored(flags: argparse.Namespace) -> list[dict]:
    """Return the rows that are stored."""
    return json.loads(flags.results.read_text()) if flags.results.exists() else []


def store(flags: argparse.Namespace, new: dict) -> None:
    """Store a row, in place of one with its name."""
    rows = [*(item for item in stored(flags) if item["model"] != new["model"]), new]
    files.write_atomically(flags.results, json.dumps(rows, indent=1) + "\n")


def missing(flags: argparse.Namespace) -> list[_fast_rows.Row]:
    """Return the rows of the plan that --rows names and that are not stored.

    Raises:
        InputError: --rows names a row that the plan does not have.
    """
    plan, done = _fast_rows.read(flags.plan), {item["model"] for item in stored(flags)}
    names = [name for name in flags.rows.split(",") if name] or [planned.name for planned in plan]
    unknown = sorted(set(names) - {planned.name for planned in plan})
    if unknown:
        raise InputError(f"--rows names {unknown[0]!r}, which is no row of {flags.plan}.")
    return [planned for planned in plan if planned.name in names and planned.name not in done]


def measure(flags: argparse.Namespace) -> None:
    """Measure the missing rows, one after the other; each is stored when it is complete."""
    for planned in missing(flags):
        began = time.process_time()
        outcomes = _fast_rows.measurements(planned)
        pair = {attack: outcome_in(dataclasses.asdict(item), attack, planned.name) for attack, item in outcomes.items()}
        if planned.reference:
            pair["autoattack"] = outcome(_fast_rows.ROOT / planned.reference, "autoattack")
        new = compared(planned.name, pair["fast"], pair["autoattack"])
        store(flags, new)
        taken = f"{time.process_time() - began:.0f} s of processor time"
        print(f"{planned.name}: fast {new['fast']:.4f}, AutoAttack {new['autoattack']:.4f}, {taken}", flush=True)
        forget()


def run(flags: argparse.Namespace) -> None:
    """Measure the missing rows or add those of the pairs, and print the table."""
    for name, fast, reference in flags.pair:
        pair = outcome(pathlib.Path(fast), "fast"), outcome(pathlib.Path(reference), "autoattack")
        store(flags, compared(name, *pair))
    if flags.run:
        measure(flags)
    print(table(stored(flags)))


if __name__ == "__main__":
    sys.exit(failures.main(parser(), run))

#!/usr/bin/env python3
"""Time AutoAttack 'standard' against the official package and its own bound: wall time, and the remaining examples.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 numpy git+https://github.com/fra31/auto-attack
    python tools/benchmarks/bench_autoattack.py --peers=peers/bin/python          # about half an hour on 2 cores

    digits      the CNN of gin/ascl_leaked.gin, 360 test images, Linf 0.2
    resnet20    a plainly trained ResNet-20 on enlarged digits, 64 images, Linf 1/255

Weights and images are the same; logits are compared first. Both sides run in turn, each in its own process. Imports and
tfrobust's first run, a warm-up, are not counted (PyTorch traces nothing). A member's time is that of its runs on the
remaining examples; tfrobust's includes the verification of its candidates.

The bound is the time of the bare passes that tfrobust's attack makes: as many forward passes and input gradients of
each batch size as an untimed run counted. Every round runs them all.

No other heavy process should run: the load average is printed. Returns 1 if tfrobust takes more than 0.6 (digits) or
0.95 (resnet20) of the official time, or more than 1.5 or 1.1 times its bound.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

from _measuring import table
from _peers import Side, add_flags, begin, make_task, run_sides

TFROBUST, OFFICIAL, BOUND = "tfrobust", "official", "bound"
SIDES = {
    TFROBUST: "_peers_tensorflow:own_autoattack",
    OFFICIAL: "_peers_torch:official_autoattack",
    BOUND: "_peers_tensorflow:own_autoattack_bound",
}
# part -> (function that makes the task, settings of it, largest ratio to the official time, and to the bound)
PARTS = {
    "digits": ("trained_digits", {"count": 360, "recipe": "ascl_leaked", "gin_param": []}, 0.6, 1.5),
    "resnet20": ("trained_resnet", {"count": 64, "epochs": 4}, 0.95, 1.1),
}
EPSILONS = {"digits": 0.2, "resnet20": 1 / 255}
# Each side's own default.
BATCHES = {"tfrobust": 256, "official": 250}


def measure(part: str, flags: argparse.Namespace, folder: pathlib.Path) -> list[Side]:
    """Run the sides of a part in turn; return the sides that run."""
    function, settings, *_ = PARTS[part]
    epsilon = EPSILONS[part] if flags.epsilon is None else flags.epsilon
    settings = settings | {"epsilon": epsilon, "norm": flags.norm, "batches": BATCHES, "threads": flags.threads}
    settings |= {"channels_last": not flags.channels_first, "count": flags.count or settings["count"]}
    if part == "digits" and flags.gin_param:
        settings["gin_param"] = flags.gin_param
    make_task(f"_peers_tensorflow:{function}", settings, folder / part)
    interpreters = {TFROBUST: sys.executable, OFFICIAL: flags.peers, BOUND: sys.executable}
    sides = {name: (SIDES[name], python) for name, python in interpreters.items() if python}
    return run_sides(sides, folder / part, flags.rounds, f"{part}: ", cold=(OFFICIAL,))


def seconds(side: Side, name: str) -> float | None:
    """Return the median seconds of a member, of 'the rest' or of 'all'; None for a member with nothing to do."""
    if name == "all":
        return side.median("wall")
    if side.name == BOUND:
        return None
    if name == "the rest":
        return statistics.median(turn["wall"] - sum(turn["members"].values()) for turn in side.rounds)
    members = [turn["members"].get(name) for turn in side.rounds]
    return None if None in members else statistics.median(members)


def rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Return a line per member and for the whole: seconds of each side, and their ratio to the official time."""
    names = list(dict.fromkeys(name for side in sides for turn in side.rounds for name in turn["members"]))
    names_of_others = [side.name for side in sides[1:]]
    lines = [("seconds", *(side.name for side in sides), *(f"ratio to {name}" for name in names_of_others))]
    for name in [*names, "the rest", "all"]:
        tfrobust_seconds, *rest = (seconds(side, name) for side in sides)
        ratios = [f"{tfrobust_seconds / value:.2f}" if tfrobust_seconds and value else "" for value in rest]
        lines.append(
            (name, *("-" if value is None else f"{value:.2f}" for value in (tfrobust_seconds, *rest)), *ratios)
        )
    blank = [""] * len(names_of_others)
    processor = [f"{side.median('processor'):.2f}" for side in sides]
    lines.append(("CPU seconds", *processor, *blank))
    lines.append(("left standing", *(str(side.rounds[-1]["right"]) for side in sides), *blank))
    return lines


def within_limits(part: str, sides: list[Side]) -> bool:
    """Return True if tfrobust keeps to the largest ratios of a part, from medians."""
    limits = dict(zip((OFFICIAL, BOUND), PARTS[part][2:], strict=True))
    tfrobust_side, *peers = sides
    return all(tfrobust_side.median() <= limits[side.name] * seconds(side, "all") for side in peers)


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, PARTS, rounds=3)
    flags.add_argument("--norm", default="Linf", choices=("Linf", "L2", "L1"), help="default Linf")
    flags.add_argument("--epsilon", type=float, help="default: 0.2 on the digits, 1/255 on ResNet-20")
    flags.add_argument("--count", type=int, help="images; default 360 and 64")
    flags.add_argument("--gin_param", action="append", default=[], help="of the digits' recipe, such as EPOCHS=1")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if a limit is violated."""
    flags = parser().parse_args(arguments)
    begin("bench_autoattack", arguments, flags.threads)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for part in flags.parts:
            sides = measure(part, flags, flags.folder or pathlib.Path(temporary))
            print(f"\n{part}: AutoAttack standard, {flags.norm}, {flags.rounds} rounds")
            print(table(rows(sides)), flush=True)
            good &= within_limits(part, sides)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

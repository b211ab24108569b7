#!/usr/bin/env python3
"""Time a training step of ADV and TRADES on ResNet-20 against the same step in PyTorch with torchattacks.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 numpy torchattacks
    python tools/benchmarks/bench_training.py --peers=peers/bin/python             # about five minutes on 2 cores

Both sides train an equal network on one batch of 128 noise images of 32x32x3, in float32: PGD with 10 steps of 2/255
at Linf 8/255 in inference mode (the divergence's for TRADES), forward and backward passes of the clean and of the
adversarial images, Adam, no weight decay. tfrobust's side is a gin file in the loop of the command, so that reading the
batch and the logs is counted. The other side is a training step as its users write it, around `torchattacks.PGD` and
`TPGD`.

Logits are compared first. The random starts differ, and so do the losses of the last round, slightly: the table shows
them. Every side has its own process, runs one warm-up step and then takes its turn in every round. The table shows the
medians of the rounds, and how many times as fast tfrobust is: the median of the rounds' ratios and its 95 % interval by
order statistics. No other heavy process should run: the load average is printed.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from _measuring import table
from _peers import Side, add_flags, begin, make_task, run_sides, speed_cells

TFROBUST, PEER = "tfrobust", "PyTorch, torchattacks"
METHODS = ("adversarial_training", "trades")
SETTINGS = {"epsilon": 8 / 255, "step_size": 2 / 255, "learning_rate": 0.001}


def measure(part: str, flags: argparse.Namespace, folder: pathlib.Path) -> list[Side]:
    """Run the sides of a part in turn and print their versions; return the sides that run."""
    settings = SETTINGS | {"method": part, "steps": flags.steps, "batch": flags.batch, "threads": flags.threads}
    settings["channels_last"] = not flags.channels_first
    make_task("_peers_tensorflow:untrained_resnet", settings, folder / part)
    sides = {TFROBUST: ("_peers_tensorflow:own_training", sys.executable)}
    if flags.peers:
        sides[PEER] = ("_peers_torch:torchattacks_training", flags.peers)
    return run_sides(sides, folder / part, flags.rounds, f"{part}: ")


def rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Return the table of a part: one line per side."""
    walls = [np.array([answer["wall"] for answer in side.rounds]) for side in sides]
    lines = [("", "step, ms", "CPU ms", "last loss", "times as fast", "95 % interval", "rounds")]
    for side, wall in zip(sides, walls, strict=True):
        line = [side.name, f"{1000 * np.median(wall):.0f}", f"{1000 * side.median('processor'):.0f}"]
        line += [f"{side.rounds[-1]['loss']:.3f}", "", "", str(len(wall))]
        if side.name == TFROBUST and len(sides) == 2:
            line[4:6] = speed_cells(walls[1] / wall)
        lines.append(tuple(line))
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, METHODS, rounds=15)
    flags.add_argument("--steps", type=int, default=10, help="of PGD; default 10")
    flags.add_argument("--batch", type=int, default=128, help="images in a batch; default 128")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    begin("bench_training", arguments, flags.threads)
    with tempfile.TemporaryDirectory() as temporary:
        for part in flags.parts:
            sides = measure(part, flags, flags.folder or pathlib.Path(temporary))
            print(f"\n{part}: a training step, PGD-{flags.steps}, batch {flags.batch}, {flags.rounds} rounds")
            print(table(rows(sides)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

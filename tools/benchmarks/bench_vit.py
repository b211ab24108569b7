#!/usr/bin/env python3
"""Time the vision transformer against PyTorch: the forward pass, and the gradient by the images.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 numpy
    python tools/benchmarks/bench_vit.py --peers=peers/bin/python             # about five minutes on 2 cores

PyTorch's network is written in the form of timm, with fused attention (`scaled_dot_product_attention`) and exact GELU.
Its weights are frozen. Both have equal weights and images in float32; logits are compared first, and the mean sizes of
the gradients afterwards. Every side has its own process, runs one warm-up round, and then takes its turn in every
round, with one forward pass first. Imports, tracing, the warm-up round and these first passes are not counted.

    vit_small16   ViT-S/16 on 224x224x3, batches of 8
    vit_tiny      the transformer of gin/models/vit_tiny.gin on 8x8x1, batches of 128

The table shows the medians of the rounds, and how many times as fast tfrobust is: the median of the rounds' ratios and
its 95 % interval by order statistics. No other heavy process should run: the load average is printed.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from _measuring import table
from _peers import Side, add_flags, begin, make_task, run_sides, speed_cells

BATCHES = {"vit_small16": 8, "vit_tiny": 128}
TFROBUST, PEER = "tfrobust", "PyTorch"
PASSES = ("forward", "gradient")
LARGEST_DIFFERENCE = 1e-3  # of the gradients' mean sizes, relative


def measure(part: str, flags: argparse.Namespace, folder: pathlib.Path) -> list[Side]:
    """Run the sides of a part in turn and print their versions; return the sides that run."""
    settings = {"network": part, "batch": flags.batch or BATCHES[part], "threads": flags.threads}
    make_task("_peers_vit:random_vit", settings, folder / part)
    sides = {TFROBUST: ("_peers_vit:own_passes", sys.executable)}
    if flags.peers:
        sides[PEER] = ("_peers_torch:vision_transformer", flags.peers)
    running = run_sides(sides, folder / part, flags.rounds, f"{part}: ")
    sizes = [side.rounds[0]["size"] for side in running]
    if max(sizes) > (1 + LARGEST_DIFFERENCE) * min(sizes):
        raise SystemExit(f"The gradients differ: their mean sizes are {sizes}.")
    return running


def seconds(side: Side, name: str) -> np.ndarray:
    """Return the times of a pass, float64 [rounds]."""
    return np.array([answer["members"][name] for answer in side.rounds])


def rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Return the table of a part: one line per side and pass."""
    peer = next((side for side in sides if side.name == PEER), None)
    lines = [("", "pass", "median, ms", "times as fast", "95 % interval", "rounds")]
    for side in sides:
        for name in PASSES:
            line = [side.name, name, f"{1000 * np.median(seconds(side, name)):.2f}", "", "", str(len(side.rounds))]
            if peer not in (None, side):
                line[3:5] = speed_cells(seconds(peer, name) / seconds(side, name))
            lines.append(tuple(line))
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, BATCHES, rounds=21)
    flags.add_argument("--batch", type=int, help="images in a batch; default 8 and 128")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    begin("bench_vit", arguments, flags.threads)
    with tempfile.TemporaryDirectory() as temporary:
        for part in flags.parts:
            sides = measure(part, flags, flags.folder or pathlib.Path(temporary))
            print(f"\n{part}, batch {flags.batch or BATCHES[part]}, {flags.rounds} rounds")
            print(table(rows(sides)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Time linear bounds (CROWN) against auto_LiRPA on the network of a model that ships with the repository.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 "numpy<2" tqdm packaging appdirs pyyaml graphviz
    peers/bin/pip install --no-deps auto-lirpa==0.3
    python tools/benchmarks/bench_bounds.py --peers=peers/bin/python          # about five minutes on 2 cores

    python tools/benchmarks/bench_bounds.py --slopes --peers=peers/bin/python

Both bound the margins of the same images with the same weights at L∞ 0.1; tfrobust in float64 with the a-priori margin
for rounding, auto_LiRPA in float32 without one. Every side has its own process, runs one warm-up round, and then takes
its turn in every round. The table has the medians of the rounds per image, how many images are certified, and how many
times as fast tfrobust is: the median of the rounds' ratios and its 95 % interval by order statistics. The images are
those of the package `dataset-fashion-mnist`, or noise without it. No other heavy process should run: the load average
is printed.

With --slopes, both bound the margins of five dense networks with random weights at L∞ 0.05 after 20 steps of ascent on
the slopes. The table has the mean bound of each network, and the least and largest difference of an image.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from _measuring import table
from _peers import add_flags, begin, make_task, run_sides, speed_cells

TFROBUST, PEER = "tfrobust", "auto_LiRPA"
MODEL = pathlib.Path(__file__).resolve().parents[2] / "exported" / "fashion_mnist_trades" / "1"


def rows(sides, count: int) -> list[tuple[str, ...]]:
    """Return the table: one line per side."""
    seconds = {side.name: np.array([answer["processor"] for answer in side.rounds]) / count for side in sides}
    lines = [("", "processor ms an image", "certified", "mean bound", "times as fast", "95 % interval", "rounds")]
    for side in sides:
        answer = side.rounds[0]
        line = [side.name, f"{1000 * np.median(seconds[side.name]):.1f}", f"{answer['certified']} of {count}"]
        line += [f"{answer['mean']:.3f}", "", "", str(len(side.rounds))]
        if side.name == TFROBUST and PEER in seconds:
            line[4:6] = speed_cells(seconds[PEER] / seconds[TFROBUST])
        lines.append(tuple(line))
    return lines


def slope_rows(sides) -> list[tuple[str, ...]]:
    """Return the table of --slopes: one line per network."""
    import _peers_bounds  # noqa: PLC0415

    bounds = [np.split(np.array(side.rounds[0]["bounds"]), len(_peers_bounds.WIDTHS)) for side in sides]
    lines = [("widths", *(side.name for side in sides), "least difference", "largest")]
    for number, widths in enumerate(_peers_bounds.WIDTHS):
        margins = [values[number] for values in bounds]
        differences = margins[0] - margins[-1]
        line = ["-".join(map(str, widths)), *(f"{values.mean():.4f}" for values in margins)]
        lines.append((*line, f"{differences.min():.1e}", f"{differences.max():.1e}"))
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, ("crown",), rounds=11)
    flags.add_argument("--count", type=int, default=128, help="images; default 128")
    flags.add_argument("--slopes", action="store_true", help="compare bounds with optimized slopes, untimed")
    flags.add_argument("--batch", type=int, default=20, help="images of a batch of auto_LiRPA; default 20")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    begin("bench_bounds", arguments, flags.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (flags.folder or pathlib.Path(temporary)) / "crown"
        settings = {"count": flags.count, "batch": flags.batch, "threads": flags.threads}
        if flags.slopes:
            make_task("_peers_bounds:drawn", settings | {"epsilon": 0.05}, folder)
        else:
            make_task("_peers_bounds:shipped", settings | {"model": str(MODEL), "epsilon": 0.1}, folder)
        ending = "_slopes" if flags.slopes else ""
        sides = {TFROBUST: (f"_peers_bounds:tfrobust{ending}", sys.executable)}
        if flags.peers:
            sides[PEER] = (f"_peers_bounds:auto_lirpa{ending}", flags.peers)
        running = run_sides(sides, folder, 1 if flags.slopes else flags.rounds)
        print(f"\n{flags.count} images, L∞ {0.05 if flags.slopes else 0.1}, {len(running[0].rounds)} rounds")
        print(table(slope_rows(running) if flags.slopes else rows(running, flags.count)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Time linear bounds (CROWN) against auto_LiRPA on the network of a model that ships with the repository.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 "numpy<2" tqdm packaging appdirs pyyaml graphviz
    peers/bin/pip install --no-deps auto-lirpa==0.3
    python tools/benchmarks/bench_bounds.py --peers=peers/bin/python          # about five minutes on 2 cores

Both bound the margins of the same images with the same weights at L∞ 0.1; tfrobust in float64 with the a-priori margin
for rounding, auto_LiRPA in float32 without one. Every side has its own process, runs one warm-up round, and then takes
its turn in every round. The table has the medians of the rounds per image, how many images are certified, and how many
times as fast tfrobust is: the median of the rounds' ratios and its 95 % interval by order statistics. The images are
those of the package `dataset-fashion-mnist`, or noise without it. No other heavy process should run: the load average
is printed.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from _peers import add_flags, begin, make_task, start, take_turns
from bench_step import progress, table

TFROBUST, PEER = "tfrobust", "auto_LiRPA"
MODEL = pathlib.Path(__file__).resolve().parents[2] / "exported" / "fashion_mnist_trades" / "1"


def rows(sides, count: int) -> list[tuple[str, ...]]:
    """Return the table: one line per side."""
    import _recipes  # noqa: F401, PLC0415 - finds tfrobust

    from tfrobust.evaluation.engine import statistics  # noqa: PLC0415

    seconds = {side.name: np.array([answer["processor"] for answer in side.rounds]) / count for side in sides}
    lines = [("", "processor ms an image", "certified", "mean bound", "times as fast", "95 % interval", "rounds")]
    for side in sides:
        answer = side.rounds[0]
        line = [side.name, f"{1000 * np.median(seconds[side.name]):.1f}", f"{answer['certified']} of {count}"]
        line += [f"{answer['mean']:.3f}", "", "", str(len(side.rounds))]
        if side.name == TFROBUST and PEER in seconds:
            value, *ends = statistics.median(seconds[PEER] / seconds[TFROBUST])
            line[4:6] = f"{value:.2f}", "" if None in ends else "{:.2f} - {:.2f}".format(*ends)
        lines.append(tuple(line))
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, ("crown",), rounds=11)
    flags.add_argument("--count", type=int, default=128, help="images; default 128")
    flags.add_argument("--batch", type=int, default=20, help="images of a batch of auto_LiRPA; default 20")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    begin("tools/benchmarks/bench_bounds.py", arguments, flags.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (flags.folder or pathlib.Path(temporary)) / "crown"
        settings = {"model": str(MODEL), "count": flags.count, "batch": flags.batch}
        make_task("_peers_bounds:shipped", settings | {"threads": flags.threads, "epsilon": 0.1}, folder)
        sides = {TFROBUST: ("_peers_bounds:tfrobust", sys.executable)}
        if flags.peers:
            sides[PEER] = ("_peers_bounds:auto_lirpa", flags.peers)
        running, messages = start(sides, folder)
        print("\n" + "\n".join(messages), flush=True)
        take_turns(running, flags.rounds, lambda text: progress(text))
        print(f"\n{flags.count} images, L∞ 0.1, {flags.rounds} rounds")
        print(table(rows(running, flags.count)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

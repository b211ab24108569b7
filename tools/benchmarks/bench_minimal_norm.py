#!/usr/bin/env python3
"""Time FMN and DDN against adv-lib and Foolbox, with the passes that they take and the distances that they reach.

    python3 -m venv peers
    peers/bin/pip install torch torchvision foolbox scikit-learn "setuptools<81" wheel
    peers/bin/pip install --no-build-isolation adv-lib==0.2.8
    python tools/benchmarks/bench_minimal_norm.py --peers=peers/bin/python --threads=1          # about three minutes

The network is the CNN of gin/adversarial_training.gin, and the images are the 360 test images of the digits. Weights
are the same; logits are compared first. The labels are the predictions, so that every image is attacked, and all
libraries take all images in a batch. Each side has its own process, runs one warm-up round and then takes its turn in
every round. The table has the median over the images of the distance, infinite where a library returns a point that
is classified correctly, the number of these images, and the median of the rounds' times per image; then how many
times as fast tfrobust is, the median of the rounds' ratios and its 95 % interval by order statistics. No other heavy
process should run: the load average is printed.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
from _measuring import table
from _peers import Side, add_flags, begin, make_task, run_sides, speed_cells

TFROBUST, PEERS = "tfrobust", {"adv-lib": "adv_lib", "Foolbox": "foolbox"}
ATTACKS = ["fmn linf", "fmn l2", "fmn l1", "fmn l0", "ddn l2"]


def rows(sides: list[Side], count: int) -> list[tuple[str, ...]]:
    """Return the table: one line per attack and side."""
    head = ("", "", "forward", "backward", "distance", "missing", "ms an image", "times as fast", "95 % interval")
    lines = [head]
    for name in sides[0].rounds[0]["attacks"]:
        times = {
            side.name: np.array([answer["attacks"][name]["seconds"] for answer in side.rounds]) / count
            for side in sides
        }
        for side in sides:
            answer = side.rounds[0]["attacks"][name]
            forward, backward = answer["passes"]
            line = [name, side.name, f"{forward:.1f}", f"{backward:.1f}", f"{answer['median']:.4f}"]
            line += [str(answer["missing"]), f"{1000 * np.median(times[side.name]):.2f}"]
            lines.append(
                (*line, *(speed_cells(times[side.name] / times[TFROBUST]) if side.name in PEERS else ("", "")))
            )
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, ATTACKS, rounds=7)
    flags.add_argument("--steps", type=int, default=100, help="of every attack; default 100")
    flags.add_argument("--count", type=int, default=360, help="images; default 360")
    flags.add_argument("--epochs", type=int, help="of the training; default those of the recipe")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    begin("bench_minimal_norm", arguments, flags.threads)
    settings = {"attacks": flags.parts, "steps": flags.steps, "threads": flags.threads, "count": flags.count}
    settings |= {"channels_last": not flags.channels_first, "recipe": "adversarial_training"}
    if flags.epochs:
        settings["gin_param"] = [f"EPOCHS={flags.epochs}"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.folder or pathlib.Path(temporary)
        make_task("_peers_tensorflow:trained_digits", settings, folder)
        sides = {TFROBUST: ("_peers_minimal_norm:tfrobust", sys.executable)}
        if flags.peers:
            sides |= {name: (f"_peers_minimal_norm:{side}", flags.peers) for name, side in PEERS.items()}
        measured = run_sides(sides, folder, flags.rounds)
        print(f"\n{flags.steps} steps, {flags.count} images, {flags.rounds} rounds")
        print(table(rows(measured, flags.count)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

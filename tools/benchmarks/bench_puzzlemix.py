#!/usr/bin/env python3
"""Measure how close Puzzle Mix comes to the lowest energy, and the cost of its step against a plain Mixup step.

    python tools/benchmarks/bench_puzzlemix.py                              # about five minutes on 2 cores

    gap     energies of random pairs like those of training (smooth images, uneven saliency): the relative excess of the
            found mask's energy over the minimum cut of SciPy. "each alone" are the masks of the cheapest level of each
            block, without its neighbors.
    step    a training step (on ResNet-20, 32x32x3) as a compiled function, by the number of blocks per side. That
            number is drawn for each step, so a training takes the mean. A Puzzle Mix step has an additional forward and
            backward pass.

Steps take turns, so that other load on the machine affects all of them equally; medians are compared.
"""

import argparse
import os
import statistics
import sys

import numpy as np
from _measuring import WARM_UP, announce, clocks, progress, since, table
from _recipes import ROOT, build, recipe
from bench_step import CLASSES, ENCODERS

sys.path.insert(0, str(ROOT / "tests"))
from oracles import puzzlemix as oracle  # noqa: E402  (literal energies and cuts, located in tests/)

PARTS = ("gap", "step")
BLOCKS = (2, 4, 8, 16)
SIDE = 32


def gaps(terms: list[np.ndarray], masks: np.ndarray) -> np.ndarray:
    """Return the relative excess of the masks' energies over the lowest ones."""
    lowest = [oracle.value(*problem, oracle.minimum_cut(*problem)) for problem in zip(*terms, strict=True)]
    reached = [oracle.value(*problem, mask) for *problem, mask in zip(*terms, masks, strict=True)]
    return np.array(reached) / lowest - 1


def gap_part(flags: argparse.Namespace) -> None:
    """Print the table of gaps."""
    import tensorflow as tf

    from tfrobust.augment.mixing import Mix
    from tfrobust.augment.puzzlemix import Puzzle
    from tfrobust.ops.grid_energy import lowest_levels

    rows = [("blocks", "mean", "99 %", "largest", "at the lowest", "each alone: mean")]
    for blocks in BLOCKS:
        images, saliency, weight, partner = oracle.pairs_of(flags.pairs, SIDE, seed=blocks)
        mix = Mix(tf.constant(weight, tf.float32), tf.constant(partner))
        terms = [part.numpy() for part in Puzzle().terms(images, saliency, mix, blocks)]
        excess = gaps(terms, lowest_levels(*terms).numpy())
        alone = gaps(terms, terms[0].argmin(axis=-1) / 2)
        numbers = (excess.mean(), np.quantile(excess, 0.99), excess.max())
        exact = f"{np.mean(excess < 1e-6):.1%}"
        rows.append((f"{blocks}x{blocks}", *(f"{x:.1e}" for x in numbers), exact, f"{alone.mean():.1e}"))
    print(f"\nEnergy above the lowest, {flags.pairs} pairs of {SIDE}x{SIDE}x3")
    print(table(rows))


def step_part(flags: argparse.Namespace) -> None:
    """Print the table of steps."""
    import tensorflow as tf

    shape, files, _ = ENCODERS[flags.encoder]
    images = tf.random.stateless_uniform([flags.batch, *shape], (0, 0))
    labels = tf.random.stateless_uniform([flags.batch], (0, 1), 0, CLASSES, tf.int32)
    recipes = {"mixup": ("mixup", [])} | {
        f"puzzlemix, {blocks}x{blocks}": ("puzzlemix", [f"Puzzle.blocks=({blocks},)"])
        for blocks in BLOCKS
        if shape[0] % blocks == 0
    }
    steps = {}
    for name, (stem, params) in recipes.items():
        method = build(recipe([f"gin/{stem}.gin", *files], params), shape, CLASSES, seed=0)
        steps[name] = tf.function(method.train_step, autograph=False)
    taken = {name: [] for name in steps}
    for number in range(WARM_UP + flags.rounds):
        progress(f"  round {number + 1 - WARM_UP} of {flags.rounds}")
        for name, step in steps.items():
            began = clocks()
            float(step((images, labels))["loss"])
            taken[name].append(since(began))
    progress("")
    medians = {
        name: [statistics.median(clock) for clock in zip(*rounds[WARM_UP:], strict=True)]
        for name, rounds in taken.items()
    }
    plain, puzzles = medians["mixup"], [medians[name] for name in steps if name != "mixup"]
    medians["puzzlemix, mean"] = [statistics.mean(clock) for clock in zip(*puzzles, strict=True)]
    ratios = {
        name: [seconds / bare for seconds, bare in zip(both, plain, strict=True)] for name, both in medians.items()
    }
    rows = [("method", "ms", "of Mixup", "of its CPU time")]
    rows += [(name, f"{1000 * both[0]:.0f}", *(f"{x:.2f}" for x in ratios[name])) for name, both in medians.items()]
    size = "x".join(map(str, shape))
    print(f"\nTraining step on {flags.encoder}, {size}, batch {flags.batch}, medians of {flags.rounds}")
    print(table(rows))


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    flags.add_argument("--parts", type=names, default=list(PARTS), help=f"some of {','.join(PARTS)}; default: all")
    flags.add_argument("--encoder", default="resnet20", choices=list(ENCODERS), help="of the steps")
    flags.add_argument("--pairs", type=int, default=400, help="of images, for each number of blocks; default 400")
    flags.add_argument("--batch", type=int, default=128, help="images in a batch; default 128")
    flags.add_argument("--rounds", type=int, default=15, help="steps of each method in turn; default 15")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    announce("bench_puzzlemix", arguments, f"{os.cpu_count()} processors")
    for name in flags.parts:
        {"gap": gap_part, "step": step_part}[name](flags)
    return 0


if __name__ == "__main__":
    sys.exit(main())

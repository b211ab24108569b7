#!/usr/bin/env python3
"""Time PGD-40 on ResNet-20 against torchattacks, Foolbox, ART and the official APGD; and generation in bfloat16.

    python3 -m venv peers
    peers/bin/pip install tensorflow torch==2.13.0 foolbox adversarial-robustness-toolbox torchattacks scikit-learn
    peers/bin/pip install git+https://github.com/fra31/auto-attack
    python tools/benchmarks/bench_attacks.py --peers=peers/bin/python          # about half an hour on 2 cores

The setting is Linf, 8/255 in steps of 2/255, 32x32x3, batches of 128, with the same weights and images; logits are
compared first. Every side has its own process, runs one warm-up round and then takes its turn in every round. Imports,
tracing and the warm-up round are not counted. PyTorch's networks have frozen weights and the faster layout.

    full        no attack succeeds: every image takes all 40 steps, on all sides. tfrobust by its training path
                (`perturb`) and by its evaluation path (`run_attack`, which also predicts before and after)
    standing    a plainly trained network at 1/255, where attacks succeed for half of the images, early and late;
                only tfrobust removes these images from the batch
    bfloat16    `perturb` through a mixed_bfloat16 copy of the network, and by `MixedPrecisionPGD`, whose last fifth of
                the steps is in float32, against float32; all evaluated in float32

The table shows images per second from the median of the rounds, and tfrobust's speed-up. No other heavy process should
run: the load average is printed. Returns 1 if tfrobust's speed-up is below 1.15 in 'full'.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

from _measuring import table
from _peers import Side, add_flags, begin, make_task, run_sides

SMALLEST_RATIO = 1.15
# About half of the images become misclassified at this radius; at 8/255 all do, within a few steps.
TRAINED_EPSILON = 1 / 255
OWN_SIDES = {
    "tfrobust, perturb": "_peers_tensorflow:own_perturb",
    "tfrobust, evaluation": "_peers_tensorflow:own_evaluation",
}
PEERS = {
    "torchattacks": "_peers_torch:torchattacks_pgd",
    "Foolbox, torch": "_peers_torch:foolbox_pgd",
    "ART, torch": "_peers_torch:art_pgd",
    "official APGD": "_peers_torch:official_apgd",
    "Foolbox, TensorFlow": "_peers_tensorflow:foolbox_pgd",
    "ART, TensorFlow": "_peers_tensorflow:art_pgd",
}
REDUCED = {
    **OWN_SIDES,
    "tfrobust, bfloat16": "_peers_tensorflow:own_perturb_bfloat16",
    "tfrobust, bfloat16 then float32": "_peers_tensorflow:own_perturb_mixed",
}
# part -> (function that makes the task, settings of it, own sides)
PARTS = {
    "full": ("random_resnet", {"count": 128}, OWN_SIDES),
    "standing": ("trained_resnet", {"count": 360}, {"tfrobust, evaluation": OWN_SIDES["tfrobust, evaluation"]}),
    "bfloat16": ("trained_resnet", {"count": 360}, REDUCED),
    "bfloat16_digits": ("trained_digits", {"count": 360, "recipe": "adversarial_training"}, REDUCED),
}


def measure(part: str, flags: argparse.Namespace, folder: pathlib.Path) -> list[Side]:
    """Run the sides of a part in turn and print their versions; return the sides that run."""
    function, own_settings, side_functions = PARTS[part]
    attack = {"steps": flags.steps, "epsilon": flags.epsilon, "step_size": flags.epsilon / 4}
    if part == "bfloat16_digits":
        attack |= {"epsilon": 0.2, "step_size": 0.02}
    elif part != "full":
        own_settings = own_settings | {"epochs": flags.epochs}
        attack |= {"epsilon": TRAINED_EPSILON, "step_size": TRAINED_EPSILON / 4}
    settings = {"batch": flags.batch, "threads": flags.threads, "channels_last": not flags.channels_first}
    folder = folder / part
    settings = settings | own_settings | attack
    settings["count"] = flags.count or settings["count"]
    make_task(f"_peers_tensorflow:{function}", settings, folder)
    sides = {name: (function, sys.executable) for name, function in side_functions.items()}
    if flags.peers and not part.startswith("bfloat16"):
        sides |= {name: (PEERS[name], flags.peers) for name in PEERS if not flags.only or name in flags.only}
    running = run_sides(sides, folder, flags.rounds, f"{part}: ")
    for side in running:
        side.count = settings["count"]
    return running


def ratio(side: Side, other: Side) -> tuple[float, float, float]:
    """Return the speed-up of `side`: the ratio of medians, and the quartiles of the rounds' ratios."""
    ratios = [b["wall"] / a["wall"] for a, b in zip(side.rounds, other.rounds, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return other.median() / side.median(), low, high


def rows(sides: list[Side], tfrobust_sides: list[Side]) -> list[tuple[str, ...]]:
    """Return the table of a part: one line per side, one ratio per side of tfrobust."""
    head = ["", "images/s", "CPU ms/image", "right"]
    for reference in tfrobust_sides:
        head += [f"ratio of {reference.name.split(', ')[1]}", "its middle half"]
    lines = [tuple(head)]
    for side in sides:
        line = [side.name, f"{side.count / side.median():.1f}", f"{1000 * side.median('processor') / side.count:.1f}"]
        line.append(f"{side.rounds[-1]['right']} of {side.count}")
        for reference in tfrobust_sides:
            value, low, high = ratio(reference, side)
            line += ["", ""] if reference is side else [f"{value:.2f}", f"{low:.2f} - {high:.2f}"]
        lines.append(tuple(line))
    return lines


def within_limits(sides: list[Side], tfrobust_sides: list[Side]) -> bool:
    """Return True if each side of tfrobust is fast enough against every other."""
    return all(
        ratio(reference, side)[0] >= SMALLEST_RATIO
        for reference in tfrobust_sides
        for side in sides
        if side not in tfrobust_sides
    )


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, PARTS, rounds=5)
    flags.add_argument("--only", type=lambda text: text.split(";"), help=f"some of the peers: {';'.join(PEERS)}")
    flags.add_argument("--steps", type=int, default=40, help="of PGD; default 40")
    flags.add_argument("--epsilon", type=float, default=8 / 255, help="of full; default 8/255")
    flags.add_argument("--batch", type=int, default=128, help="images in a batch; default 128")
    flags.add_argument("--count", type=int, help="images; default 128 where none falls, else 360")
    flags.add_argument("--epochs", type=int, default=4, help="of the plainly trained ResNet-20; default 4")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if a limit is violated."""
    flags = parser().parse_args(arguments)
    begin("bench_attacks", arguments, flags.threads)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for part in flags.parts:
            sides = measure(part, flags, flags.folder or pathlib.Path(temporary))
            tfrobust_sides = [side for side in sides if side.name in OWN_SIDES]
            print(f"\n{part}: PGD-{flags.steps}, batch {flags.batch}, {flags.rounds} rounds")
            print(table(rows(sides, tfrobust_sides)), flush=True)
            good &= part != "full" or within_limits(sides, tfrobust_sides)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

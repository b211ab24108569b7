#!/usr/bin/env python3
"""Time the 15 corruptions at 5 severities over 1,000 images of 32x32x3 against the package imagecorruptions.

    python3 -m venv peers
    peers/bin/pip install imagecorruptions "numpy<2" "scipy<1.14" "opencv-python<4.11" "scikit-image<0.22"
    python tools/benchmarks/bench_corruptions.py --peers=peers/bin/python            # about four minutes on 2 cores

imagecorruptions needs a NumPy below 2 for its fog, and for its glass blur a scikit-image below 0.20, which has no wheel
for Python 3.11. All sides run on the same images and the same machine, each in its own process, in turn.

    tfrobust                     `corruptions.corrupt` in graphs, batches of 250, with CIFAR-10-C's constants
    tfrobust, peer's constants   the same with ImageNet-C's, which imagecorruptions has for every size: the same work
    imagecorruptions             `corrupt`, image by image

Imports are not counted, nor is tfrobust's first run, which traces the 75 graphs (the peer traces nothing). Seconds are
medians of the rounds. The result is decided by the sum over the corruptions that run in the peer: returns 1 if tfrobust
is not at least 3 times as fast with both sets of constants. Frost is a special case: the peer reads a large picture
from disk for every image.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from _measuring import table
from _peers import Side, Task, add_flags, begin, run_sides

SMALLEST_RATIO = 3.0
PARTS = ("corruptions",)
OWN_SIDES = {
    "tfrobust": "_peers_corruptions:own_constants",
    "tfrobust, peer's constants": "_peers_corruptions:own_large",
}
PEER = {"imagecorruptions": "_peers_corruptions:imagecorruptions"}
NAMES = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
ALL_SHARED = "all that run in the peer"


def make_task(flags: argparse.Namespace) -> Task:
    """Make a task of smooth random pictures with edges: noise would load codecs and medians unlike photographs."""
    generator, side = np.random.default_rng(0), flags.side
    coarse = generator.uniform(0, 255, (flags.count, 4, 4, 3))
    pixels = coarse.repeat(-(-side // 4), axis=1).repeat(-(-side // 4), axis=2)[:, :side, :side]
    pixels = np.clip(pixels + generator.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8)
    settings = {"batch": flags.batch, "threads": flags.threads, "names": flags.names}
    return Task("none", pixels.astype(np.float32) / 255, np.zeros(flags.count), np.zeros([1]), {}, settings)


def measure(flags: argparse.Namespace, folder: pathlib.Path) -> list[Side]:
    """Run the sides in turn; return those that run."""
    make_task(flags).write(folder)
    sides = {name: (function, sys.executable) for name, function in OWN_SIDES.items()}
    if flags.peers:
        sides |= {name: (function, flags.peers) for name, function in PEER.items()}
    return run_sides(sides, folder, flags.rounds, cold=PEER)


def seconds(side: Side, names) -> float | None:
    """Return the median over rounds of the seconds of these corruptions together; None if one did not run."""
    if not all(name in turn["members"] for turn in side.rounds for name in names):
        return None
    return statistics.median(sum(turn["members"][name] for name in names) for turn in side.rounds)


def common(sides: list[Side]) -> list[str]:
    """Return the corruptions that run on every side."""
    return [name for name in NAMES if all(name in turn["members"] for side in sides for turn in side.rounds)]


def rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Return a line per corruption and for the whole: seconds of each side, and tfrobust's speed-ups."""
    measured = [name for name in NAMES if any(name in side.rounds[0]["members"] for side in sides)]
    tfrobust_sides, peers = sides[: len(OWN_SIDES)], sides[len(OWN_SIDES) :]
    lines = [("seconds", *(side.name for side in sides), *("ratio" for _ in tfrobust_sides if peers))]
    shared = common(sides)
    sums = {ALL_SHARED: shared, "of them without frost": [name for name in shared if name != "frost"]}
    for label, names in [*((name, [name]) for name in measured), *sums.items()]:
        taken = [seconds(side, names) for side in sides]
        cells = ["-" if value is None else f"{value:.3f}" for value in taken]
        if peers:
            cells += [
                "-" if None in (value, taken[-1]) else f"{taken[-1] / value:.1f}"
                for value in taken[: len(tfrobust_sides)]
            ]
        lines.append((label, *cells))
    return lines


def smallest(sides: list[Side]) -> float:
    """Return the smaller speed-up of tfrobust's sides over all that runs in the peer; infinity without a peer."""
    names = common(sides)
    if len(sides) == len(OWN_SIDES):
        return float("inf")
    return min(seconds(sides[-1], names) / seconds(side, names) for side in sides[: len(OWN_SIDES)])


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(flags, PARTS, rounds=2)
    flags.add_argument("--names", type=lambda text: text.split(","), default=list(NAMES), help="some corruptions")
    flags.add_argument("--count", type=int, default=1000, help="images; default 1000")
    flags.add_argument("--side", type=int, default=32, help="pixels; default 32")
    flags.add_argument("--batch", type=int, default=250, help="images in a batch of ours; default 250")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if the ratio is too small."""
    flags = parser().parse_args(arguments)
    begin("bench_corruptions", arguments, flags.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sides = measure(flags, folder)
    if len(sides) < len(OWN_SIDES):
        return 1
    print(f"\n{len(flags.names)} corruptions x 5 severities, {flags.count} images, {flags.rounds} rounds")
    print(table(rows(sides)), flush=True)
    for side in sides:
        for name, error in side.rounds[-1]["errors"].items():
            print(f"{side.name}: {name} does not run: {error}")
    return 0 if smallest(sides) >= SMALLEST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())

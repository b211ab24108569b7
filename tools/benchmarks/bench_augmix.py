#!/usr/bin/env python3
"""Time AugMix against the official procedure in Pillow: augmented views per second on one processor core.

    python tools/benchmarks/bench_augmix.py                                 # about a minute

Both sides run in one process, each on a single thread, in turn, on the same 128 pictures of 32x32x3, which are smooth
and not noise. Width is 3, depth 1 to 3, severity 3, with 9 operations.

    tfrobust    `augment.AugMix` as a compiled function, including its random draws, as the input pipeline calls it
    Pillow      the procedure of Hendrycks et al. image by image: their draws with NumPy, ImageOps, rotate, transform,
                the mixture in float32. Their normalization by torchvision is left out, which favors Pillow.

The comparison uses medians of the rounds by processor time, which other processes disturb less, and by wall time.
Returns 1 if tfrobust makes less than 1.3 times as many views.
"""

import argparse
import os
import statistics
import sys

import numpy as np
from _measuring import WARM_UP, announce, clocks, progress, since, table
from _recipes import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from oracles import augmix as pillow  # noqa: E402  (how the authors call Pillow; located in tests/)

SMALLEST_RATIO = 1.3
WIDTH, DEEPEST, SEVERITY = 3, 3, 3.0


def pictures(count: int, side: int) -> np.ndarray:
    """Draw smooth random pictures with some noise, uint8 [count, side, side, 3]."""
    generator = np.random.default_rng(0)
    coarse = generator.uniform(0, 255, (count, 4, 4, 3))
    pixels = coarse.repeat(-(-side // 4), axis=1).repeat(-(-side // 4), axis=2)[:, :side, :side]
    return np.clip(pixels + generator.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8)


def official_view(image, names: tuple[str, ...]) -> np.ndarray:
    """Make one view of a Pillow image as the authors' code does, float32 [h, w, c] in [0, 1]."""
    weights = np.float32(np.random.dirichlet([1.0] * WIDTH))
    mix = np.float32(np.random.beta(1.0, 1.0))
    clean = np.asarray(image, np.float32) / 255
    total = np.zeros_like(clean)
    for weight in weights:
        changed = image.copy()
        for _ in range(np.random.randint(1, DEEPEST + 1)):
            name = names[np.random.randint(len(names))]
            level, negative = np.random.uniform(0.1, SEVERITY), np.random.uniform() > 0.5
            changed = pillow.OPERATIONS[name](changed, pillow.parameter(name, level, negative, clean.shape[:2]))
        total += weight * (np.asarray(changed, np.float32) / 255)
    return (1 - mix) * clean + mix * total


def make_official(pixels: np.ndarray, names: tuple[str, ...]):
    """Return a function without arguments that makes one view of each picture."""
    images = [pillow.picture(values) for values in pixels]
    np.random.seed(0)
    return lambda: [official_view(image, names) for image in images]


def make_own(pixels: np.ndarray, all_operations: bool):
    """Return the same function for tfrobust; each call makes new draws."""
    import tensorflow as tf

    from tfrobust.augment.augmix import AugMix
    from tfrobust.ops import randomness

    augmix = AugMix(width=WIDTH, severity=SEVERITY, all_operations=all_operations)
    images, index = tf.constant(pixels / np.float32(255)), tf.range(len(pixels))

    @tf.function(autograph=False)
    def views(epoch):
        return augmix(images, randomness.example_keys(randomness.make_key(0, "augmentation", epoch), index))

    epochs = iter(range(1_000_000))
    return lambda: views(tf.constant(next(epochs))).numpy()


def measure(runs: dict, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall, processor) seconds of each run by round, in turn, after `WARM_UP` rounds."""
    taken = {name: [] for name in runs}
    for number in range(WARM_UP + rounds):
        progress(f"  round {number + 1 - WARM_UP} of {rounds}")
        for name, run in runs.items():
            began = clocks()
            run()
            taken[name].append(since(began))
    progress("")
    return {name: seconds[WARM_UP:] for name, seconds in taken.items()}


def rows(taken: dict[str, list[tuple[float, float]]], count: int) -> tuple[list[tuple[str, ...]], float]:
    """Return the table, and the ratio of tfrobust's views to Pillow's by processor time."""
    lines, ratios = [("", "tfrobust, views / s", "Pillow, views / s", "ratio", "its middle half")], []
    for clock, name in ((1, "processor time"), (0, "wall time")):
        tfrobust_seconds, pillow_seconds = (
            [seconds[clock] for seconds in taken[side]] for side in ("tfrobust", "Pillow")
        )
        ratios.append(statistics.median(pillow_seconds) / statistics.median(tfrobust_seconds))
        low, _, high = statistics.quantiles([b / a for a, b in zip(tfrobust_seconds, pillow_seconds, strict=True)], n=4)
        speeds = (f"{count / statistics.median(seconds):.0f}" for seconds in (tfrobust_seconds, pillow_seconds))
        lines.append((name, *speeds, f"{ratios[-1]:.2f}", f"{low:.2f} - {high:.2f}"))
    return lines, ratios[0]


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=25, help="of each side in turn; at least 2, default 25")
    flags.add_argument("--batch", type=int, default=128, help="pictures, one view of each in a round; default 128")
    flags.add_argument("--side", type=int, default=32, help="pixels; default 32")
    flags.add_argument("--all_operations", action="store_true", help="draw from 13 operations, not 9")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if the ratio is too small."""
    flags = parser().parse_args(arguments)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from tfrobust.augment.augmix import ALL_OPERATIONS, OPERATIONS

    announce("bench_augmix", arguments, f"{os.cpu_count()} processors, one thread used")
    pixels = pictures(flags.batch, flags.side)
    names = ALL_OPERATIONS if flags.all_operations else OPERATIONS
    runs = {"tfrobust": make_own(pixels, flags.all_operations), "Pillow": make_official(pixels, names)}
    lines, ratio = rows(measure(runs, flags.rounds), flags.batch)
    print(f"\nAugMix, {len(names)} operations, {flags.batch} pictures of {flags.side}x{flags.side}x3 in a round")
    print(table(lines))
    return 0 if ratio >= SMALLEST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())

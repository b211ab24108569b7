#!/usr/bin/env python3
"""Time the views of contrastive learning: per second on one processor core, and against the step that uses them.

    python tools/benchmarks/bench_views.py                                  # about a minute

Both run on a single thread, in turn. One is 2 views each of 16 pictures of 32x32x3 with SimCLR's settings for CIFAR-10.
The other is the forward and backward pass of a ResNet-18 over them (with pre-activation, which computes as much), the
least that a step of SimCLR does. Views and passes scale equally with the batch, so the batch size does not affect their
ratio. The ratio is that of the medians by processor time. Returns 1 if the views take more than 15 % of the passes.
"""

import argparse
import statistics
import sys

from _measuring import announce, table
from bench_augmix import measure, pictures

LARGEST_SHARE = 0.15


def make_views(pixels, **settings):
    """Return a function without arguments that makes two views of each picture; each call makes new draws."""
    import numpy as np
    import tensorflow as tf

    from tfrobust.augment.views import ContrastiveViews
    from tfrobust.ops import randomness

    augmentation = ContrastiveViews(**settings)
    images, index = tf.constant(pixels / np.float32(255)), tf.range(len(pixels))

    @tf.function(autograph=False)
    def views(epoch):
        keys = [randomness.make_key(0, "views", epoch, number) for number in range(2)]
        return [augmentation(images, randomness.example_keys(key, index)) for key in keys]

    epochs = iter(range(1_000_000))
    return lambda: [view.numpy() for view in views(tf.constant(next(epochs)))]


def make_passes(count: int, side: int):
    """Return a function without arguments that runs a forward and backward pass of the encoder on `count` images."""
    import tensorflow as tf

    from tfrobust.models.resnets.preact_resnet import PreActResNet18

    encoder, images = PreActResNet18(), tf.random.stateless_uniform([count, side, side, 3], (0, 1))
    encoder.build(images.shape)

    @tf.function(autograph=False)
    def passes():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder(images, training=True))
        return tape.gradient(loss, encoder.trainable_variables)

    return lambda: [gradient.numpy() for gradient in passes()]


def rows(taken: dict[str, list[tuple[float, float]]], count: int) -> tuple[list[tuple[str, ...]], float]:
    """Return the table, and the ratio of views to passes by processor time."""
    lines, shares = [("", "views / s", "views, ms", "passes, ms", "share")], []
    for clock, name in ((1, "processor time"), (0, "wall time")):
        views, passes = (statistics.median(seconds[clock] for seconds in taken[side]) for side in ("views", "passes"))
        shares.append(views / passes)
        lines.append(
            (name, f"{count / views:.0f}", f"{1e3 * views:.1f}", f"{1e3 * passes:.1f}", f"{100 * shares[-1]:.2f} %")
        )
    return lines, shares[0]


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=15, help="of each in turn; default 15")
    flags.add_argument("--batch", type=int, default=16, help="pictures, two views of each in a round; default 16")
    flags.add_argument("--side", type=int, default=32, help="pixels; default 32")
    flags.add_argument("--blur", type=float, default=0.0, help="probability of a blur; default 0, for ImageNet 0.5")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if the ratio is too large."""
    flags = parser().parse_args(arguments)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    announce("bench_views", arguments)
    views = make_views(pictures(flags.batch, flags.side), blur=flags.blur)
    taken = measure({"views": views, "passes": make_passes(2 * flags.batch, flags.side)}, flags.rounds)
    lines, share = rows(taken, 2 * flags.batch)
    print(f"two views each of {flags.batch} pictures of {flags.side}x{flags.side}x3 in a round, one thread")
    print(table(lines))
    return 0 if share <= LARGEST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())

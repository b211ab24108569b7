#!/usr/bin/env python3
"""Time the utility of all tokens of a batch of sentences by their removal: in one pass, and in many.

    python tools/benchmarks/bench_token_removal.py                          # about four minutes on 2 cores

    at once       `ops.removal.utility`: all removals of all sentences in one forward pass.
    by place      a pass for each position in the sentences, in which each sentence lacks its token there.
    one by one    a pass for each token of each sentence, with one sentence in it. Some of them are timed (--calls) and
                  extrapolated to the number of tokens. The losses of the whole sentences are given to it.

All are compiled functions on the same transformer (the paper's: 3 layers, 8 heads, 256 inner features), and return the
same numbers, which is checked. They take turns, so that other load on the machine affects all of them equally; medians
are compared.
"""

import argparse
import os
import statistics
import sys

from _measuring import WARM_UP, announce, clocks, progress, since, table
from _recipes import ROOT  # noqa: F401  (puts the checkout on the path, and keeps TensorFlow quiet)

LEAST_RATIO = 5.0
WORDS = 1000
WAYS = ("at once", "by place", "one by one")


def make_ways(flags: argparse.Namespace):
    """Return the three ways as functions without arguments, and the share of the work that 'one by one' does.

    Each function returns utilities.
    """
    import keras
    import tensorflow as tf

    from tfrobust.models.heads.linear import LinearHead
    from tfrobust.models.text_transformer import TextTransformer
    from tfrobust.ops import removal

    keras.utils.set_random_seed(0)
    encoder, head = TextTransformer(WORDS, flags.length, width=flags.width), LinearHead(2)
    encoder.build((None, flags.length))
    head.build((None, flags.width))
    tokens = tf.random.stateless_uniform([flags.batch, flags.length], (0, 0), 1, WORDS, tf.int32)
    labels = tf.random.stateless_uniform([flags.batch], (0, 1), 0, 2, tf.int32)

    @tf.function(autograph=False)
    def losses(tokens, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, head(encoder(tokens, training=False)))

    @tf.function(autograph=False)
    def at_once():
        return removal.utility(losses, tokens, labels)

    @tf.function(autograph=False)
    def without(rows, position):
        """Compute the losses of the sentences at `rows` without their token at `position`."""
        sentences = tf.gather(tokens, rows)
        shorter = removal.without(sentences, tf.fill(tf.shape(rows), position))
        return losses(tf.ensure_shape(shorter, sentences.shape), tf.gather(labels, rows))

    every, places = tf.range(flags.batch), [tf.constant(position) for position in range(flags.length)]
    spread = [number * (flags.batch * flags.length) // flags.calls for number in range(flags.calls)]
    singles = [(every[number // flags.length :][:1], places[number % flags.length]) for number in spread]
    full_losses = tf.gather(losses(tokens, labels), [number // flags.length for number in spread])

    def by_position():
        return tf.abs(
            losses(tokens, labels)[:, None] - tf.stack([without(every, position) for position in places], axis=1)
        )

    def one_by_one():
        return tf.abs(full_losses - tf.concat([without(*single) for single in singles], axis=0))

    utilities = at_once()
    tf.debugging.assert_near(by_position(), utilities, atol=1e-4)
    tf.debugging.assert_near(one_by_one(), tf.gather(tf.reshape(utilities, [-1]), spread), atol=1e-4)
    return dict(zip(WAYS, (at_once, by_position, one_by_one), strict=True)), flags.calls / (flags.batch * flags.length)


def measure(ways: dict, share: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall, processor) seconds of each way by round; 'one by one' is scaled to the whole work."""
    taken = {name: [] for name in ways}
    for number in range(WARM_UP + rounds):
        progress(f"  round {number + 1 - WARM_UP} of {rounds}")
        for name, way in ways.items():
            began = clocks()
            way().numpy()
            factor = 1 / share if name == "one by one" else 1
            taken[name].append(tuple(factor * seconds for seconds in since(began)))
    progress("")
    return {name: seconds[WARM_UP:] for name, seconds in taken.items()}


def ratios(taken: dict[str, list[tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """Return each way's time relative to 'at once', by wall and by processor time, from medians."""
    medians = {
        name: [statistics.median(clock) for clock in zip(*seconds, strict=True)] for name, seconds in taken.items()
    }
    return {
        name: tuple(mine / base for mine, base in zip(seconds, medians["at once"], strict=True))
        for name, seconds in medians.items()
    }


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--batch", type=int, default=64, help="sentences; default 64")
    flags.add_argument("--length", type=int, default=32, help="tokens of a sentence; default 32")
    flags.add_argument("--width", type=int, default=64, help="features of a token; default 64")
    flags.add_argument("--calls", type=int, default=256, help="of the way one by one in a round; default 256")
    flags.add_argument("--rounds", type=int, default=15, help="of all ways in turn; default 15")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if 'one by one' is not slower by the required factor."""
    flags = parser().parse_args(arguments)
    announce("bench_token_removal", arguments, f"{os.cpu_count()} processors")
    ways, share = make_ways(flags)
    taken = measure(ways, share, flags.rounds)
    relative = ratios(taken)
    rows = [("way", "ms", "of at once", "of its CPU time")]
    for name, seconds in taken.items():
        wall = statistics.median(seconds for seconds, _ in seconds)
        rows.append((name, f"{1000 * wall:.0f}", *(f"{ratio:.2f}" for ratio in relative[name])))
    print(f"\nUtility of {flags.batch} sentences of {flags.length} tokens, medians of {flags.rounds}")
    print(table(rows))
    good = relative["one by one"][0] >= LEAST_RATIO
    print(f"one by one takes {'at least' if good else 'less than'} {LEAST_RATIO:g} times as long as all at once")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

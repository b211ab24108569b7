#!/usr/bin/env python3
"""Show where the time of an iteration of APGD goes: in a pass of the network, by operation, and in the attack itself.

    python tools/benchmarks/bench_iteration.py                          # about half a minute on 2 cores
    TF_ENABLE_ONEDNN_OPTS=1 python tools/benchmarks/bench_iteration.py  # convolutions by oneDNN on older processors

    pass        logits of the digits CNN and the gradient by the images.
    own         what APGD (L-inf) does besides: best points, step sizes, the step. Every tensor is an argument.
    own, XLA    the same, compiled by XLA, which takes the given seconds before its first result of a batch size.

All take turns, and medians are compared. Attacks remove images, so that an evaluation has many batch sizes.
"""

import argparse
import collections
import pathlib
import statistics
import tempfile

from _measuring import WARM_UP, announce, clocks, since, table
from _recipes import ROOT  # noqa: F401  (puts the checkout on the path, and keeps TensorFlow quiet)

SHAPE = (8, 8, 1)


def make_ways(batch: int):
    """Return the ways as functions without arguments that wait for their results, and the seconds of XLA."""
    import keras
    import tensorflow as tf

    from tfrobust import keras as robust

    keras.utils.set_random_seed(0)
    model = robust.methods.Supervised(robust.models.DigitsCNN(), robust.models.LinearHead(10))
    model.build((None, *SHAPE))
    attack = robust.attacks.APGDCrossEntropy(robust.attacks.ThreatModel(epsilon=0.2), steps=100)
    images = tf.random.stateless_uniform([batch, *SHAPE], (0, 0))
    values, labels = tf.random.stateless_uniform([batch], (0, 1)), tf.zeros([batch], tf.int32)
    plan, state = attack._schedule(), attack._enter(images, images)

    @tf.function(autograph=False)
    def passes(images):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            logits = model(images, training=False)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return tape.gradient(loss, images)

    def turn(images, values, gradient, state):
        evaluated = values, gradient, tf.zeros_like(values, tf.bool)
        return attack._turn(images, lambda point: evaluated, plan, attack._moves(images), state)["point"]

    graph, compiled = tf.function(turn, autograph=False), tf.function(turn, autograph=False, jit_compile=True)
    arguments = images, values, passes(images), state
    expected, began = graph(*arguments), clocks()
    tf.debugging.assert_near(compiled(*arguments), expected, atol=1e-6)
    seconds = since(began)[0]
    ways = {"pass": lambda: passes(images), "own": lambda: graph(*arguments), "own, XLA": lambda: compiled(*arguments)}
    return {name: (lambda way=way: way().numpy()) for name, way in ways.items()}, seconds


def measure(ways: dict, rounds: int, calls: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall, processor) milliseconds of one call of each way, by round."""
    taken = {name: [] for name in ways}
    for _ in range(WARM_UP + rounds):
        for name, way in ways.items():
            began = clocks()
            for _ in range(calls):
                way()
            taken[name].append(tuple(1000 * seconds / calls for seconds in since(began)))
    return {name: seconds[WARM_UP:] for name, seconds in taken.items()}


def operations(way, calls: int) -> dict[str, float]:
    """Return the share of each kind of operation in the time of all operations, the largest first."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    total, kinds = collections.Counter(), set(dir(tf.raw_ops))
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(calls):
                way()
        space = xplane_pb2.XSpace()
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            kind = plane.event_metadata[event.metadata_id].name.rpartition(":")[2]
            # TensorFlow writes an operation as its name and kind; fused and oneDNN's kinds are not public.
            if kind.removeprefix("_MklNative").removeprefix("_Mkl").replace("_", "").removeprefix("Fused") in kinds:
                total[kind] += event.duration_ps
    return {kind: time / total.total() for kind, time in total.most_common()}


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--batches", type=int, nargs="+", default=[256, 64, 16], help="images; default 256 64 16")
    flags.add_argument("--calls", type=int, default=50, help="of each way in a round; default 50")
    flags.add_argument("--rounds", type=int, default=9, help="of all ways in turn; default 9")
    return flags


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    flags = parser().parse_args(arguments)
    announce("bench_iteration", arguments)
    rows, shares = [("ms", "images", "wall", "CPU", "seconds of XLA")], {}
    for batch in flags.batches:
        ways, seconds = make_ways(batch)
        for name, milliseconds in measure(ways, flags.rounds, flags.calls).items():
            clock = (f"{statistics.median(values):.2f}" for values in zip(*milliseconds, strict=True))
            rows.append((name, str(batch), *clock, f"{seconds:.1f}" if "XLA" in name else ""))
        shares = shares or operations(ways["pass"], flags.calls)
    print(f"\nMedians of {flags.rounds} rounds\n{table(rows)}")
    lines = [
        ("operation", "share"),
        *((kind, f"{100 * share:.1f} %") for kind, share in shares.items() if share > 5e-3),
    ]
    print(f"\nOperations of a pass of {flags.batches[0]} images\n{table(lines)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measure the cost of scaling: synchronized batch norm, deterministic operations, and the contrastive loss's memory.

    python tools/benchmarks/bench_scale.py [--rounds=15] [--parts=determinism,synchronized,memory]

The first two are ratios of medians over interleaved processes, each of which times training steps of ADV with the
digits CNN (batch 128, PGD-10): deterministic against not, and synchronized against local batch norm on two logical
CPUs. The third is the peak resident set of a process that computes the contrastive loss of 16,384 anchors and keys (128
features, leaked selection) with its gradient.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

from _recipes import ROOT

STEPS = 20
WARM_UP = 3


def child(part: str, on: bool, size: int) -> dict:
    """Return what one process measures."""
    sys.path.insert(0, str(ROOT))
    import tensorflow as tf

    if part == "memory":
        return memory(tf, size)
    if part == "determinism" and on:
        tf.config.experimental.enable_op_determinism()
    if part == "synchronized":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return {"ms": 1000 * steps(tf, replicas=2 if part == "synchronized" else 1, synchronized=on)}


def steps(tf, replicas: int, synchronized: bool) -> float:
    """Return the median seconds of a training step."""
    import keras

    from tfrobust.attacks.gradient import PGD
    from tfrobust.attacks.shared.threat import ThreatModel
    from tfrobust.data import pipeline
    from tfrobust.data.sources.digits import Digits
    from tfrobust.methods.adversarial_training import AdversarialTraining
    from tfrobust.models.cnn import DigitsCNN
    from tfrobust.models.heads.linear import LinearHead

    keras.utils.set_random_seed(0)
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])
    with strategy.scope():
        method = AdversarialTraining(
            DigitsCNN(synchronized=synchronized and replicas > 1),
            LinearHead(10),
            attack=PGD(ThreatModel(epsilon=0.2), steps=10),
        )
        method.build((None, 8, 8, 1))
        method.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
        method.optimizer.build(method.trainable_variables)
    batches = pipeline.training_batches(Digits().load().train, batch_size=128, seed=0)
    if replicas > 1:
        batches = strategy.experimental_distribute_dataset(batches)

    @tf.function(autograph=False)
    def step(batch):
        strategy.run(method.train_step, args=(batch,))
        return method.get_metrics_result()["loss"]

    taken = []
    for _, batch in zip(range(WARM_UP + STEPS), batches, strict=False):
        started = time.perf_counter()
        step(batch).numpy()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[WARM_UP:])


def memory(tf, size: int) -> dict:
    """Return the peak resident set in MiB, before and after the loss and its gradient."""
    from tfrobust.losses.contrastive import masked_contrastive
    from tfrobust.pairs import masks
    from tfrobust.pairs.selection import LeakedSelection

    rows = tf.range(size)
    tags = masks.tag(rows, view=0, label=rows % 10, prediction=rows % 7)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    @tf.function(autograph=False)
    def gradient(embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            pairs = masks.ByRows(LeakedSelection(), tags, tags)
            value = tf.reduce_mean(masked_contrastive(embeddings, embeddings, pairs, temperature=0.07))
        return tape.gradient(value, embeddings)

    embeddings = tf.random.stateless_normal([size, 128], [0, 1])
    gradient(embeddings).numpy()
    return {"before": before, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(part: str, on: bool, size: int = 0) -> dict:
    """Run `child` in a new process and return its result."""
    command = [sys.executable, __file__, f"--child={part}", f"--on={int(on)}", f"--size={size}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Measure and print; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=15)
    flags.add_argument("--parts", default="determinism,synchronized,memory")
    flags.add_argument("--child", help=argparse.SUPPRESS)
    flags.add_argument("--on", type=int, default=0, help=argparse.SUPPRESS)
    flags.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    options = flags.parse_args()
    if options.child:
        print(json.dumps(child(options.child, bool(options.on), options.size)))
        return 0
    print(f"{'cost':28} {'with':>10} {'without':>10} {'ratio':>7}  middle half of the ratios")
    for part in options.parts.split(","):
        if part == "memory":
            for size in (4096, 16384):
                measured = measure(part, True, size)
                growth = measured["peak"] - measured["before"]
                print(
                    f"contrastive {size:6} x {size:<6} peak {measured['peak']:.0f} MiB, {growth:.0f} of them the loss's"
                )
            continue
        pairs = [(measure(part, True)["ms"], measure(part, False)["ms"]) for _ in range(options.rounds)]
        on, off = (statistics.median(column) for column in zip(*pairs, strict=True))
        low, _, high = statistics.quantiles([a / b for a, b in pairs], n=4) if len(pairs) > 1 else (on / off,) * 3
        print(f"{part:28} {on:7.1f} ms {off:7.1f} ms {on / off:7.3f}  {low:.3f} to {high:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

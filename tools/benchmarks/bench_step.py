#!/usr/bin/env python3
"""Time the training step against its lower bound and the wait for its batches; peak memory; startup.

The bound is the work that no implementation can leave out, as compiled functions on the same model with the same
optimizer. It consists of the attack's passes (forward in inference mode and input gradient, once per attack step; for
an attack on the divergence one clean forward pass more), forward and backward passes in training mode of the clean and
of the adversarial images, and the optimizer's update. For a method that augments its images instead of attacking them,
the bound is one forward and backward pass of as many images as it stacks, and the update; a method that measures
utility has an additional input gradient. For SimCLR it is the training of two views, with encoder, projection and
probe; for RoCL that of three, its attack on the projection, and the clean views' projections. For BYOL, MoCo v3, SwAV
and DINO it is the training of all views, the momentum network's passes of two, and the updates of both networks.
The step is that of `training.Loop` on a batch from its iterator, including reading the logs. Step and bound take turns,
so that other load on the machine affects both equally; medians are compared.

The part `pipeline` trains on batches that are made while the step runs, with the views that the method requests from
the input pipeline. It measures how long the step waits for them, and the time of a batch when nothing else runs.

    python tools/benchmarks/bench_step.py                                   # everything, about ten minutes on 2 cores
    python tools/benchmarks/bench_step.py --parts=step --encoder=digits
    python tools/benchmarks/bench_step.py --parts=step,memory --encoder=r2plus1d --methods=trades --batch=8
    python tools/benchmarks/bench_step.py --parts=pipeline --encoder=resnet18 --methods=simclr --batch=256 --rounds=5

No other heavy process should run: the load average is printed.
"""

import argparse
import dataclasses
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from _measuring import WARM_UP, announce, clocks, progress, since, table
from _recipes import ROOT, build, recipe
from _step_batches import Waited, made_batches
from _step_bounds import (
    attacks,
    compares_instances,
    has_targets,
    make_bound,
    make_instance_bound,
    make_stacked_bound,
    make_target_bound,
)

PARTS = ("step", "pipeline", "memory", "start")
# Shape of an image or clip, the gin files in addition to the method's own, and parameters.
ENCODERS = {
    "resnet20": ((32, 32, 3), ["gin/models/resnet20.gin"], []),
    "digits": ((8, 8, 1), [], []),
    # Measured only if requested.
    "resnet18": ((32, 32, 3), ["gin/models/preact_resnet18.gin"], []),
    "r2plus1d": (
        (8, 16, 16, 1),
        ["gin/models/r2plus1d18.gin"],
        ["R2Plus1D18.stem='small'", "R2Plus1D18.width=8", "EPSILON=0.1"],
    ),
    "vit_tiny": ((8, 8, 1), ["gin/models/vit_tiny.gin"], []),
}
# SimCLR's views for CIFAR-10, which cost more than those for digits; for methods that train on views.
VIEWS = [
    "ContrastiveViews.crop=(0.08, 1.0)",
    "ContrastiveViews.flip=0.5",
    "ContrastiveViews.jitter=(0.4, 0.4, 0.4, 0.1)",
]
# Smaller views of 32x32 pixels, about as much smaller as those of 96x96 are than 224x224.
LOCAL_VIEWS = ["local/ContrastiveViews.crop=(0.05, 0.4)", "local/ContrastiveViews.size=16"]
METHODS = ["adversarial_training", "trades", "ascl", "noisymix", "fcl", "simclr", "rocl"]
METHODS += ["byol", "moco_v3", "swav", "dino"]
SMALL = ("digits", "vit_tiny")  # steps of these are reported without a limit
CLASSES = 10
LARGEST_RATIO = 1.05
LARGEST_STACKED_RATIO = 1.10  # for bounds without an attack on a classifier
LARGEST_WAIT = 0.15  # as a share of a step


# ---------------------------------------------------------------------------------------------- step and bound


@dataclasses.dataclass
class Timing:
    """The times of one method: (wall, processor) seconds by round, and how often its step was traced."""

    method: str
    step: list[tuple[float, float]]
    bound: list[tuple[float, float]]
    traces: int
    limit: float = LARGEST_RATIO
    images: tuple[int, ...] = ()

    @property
    def ratios(self) -> tuple[float, float]:
        """Ratio of the median step to the median bound, by wall time and by processor time."""
        medians = [
            [statistics.median(clock) for clock in zip(*rounds, strict=True)] for rounds in (self.step, self.bound)
        ]
        return medians[0][0] / medians[1][0], medians[0][1] / medians[1][1]

    @property
    def within_limit(self) -> bool:
        """True if the ratio by wall time is within the limit."""
        return self.ratios[0] <= self.limit

    def row(self) -> tuple[str, ...]:
        """Return the method's row of the table."""
        low, _, high = statistics.quantiles([s[0] / b[0] for s, b in zip(self.step, self.bound, strict=True)], n=4)
        step, bound = (1000 * statistics.median(wall for wall, _ in rounds) for rounds in (self.step, self.bound))
        wall, processor = self.ratios
        return (
            self.method,
            shape_text(self.images),
            f"{step:.1f}",
            f"{bound:.1f}",
            f"{wall:.3f}",
            f"{low:.3f} - {high:.3f}",
            f"{processor:.3f}",
            str(len(self.step)),
            str(self.traces),
            "ok" if self.within_limit else f"above {self.limit}",
        )


def stopwatch(make_reference, rounds: int):
    """Return a callback that times training steps and runs the reference between them, after `WARM_UP` of both."""
    import keras

    class Stopwatch(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.step, self.bound, self.seen, self.reference = [], [], 0, None

        def on_train_batch_begin(self, batch, logs=None):
            self.began = clocks()

        def on_train_batch_end(self, batch, logs=None):
            step = since(self.began)
            self.reference = self.reference or make_reference()
            began = clocks()
            self.reference()
            bound = since(began)
            self.seen += 1
            if self.seen > WARM_UP:
                self.step.append(step)
                self.bound.append(bound)
                progress(f"  round {len(self.step)} of {rounds}")

    return Stopwatch()


def stand_ins(method, images) -> dict:
    """Return the parts of the images in the place of the method's views, which differ in size alone."""
    import tensorflow as tf

    from tfrobust.ops import randomness

    views = method.host_views(images[:1], randomness.example_keys(randomness.make_key(0), tf.range(1)))
    return {name: images[(slice(None), *map(slice, view.shape[1:]))] for name, view in views.items()}


def train_some(method, images, labels, steps: int, callbacks=(), dataset=None) -> int:
    """Run some steps of the loop on one batch or on a dataset; return how often the step was traced."""
    import tensorflow as tf

    from tfrobust.structs import Batch
    from tfrobust.training.loop import Loop

    traces, plain = [], method.train_step

    def counted_step(data):
        traces.append(1)
        return plain(data)

    method.train_step = counted_step
    views = stand_ins(method, images) if method.host_view_names else {}  # those of the input pipeline are given
    batch = Batch(images, labels, tf.range(len(labels), dtype=tf.int64), views)
    dataset = tf.data.Dataset.from_tensors(batch).repeat() if dataset is None else dataset
    with tempfile.TemporaryDirectory() as folder:
        Loop(
            method=method,
            strategy=tf.distribute.get_strategy(),
            batches=lambda step: dataset,
            steps_per_epoch=steps,
            epochs=1,
            checkpoint_directory=folder,
            callbacks=callbacks,
            checkpoint_seconds=float("inf"),
            verbose=0,
        ).run()
    return len(traces)


def make_method(name: str, encoder: str, attack_steps: int, batch: int):
    """Return a method on an encoder, and a batch of uniform noise with random labels."""
    image_shape, beside, params = ENCODERS[encoder]
    classes, files, params = CLASSES, [f"gin/{name}.gin", *beside], [*params, f"STEPS={attack_steps}"]
    parts = recipe(files, params)
    if not beside:  # the method's own task, since FCL's has larger images and more classes
        data = parts["data"].load()
        image_shape, classes = data.image_shape, data.class_count
    elif "pretraining" in parts and image_shape == (32, 32, 3):
        local = LOCAL_VIEWS if name in ("swav", "dino") else []
        parts = recipe(files, [*params, *VIEWS, *local])
    if first := parts.get("pretraining"):  # of two stages, measure the one without labels
        parts |= {"method": first.method, "optimizer": first.optimizer}
    method = build(parts, image_shape, classes, seed=0)
    if not (attacks(method) or method.host_view_names or hasattr(method, "utility")):
        raise SystemExit(f"{name} makes neither adversaries nor further views: its bound is not known here.")
    import tensorflow as tf  # after the recipe, which silences TensorFlow's import

    images = tf.random.stateless_uniform([batch, *image_shape], (0, 0))
    return method, images, tf.random.stateless_uniform([batch], (0, 1), 0, classes, tf.int32)


def measure(name: str, encoder: str, flags: argparse.Namespace) -> Timing:
    """Time one method."""
    method, images, labels = make_method(name, encoder, flags.attack_steps, flags.batch)
    instances = compares_instances(method)
    make, arguments = make_stacked_bound, images
    if has_targets(method):
        make, arguments = make_target_bound, stand_ins(method, images)
    elif instances or attacks(method):
        make = make_instance_bound if instances else make_bound
    watch = stopwatch(lambda: make(method, arguments, labels), flags.rounds)
    traces = train_some(method, images, labels, WARM_UP + flags.rounds, [watch])
    strict = has_targets(method) or attacks(method) and not instances
    limit = LARGEST_RATIO if strict else LARGEST_STACKED_RATIO
    return Timing(name, watch.step, watch.bound, traces, limit, images.shape[1:])


def step_part(flags: argparse.Namespace) -> bool:
    """Print the table of steps; return True if all are within the limit on ResNet-20 (others are only reported)."""
    good = True
    for encoder in flags.encoder:
        timings = [measure(name, encoder, flags) for name in flags.methods]
        print(f"\nTraining step on {encoder}, batch {flags.batch}, PGD-{flags.attack_steps}; milliseconds")
        head = (
            "method",
            "images",
            "step",
            "bound",
            "ratio",
            "its middle half",
            "ratio of CPU time",
            "rounds",
            "traces",
            "",
        )
        print(table([head, *(timing.row() for timing in timings)]))
        good &= all(timing.traces == 1 and (timing.within_limit or encoder in SMALL) for timing in timings)
    return good


# ---------------------------------------------------------------------------------------------------- pipeline


def pipeline_part(flags: argparse.Namespace) -> bool:
    """Print how long steps wait for batches; return True if that is a small part of a step on ResNet-20."""
    good, steps = True, WARM_UP + flags.rounds
    for encoder in flags.encoder:
        rows = [("method", "images", "step", "waiting", "share", "a batch alone", "rounds", "")]
        for name in flags.methods:
            method, images, labels = make_method(name, encoder, flags.attack_steps, flags.batch)
            if not method.host_view_names:
                continue
            waited, alone = (Waited(made_batches(method, images.shape[1:], flags.batch, CLASSES)) for _ in range(2))
            watch = stopwatch(lambda: lambda: None, flags.rounds)
            train_some(method, images, labels, steps, [watch], waited)
            for _ in zip(range(steps), alone, strict=False):
                progress("  the pipeline alone")
            step = statistics.mean(wall for wall, _ in watch.step)
            wait, batch = (statistics.mean(clock.seconds[WARM_UP:steps]) for clock in (waited, alone))
            verdict = "ok" if wait < LARGEST_WAIT * step else f"above {LARGEST_WAIT:.0%}"
            times = [f"{1000 * value:.1f}" for value in (step, wait, batch)]
            rows.append(
                (
                    name,
                    shape_text(images.shape[1:]),
                    *times[:2],
                    f"{wait / step:.1%}",
                    times[2],
                    str(flags.rounds),
                    verdict,
                )
            )
            good &= verdict == "ok" or encoder in SMALL
        print(f"\nWaiting for the input pipeline on {encoder}, batch {flags.batch}; means, milliseconds")
        print(table(rows))
        waits = ", ".join(f"{name} {share}" for name, _, _, _, share, *_ in rows[1:])
        print(f"Of a step on {encoder} is waiting for its batch: {waits or 'none asks for views'}; aim: under 15%.")
    return good


# ------------------------------------------------------------------------------------------------------ memory


def memory_part(flags: argparse.Namespace) -> bool:
    """Print the peak memory of training for two numbers of attack steps; return True if they agree within a tenth."""
    encoder, rows = flags.encoder[0], []
    for steps in flags.memory_steps:
        progress(f"  peak memory with {steps} attack steps")
        command = [f"--peak={steps}", f"--encoder={encoder}", f"--batch={flags.batch}", f"--methods={flags.methods[0]}"]
        rows.append((steps, int(python(__file__, *command).split()[-1])))
    print(f"\nPeak resident set of training {flags.methods[0]} on {encoder}, batch {flags.batch}, own process")
    print(table([("attack steps", "MB"), *((str(steps), f"{size / 1024:.0f}") for steps, size in rows)]))
    sizes = [size for _, size in rows]
    return max(sizes) <= 1.1 * min(sizes)


def print_peak(flags: argparse.Namespace) -> None:
    """Run two steps and print the peak resident set in KiB, as a process of the memory part."""
    method, images, labels = make_method(flags.methods[0], flags.encoder[0], flags.peak, flags.batch)
    train_some(method, images, labels, 2)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


# ------------------------------------------------------------------------------------------------------- start


def start_part(flags: argparse.Namespace) -> bool:
    """Print the time of `--help`, the imports and the way to the first step; return True if `--help` is quick."""
    steps = {
        "--help": lambda: seconds(lambda: python("-m", "tfrobust.train", "--help")),
        "import tensorflow, keras": lambda: import_seconds("tensorflow, keras"),
        "import tfrobust.runs.experiment": lambda: import_seconds("tfrobust.runs.experiment"),
    }
    taken = {name: [] for name in [*steps, "command to first training step", "  of it, the first step"]}
    for number in range(flags.start_rounds):
        progress(f"  start {number + 1} of {flags.start_rounds}")
        for name, run in steps.items():
            taken[name].append(run())
        total, first = first_step()
        taken["command to first training step"].append(total)
        taken["  of it, the first step"].append(first)
    print(f"\nStart, medians of {flags.start_rounds} processes; seconds")
    medians = {name: statistics.median(values) for name, values in taken.items()}
    rows = [(name, f"{medians[name]:.2f}", f"{min(v):.2f} - {max(v):.2f}") for name, v in taken.items()]
    print(table([("what", "s", "range"), *rows]))
    share = medians["import tensorflow, keras"] / medians["command to first training step"]
    print(f"TensorFlow's and Keras's own import is {share:.0%} of the way to the first step.")
    return medians["--help"] < 1.0


def import_seconds(modules: str) -> float:
    """Return the seconds of an import, measured in the process, so that its start and end are not counted."""
    clock = "time.perf_counter()"
    return float(python("-c", f"import time; began = {clock}; import {modules}; print({clock} - began)"))


def first_step() -> tuple[float, float]:
    """Return the seconds from the command to the end of the first step, and those of that step (with its trace)."""
    with tempfile.TemporaryDirectory() as folder:
        mark = pathlib.Path(folder, "mark")
        began = time.time()
        python(
            *("-m", "tfrobust.train", "--gin_file=gin/ascl_leaked.gin", "--gin_param=EPOCHS=1"),
            *("--gin_import=_first_step", "--gin_param=train.callbacks=[@FirstStep()]"),
            *(f"--gin_param=FirstStep.path='{mark}'", f"--workdir={folder}/run", f"--export_dir={folder}/exported"),
        )
        step_began, ended = map(float, mark.read_text().split())
    return ended - began, ended - step_began


# ----------------------------------------------------------------------------------------------------- details


def python(*arguments: str) -> str:
    """Run this Python on the checkout and return its output; exit with its errors if it fails."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tools" / "benchmarks")])
    environment = os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def seconds(run) -> float:
    """Return the wall time of a call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def shape_text(shape) -> str:
    """Format an image's shape as 32x32x3."""
    return "x".join(map(str, shape))


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    flags.add_argument("--parts", type=names, default=list(PARTS), help=f"some of {','.join(PARTS)}; default: all")
    flags.add_argument("--methods", type=names, default=METHODS, help="gin stems")
    flags.add_argument("--encoder", type=names, default=["resnet20", "digits"], help=f"some of {','.join(ENCODERS)}")
    flags.add_argument("--batch", type=int, default=128, help="images in a batch; default 128")
    flags.add_argument("--rounds", type=int, default=15, help="of step and bound in turn; at least 2, default 15")
    flags.add_argument("--attack_steps", type=int, default=10, help="of PGD in training; default 10")
    flags.add_argument("--memory_steps", type=int, nargs=2, default=[5, 40], help="the two compared; default 5 40")
    flags.add_argument("--start_rounds", type=int, default=3, help="processes per line of the start; default 3")
    flags.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if a limit is violated."""
    flags = parser().parse_args(arguments)
    if flags.peak is not None:
        print_peak(flags)
        return 0
    announce("bench_step", arguments, f"{os.cpu_count()} processors")
    parts = {"step": step_part, "pipeline": pipeline_part, "memory": memory_part, "start": start_part}
    verdicts = [parts[name](flags) for name in flags.parts]
    progress("")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

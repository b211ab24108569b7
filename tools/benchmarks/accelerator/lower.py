#!/usr/bin/env python3
r"""Lower training steps to XLA programs, which run.py runs and times where there are JAX and a GPU, and no TensorFlow.

Every program leaves two files: NAME.hlo.gz, and NAME.json, which says how to make its parameters, which of its results
become the parameters of the next step, and what its results are on this machine. Large parameters are not stored: both
sides draw them from the same seeds, with the mean and the deviation of the network's own initial values.

    python tools/benchmarks/accelerator/lower.py OUT                         # all programs, in the order of their value
    python tools/benchmarks/accelerator/lower.py OUT --programs=trades-digits-32-float32
    python tools/benchmarks/accelerator/lower.py OUT --list
"""

import argparse
import gzip
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import arrays
import numpy as np
from _recipes import ROOT  # noqa: F401 - finds tfrobust

from tfrobust.commands import failures
from tfrobust.errors import InputError

SMALL = 4096  # values; smaller parameters are stored
ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}, (?:may|must)-alias\)")
# Method, network, batch and precision of each program, in the order of their value.
PROGRAMS = (
    "adversarial_training-digits-128-float32",
    "adversarial_training-resnet18-128-float32",
    "bare_gradient-resnet18-128-float32",
    "bare_training-resnet18-128-float32",
    "adversarial_training-resnet18-128-mixed_bfloat16",
    "bare_gradient-resnet18-128-mixed_bfloat16",
    "bare_training-resnet18-128-mixed_bfloat16",
    "trades-resnet18-128-float32",
    "trades-resnet18-128-mixed_bfloat16",
    "adversarial_training-resnet18-128-tf32",
    "adversarial_training-wide_resnet28x10-128-mixed_bfloat16",
    "bare_gradient-wide_resnet28x10-128-mixed_bfloat16",
    "bare_training-wide_resnet28x10-128-mixed_bfloat16",
    "ascl_leaked-resnet18-128-float32",
    "n_fgsm-resnet18-128-float32",
    "adversarial_training-resnet18-512-mixed_bfloat16",
    "trades-wide_resnet28x10-128-mixed_bfloat16",
    "simclr-resnet18-512-float32",
    "noisymix-resnet18-128-float32",
    "ibp-cnn-128-float32",
    "perturb_pgd40-resnet18-128-float32",
    "adversarial_training-resnet50-64-mixed_bfloat16",
)
SHAPES = {"digits": (8, 8, 1), "cnn": (28, 28, 1), "resnet50": (224, 224, 3)}
# Steps of a training on a few batches in turn. Its losses are recorded here for the smallest network; a step of the
# largest ones is not run here at all.
TRAINING_STEPS, BATCHES = 200, 8
TRAINED = ("adversarial_training-digits-", "adversarial_training-resnet18-128-")
TRAINED_HERE = ("digits",)
NOT_RUN_HERE = ("wide_resnet28x10", "resnet50")
PRECISIONS = ("float32", "tf32", "mixed_bfloat16")


def network(name: str):
    """Return the encoder of a program."""
    from tfrobust import keras as robust

    models = robust.models
    return {
        "digits": models.DigitsCNN,
        "cnn": lambda: models.CNN(((16,), (32,)), dense=(100,), batch_normalization=False, pooling="stride"),
        "resnet18": models.ResNet18,
        "wide_resnet28x10": lambda: models.WideResNet(28, 10),
        "resnet50": models.ResNet50,
    }[name]()


def method(name: str, encoder):
    """Return the method of a program; those named `bare_...` are passes alone, of a plain method."""
    from tfrobust import keras as robust

    kinds, augment, head = robust.methods, robust.augment, robust.models.LinearHead(10)
    threat = robust.attacks.ThreatModel(epsilon=8 / 255)

    def pgd(steps=10):
        return robust.attacks.PGD(threat, steps=steps)

    def views():
        crop = augment.RandomShift(fraction=0.1)
        return {"projection": robust.models.ProjectionHead((128,), dim=64), "views": crop}

    makers = {
        "adversarial_training": lambda: kinds.AdversarialTraining(
            encoder, head, attack=pgd(), term_weights={"ce": 0.0}
        ),
        "ascl_leaked": lambda: kinds.ASCL(
            encoder, head, attack=pgd(), contrast=kinds.Contrast(selection=kinds.LeakedSelection())
        ),
        "ibp": lambda: kinds.IBP(encoder, head, epsilon=0.1),
        "n_fgsm": lambda: kinds.AdversarialTraining(
            encoder,
            head,
            adversary=kinds.FastAdversary(
                attack=robust.attacks.FGSM(threat), noise=2.0, step=1.0, projected=False, mode="inference"
            ),
            term_weights={"ce": 0.0},
        ),
        "noisymix": lambda: kinds.NoisyMix(
            encoder, head, augmentation=augment.RandomShift(fraction=0.1), mixing=kinds.Mixing(), stages=(0, 1, 2)
        ),
        "perturb_pgd40": lambda: kinds.TRADES(encoder, head, attack=pgd(40)),
        "simclr": lambda: kinds.SimCLR(encoder, head, **views()),
        "trades": lambda: kinds.TRADES(encoder, head, attack=pgd()),
    }
    return makers.get(name, lambda: kinds.Supervised(encoder, head))()


def program(name: str, model):
    """Return the function (images, labels) -> results that is lowered."""
    import tensorflow as tf

    from tfrobust.losses import classification

    if name == "bare_gradient":

        def run(images, labels):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(images)
                entropy = classification.cross_entropy(model(images, training=False), labels)
            return {"gradient": tape.gradient(entropy, images)}

    elif name == "perturb_pgd40":

        def run(images, labels):
            key = tf.constant([1, 2], tf.int32)
            predict = lambda points, training: model.propagate(points, training=training)[1]  # noqa: E731
            return {"points": model.adversary.perturb(predict, images, labels, key)}

    else:

        def run(images, labels):
            return model.train_step((images, labels))

    return run


def lower(name: str, folder: pathlib.Path) -> None:
    """Write the two files of a program.

    Args:
        name: method-network-batch-precision.
        folder: for the files.
    """
    import keras
    import tensorflow as tf

    kind, encoder, batch, precision = split(name)
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy("mixed_bfloat16" if precision == "mixed_bfloat16" else "float32")
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    model = method(kind, network(encoder))
    shape = SHAPES.get(encoder, (32, 32, 3))
    model.build((None, *shape))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    entries = [
        {"kind": "images", "shape": [batch, *shape], "dtype": "float32"},
        {"kind": "labels", "shape": [batch], "dtype": "int32", "classes": 10},
    ]
    content, description = lowered(program(kind, model), entries, encoder not in NOT_RUN_HERE)
    description["forward_flops"] = forward_flops(model, (batch, *shape))
    if name.startswith(TRAINED):
        description["training"] = training(model, entries, encoder in TRAINED_HERE)
    write(name, folder, content, description)
    keras.backend.clear_session()
    keras.mixed_precision.set_global_policy("float32")


def lowered(run, entries: list[dict], recorded: bool = True) -> tuple[bytes, dict]:
    """Lower a function, replace its large variables by drawn values, and run it.

    Args:
        run: images or tokens, labels -> a dict of results.
        entries: the descriptions of its two arguments.
        recorded: whether its results are recorded; else it is not run.

    Returns:
        The program, and the description that arrays.py and run.py read.
    """
    import tensorflow as tf

    step, described = tf.function(run, jit_compile=True), list(entries)
    inputs = [tf.constant(arrays.parameter(entry, number)) for number, entry in enumerate(described)]
    captured = step.get_concrete_function(*inputs).captured_inputs
    for number, handle in enumerate(captured, len(described)):
        entry = describe(value_of(handle))
        described.append(entry)
        if handle.dtype == tf.resource and "value" not in entry:
            tf.raw_ops.AssignVariableOp(
                resource=handle, value=tf.cast(arrays.parameter(entry, number), variable_type(handle))
            )
    lower_to = step.experimental_get_compiler_ir(*inputs)
    header = lower_to(stage="hlo").split("\n", 1)[0]
    feedback = {int(output or 0): int(parameter) for output, parameter in ALIAS.findall(header)}
    content = without_copies(lower_to(stage="hlo_serialized"))
    names = sorted(step.get_concrete_function(*inputs).structured_outputs)
    results = None
    if recorded:
        logs = step(*inputs)
        written = [captured[feedback[output] - len(inputs)] for output in sorted(feedback)]
        results = [*(np.asarray(logs[name]) for name in names), *map(value_of, written)]
    return content, {
        "parameters": described,
        "feedback": {str(output): parameter for output, parameter in feedback.items()},
        "names": names,
        "results": None if results is None else [arrays.summary(result) for result in results],
    }


def without_copies(content: bytes) -> bytes:
    """Return the program with a reshape for each copy, which the compiler removes: StableHLO has no copy."""
    from tensorflow.compiler.xla.service import hlo_pb2

    module = hlo_pb2.HloModuleProto.FromString(content)
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "copy":
                instruction.opcode = "reshape"
    return module.SerializeToString(deterministic=True)


def training(model, entries: list[dict], recorded: bool) -> dict:
    """Describe a training on a few batches in turn, with its losses if they are recorded here."""
    import tensorflow as tf

    batches = [arrays.training_batch(entries, number) for number in range(BATCHES)]
    losses = None
    if recorded:
        step = tf.function(lambda *batch: model.train_step(batch)["loss"], jit_compile=True)
        losses = [float(step(*batches[number % BATCHES])) for number in range(TRAINING_STEPS)]
    return {"batches": BATCHES, "steps": TRAINING_STEPS, "losses": losses}


def forward_flops(model, shape: tuple[int, ...]) -> int:
    """Count the floating-point operations of a forward pass of a batch in its convolutions and matrix products."""
    import tensorflow as tf

    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output().build()
    graph = tf.function(lambda images: model(images, training=False)).get_concrete_function(tf.TensorSpec(shape)).graph
    return profiler.profile(graph, options=options).total_float_ops


def describe(value: np.ndarray) -> dict:
    """Describe how to make a parameter: by its bytes if it is small, else by mean and deviation."""
    entry = {"shape": list(value.shape), "dtype": value.dtype.name}
    if value.size <= SMALL or value.dtype.kind not in "f" and value.dtype.name != "bfloat16":
        return {"kind": "stored", **entry, "value": arrays.encoded(value)}
    wide = value.astype(np.float32)
    return {"kind": "drawn", **entry, "mean": float(wide.mean()), "deviation": float(wide.std())}


def variable_type(handle):
    """Return the type of the value of a variable."""
    import tensorflow as tf

    return tf.dtypes.as_dtype(handle._handle_data.shape_and_type[0].dtype)


def value_of(handle) -> np.ndarray:
    """Return the value of a captured variable or tensor."""
    import tensorflow as tf

    if handle.dtype != tf.resource:
        return handle.numpy()
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable_type(handle)).numpy()


def write(name: str, folder: pathlib.Path, content: bytes, description: dict) -> None:
    """Write a program and its description."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.hlo.gz").write_bytes(gzip.compress(content, mtime=0))
    (folder / f"{name}.json").write_text(json.dumps({"program": name, **description}) + "\n")


def split(name: str) -> tuple[str, str, int, str]:
    """Return method, network, batch and precision of a program's name.

    Raises:
        InputError: it has not these four parts.
    """
    parts = name.split("-")
    if len(parts) != 4 or not parts[2].isdigit() or parts[3] not in PRECISIONS:
        raise InputError(f"{name!r} is no program; it is METHOD-NETWORK-BATCH-PRECISION, such as {PROGRAMS[0]}.")
    return parts[0], parts[1], int(parts[2]), parts[3]


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path("runs/accelerator"))
    flags.add_argument("--programs", default=",".join(PROGRAMS), help="names, by comma; default: all of --list")
    flags.add_argument("--list", action="store_true", help="print the names and end")
    return flags


def main(flags: argparse.Namespace) -> None:
    """Lower the programs that have no files yet, and write their order."""
    names = flags.programs.split(",")
    for name in names:
        split(name)
    if flags.list:
        print("\n".join(names))
        return
    for number, name in enumerate(names):
        if not (flags.folder / f"{name}.json").exists():
            print(f"[{number + 1}/{len(names)}] {name}", flush=True)
            lower(name, flags.folder)
    (flags.folder / "order.txt").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    sys.exit(failures.main(parser(), main))

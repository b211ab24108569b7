#!/usr/bin/env python3
"""Run lowered training steps by JAX's XLA client: compare their results with those of TensorFlow, and time them.

    python run.py FOLDER RESULTS [--rounds=30] [--programs=NAME,NAME]
    python run.py FOLDER RESULTS --card

Needs JAX and NumPy, not TensorFlow. The parameters stay on the device: what a step writes is the parameter of the next
one. Each program leaves RESULTS/NAME.json at once, so that a cut loses one; on a GPU also its optimized program and the
time of its kernels.
"""

import argparse
import gzip
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("JAX_ENABLE_X64", "1")

import arrays
import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

ROUND_SECONDS = 0.1  # at least
PROFILED_STEPS = 3


class Program:
    """A compiled program.

    Args:
        folder: of the lowered programs.
        name: of the program.
    """

    def __init__(self, folder: pathlib.Path, name: str):
        self.description = json.loads((folder / f"{name}.json").read_text())
        self.feedback = {int(output): parameter for output, parameter in self.description["feedback"].items()}
        module = donating(gzip.decompress((folder / f"{name}.hlo.gz").read_bytes()), self.feedback)
        self.device = jax.devices()[0]
        started = time.perf_counter()
        devices, options = xla_client.DeviceList((self.device,)), xla_client.CompileOptions()
        self.compiled = xla_bridge.get_backend().compile_and_load(module, devices, options)
        self.compile_seconds = time.perf_counter() - started
        self.parameters = []

    def start(self) -> None:
        """Put the initial parameters on the device."""
        self.parameters = [self._on_device(number) for number in range(len(self.description["parameters"]))]

    def _on_device(self, number: int):
        entry = self.description["parameters"][number]
        return jax.device_put(jax.numpy.asarray(arrays.parameter(entry, number), entry["dtype"]), self.device)

    def step(self) -> list:
        """Run one step; its parameters become those of the next. Returns the results, on the device."""
        results = self.compiled.execute_sharded(self.parameters).disassemble_into_single_device_arrays()
        results = [shards[0] for shards in results]
        for output, parameter in self.feedback.items():
            self.parameters[parameter] = results[output]
        return results

    def differences(self, results: list) -> list[float]:
        """Return the relative difference of each result from TensorFlow's; none where those are not recorded."""
        described = self.description["results"]
        if described is None:
            return []
        return [arrays.difference(np.asarray(result), entry) for result, entry in zip(results, described, strict=True)]

    def losses(self) -> list[float]:
        """Train on the batches of the description in turn, from the present parameters; return the loss of each step.

        It is the mean loss of the steps so far, as the training prints it.
        """
        training = self.description["training"]
        entries, position = self.description["parameters"][:2], self.description["names"].index("loss")
        batches = [jax.device_put(arrays.training_batch(entries, number)) for number in range(training["batches"])]
        losses = []
        for number in range(training["steps"]):
            self.parameters[:2] = batches[number % len(batches)]
            losses.append(self.step()[position])
        return [float(np.asarray(loss)) for loss in losses]

    def memory(self) -> int | None:
        """Return the bytes that a step needs on the device, None if the client does not say."""
        stats = self.compiled.get_compiled_memory_stats()
        needed = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
        return needed - stats.alias_size_in_bytes or None


def donating(content: bytes, feedback: dict[int, int]) -> bytes:
    """Convert a program to StableHLO, in which each parameter that a result replaces gives its memory to that result.

    Args:
        content: the serialized HLO module.
        feedback: number of a result -> number of the parameter that it replaces.

    Returns:
        The program as bytecode.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(xla_client._xla.mlir.hlo_to_stablehlo(content))
        main = next(operation for operation in module.body.operations if ir.StringAttr(operation.name).value == "main")
        attributes = [dict(ir.DictAttr(entry)) for entry in main.arg_attrs]
        for result, parameter in feedback.items():
            kind = ir.IntegerType.get_signless(32)
            attributes[parameter]["tf.aliasing_output"] = ir.IntegerAttr.get(kind, result)
        main.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in attributes])
        converted = mlir.module_to_bytecode(module)
    # A client of a GPU does this too, and fails at operations that are not StableHLO; the client of the CPU does not.
    xla_client._xla.mlir.serialize_portable_artifact(converted, hlo.get_minimum_version())
    return converted


def seconds(step, rounds: int) -> dict:
    """Time a step: the median over rounds of some steps, and its quartiles. A round waits for its last step alone."""

    def measured(steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            results = step()
        jax.block_until_ready(results)
        return (time.perf_counter() - started) / steps

    measured(1)
    steps = max(1, math.ceil(ROUND_SECONDS / measured(2)))
    times = [measured(steps) for _ in range(rounds)]
    quartiles = statistics.quantiles(times, n=4)[::2] if rounds > 1 else times * 2
    return {"n": rounds, "steps_of_a_round": steps, "median": statistics.median(times), "quartiles": quartiles}


def kernels(step) -> dict | None:
    """Profile some steps; return the busy seconds of a step and its longest kernels, None without a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(PROFILED_STEPS):
                results = step()
            jax.block_until_ready(results)
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
    totals: dict[str, list] = {}
    for plane in planes:
        if "GPU" in plane.name:
            for event in (event for line in plane.lines if "Stream" in line.name for event in line.events):
                entry = totals.setdefault(event.name, [0, 0.0])
                entry[0] += 1
                entry[1] += event.duration_ns / 1e9 / PROFILED_STEPS
    if not totals:
        return None
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:25]
    return {
        "busy_seconds": sum(total for _, total in totals.values()),
        "kernels_of_a_step": sum(count for count, _ in totals.values()) / PROFILED_STEPS,
        "longest": [{"name": name[:120], "count": count, "seconds": total} for name, (count, total) in longest],
    }


def card(results: pathlib.Path) -> None:
    """Measure the card's rates: matrix products of each precision, and a copy."""
    size = 8192 if jax.default_backend() != "cpu" else 256
    first, second = (jax.random.normal(jax.random.key(number), (size, size), np.float32) for number in (0, 1))
    rates = {}
    for name, dtype, precision in (
        ("bfloat16", "bfloat16", None),
        ("tf32", "float32", "tensorfloat32"),
        ("float32", "float32", "highest"),
    ):
        factors = first.astype(dtype), second.astype(dtype)
        product = jax.jit(lambda a, b, precision=precision: jax.numpy.matmul(a, b, precision=precision))
        rates[name] = 2 * size**3 / seconds(lambda: product(*factors), 10)["median"]  # noqa: B023
    copy = jax.jit(lambda value: value + 1)
    large = jax.numpy.zeros((16 * size * size,), np.float32)
    document = {
        "device": str(jax.devices()[0].device_kind),
        "software": {"jax": jax.__version__, "driver": driver()},
        "flops_per_second": rates,
        "bytes_per_second": 2 * large.nbytes / seconds(lambda: copy(large), 10)["median"],
    }
    (results / "card.json").write_text(json.dumps(document, indent=1) + "\n")


def measure(program: Program, name: str, rounds: int, results: pathlib.Path) -> dict:
    """Compare, train and time one program; write its results."""
    program.start()
    first = program.step()
    names = program.description["names"]
    differences = program.differences(first)
    document = {
        "program": name,
        "device": str(program.device.device_kind),
        "software": {"jax": jax.__version__, "driver": driver()},
        "compile_seconds": program.compile_seconds,
        "forward_flops": program.description.get("forward_flops"),
        "bytes": program.memory(),
        "values": {key: float(np.asarray(value).reshape(-1)[0]) for key, value in zip(names, first, strict=False)},
        "largest_difference": {
            "returned": max(differences[: len(names)], default=None),
            "written": max(differences[len(names) :], default=None),
        },
    }
    del first
    training = program.description.get("training")
    if training:
        document["losses"] = {"here": program.losses(), "recorded": training["losses"]}
    document["step_seconds"] = seconds(program.step, rounds)
    write(results, name, document)
    if program.device.platform != "cpu":
        text = program.compiled.hlo_modules()[0].to_string()
        (results / f"{name}.optimized.hlo.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        try:
            document["profile"] = kernels(program.step)
        except Exception as error:  # the times above remain
            document["profile"] = {"error": f"{type(error).__name__}: {error}"[:500]}
        write(results, name, document)
    return document


def write(results: pathlib.Path, name: str, document: dict) -> None:
    """Write the results of a program."""
    (results / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def driver() -> str | None:
    """Return the version of the GPU's driver, None without one."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> None:
    """Measure the programs of a folder in their order."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("folder", type=pathlib.Path)
    flags.add_argument("results", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, default=30)
    flags.add_argument("--programs", default="", help="names, by comma; default: those of order.txt")
    flags.add_argument("--card", action="store_true", help="measure the rates of the card alone")
    chosen = flags.parse_args()
    chosen.results.mkdir(parents=True, exist_ok=True)
    if chosen.card:
        card(chosen.results)
        return
    names = chosen.programs.split(",") if chosen.programs else (chosen.folder / "order.txt").read_text().split()
    for name in names:
        try:
            document = measure(Program(chosen.folder, name), name, chosen.rounds, chosen.results)
        except Exception as error:  # the others still run
            document = {"program": name, "error": f"{type(error).__name__}: {error}"[:500]}
            if not (chosen.results / f"{name}.json").exists():
                write(chosen.results, name, document)
        shown = ("program", "compile_seconds", "step_seconds", "largest_difference", "bytes", "error")
        print(json.dumps({key: document[key] for key in shown if key in document}), flush=True)


if __name__ == "__main__":
    main()

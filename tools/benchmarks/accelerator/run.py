#!/usr/bin/env python3
"""Run lowered training steps by JAX's XLA client: compare their results with those of TensorFlow, and time them.

    python run.py FOLDER RESULTS [--rounds=30] [--programs=NAME,NAME] [--train=200]

Needs JAX and NumPy, not TensorFlow. The parameters stay on the device: what a step writes is the parameter of the next
one. Each program leaves RESULTS/NAME.json at once, so that a cut loses one.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import time

os.environ.setdefault("JAX_ENABLE_X64", "1")

import arrays
import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.lib import xla_client

STEPS = 5  # of a round


class Program:
    """A compiled program and its parameters on a device."""

    def __init__(self, folder: pathlib.Path, name: str):
        self.description = json.loads((folder / f"{name}.json").read_text())
        computation = xla_client.XlaComputation(gzip.decompress((folder / f"{name}.hlo.gz").read_bytes()))
        module = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        self.device = jax.devices()[0]
        started = time.perf_counter()
        devices, options = xla_client.DeviceList((self.device,)), xla_client.CompileOptions()
        self.compiled = xla_bridge.get_backend().compile_and_load(module, devices, options)
        self.compile_seconds = time.perf_counter() - started
        self.parameters = [self.put(number) for number in range(len(self.description["parameters"]))]
        self.feedback = {int(output): parameter for output, parameter in self.description["feedback"].items()}

    def put(self, number: int):
        """Return a parameter on the device."""
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
        """Return the relative difference of each result from TensorFlow's."""
        described = self.description["results"]
        return [arrays.difference(np.asarray(result), entry) for result, entry in zip(results, described, strict=True)]


def seconds(program: Program, rounds: int) -> list[float]:
    """Return the seconds of a step in each round, after a warm-up; a round waits for its last step alone."""
    measured = []
    for number in range(rounds + 2):
        started = time.perf_counter()
        for _ in range(STEPS):
            results = program.step()
        jax.block_until_ready(results)
        if number > 1:
            measured.append((time.perf_counter() - started) / STEPS)
    return measured


def losses(program: Program, steps: int) -> list[float]:
    """Train on one drawn batch, and return the loss of every tenth step."""
    position = program.description["names"].index("loss")
    return [float(np.asarray(program.step()[position])) for _ in range(steps)][:: max(1, steps // 20)]


def measure(folder: pathlib.Path, name: str, rounds: int, train: int) -> dict:
    """Compile, compare and time one program."""
    program = Program(folder, name)
    results = program.step()
    names = program.description["names"]
    differences = program.differences(results)
    document = {
        "program": name,
        "device": str(program.device.device_kind),
        "software": {"jax": jax.__version__, "driver": driver()},
        "compile_seconds": program.compile_seconds,
        "values": {key: float(np.asarray(value).reshape(-1)[0]) for key, value in zip(names, results, strict=False)},
        "largest_difference": {"returned": max(differences[: len(names)], default=0.0), "written": None},
    }
    document["largest_difference"]["written"] = max(differences[len(names) :], default=0.0)
    del results
    measured = seconds(program, rounds)
    quartiles = statistics.quantiles(measured, n=4) if len(measured) > 1 else measured * 3
    document["step_seconds"] = {"n": len(measured), "median": statistics.median(measured), "quartiles": quartiles[::2]}
    document["peak_bytes"] = (program.device.memory_stats() or {}).get("peak_bytes_in_use")
    if train and "loss" in names and "bare" not in name:
        document["losses"] = losses(program, train)
    return document


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
    flags.add_argument("--train", type=int, default=0, help="steps of a training on one batch")
    flags.add_argument("--programs", default="", help="names, by comma; default: those of order.txt")
    chosen = flags.parse_args()
    names = chosen.programs.split(",") if chosen.programs else (chosen.folder / "order.txt").read_text().split()
    chosen.results.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            document = measure(chosen.folder, name, chosen.rounds, chosen.train)
        except Exception as error:  # the others still run
            document = {"program": name, "error": f"{type(error).__name__}: {error}"[:500]}
        (chosen.results / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps({key: document.get(key) for key in ("program", "step_seconds", "error")}), flush=True)


if __name__ == "__main__":
    main()

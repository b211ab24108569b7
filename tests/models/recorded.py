"""Networks whose outputs PyTorch recorded (tests/golden): their tensors and inputs, and encoders that lack weights."""

import keras
import numpy as np
import recordings
import tensorflow as tf

from oracles import seeded_networks


def tensors_of(archive: str, name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a recorded network, by the names that they have in PyTorch."""
    tensors = {}
    for line in recordings.arrays(archive)[f"{name}/tensors"]:
        key, shape = line.split(" ")
        tensors[key] = seeded_networks.torch_tensor(name, key, tuple(int(size) for size in shape.split("x") if size))
    return tensors


def inputs_of(name: str, count: int, shape: tuple[int, ...], kind: str = "images") -> tf.Tensor:
    return tf.constant((seeded_networks.uniform(f"{name}/{kind}", (count, *shape)) + 1) / 2)


def forget(encoder: keras.Model) -> None:
    """Make all variables NaN, so that one that nothing fills is noticed."""
    for variable in encoder.variables:
        variable.assign(np.full(variable.shape, np.nan, np.float32))


def relative_error(actual, expected) -> float:
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())

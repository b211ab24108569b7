"""Weights that two frameworks can make alike from nothing: NumPy only, and no stream that a later NumPy may change."""

import math
import zlib

import numpy as np

RESNET_WIDTHS, RESNET_BLOCKS, RESNET_CLASSES = (16, 32, 64), 3, 10


def uniform(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform in (-1, 1), float32, of its own by `name`: raw PCG64 words, which NumPy keeps stable."""
    words = np.random.PCG64([2026, zlib.crc32(name.encode())]).random_raw(math.prod(shape))
    return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0).astype(np.float32).reshape(shape)


def scaled(name: str, shape: tuple[int, ...], gain: float = 2.0) -> np.ndarray:
    """Uniform of variance gain / fan-in; the last axis are the outputs."""
    return uniform(name, shape) * np.float32(math.sqrt(3 * gain / math.prod(shape[:-1])))


def perceptron(features: int, hidden: int, classes: int) -> dict[str, np.ndarray]:
    """logits = tanh(x W1 + b1) W2 + b2 of the image as one vector, channels last."""
    return {
        "hidden/kernel": scaled(f"perceptron{classes}/hidden/kernel", (features, hidden), gain=4.0),
        "hidden/bias": 0.5 * uniform(f"perceptron{classes}/hidden/bias", (hidden,)),
        "logits/kernel": scaled(f"perceptron{classes}/logits/kernel", (hidden, classes), gain=4.0),
        "logits/bias": 0.1 * uniform(f"perceptron{classes}/logits/bias", (classes,)),
    }


def convolution(name: str, size: int, inside: int, outside: int) -> dict[str, np.ndarray]:
    """A convolution with bias: kernel [size, size, in, out] as in Keras."""
    return {
        f"{name}/kernel": scaled(f"{name}/kernel", (size, size, inside, outside)),
        f"{name}/bias": 0.1 * uniform(f"{name}/bias", (outside,)),
    }


def normalization(name: str, width: int) -> dict[str, np.ndarray]:
    """Batch normalisation with moments that change something."""
    return {
        f"{name}/gamma": 1 + 0.3 * uniform(f"{name}/gamma", (width,)),
        f"{name}/beta": 0.1 * uniform(f"{name}/beta", (width,)),
        f"{name}/moving_mean": 0.1 * uniform(f"{name}/moving_mean", (width,)),
        f"{name}/moving_variance": 1.2 + 0.4 * uniform(f"{name}/moving_variance", (width,)),
    }


def resnet20() -> dict[str, np.ndarray]:
    """tfrobust's ResNet of depth 20 and a linear head of ten classes, in the order in which Keras lists its layers.

    Names: `stem`, `stage<s>/block<b>/first`, `.../second`, `.../shortcut`, `head`; `.../norm` behind a convolution.
    """
    arrays = convolution("stem", 3, 3, RESNET_WIDTHS[0]) | normalization("stem/norm", RESNET_WIDTHS[0])
    inside = RESNET_WIDTHS[0]
    for stage, width in enumerate(RESNET_WIDTHS):
        for block in range(RESNET_BLOCKS):
            name = f"stage{stage}/block{block}"
            arrays |= convolution(f"{name}/first", 3, inside, width) | normalization(f"{name}/first/norm", width)
            arrays |= convolution(f"{name}/second", 3, width, width) | normalization(f"{name}/second/norm", width)
            if inside != width:
                arrays |= convolution(f"{name}/shortcut", 1, inside, width)
            inside = width
    arrays["head/kernel"] = scaled("head/kernel", (inside, RESNET_CLASSES), gain=1.0)
    arrays["head/bias"] = 0.1 * uniform("head/bias", (RESNET_CLASSES,))
    return arrays


def variable(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """A variable of any network by its kind in Keras: kernel, bias, gamma, beta, moving_mean or moving_variance."""
    if kind == "kernel":
        return scaled(name, shape)
    middle, spread = {"gamma": (1.0, 0.3), "moving_variance": (1.2, 0.4)}.get(kind, (0.0, 0.1))
    return np.float32(middle) + np.float32(spread) * uniform(name, shape)


MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)


def torch_tensor(network: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor of a network in PyTorch by its name there: kernels [out, in, (t,) h, w], matrices [out, in], vectors.

    Pixel statistics are CIFAR-10's. Kernels have variance 1 / fan-in, so that deep networks neither fade nor explode.
    """
    last = name.rpartition(".")[2]
    if last == "num_batches_tracked":
        return np.array(7, np.int64)
    for kind, value in {"mean": MEAN, "mu": MEAN, "std": DEVIATION, "sigma": DEVIATION}.items():
        if last == kind:
            return np.array(value, np.float32).reshape(shape)
    if len(shape) == 3:  # class tokens and positions
        return uniform(f"{network}/{name}", shape)
    if len(shape) > 1:
        axes = {5: (4, 3, 0, 1, 2), 4: (3, 2, 0, 1), 2: (1, 0)}[len(shape)]
        ours = tuple(shape[axes.index(axis)] for axis in range(len(shape)))
        return scaled(f"{network}/{name}", ours, gain=1.0).transpose(axes)
    kinds = {"weight": "gamma", "running_mean": "moving_mean", "running_var": "moving_variance"}
    return variable(f"{network}/{name}", kinds.get(last, "beta"), shape)

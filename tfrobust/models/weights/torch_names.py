"""Names of tensors in PyTorch networks, and the variables of an encoder to which they belong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import keras
import numpy as np

from tfrobust.errors import InputError
from tfrobust.models.shared.blocks import ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.normalization import BranchedBatchNormalization

# Axes of a kernel: (out, in, h, w) in PyTorch, (h, w, in, out) in Keras; of a matrix: (out, in) and (in, out).
_TO_KERAS = {4: (2, 3, 1, 0), 2: (1, 0)}
_TO_TORCH = {4: (3, 2, 0, 1), 2: (1, 0)}


@dataclasses.dataclass(frozen=True)
class Naming:
    """Tensor names of one family of networks.

    Stages and convolutions of a block are numbered from `first`, blocks from 0.

    Attributes:
        name: name of the family.
        stem, stem_norm: the first convolution and its normalization.
        block: format of a block's name, by stage and block.
        convolution, norm: formats inside a block, by place.
        projection, projection_norm: the shortcut inside a block.
        final_norm: the normalization after the last stage.
        stages: number of stages of the family's networks.
        first: number of the first stage, and of the first convolution of a block.
        symmetric: whether the family pads stride 2 alike on every side.
        unused: prefixes of tensors that the family's networks contain and never use.
    """

    name: str
    stem: str
    stem_norm: str | None
    block: str
    convolution: str
    norm: str
    projection: str
    projection_norm: str | None
    final_norm: str | None
    stages: int = 4
    first: int = 1
    symmetric: bool = True
    unused: tuple[str, ...] = ()


_STAGED = ("conv1", "bn1", "layer{stage}.{block}", "conv{place}", "bn{place}")
NAMINGS = (
    Naming("torchvision", *_STAGED, "downsample.0", "downsample.1", None),
    Naming("RobustBench", *_STAGED, "shortcut.0", "shortcut.1", "bn"),
    Naming(
        "TRADES",
        *("conv1", None, "block{stage}.layer.{block}", "conv{place}", "bn{place}", "convShortcut", None, "bn1"),
        stages=3,
        unused=("sub_block1.",),
    ),
    Naming(
        "DeepMind",
        *("init_conv", None, "layer.{stage}.block.{block}", "conv_{place}", "batchnorm_{place}", "shortcut", None),
        final_norm="batchnorm",
        stages=3,
        first=0,
        symmetric=False,
    ),
)


@dataclasses.dataclass(frozen=True)
class Destination:
    """Variables that a tensor is assigned to.

    Attributes:
        variables: Keras variables; several if a normalization has branches, which all get the same values.
        shape: shape of the tensor, with PyTorch's order of axes.
        positive: true for a variance, which must not be below 0.
    """

    variables: tuple[keras.Variable, ...]
    shape: tuple[int, ...]
    positive: bool = False

    def assign(self, value: np.ndarray) -> None:
        """Assign a tensor in PyTorch's order of axes to the variables."""
        value = value.transpose(_TO_KERAS[value.ndim]) if value.ndim in _TO_KERAS else value
        for variable in self.variables:
            variable.assign(value)


def require_known(encoder: Encoder) -> None:
    """Check that an encoder is a stem and stages of residual blocks.

    Raises:
        InputError (a ValueError): another encoder.
    """
    for position, layers in enumerate(encoder.stage_layers):
        units, blocks = _split(layers)
        if not blocks or len(units) != (position == 0):
            raise InputError(
                f"{type(encoder).__name__} is none of the networks whose weights are read: ResNet18, ResNet50, "
                "PreActResNet18 and WideResNet in the forms that PyTorch's networks have."
            )


def destinations(encoder: Encoder, naming: Naming) -> dict[str, Destination] | None:
    """Map the names of all tensors that a built encoder needs to their destinations.

    Returns:
        A dict from name to destination; None if the family has no such network.
    """
    if encoder.stage_count != naming.stages:
        return None
    found: dict[str, Destination] = {}
    for name, layer in _named_layers(encoder, naming):
        if name is None:
            return None
        found |= layer_destinations(name, layer)
    return found


def layer_destinations(name: str, layer: keras.layers.Layer) -> dict[str, Destination]:
    """Map the tensor names of a convolution, a dense layer or a normalization called `name` to destinations."""
    if isinstance(layer, BranchedBatchNormalization):
        kinds = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
        made = {}
        for kind, ours in kinds.items():
            variables = tuple(getattr(norm, ours) for norm in layer.norms)
            made[f"{name}.{kind}"] = Destination(variables, tuple(variables[0].shape), positive=kind == "running_var")
        return made
    shape = tuple(layer.kernel.shape)
    made = {f"{name}.weight": Destination((layer.kernel,), tuple(shape[axis] for axis in _TO_TORCH[len(shape)]))}
    if layer.bias is not None:
        made[f"{name}.bias"] = Destination((layer.bias,), tuple(layer.bias.shape))
    return made


def _named_layers(encoder: Encoder, naming: Naming) -> Iterator[tuple[str | None, keras.layers.Layer]]:
    """Yield every convolution and normalization with its name in the family, None if the family has none."""
    for position, layers in enumerate(encoder.stage_layers):
        units, blocks = _split(layers)
        yield from _numbered(units, naming, lambda kind, _: {"conv": naming.stem, "norm": naming.stem_norm}[kind])
        for number, block in enumerate(blocks):
            yield from _block_layers(block, naming, naming.block.format(stage=position + naming.first, block=number))
    yield from _numbered(encoder.neck, naming, lambda kind, _: naming.final_norm)


def _split(layers) -> tuple[list, list]:
    """Split the layers of a stage into units and blocks."""
    blocks = [layer for layer in layers if isinstance(layer, (ResidualBlock, PreActivationBlock))]
    return [layer for layer in layers if isinstance(layer, ConvolutionUnit)], blocks


def _block_layers(block, naming: Naming, name: str) -> Iterator[tuple[str | None, keras.layers.Layer]]:
    inside = {"conv": naming.convolution, "norm": naming.norm}
    shortcut = {"conv": naming.projection, "norm": naming.projection_norm}
    plain = isinstance(block, ResidualBlock)
    path = block.units if plain else [*block.entry, *block.units]
    yield from _numbered(path, naming, lambda kind, place: f"{name}.{inside[kind].format(place=place)}")
    yield from _numbered(
        block.shortcut if plain else block.projection,
        naming,
        lambda kind, _: shortcut[kind] and f"{name}.{shortcut[kind]}",
    )


def _numbered(layers, naming: Naming, name: Callable) -> Iterator[tuple[str | None, keras.layers.Layer]]:
    """Yield the convolutions and normalizations of a chain with their names, each kind numbered separately."""
    counts = dict.fromkeys(("conv", "norm"), naming.first)
    for layer in _primitive(layers):
        kind = "norm" if isinstance(layer, BranchedBatchNormalization) else "conv"
        yield name(kind, counts[kind]), layer
        counts[kind] += 1


def _primitive(layers) -> Iterator[keras.layers.Layer]:
    for layer in layers:
        if isinstance(layer, ConvolutionUnit):
            yield from _primitive(layer.chain)
        elif isinstance(layer, (keras.layers.Conv2D, BranchedBatchNormalization)):
            yield layer

"""How networks in PyTorch name their tensors, and which variable of an encoder each of them is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import keras
import numpy as np

from tfrobust.errors import InputError
from tfrobust.models.blocks import ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.encoder import Encoder
from tfrobust.models.normalization import BranchedBatchNormalization

# PyTorch's axes of a kernel are (out, in, h, w) where Keras has (h, w, in, out), and (out, in) where it has (in, out).
_TO_KERAS = {4: (2, 3, 1, 0), 2: (1, 0)}
_TO_TORCH = {4: (3, 2, 0, 1), 2: (1, 0)}


@dataclasses.dataclass(frozen=True)
class Naming:
    """One family's names; stages and convolutions of a block count from `first`, blocks from 0.

    Attributes:
        name: of the family.
        stem, stem_norm: the first convolution and its normalisation.
        block: of stage and block.
        convolution, norm: inside a block, of a place.
        projection, projection_norm: inside a block, the shortcut's.
        final_norm: behind the last stage.
        stages: how many the family's networks have.
        symmetric: how the family pads stride 2.
        unused: begins the names of tensors that the family's networks hold and never use.
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
    """What a tensor is put into.

    Attributes:
        variables: of Keras; several where a normalisation has branches, which all get the same.
        shape: of the tensor, with PyTorch's order of axes.
        positive: a variance, which must not be below 0.
    """

    variables: tuple[keras.Variable, ...]
    shape: tuple[int, ...]
    positive: bool = False

    def assign(self, value: np.ndarray) -> None:
        """Puts a tensor into the variables."""
        value = value.transpose(_TO_KERAS[value.ndim]) if value.ndim in _TO_KERAS else value
        for variable in self.variables:
            variable.assign(value)


def require_known(encoder: Encoder) -> None:
    """An InputError (a ValueError) for an encoder that is no stem and stages of residual blocks."""
    for position, layers in enumerate(encoder.stage_layers):
        units, blocks = _split(layers)
        if not blocks or len(units) != (position == 0):
            raise InputError(
                f"{type(encoder).__name__} is none of the networks whose weights are read: ResNet18, ResNet50, "
                "PreActResNet18 and WideResNet in the forms that PyTorch's networks have."
            )


def destinations(encoder: Encoder, naming: Naming) -> dict[str, Destination] | None:
    """Name -> destination of every tensor that a built encoder needs; None if the family has no such network."""
    if encoder.stage_count != naming.stages:
        return None
    found: dict[str, Destination] = {}
    for name, layer in _named_layers(encoder, naming):
        if name is None:
            return None
        found |= layer_destinations(name, layer)
    return found


def layer_destinations(name: str, layer: keras.layers.Layer) -> dict[str, Destination]:
    """The destinations of a convolution, a dense layer or a normalisation of this name."""
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
    """Every convolution and normalisation with the name that the family gives to it, None if it knows none."""
    for position, layers in enumerate(encoder.stage_layers):
        units, blocks = _split(layers)
        yield from _numbered(units, naming, lambda kind, _: {"conv": naming.stem, "norm": naming.stem_norm}[kind])
        for number, block in enumerate(blocks):
            yield from _block_layers(block, naming, naming.block.format(stage=position + naming.first, block=number))
    yield from _numbered(encoder.neck, naming, lambda kind, _: naming.final_norm)


def _split(layers) -> tuple[list, list]:
    """The units and the blocks of a stage."""
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
    """The convolutions and the normalisations of a chain, each kind counted by itself."""
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

"""Names of the tensors of residual networks in the families of PyTorch projects."""

import dataclasses
from collections.abc import Callable, Iterator

import keras

from tfrobust.models.shared.blocks import ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.models.weights.destinations import Destination, layer_destinations
from tfrobust.models.weights.weight_files import StoredTensor


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
        symmetric: whether the family pads stride 2 symmetrically.
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

    def destinations(self, encoder: Encoder) -> dict[str, Destination] | None:
        """Map the names of all tensors that a built encoder needs to their destinations.

        Returns:
            A dict from name to destination; None if the family has no such network.
        """
        if not is_residual(encoder) or encoder.stage_count != self.stages:
            return None
        destinations: dict[str, Destination] = {}
        for name, layer in _named_layers(encoder, self):
            if name is None:
                return None
            destinations |= layer_destinations(name, layer)
        return destinations

    def fault(self, encoder: Encoder, tensors: dict[str, StoredTensor], prefix: str) -> str:
        """Return what shapes do not show and is wrong: the padding. "" if it is right."""
        kind = type(encoder).__name__
        units = [layer for layer in encoder.stage_layers[0] if hasattr(layer, "style")]
        if units[0].style.symmetric == self.symmetric:
            return ""
        padding = "symmetrically, as PyTorch does" if self.symmetric else "as Keras does"
        return (
            f"has {self.name}'s names, whose networks pad stride 2 {padding}; this {kind} does not: set "
            f"{kind}.symmetric = {self.symmetric}."
        )

    def note(self, encoder: Encoder) -> str:
        """Return what a user should know of the network; nothing for residual networks."""
        return ""


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


def is_residual(encoder: Encoder) -> bool:
    """Return True if an encoder of images is a stem and stages of residual blocks."""
    parts = [_split(layers) for layers in encoder.stage_layers]
    return encoder.input_rank == 4 and all(
        blocks and len(units) == (position == 0) for position, (units, blocks) in enumerate(parts)
    )


def _named_layers(encoder: Encoder, naming: Naming) -> Iterator[tuple[str | None, keras.layers.Layer]]:
    """Yield every convolution and normalization with its name in the family, None if the family has none."""
    for position, layers in enumerate(encoder.stage_layers):
        units, blocks = _split(layers)
        yield from _chain_layers(units, naming, lambda kind, _: {"conv": naming.stem, "norm": naming.stem_norm}[kind])
        for number, block in enumerate(blocks):
            yield from _block_layers(block, naming, naming.block.format(stage=position + naming.first, block=number))
    yield from _chain_layers(encoder.neck, naming, lambda kind, _: naming.final_norm)


def _split(layers) -> tuple[list, list]:
    """Split the layers of a stage into units and blocks."""
    blocks = [layer for layer in layers if isinstance(layer, (ResidualBlock, PreActivationBlock))]
    return [layer for layer in layers if isinstance(layer, ConvolutionUnit)], blocks


def _block_layers(block, naming: Naming, name: str) -> Iterator[tuple[str | None, keras.layers.Layer]]:
    inside = {"conv": naming.convolution, "norm": naming.norm}
    shortcut = {"conv": naming.projection, "norm": naming.projection_norm}
    plain = isinstance(block, ResidualBlock)
    path = block.units if plain else [*block.entry, *block.units]
    yield from _chain_layers(path, naming, lambda kind, position: f"{name}.{inside[kind].format(place=position)}")
    yield from _chain_layers(
        block.shortcut if plain else block.projection,
        naming,
        lambda kind, _: shortcut[kind] and f"{name}.{shortcut[kind]}",
    )


def _chain_layers(layers, naming: Naming, name: Callable) -> Iterator[tuple[str | None, keras.layers.Layer]]:
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

"""Names of the tensors of residual networks for clips in torchvision."""

import dataclasses

from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.weights.destinations import Destination, layer_destinations
from tfrobust.models.weights.weight_files import StoredTensor

_DOWNSAMPLE = ("downsample.0", "downsample.1")


@dataclasses.dataclass(frozen=True)
class ClipNaming:
    """Tensor names of one family of residual networks for clips.

    Attributes:
        network: the encoder.
        stems: convolutions and normalizations of the stem, in order.
        path: those of a block.
        name: name of the family.
        unused: prefixes of tensors that the family's networks contain and never use.
    """

    network: type[Encoder]
    stems: tuple[str, ...]
    path: tuple[str, ...]
    name: str = "torchvision"
    unused: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The first convolution."""
        return self.stems[0]

    def destinations(self, encoder: Encoder) -> dict[str, Destination] | None:
        """Map the names of all tensors that a built encoder needs to their destinations; None for another network."""
        if not isinstance(encoder, self.network):
            return None
        destinations: dict[str, Destination] = {}
        blocks_of = [list(layers) for layers in encoder.stage_layers]
        units = len(self.stems) // 2
        destinations |= _unit_destinations(self.stems, blocks_of[0][:units])
        blocks_of[0] = blocks_of[0][units:]
        for stage, blocks in enumerate(blocks_of, start=1):
            for number, block in enumerate(blocks):
                inside = [f"layer{stage}.{number}.{part}" for part in (*self.path, *_DOWNSAMPLE)]
                destinations |= _unit_destinations(inside[: len(self.path)], block.units)
                destinations |= _unit_destinations(inside[len(self.path) :], block.shortcut)
        return destinations

    def fault(self, encoder: Encoder, tensors: dict[str, StoredTensor], prefix: str) -> str:
        """Return what shapes do not show and is wrong: nothing."""
        return ""

    def note(self, encoder: Encoder) -> str:
        """Return the setting that no file contains: the dilation of the last stage."""
        return f"dilated={encoder.dilated} as in {type(encoder).__name__}.dilated, which no file shows"


def _unit_destinations(names, units) -> dict[str, Destination]:
    """Map the names of the convolution and the normalization of each unit to destinations."""
    destinations: dict[str, Destination] = {}
    for number, unit in enumerate(units):
        for name, layer in zip(names[2 * number : 2 * number + 2], unit.chain[:2], strict=True):
            destinations |= layer_destinations(name, layer)
    return destinations


NAMINGS = (
    ClipNaming(
        R2Plus1D18,
        ("stem.0", "stem.1", "stem.3", "stem.4"),
        tuple(f"conv{number}.{part}" for number in (1, 2) for part in ("0.0", "0.1", "0.3", "1")),
    ),
    ClipNaming(R3D18, ("stem.0", "stem.1"), ("conv1.0", "conv1.1", "conv2.0", "conv2.1")),
)

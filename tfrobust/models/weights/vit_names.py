"""Names of the tensors of vision transformers in the families of PyTorch projects."""

import dataclasses

import numpy as np

from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.positions import patch_sinusoids
from tfrobust.models.vit import ViT
from tfrobust.models.weights.destinations import Destination, layer_destinations
from tfrobust.models.weights.weight_files import StoredTensor

_FIXED_TOLERANCE = 2e-3  # of positions in [-1, 1], also in half precision
_MOCO_SMALL = {"width": 384, "heads": 12}


@dataclasses.dataclass(frozen=True)
class ViTNaming:
    """Tensor names of one family of vision transformers.

    Attributes:
        name: name of the family.
        stem: the projection of the patches.
        class_token, positions: the class token, and the table of positions with its row first.
        block: format of the start of a block's names.
        parts: the layers of a block: first norm, projection to queries, keys and values, projection of the attended
            values, second norm, and the two layers after it.
        norm: the last normalization.
        unused: prefixes of tensors that the family's networks contain and never use.
    """

    name: str
    stem: str
    class_token: str
    positions: str
    block: str
    parts: tuple[str, ...]
    norm: str
    unused: tuple[str, ...] = ()

    def destinations(self, encoder: Encoder) -> dict[str, Destination] | None:
        """Map the names of all tensors that a built encoder needs to their destinations; None for another network."""
        if not isinstance(encoder, ViT):
            return None
        tokens = encoder.tokens
        destinations = layer_destinations(self.stem, tokens)
        destinations |= {
            self.class_token: Destination.of(tokens.class_token),
            self.positions: Destination.of(tokens.table),
        }
        for number, (*_, block) in enumerate(encoder.stage_layers):
            first, second = block.norms
            layers = (first, block.qkv, block.out, second, *block.mlp)
            for part, layer in zip(self.parts, layers, strict=True):
                destinations |= layer_destinations(self.block.format(block=number) + part, layer)
        destinations |= layer_destinations(self.norm, encoder.neck[0])
        # PyTorch's own attention layer has no layer for queries, keys and values, but two parameters.
        return {name.replace("in_proj.", "in_proj_"): destination for name, destination in destinations.items()}

    def fault(self, encoder: ViT, tensors: dict[str, StoredTensor], prefix: str) -> str:
        """Return what shapes do not show and is wrong: positions, or heads that their values give away. "" if nothing.

        Fixed positions are those of MoCo v3, whose ViT-S has 12 heads; the others of this width have 6.
        """
        name = prefix + self.positions
        table = np.asarray(tensors[name].read(), np.float32)[0]
        rows, columns = encoder.tokens.table_grid
        fixed = encoder.width % 4 == 0 and np.allclose(
            table[1:], patch_sinusoids(rows, columns, encoder.width), rtol=0, atol=_FIXED_TOLERANCE
        )
        kind = "sinusoidal" if fixed else "learned"
        if kind != encoder.positions:
            description = "the fixed table of MoCo v3" if fixed else "no fixed table"
            return f"{name} is {description}: set ViT.positions = {kind!r}."
        if fixed and encoder.width == _MOCO_SMALL["width"] and encoder.heads != _MOCO_SMALL["heads"]:
            return (
                f"{name} is the fixed table of MoCo v3, whose ViT-S has {_MOCO_SMALL['heads']} heads, not "
                f"{encoder.heads}: set ViT.heads = {_MOCO_SMALL['heads']}."
            )
        return ""

    def note(self, encoder: ViT) -> str:
        """Return the number of heads, which no file contains and no shape shows."""
        return f"{encoder.heads} heads as in ViT.heads, which no file shows"


_ATTENTION = ("ln_1", "self_attention.in_proj", "self_attention.out_proj", "ln_2")
_TORCHVISION = ViTNaming(
    name="torchvision",
    stem="conv_proj",
    class_token="class_token",
    positions="encoder.pos_embedding",
    block="encoder.layers.encoder_layer_{block}.",
    parts=(*_ATTENTION, "mlp.0", "mlp.3"),
    norm="encoder.ln",
)
NAMINGS = (
    ViTNaming(
        "timm",
        *("patch_embed.proj", "cls_token", "pos_embed", "blocks.{block}."),
        parts=("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"),
        norm="norm",
    ),
    _TORCHVISION,
    # In the published files; torchvision renames them when it loads them.
    dataclasses.replace(_TORCHVISION, parts=(*_ATTENTION, "mlp.linear_1", "mlp.linear_2")),
)

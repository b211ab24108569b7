"""Record the outputs of vision transformers and of SwAV's ResNet-50 in PyTorch, as an oracle for their checkpoints.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_pretrained.py

The networks are built here from plain modules whose tensors are named as in DeiT, DINO, MoCo v3, torchvision and SwAV.
Weights are generated from the names alone (tests/oracles/seeded_networks.py). With `--dino=DIR`, your checkout of
facebookresearch/dino, tensors and outputs are compared with those of its own network. Needs neither tfrobust nor
TensorFlow.
"""

import argparse
import pathlib
import sys

import numpy as np
import torch
from record_checkpoints import fill, inside, outputs, resnet, save, tensors_of
from torch import nn
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Attention(nn.Module):
    """Self-attention with one projection to queries, keys and values."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        """Apply the attention."""
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        share = ((q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5).softmax(-1)
        return self.proj((share @ v).transpose(1, 2).reshape(b, n, d))


class MLP(nn.Module):
    """Two layers with an exact GELU between them."""

    def __init__(self, width: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Apply the layers."""
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """A block with timm's names."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width, eps=1e-6), MLP(width)

    def forward(self, x):
        """Apply the block."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Timm(nn.Module):
    """A vision transformer with timm's names, which DeiT, DINO and MoCo v3 have.

    Args:
        size: side of the images of which the positions are.
        patch, width, depth, heads: sizes of the network.
        classes: of the linear layer `head`; 0 for none.
        fixed: positions of MoCo v3.
        feature: "class", "four" (class tokens of the last four blocks) or "both" (class token and average by turns).
    """

    def __init__(self, size, patch, width, depth, heads, classes=0, *, fixed=False, feature="class"):
        super().__init__()
        self.patch, self.grid, self.feature = patch, size // patch, feature
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid**2, width))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm, self.fixed = nn.LayerNorm(width, eps=1e-6), fixed
        if classes:
            self.head = nn.Linear(width, classes)

    def finish(self):
        """Replace the positions by the fixed ones, if they are fixed."""
        if self.fixed:
            self.pos_embed.data = fixed_positions(self.grid, self.pos_embed.shape[-1])

    def positions(self, rows: int, columns: int):
        """Return the positions for a grid of patches, resized as in DINO."""
        if rows == columns == self.grid:
            return self.pos_embed
        first, patches = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        width = patches.shape[-1]
        patches = patches.reshape(1, self.grid, self.grid, width).permute(0, 3, 1, 2)
        factors = ((rows + 0.1) / self.grid, (columns + 0.1) / self.grid)
        patches = functional.interpolate(patches, scale_factor=factors, mode="bicubic")
        return torch.cat([first, patches.permute(0, 2, 3, 1).reshape(1, rows * columns, width)], 1)

    def forward(self, images):
        """Apply the network."""
        x = self.patch_embed.proj(images)
        rows, columns = x.shape[2:]
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1)
        x, class_tokens = x + self.positions(rows, columns), []
        for block in self.blocks:
            x = block(x)
            class_tokens.append(self.norm(x)[:, 0])
        if self.feature == "four":
            return torch.cat(class_tokens[-4:], -1)
        if self.feature == "both":
            average = self.norm(x)[:, 1:].mean(1)
            return torch.cat([class_tokens[-1].unsqueeze(-1), average.unsqueeze(-1)], -1).reshape(len(x), -1)
        return self.head(class_tokens[-1]) if hasattr(self, "head") else class_tokens[-1]


def fixed_positions(grid: int, width: int) -> torch.Tensor:
    """Return MoCo v3's positions: an "ij" mesh, of which the first coordinate comes first, and zeros for the class."""
    frequencies = 1.0 / 10000 ** (torch.arange(width // 4, dtype=torch.float32) / (width // 4))
    places = torch.arange(grid, dtype=torch.float32)
    first, second = torch.meshgrid(places, places, indexing="ij")
    first, second = (torch.outer(coordinates.flatten(), frequencies) for coordinates in (first, second))
    table = torch.cat([first.sin(), first.cos(), second.sin(), second.cos()], 1)
    return torch.cat([torch.zeros(1, width), table])[None]


class TorchvisionBlock(nn.Module):
    """A block with torchvision's names and PyTorch's own attention."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(), nn.Linear(4 * width, width), nn.Dropout()
        )

    def forward(self, x):
        """Apply the block."""
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Torchvision(nn.Module):
    """A vision transformer with torchvision's names."""

    def __init__(self, size, patch, width, depth, heads, classes):
        super().__init__()
        self.class_token, self.conv_proj = nn.Parameter(torch.zeros(1, 1, width)), nn.Conv2d(3, width, patch, patch)
        self.encoder, self.heads = nn.Module(), nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, width))
        self.encoder.layers = nn.Module()
        for number in range(depth):
            setattr(self.encoder.layers, f"encoder_layer_{number}", TorchvisionBlock(width, heads))
        self.encoder.ln, self.heads.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images):
        """Apply the network."""
        x = self.conv_proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        for block in self.encoder.layers.children():
            x = block(x)
        return self.heads.head(self.encoder.ln(x)[:, 0])


def with_linear(network: nn.Module, features: int, classes: int, name: str = "") -> nn.Module:
    """Return a network, below `name` if there is one, with `module.linear` for its classifier, as in linear files."""
    holder = inside(name, network) if name else network
    linear = nn.Linear(features, classes)
    if name:
        network.linear = linear
    else:
        holder.module = nn.Module()
        holder.module.linear = linear
    plain = network.forward
    holder.forward = lambda images: linear(plain(images))
    return holder


def sequence(*sizes: int) -> nn.Sequential:
    """Return layers as in a projector: only their tensors matter."""
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)))


def moco(fixed: nn.Module, other: nn.Module) -> nn.Module:
    """Return the networks of a pre-training file of MoCo v3."""
    for network in (fixed, other):
        network.head = nn.Sequential(nn.Linear(16, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    holder = inside("base_encoder", fixed, momentum_encoder=other, predictor=sequence(4, 4))
    holder.forward = lambda images: fixed.norm(tokens_of(fixed, images))[:, 0]
    return inside("module", holder)


def tokens_of(network: Timm, images) -> torch.Tensor:
    """Return the tokens after the last block."""
    x = network.patch_embed.proj(images).flatten(2).transpose(1, 2)
    x = torch.cat([network.cls_token.expand(len(x), -1, -1), x], 1) + network.pos_embed
    for block in network.blocks:
        x = block(x)
    return x


def networks() -> dict[str, tuple]:
    """Return name -> (constructor, sizes of the images, True if names and shapes are recorded)."""
    sizes = (16, 4, 16, 5)

    def teacher():
        network = Timm(*sizes, 2)
        head = inside("mlp", sequence(16, 8, 8, 4), last_layer=nn.Linear(4, 9))
        return inside("backbone", network, head=head)

    def swav():
        network = resnet(50, 4, 0, "downsample", imagenet=True, head=None)
        network.projection_head, network.prototypes = sequence(128, 8, 4), nn.Linear(4, 9, bias=False)
        return with_linear(network, 128, 7, "module")

    return {
        "deit": (lambda: Timm(*sizes, 2, 7), [(16, 16)], True),
        "dino_small": (lambda: with_linear(Timm(*sizes, 2, feature="four"), 64, 7), [(16, 16), (24, 20)], True),
        "dino_base": (lambda: with_linear(Timm(*sizes, 4, feature="both"), 32, 7), [(16, 16), (8, 12)], True),
        "dino_teacher": (teacher, [(16, 16)], True),
        "moco_v3": (lambda: moco(Timm(*sizes, 4, fixed=True), Timm(*sizes, 4, fixed=True)), [(16, 16)], True),
        "moco_v3_linear": (lambda: inside("module", Timm(*sizes, 4, 7, fixed=True)), [(16, 16)], True),
        "torchvision": (lambda: Torchvision(*sizes, 4, 7), [(16, 16)], True),
        "swav": (swav, [(64, 64)], True),
        "full_vit_small16": (lambda: Timm(224, 16, 384, 12, 6, 1000), [(224, 224), (96, 96)], False),
        "full_vit_small8": (lambda: Timm(224, 8, 384, 12, 6, 1000), [(224, 224)], False),
        "full_vit_base16": (lambda: Torchvision(224, 16, 768, 12, 12, 1000), [(224, 224)], False),
    }


def filled_network(name: str) -> nn.Module:
    """Return a filled network in evaluation mode."""
    network = networks()[name][0]()
    fill(name, network)
    for module in network.modules():
        if isinstance(module, Timm):
            module.finish()
    return network


@torch.no_grad()
def record() -> dict[str, np.ndarray]:
    """Return `<network>/outputs/<h>x<w>` [2, k], tensors "name shape", and resized tables of positions."""
    outcome = {}
    for name, (_, sizes, listed) in networks().items():
        network = filled_network(name)
        for size in sizes:
            outcome[f"{name}/outputs/{size[0]}x{size[1]}"] = outputs(name, network, size)
        if listed:
            outcome[f"{name}/tensors"] = tensors_of(network)
        print(f"{name}: {sum(v.numel() for v in network.state_dict().values()):,} numbers", flush=True)
    outcome["fixed_positions/4"] = fixed_positions(4, 16)[0].numpy()
    outcome["fixed_positions/14"] = fixed_positions(14, 384)[0].numpy()
    for grid, rows, columns in ((14, 6, 6), (14, 24, 20), (4, 6, 5)):
        table = Timm(grid, 1, 2, 0, 1)
        fill(f"table{grid}", table)
        outcome[f"resized/{grid}/{rows}x{columns}"] = table.double().positions(rows, columns)[0].numpy()
    return outcome


@torch.no_grad()
def compare(repository: str) -> None:
    """Print how DINO's own networks differ from those here; exit with 1 if their tensors do."""
    sys.path.insert(0, repository)
    import vision_transformer

    ours = Timm(224, 16, 384, 12, 6)
    theirs = vision_transformer.vit_small(16)
    for network in (ours, theirs):
        fill("full_vit_small16", network)
    here, there = ({key: tuple(v.shape) for key, v in n.state_dict().items()} for n in (ours, theirs))
    print("the same tensors" if here == there else "OTHER tensors")
    for size in ((224, 224), (96, 96), (160, 128)):
        pair = [outputs("full_vit_small16", network, size) for network in (ours, theirs)]
        print(f"{size}: outputs differ by {np.abs(pair[0] - pair[1]).max() / np.abs(pair[1]).max():.1e}")
    table = theirs.interpolate_pos_encoding(torch.zeros(1, 1 + 36, 384), 96, 96)
    print(f"positions differ by {float((table - ours.positions(6, 6)).abs().max()):.1e}")
    ours.feature = "four"
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    last = torch.cat([x[:, 0] for x in theirs.get_intermediate_layers(images, 4)], -1)
    print(f"four class tokens differ by {float((ours(images) - last).abs().max() / last.abs().max()):.1e}")
    if here != there:
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dino")
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "pretrained.npz")
    arguments = parser.parse_args()
    if arguments.dino:
        compare(arguments.dino)
    else:
        save(arguments.output, record())

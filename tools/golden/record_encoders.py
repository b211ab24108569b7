"""Record the outputs of pre-activation networks in PyTorch, as an oracle for tests/models.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_encoders.py --repository=DIR

DIR is your checkout of https://github.com/erichson/NoisyMix. Nothing of it is copied: its networks are imported, get
weights generated from names alone, and embeddings are written. The papers' networks that the code lacks are built here
literally as printed. Needs neither tfrobust nor TensorFlow.
"""

import argparse
import pathlib
import sys
import types

import numpy as np
import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from oracles import seeded_networks  # noqa: E402

KINDS = {"bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


class Block(nn.Module):
    """A block of He et al. 2016 (Identity mappings), figure 1b; projections begin after the first ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.convolution1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.convolution2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.projects = inputs != outputs or stride != 1
        if self.projects:
            self.projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, hidden):
        """Apply the block."""
        activated = self.norm1(hidden).relu()
        shortcut = self.projection(activated) if self.projects else hidden
        return self.convolution2(self.norm2(self.convolution1(activated)).relu()) + shortcut


class Network(nn.Module):
    """A stem, one stage of blocks per width, a final normalization and ReLU, and global average pooling."""

    def __init__(self, stem: int, widths: tuple[int, ...], blocks: int):
        super().__init__()
        self.stem = nn.Conv2d(3, stem, 3, padding=1, bias=False)
        inputs = [stem, *widths]
        self.blocks = nn.ModuleList(
            nn.Sequential(
                Block(inputs[number], width, 1 if number == 0 else 2),
                *(Block(width, width, 1) for _ in range(blocks - 1)),
            )
            for number, width in enumerate(widths)
        )
        self.norm = nn.BatchNorm2d(widths[-1])

    def forward(self, hidden):
        """Apply the network."""
        hidden = self.stem(hidden)
        for stage in self.blocks:
            hidden = stage(hidden)
        return self.norm(hidden).relu().mean((2, 3))


def networks(repository: str) -> dict[str, nn.Module]:
    """Return the recorded networks by name; the authors' without their logits."""
    # A stub package, because importing theirs would load image readers that the networks do not need.
    package = types.ModuleType("src")
    package.__path__ = [str(pathlib.Path(repository, "src"))]
    sys.modules["src"] = package
    from src.cifar_models import preresnet, wide_resnet

    networks_by_name = {
        "preact_standard": Network(8, (8, 16, 32, 64), 2),
        "preact_noisymix": preresnet.PreActResNet18(width=0.125),
        "wide_paper": Network(16, (32, 64, 128), 1),
        "wide_noisymix": wide_resnet.Wide_ResNet(depth=10, widen_factor=2, dropout_rate=0.1, num_classes=10),
    }
    for network in networks_by_name.values():
        network.linear = nn.Identity()
    return networks_by_name


def fill(name: str, network: nn.Module) -> None:
    """Set a network's weights to `seeded_networks.variable`, numbered in the order of definition."""
    number = 0
    for key, value in network.state_dict().items():
        suffix = key.rpartition(".")[2]
        if suffix == "num_batches_tracked":
            continue
        convolution = value.ndim == 4
        shape = tuple(value.permute(2, 3, 1, 0).shape) if convolution else tuple(value.shape)
        kind = KINDS.get(suffix, "kernel" if convolution else "gamma")
        tensor = torch.from_numpy(seeded_networks.variable(f"{name}/{number}", kind, shape))
        value.copy_(tensor.permute(3, 2, 0, 1) if convolution else tensor)
        number += 1


@torch.no_grad()
def record(repository: str) -> dict[str, np.ndarray]:
    """Return `<name>/embedding` [2, d] and `<name>/stage<k>` [2, c], the mean over the feature map after stage k."""
    outcome = {}
    images = torch.from_numpy(seeded_networks.uniform("encoders/images", (2, 32, 32, 3))).permute(0, 3, 1, 2)
    for name, network in networks(repository).items():
        network.eval()
        fill(name, network)
        seen = []
        for stage in network.blocks:
            stage.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output.mean((2, 3))))
        outcome[f"{name}/embedding"] = network(images).numpy()
        outcome |= {f"{name}/stage{number}": output.numpy() for number, output in enumerate(seen, start=1)}
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "encoders.npz")
    arguments = parser.parse_args()
    recorded = record(arguments.repository)
    np.savez_compressed(arguments.output, **recorded)
    print(f"{arguments.output}: {len(recorded)} arrays, {pathlib.Path(arguments.output).stat().st_size / 1000:.0f} kB")

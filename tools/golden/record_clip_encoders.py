"""Record the outputs of torchvision's networks for clips, as an oracle for R2Plus1D18, R3D18 and their weights.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 torchvision numpy
    torch-env/bin/python tools/golden/record_clip_encoders.py

Weights, including batch statistics, are generated from the names of the tensors alone
(tests/oracles/seeded_networks.py). Logits are written, with the names and shapes of all tensors for the narrow
networks. The dilated networks are torchvision's with the first block of `layer4` changed as TCLR's authors do. Needs
neither tfrobust nor TensorFlow.
"""

import argparse

import numpy as np
import torch
from record_checkpoints import ROOT, fill, save, seeded_networks, tensors_of  # finds the oracles
from torch import nn

# A torchvision that was built for another torch lacks its own operators, which no network for clips needs.
torch.library.register_fake = lambda *_: lambda function: function

from torchvision.models.video import r2plus1d_18, r3d_18, resnet  # noqa: E402

CLASSES = 7


class NarrowStem(nn.Sequential):
    """torchvision's stem of R(2+1)D or R3D with another width, for 3x3 or 7x7 pixels."""

    def __init__(self, width: int, size: int, *, factorized: bool):
        stride, middle = (2, size // 2) if size == 7 else (1, size // 2)
        inside = 45 * width // 64
        if factorized:
            super().__init__(
                nn.Conv3d(3, inside, (1, size, size), (1, stride, stride), (0, middle, middle), bias=False),
                nn.BatchNorm3d(inside),
                nn.ReLU(),
                nn.Conv3d(inside, width, (3, 1, 1), 1, (1, 0, 0), bias=False),
                nn.BatchNorm3d(width),
                nn.ReLU(),
            )
        else:
            super().__init__(
                nn.Conv3d(3, width, (3, size, size), (1, stride, stride), (1, middle, middle), bias=False),
                nn.BatchNorm3d(width),
                nn.ReLU(),
            )


class Narrow(nn.Module):
    """torchvision's VideoResNet of blocks of torchvision, with another width."""

    def __init__(self, width: int, size: int, *, factorized: bool):
        super().__init__()
        self.stem = NarrowStem(width, size, factorized=factorized)
        make, inputs = resnet.Conv2Plus1D if factorized else resnet.Conv3DSimple, width
        for stage in range(4):
            outputs, stride = width * 2**stage, 2 if stage else 1
            shortcut = None
            if stride > 1:
                shortcut = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))
            blocks = [
                resnet.BasicBlock(inputs, outputs, make, stride, shortcut),
                resnet.BasicBlock(outputs, outputs, make),
            ]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, clips):
        """Apply the network."""
        hidden = self.stem(clips)
        for stage in range(1, 5):
            hidden = getattr(self, f"layer{stage}")(hidden)
        return self.fc(hidden.mean((2, 3, 4)))


def dilated(network: nn.Module, *, factorized: bool) -> nn.Module:
    """Keep the frames of layer3: dilation instead of stride in the first kernel in time of layer4."""
    block = network.layer4[0]
    kernel = block.conv1[0][3] if factorized else block.conv1[0]
    for convolution in (kernel, block.downsample[0]):
        convolution.stride = (1, *convolution.stride[1:])
    kernel.dilation = (2, 1, 1)
    kernel.padding = (2, *kernel.padding[1:])
    return network


def networks() -> dict[str, tuple]:
    """Return name -> (() -> network, (frames, height, width, channels) of the clips, whether tensors are listed)."""
    narrow = {
        f"{name}{'_dilated' if dilate else ''}": (
            lambda f=factorized, d=dilate, s=size: (
                dilated(Narrow(8, s, factorized=f), factorized=f) if d else Narrow(8, s, factorized=f)
            ),
            (frames, 16, 18, 3),
            True,
        )
        for name, factorized, size in (("r2plus1d", True, 7), ("r3d", False, 3))
        for dilate, frames in ((False, 4), (True, 9))
    }
    return narrow | {
        "full_r2plus1d": (r2plus1d_18, (16, 112, 112, 3), False),
        "full_r3d": (r3d_18, (16, 112, 112, 3), False),
    }


@torch.no_grad()
def outputs(name: str, network: nn.Module, shape: tuple[int, ...]) -> np.ndarray:
    """Set the weights, and compute the outputs for two clips in [0, 1] (one for networks of full size)."""
    fill(name, network)
    count = 1 if name.startswith("full") else 2
    clips = (seeded_networks.uniform(f"{name}/clips", (count, *shape)) + 1) / 2
    return network(torch.from_numpy(clips).permute(0, 4, 1, 2, 3)).numpy()


def record() -> dict[str, np.ndarray]:
    """Return `<network>/outputs` [n, k], for the narrow ones also `<network>/tensors`: "name shape" of each."""
    outcome = {}
    for name, (make, shape, listed) in networks().items():
        network = make()
        outcome[f"{name}/outputs"] = outputs(name, network, shape)
        if listed:
            outcome[f"{name}/tensors"] = tensors_of(network)
        print(f"{name}: {sum(value.numel() for value in network.parameters()):,} parameters", flush=True)
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "clip_encoders.npz")
    arguments = parser.parse_args()
    save(arguments.output, record())

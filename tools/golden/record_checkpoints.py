"""Record the outputs of networks of torchvision, RobustBench and SimCLR in PyTorch, as an oracle for checkpoints.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_checkpoints.py

The networks are built here from plain modules whose tensors are named as in those projects. Weights, including batch
statistics, are generated from the names alone (tests/oracles/seeded_networks.py), and logits are written: with the
names and shapes of all tensors for the narrow networks, logits alone for those of full size. With `--robustbench=DIR`,
your checkout of RobustBench, the tensors and logits are compared with those of its own networks. Needs neither tfrobust
nor TensorFlow.
"""

import argparse
import functools
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from oracles import seeded_networks  # noqa: E402


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """Return a convolution without bias, with 'same' padding by default."""
    padding = size // 2 if padding is None else padding
    return nn.Conv2d(inputs, outputs, size, stride, padding=padding, bias=False)


class Block(nn.Module):
    """A residual block with normalization and activation after each convolution; `shortcut` names its projection."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, shortcut: str):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        steps = (
            [(width, 1, 1), (width, 3, stride), (outputs, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
        )
        before, self.count, self.shortcut_name = inputs, len(steps), shortcut
        for number, (channels, size, step) in enumerate(steps, start=1):
            setattr(self, f"conv{number}", convolution(before, channels, size, step))
            setattr(self, f"bn{number}", nn.BatchNorm2d(channels))
            before = channels
        projection = nn.Sequential()
        if stride != 1 or inputs != outputs:
            projection = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        setattr(self, shortcut, projection)

    def forward(self, hidden):
        """Apply the block."""
        path = hidden
        for number in range(1, self.count + 1):
            path = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(path))
            path = path.relu() if number < self.count else path
        return (path + getattr(self, self.shortcut_name)(hidden)).relu()


class PreActivatedBlock(nn.Module):
    """A block with normalization and activation before each convolution.

    `activated`: the projection begins after the first activation.
    """

    def __init__(self, inputs: int, width: int, stride: int, *, activated: bool):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, width, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), convolution(width, width)
        self.activated = activated
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(convolution(inputs, width, 1, stride))

    def forward(self, hidden):
        """Apply the block."""
        first = self.bn1(hidden).relu()
        skip = self.shortcut(first if self.activated else hidden) if hasattr(self, "shortcut") else hidden
        return self.conv2(self.bn2(self.conv1(first)).relu()) + skip


class FourStages(nn.Module):
    """A stem, `layer1` to `layer4`, global average pooling, and a linear layer named `head` (None for no layer)."""

    def __init__(self, make, blocks, width, classes, *, imagenet=False, head="fc", expansion=1, pre=False, final=False):
        super().__init__()
        self.conv1 = convolution(3, width, 7, 2) if imagenet else convolution(3, width)
        if not pre:
            self.bn1 = nn.BatchNorm2d(width)
        self.imagenet, self.pre, self.head_name = imagenet, pre, head
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            for block in range(count):
                layers.append(make(inputs, width * 2**stage, 2 if stage and not block else 1))
                inputs = expansion * width * 2**stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        if final:
            self.bn = nn.BatchNorm2d(inputs)
        if head:
            setattr(self, head, nn.Linear(inputs, classes))

    def forward(self, hidden):
        """Apply the network."""
        hidden = self.conv1(hidden)
        hidden = hidden if self.pre else self.bn1(hidden).relu()
        hidden = functional.max_pool2d(hidden, 3, 2, padding=1) if self.imagenet else hidden
        for stage in range(1, 5):
            hidden = getattr(self, f"layer{stage}")(hidden)
        hidden = self.bn(hidden).relu() if hasattr(self, "bn") else hidden
        hidden = hidden.mean((2, 3))
        return getattr(self, self.head_name)(hidden) if self.head_name else hidden


class WideBlock(nn.Module):
    """A block of the Wide ResNet in TRADES: the projection begins after the first normalization and activation."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), convolution(outputs, outputs)
        if inputs != outputs:
            self.convShortcut = convolution(inputs, outputs, 1, stride)

    def forward(self, hidden):
        """Apply the block."""
        first = self.bn1(hidden).relu()
        skip = self.convShortcut(first) if hasattr(self, "convShortcut") else hidden
        return self.conv2(self.bn2(self.conv1(first)).relu()) + skip


def group(make, count: int, inputs: int, outputs: int, stride: int, name: str) -> nn.Module:
    """Return blocks in sequence, as child `name` of a module."""
    module = nn.Module()
    blocks = [make(outputs if number else inputs, outputs, 1 if number else stride) for number in range(count)]
    setattr(module, name, nn.Sequential(*blocks))
    return module


class Trades(nn.Module):
    """The Wide ResNet of TRADES.

    `unused`: with the block that its released weights hold and the network never runs.
    """

    def __init__(self, depth: int, width: int, classes: int = 10, *, unused: bool = False):
        super().__init__()
        count, channels = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
        self.conv1 = convolution(3, 16)
        self.block1 = group(WideBlock, count, 16, channels[1], 1, "layer")
        if unused:
            self.sub_block1 = group(WideBlock, count, 16, channels[1], 1, "layer")
        self.block2 = group(WideBlock, count, channels[1], channels[2], 2, "layer")
        self.block3 = group(WideBlock, count, channels[2], channels[3], 2, "layer")
        self.bn1, self.fc = nn.BatchNorm2d(channels[3]), nn.Linear(channels[3], classes)

    def forward(self, hidden):
        """Apply the network."""
        hidden = self.conv1(hidden)
        for block in (self.block1, self.block2, self.block3):
            hidden = block.layer(hidden)
        return self.fc(self.bn1(hidden).relu().mean((2, 3)))


class DeepMindBlock(nn.Module):
    """A block of DeepMind's Wide ResNet: stride 2 pads one pixel at the bottom and right, none at the top and left."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.batchnorm_0, self.conv_0 = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 3, stride, padding=0)
        self.batchnorm_1, self.conv_1 = nn.BatchNorm2d(outputs), convolution(outputs, outputs)
        self.around = (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1)
        if inputs != outputs:
            self.shortcut = convolution(inputs, outputs, 1, stride)

    def forward(self, hidden):
        """Apply the block."""
        first = functional.silu(self.batchnorm_0(hidden))
        skip = self.shortcut(first) if hasattr(self, "shortcut") else hidden
        path = self.conv_0(functional.pad(first, self.around))
        return self.conv_1(functional.silu(self.batchnorm_1(path))) + skip


class DeepMind(nn.Module):
    """DeepMind's Wide ResNet with SiLU."""

    def __init__(self, depth: int, width: int, classes: int = 10):
        super().__init__()
        count, channels = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
        self.init_conv = convolution(3, 16)
        pairs = zip(channels[:-1], channels[1:], (1, 2, 2), strict=True)
        self.layer = nn.Sequential(*(group(DeepMindBlock, count, a, b, stride, "block") for a, b, stride in pairs))
        self.batchnorm, self.logits = nn.BatchNorm2d(channels[3]), nn.Linear(channels[3], classes)

    def forward(self, hidden):
        """Apply the network."""
        hidden = self.init_conv(hidden)
        for stage in self.layer:
            hidden = stage.block(hidden)
        return self.logits(functional.silu(self.batchnorm(hidden)).mean((2, 3)))


class Normalized(nn.Module):
    """A network after normalization of the pixels by mean and deviation.

    Args:
        network: the network.
        names: names of the two statistics' buffers; None registers none.
        inner: the network's name; "" puts its tensors next to the statistics.
    """

    def __init__(self, network: nn.Module, names: tuple[str, str] | None, inner: str = ""):
        super().__init__()
        self.inner, self.names = inner, names
        self.statistics = [torch.tensor(v).view(1, 3, 1, 1) for v in (seeded_networks.MEAN, seeded_networks.DEVIATION)]
        if not inner:
            self.network = [network]  # hidden in a list, since PyTorch would prefix the names of its tensors
            for name, child in network.named_children():
                setattr(self, name, child)
        else:
            setattr(self, inner, network)
        for name, value in zip(names or (), self.statistics, strict=bool(names)):
            prefix, _, last = name.rpartition(".")
            holder = self
            if prefix:
                holder = nn.Module() if not hasattr(self, prefix) else getattr(self, prefix)
                setattr(self, prefix, holder)
            holder.register_buffer(last, value)

    def forward(self, images):
        """Apply the network to normalized images."""
        mean, deviation = self.statistics
        return (getattr(self, self.inner) if self.inner else self.network[0])((images - mean) / deviation)


def inside(name: str, network: nn.Module, **unused: nn.Module) -> nn.Module:
    """Return the network as child `name` of another module, next to others that are not used."""
    holder = nn.Module()
    setattr(holder, name, network)
    for other, module in unused.items():
        setattr(holder, other, module)
    holder.forward = network.forward
    return holder


def resnet(depth: int, width: int, classes: int, shortcut: str, **keywords) -> FourStages:
    """Return a ResNet-18 or ResNet-50."""
    make = functools.partial(Block, bottleneck=depth == 50, shortcut=shortcut)
    blocks = (3, 4, 6, 3) if depth == 50 else (2, 2, 2, 2)
    return FourStages(make, blocks, width, classes, expansion=4 if depth == 50 else 1, **keywords)


def preact(width: int, *, activated: bool, final: bool) -> FourStages:
    """Return a pre-activation ResNet-18."""
    make = functools.partial(PreActivatedBlock, activated=activated)
    return FourStages(make, (2, 2, 2, 2), width, 10, head="linear", pre=True, final=final)


def networks() -> dict[str, tuple]:
    """Return name -> (constructor, image size, True if names and shapes are recorded: the narrow networks)."""
    tv = functools.partial(resnet, shortcut="downsample", imagenet=True)
    rb = functools.partial(resnet, shortcut="shortcut", head="linear")
    statistics = ("mu", "sigma")
    return {
        "torchvision_resnet18": (lambda: tv(18, 4, 7), (70, 53), True),
        "torchvision_resnet50": (
            lambda: Normalized(tv(50, 4, 7), ("normalize.mean", "normalize.std"), "model"),
            (64, 64),
            True,
        ),
        "robustbench_resnet18": (lambda: inside("module", rb(18, 4, 10)), (32, 32), True),
        "robustbench_resnet50": (lambda: Normalized(rb(50, 4, 10), statistics), (32, 32), True),
        "robustbench_preact_raw": (
            lambda: Normalized(preact(4, activated=False, final=False), statistics),
            (32, 32),
            True,
        ),
        "robustbench_preact_final": (
            lambda: Normalized(preact(4, activated=True, final=True), statistics),
            (32, 32),
            True,
        ),
        "trades_wide_resnet": (lambda: inside("module", Trades(10, 2, unused=True)), (32, 32), True),
        "deepmind_wide_resnet": (lambda: Normalized(DeepMind(10, 2), None), (32, 32), True),
        "simclr_resnet18": (
            lambda: inside(
                "backbone",
                tv(18, 4, 7, head=None),
                projector=nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), nn.Linear(32, 8)),
            ),
            (64, 64),
            True,
        ),
        "supcon_resnet50": (
            lambda: inside(
                "encoder",
                inside("module", rb(50, 4, 0, head=None)),
                head=nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8)),
            ),
            (32, 32),
            True,
        ),
        "full_torchvision_resnet18": (lambda: tv(18, 64, 1000), (224, 224), False),
        "full_torchvision_resnet50": (lambda: tv(50, 64, 1000), (224, 224), False),
        "full_robustbench_resnet18": (lambda: rb(18, 64, 10), (32, 32), False),
        "full_robustbench_resnet50": (lambda: rb(50, 64, 10), (32, 32), False),
        "full_robustbench_preact": (lambda: preact(64, activated=False, final=False), (32, 32), False),
        "full_trades_28_10": (lambda: Trades(28, 10), (32, 32), False),
        "full_trades_34_10": (lambda: Trades(34, 10), (32, 32), False),
        "full_deepmind_28_10": (lambda: Normalized(DeepMind(28, 10), None), (32, 32), False),
        "full_deepmind_70_16": (lambda: Normalized(DeepMind(70, 16), None), (32, 32), False),
    }


@torch.no_grad()
def fill(name: str, network: nn.Module) -> None:
    """Set a network's weights, and switch it to evaluation mode."""
    network.eval()
    for key, value in network.state_dict().items():
        array = seeded_networks.torch_tensor(name, key, tuple(value.shape))
        value.copy_(torch.from_numpy(np.array(array, order="C")))


def tensors_of(network: nn.Module) -> np.ndarray:
    """Return "name shape" of each tensor of a network."""
    return np.array([f"{key} {'x'.join(map(str, value.shape))}" for key, value in network.state_dict().items()])


def save(path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays to a .npz file, and print its size."""
    np.savez_compressed(path, **arrays)
    print(f"{path}: {pathlib.Path(path).stat().st_size / 1000:.0f} kB")


@torch.no_grad()
def outputs(name: str, network: nn.Module, size: tuple[int, int]) -> np.ndarray:
    """Compute the outputs for two images in [0, 1]."""
    images = (seeded_networks.uniform(f"{name}/images", (2, *size, 3)) + 1) / 2
    return network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()


def record() -> dict[str, np.ndarray]:
    """Return `<network>/outputs` [2, k], for the narrow ones also `<network>/tensors`: "name shape" of each."""
    outcome = {}
    for name, (make, size, listed) in networks().items():
        network = make()
        fill(name, network)
        outcome[f"{name}/outputs"] = outputs(name, network, size)
        if listed:
            outcome[f"{name}/tensors"] = tensors_of(network)
        print(f"{name}: {sum(v.numel() for v in network.state_dict().values()):,} numbers", flush=True)
    return outcome


def compare(repository: str) -> None:
    """Print how RobustBench's own networks differ from those here; exit with 1 if their tensors do."""
    sys.path.insert(0, repository)
    from robustbench.model_zoo.architectures import dm_wide_resnet, resnet, wide_resnet

    ours = networks()
    theirs = {
        "full_robustbench_resnet18": resnet.ResNet18,
        "full_robustbench_resnet50": resnet.ResNet50,
        "full_robustbench_preact": resnet.PreActResNet18,
        "full_trades_28_10": lambda: wide_resnet.WideResNet(28, 10, 10),
        "full_deepmind_28_10": lambda: dm_wide_resnet.DMWideResNet(activation_fn=nn.SiLU),
    }
    for name, make in theirs.items():
        networks_of_both = [ours[name][0](), make()]
        for network in networks_of_both:
            fill(name, network)
        here, there = ({key: tuple(v.shape) for key, v in n.state_dict().items()} for n in networks_of_both)
        pair = [outputs(name, network, ours[name][1]) for network in networks_of_both]
        difference = np.abs(pair[0] - pair[1]).max() / np.abs(pair[1]).max()
        print(f"{name}: {'the same' if here == there else 'OTHER'} tensors, outputs differ by {difference:.1e}")
        if here != there:
            sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robustbench")
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "checkpoints.npz")
    arguments = parser.parse_args()
    if arguments.robustbench:
        compare(arguments.robustbench)
    else:
        save(arguments.output, record())

"""Shared parts of the recorders of the official AutoAttack: tfrobust's networks in PyTorch, and a recording model.

Arrays are channels-last outside, as in the golden files, and channels-first inside.
"""

import contextlib
import importlib
import pathlib
import sys

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from oracles import seeded_networks  # noqa: E402  (NumPy only; located next to the tests that read the recording)

NORMALIZATION_EPSILON = 1e-5


def official(repository: pathlib.Path, module: str):
    """Import a module of the official package from a checkout."""
    if not (repository / "autoattack" / "autopgd_base.py").is_file():
        raise SystemExit(f"{repository} is no checkout of https://github.com/fra31/auto-attack.")
    if str(repository) not in sys.path:
        sys.path.insert(0, str(repository))
    return importlib.import_module(f"autoattack.{module}")


def first(images) -> torch.Tensor:
    """Convert channels-last NumPy to channels-first torch."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.asarray(images, np.float32), -1, 1)))


def last(images: torch.Tensor) -> np.ndarray:
    """Convert channels-first torch to channels-last NumPy."""
    return np.ascontiguousarray(np.moveaxis(images.detach().numpy(), 1, -1))


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw uniformly from (-1, 1), from the reproducible stream."""
    return seeded_networks.uniform(f"components/{name}", shape)


def normal(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw Gaussian values by Box and Muller, from the reproducible stream."""
    radius, angle = (draw(f"{name}/{part}", shape).astype(np.float64) for part in ("radius", "angle"))
    return (np.sqrt(-2 * np.log((radius + 1) / 2 + 1e-12)) * np.cos(np.pi * angle)).astype(np.float32)


def convolve(hidden, kernel: torch.Tensor, bias, stride: int = 1):
    """Convolve with Keras's 'same' padding: at stride 2 on even sizes it pads only at the end."""
    total = max(kernel.shape[-1] - stride, 0)
    if total % 2:
        hidden = functional.pad(hidden, (total // 2, total - total // 2) * 2)
        total = 0
    return functional.conv2d(hidden, kernel, bias, stride=stride, padding=total // 2)


class Network(torch.nn.Module):
    """A function of frozen weights in Keras's layout; subclasses define it."""

    def __init__(self, weights: dict[str, np.ndarray]):
        super().__init__()
        self.weights = {}
        for name, value in weights.items():
            value = torch.from_numpy(np.asarray(value, np.float32))
            self.weights[name] = value.permute(3, 2, 0, 1).contiguous() if value.ndim == 4 else value

    def unit(self, hidden, name: str, stride: int = 1, activate: bool = True):
        """Apply convolution, batch normalization with the moving moments if there is one, and activation."""
        hidden = convolve(hidden, self.weights[f"{name}/kernel"], self.weights.get(f"{name}/bias"), stride)
        if f"{name}/norm/gamma" in self.weights:
            names = ("moving_mean", "moving_variance", "gamma", "beta")
            moments = [self.weights[f"{name}/norm/{moment}"] for moment in names]
            hidden = functional.batch_norm(hidden, *moments, eps=NORMALIZATION_EPSILON)
        return functional.relu(hidden) if activate else hidden

    def dense(self, hidden, name: str):
        return hidden @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]


class Perceptron(Network):
    """The two layers of `seeded_networks.perceptron`."""

    def forward(self, images):
        vectors = images.permute(0, 2, 3, 1).reshape(len(images), -1)
        return self.dense(torch.tanh(self.dense(vectors, "hidden")), "logits")


class DigitsCNN(Network):
    """The DigitsCNN of tfrobust with its linear head."""

    def forward(self, images):
        hidden = images
        for stage, stride in enumerate((1, 2, 2)):
            hidden = self.unit(hidden, f"stage{stage}", stride)
        return self.dense(functional.relu(self.dense(hidden.mean((2, 3)), "dense")), "head")


class ResNet20(Network):
    """The ResNet-20 of `seeded_networks.resnet20`, as in tfrobust."""

    def forward(self, images):
        hidden = self.unit(images, "stem")
        for stage in range(len(seeded_networks.RESNET_WIDTHS)):
            for block in range(seeded_networks.RESNET_BLOCKS):
                name, stride = f"stage{stage}/block{block}", 2 if stage and not block else 1
                residual = self.unit(self.unit(hidden, f"{name}/first", stride), f"{name}/second", activate=False)
                if f"{name}/shortcut/kernel" in self.weights:
                    hidden = self.unit(hidden, f"{name}/shortcut", stride, activate=False)
                hidden = functional.relu(hidden + residual)
        return self.dense(hidden.mean((2, 3)), "head")


class Recorder(torch.nn.Module):
    """A model that passes images on to a network and records them, channels-last, in `points`.

    `wanted` decides from the caller's frame whether to record the call; `local` are names of the caller's variables to
    record with it, in `locals`.
    """

    def __init__(self, network, selects=lambda frame: True, local: tuple[str, ...] = ()):
        super().__init__()
        self.network, self.selects, self.local = network, selects, local
        self.points, self.locals = [], []

    # Overrides torch.nn.Module.__call__, so that the caller is the frame above.
    def __call__(self, images):
        frame = sys._getframe(1)
        if self.selects(frame):
            self.points.append(last(images))
            seen = {name: frame.f_locals[name] for name in self.local if name in frame.f_locals}
            self.locals.append({name: copied(value) for name, value in seen.items()})
        return self.network(images)


def copied(value):
    """Return a tensor's NumPy copy, without axes of size one, or any other value unchanged."""
    return value.detach().numpy().copy().squeeze() if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def at_return(function: str, states: list):
    """Append the local variables at each return of a function of that name."""

    def watch(frame, event, _):
        if event == "return" and frame.f_code.co_name == function:
            states.append(dict(frame.f_locals))

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def drawing(name: str, *draws: np.ndarray):
    """Make torch.rand or another function of torch return the given draws, one after another."""
    queue, real = [torch.from_numpy(np.ascontiguousarray(draw)) for draw in draws], getattr(torch, name)
    setattr(torch, name, lambda *_, **__: queue.pop(0).clone())
    try:
        yield
    finally:
        setattr(torch, name, real)

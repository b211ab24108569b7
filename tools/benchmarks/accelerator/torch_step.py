#!/usr/bin/env python3
"""Time the same training steps in PyTorch, eager and compiled, with channels last: the peer of run.py.

    python torch_step.py RESULTS --programs=NAME,NAME [--rounds=30] [--folder=FOLDER] [--kinds=eager,compiled]

Each program, named as in lower.py, leaves a file torch-KIND-NAME.json for each kind. With --folder the networks get the
weights of the lowered program, so that the losses can be compared. Adversarial training makes the clean pass that
tfrobust makes. The attack takes gradients of the images alone: the weights need none meanwhile, so that the compiled
backward pass leaves theirs out. --rounds=0 compiles only, for the cache of later processes.
"""

import argparse
import functools
import json
import math
import pathlib
import statistics
import time

import arrays
import numpy as np
import torch
from torch import nn
from torch.nn import functional

ROUND_SECONDS = 0.1  # at least
EPSILON, ATTACK_STEPS = 8 / 255, 10
STAGES = {"resnet18": ((64, 1), (128, 2), (256, 2), (512, 2)), "wide_resnet28x10": ((160, 1), (320, 2), (640, 2))}
BLOCKS = {"resnet18": 2, "wide_resnet28x10": 4}


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; normalized before them (wide) or behind them."""

    def __init__(self, inputs: int, outputs: int, stride: int, wide: bool):
        super().__init__()
        self.wide = wide
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(inputs if wide else outputs), nn.BatchNorm2d(outputs)])
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            if not wide:
                self.shortcut = nn.Sequential(self.shortcut, nn.BatchNorm2d(outputs))

    def forward(self, hidden):
        """Return the output of the block."""
        if self.wide:
            active = functional.relu(self.norms[0](hidden))
            inner = self.second(functional.relu(self.norms[1](self.first(active))))
            skipped = hidden if isinstance(self.shortcut, nn.Identity) else self.shortcut(active)
            return inner + skipped
        inner = functional.relu(self.norms[0](self.first(hidden)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(hidden))


class Network(nn.Module):
    """A residual network for 32x32 images, as a user of PyTorch writes it."""

    def __init__(self, name: str):
        super().__init__()
        wide = name.startswith("wide")
        width = 16 if wide else 64
        layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False)]
        if not wide:
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        for outputs, stride in STAGES[name]:
            for number in range(BLOCKS[name]):
                layers.append(Block(width, outputs, stride if number == 0 else 1, wide))
                width = outputs
        layers += [nn.BatchNorm2d(width), nn.ReLU()] if wide else []
        self.body, self.head = nn.Sequential(*layers), nn.Linear(width, 10)

    def forward(self, images):
        """Return the logits, float32 [b, 10]."""
        return self.head(self.body(images).mean((2, 3))).float()


def fill(network: nn.Module, description: dict) -> None:
    """Copy the kernels of a lowered program into convolutions and head: the next of the same shape for each."""
    kernels = [
        (entry, number)
        for number, entry in enumerate(description["parameters"])
        if len(entry["shape"]) in (2, 4) and entry.get("deviation", 1) > 0 and entry["kind"] in ("drawn", "stored")
    ]
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            axes = (3, 2, 0, 1) if isinstance(module, nn.Conv2d) else (1, 0)
            shape = torch.empty(module.weight.shape, device="meta").permute(*np.argsort(axes).tolist()).shape
            position = next(i for i, (entry, _) in enumerate(kernels) if entry["shape"] == list(shape))
            value = torch.from_numpy(arrays.parameter(*kernels.pop(position)).copy())
            module.weight.data.copy_(value.permute(*axes))


@functools.cache
def shared_network(name: str, precision: str, compiled: bool) -> tuple[Network, nn.Module]:
    """Return a network on the device, and what calls it: itself or compiled, once for all steps of the precision."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Network(name).to(device, memory_format=torch.channels_last)
    # By default a function is not compiled a ninth time, and runs eagerly.
    torch._dynamo.config.recompile_limit = 100
    return network, torch.compile(network) if compiled else network


class Step:
    """A training step on one batch that stays on the device.

    Args:
        kind: adversarial_training, trades, bare_gradient or bare_training.
        network: the name of the network.
        batch: rows.
        precision: float32, tf32 or mixed_bfloat16.
        compiled: whether torch.compile compiles the network.
        description: of the lowered program, for its weights and images.
    """

    def __init__(self, kind: str, network: str, batch: int, precision: str, compiled: bool, description: dict | None):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        self.model, self.forward = shared_network(network, precision, compiled)
        self.device = next(self.model.parameters()).device
        if description:
            fill(self.model, description)
            batch_images, labels = (arrays.parameter(description["parameters"][number], number) for number in (0, 1))
            images, labels = torch.from_numpy(batch_images).permute(0, 3, 1, 2), torch.from_numpy(labels).long()
        else:
            images, labels = torch.rand(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
        self.images = images.to(self.device, memory_format=torch.channels_last)
        self.labels = labels.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.low, self.kind = precision == "mixed_bfloat16", kind

    def logits(self, images):
        """Return logits in the precision of the step."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.low):
            return self.forward(images)

    def perturb(self):
        """Return adversarial images by PGD in inference mode, from a uniform start."""
        self.model.eval().requires_grad_(False)
        clean = self.logits(self.images).detach().softmax(1) if self.kind == "trades" else None
        points = (self.images + torch.empty_like(self.images).uniform_(-EPSILON, EPSILON)).clamp(0, 1)
        for _ in range(ATTACK_STEPS):
            points.requires_grad_(True)
            logits = self.logits(points)
            if clean is None:
                loss = functional.cross_entropy(logits, self.labels, reduction="sum")
            else:
                loss = functional.kl_div(logits.log_softmax(1), clean, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, points)
            points = points.detach() + 2.5 * EPSILON / ATTACK_STEPS * gradient.sign()
            points = torch.minimum(torch.maximum(points, self.images - EPSILON), self.images + EPSILON).clamp(0, 1)
        self.model.train().requires_grad_(True)
        return points

    def __call__(self):
        """Run the step; return its loss, on the device."""
        if self.kind == "bare_gradient":
            self.model.eval().requires_grad_(False)
            points = self.images.detach().requires_grad_(True)
            loss = functional.cross_entropy(self.logits(points), self.labels)
            return torch.autograd.grad(loss, points)[0].sum()
        self.model.train().requires_grad_(True)
        if self.kind == "bare_training":
            loss = functional.cross_entropy(self.logits(self.images), self.labels)
        else:
            loss = self._robust(self.perturb())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _robust(self, points):
        if self.kind == "trades":
            clean, attacked = self.logits(self.images), self.logits(points)
            divergence = functional.kl_div(attacked.log_softmax(1), clean.softmax(1), reduction="batchmean")
            return functional.cross_entropy(clean, self.labels) + 6 * divergence
        with torch.no_grad():
            self.logits(self.images)
        return functional.cross_entropy(self.logits(points), self.labels)


def seconds(step: Step, rounds: int) -> dict | None:
    """Time a step as run.py does; None without rounds."""

    def measured(steps: int) -> float:
        if step.device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            result = step()
        float(result)
        return (time.perf_counter() - started) / steps

    if not rounds:
        return None
    measured(2)
    steps = max(1, math.ceil(ROUND_SECONDS / measured(2)))
    times = [measured(steps) for _ in range(rounds)]
    quartiles = statistics.quantiles(times, n=4)[::2] if rounds > 1 else times * 2
    return {"n": rounds, "steps_of_a_round": steps, "median": statistics.median(times), "quartiles": quartiles}


def kernels(step: Step) -> dict:
    """Profile a step on a GPU; return its busy seconds and its longest kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    entries = [(entry.key, entry.count, entry.self_device_time_total / 1e6) for entry in profile.key_averages()]
    longest = sorted((entry for entry in entries if entry[2]), key=lambda entry: -entry[2])
    return {
        "busy_seconds": sum(total for *_, total in longest),
        "kernels_of_a_step": sum(count for _, count, _ in longest),
        "longest": [{"name": name[:120], "count": count, "seconds": total} for name, count, total in longest[:25]],
    }


def measure(name: str, rounds: int, compiled: bool, description: dict | None) -> dict:
    """Time one program; see run.py."""
    kind, network, batch, precision = name.split("-")
    step = Step(kind, network, int(batch), precision, compiled, description)
    cuda = step.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    loss = float(step())
    first = time.perf_counter() - started
    return {
        "program": name,
        "compiled": compiled,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "software": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "first_step_seconds": first,
        "loss": loss,
        "step_seconds": seconds(step, rounds),
        "bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "profile": kernels(step) if cuda and rounds else None,
    }


def main() -> None:
    """Measure the programs that this file can train, eager and compiled."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("results", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, default=30)
    flags.add_argument("--programs", required=True, help="names, by comma")
    flags.add_argument("--folder", type=pathlib.Path, help="that of the lowered programs, for their weights")
    flags.add_argument("--kinds", default="eager,compiled", help="of PyTorch, by comma")
    chosen = flags.parse_args()
    chosen.results.mkdir(parents=True, exist_ok=True)
    for name in chosen.programs.split(","):
        description = json.loads((chosen.folder / f"{name}.json").read_text()) if chosen.folder else None
        for kind in chosen.kinds.split(","):
            try:
                document = measure(name, chosen.rounds, kind == "compiled", description)
            except Exception as error:  # the others still run
                document = {"program": name, "kind": kind, "error": f"{type(error).__name__}: {error}"[:500]}
            if chosen.rounds:
                (chosen.results / f"torch-{kind}-{name}.json").write_text(json.dumps(document, indent=1) + "\n")
            shown = ("program", "compiled", "first_step_seconds", "step_seconds", "loss", "bytes", "error")
            print(json.dumps({key: document[key] for key in shown if key in document}), flush=True)


if __name__ == "__main__":
    main()

"""Record three training steps of MoCo v3, DINO and SwAV in PyTorch, as an oracle for tests/methods.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_momentum_methods.py --output=tests/golden/momentum_methods.npz

The arithmetic of the released codes is written anew here, on networks of a few units, in float64, with PyTorch's
gradients, layers, weight normalization and optimizers. Needs neither tfrobust nor TensorFlow.
"""

import argparse
import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

STEPS, BATCH, CHANNELS, WIDTH, HIDDEN, DIM, COUNT = 3, 6, 3, 5, 6, 4, 7
SIDE, LOCAL_SIDE, LOCAL = 4, 2, 2
RATE = 0.05


class Encoder(nn.Module):
    """Average over the pixels of tanh(x W + c), for images [b, h, w, c] of any size."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(CHANNELS, WIDTH)

    def forward(self, images):
        """Return the embedding."""
        return torch.tanh(self.dense(images)).mean(dim=(1, 2))


def views(generator):
    """Draw two global and two local views of each step's batch."""
    sides = [SIDE] * 2 + [LOCAL_SIDE] * LOCAL
    return [
        [torch.tensor(generator.uniform(size=(BATCH, side, side, CHANNELS))) for side in sides] for _ in range(STEPS)
    ]


def scaled_up(*modules):
    """Enlarge kernels, so that the outputs of these networks differ."""
    for module in modules:
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.data *= 3.0


def arrays(prefix, module):
    """Return the parameters of a module by place, kernels as [inputs, outputs]."""
    values = [parameter.detach().numpy() for parameter in module.parameters()]
    return {f"{prefix}/{number}": (value.T if value.ndim > 1 else value).copy() for number, value in enumerate(values)}


def in_runs(encoder, images):
    """Run one pass per size."""
    return torch.cat([encoder(torch.cat(images[:2])), encoder(torch.cat(images[2:]))])


def moco(images):
    """MoCo v3 with AdamW, and decay on all parameters."""
    encoder = Encoder()
    projector = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN, bias=False),
        nn.BatchNorm1d(HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, DIM, bias=False),
        nn.BatchNorm1d(DIM, affine=False),
    )
    predictor = nn.Sequential(
        nn.Linear(DIM, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIM, bias=False)
    )
    scaled_up(encoder, projector, predictor)
    base = nn.Sequential(encoder, projector)
    momentum = copy.deepcopy(base)
    parts = {"encoder": encoder, "projection": projector, "prediction": predictor}
    parts |= {"target_encoder": momentum[0], "target_projection": momentum[1]}
    trained = [*base.parameters(), *predictor.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.1, eps=1e-2)
    temperature = 0.2

    def direction(query, key):
        logits = functional.normalize(query, dim=1) @ functional.normalize(key, dim=1).T / temperature
        return functional.cross_entropy(logits, torch.arange(BATCH)) * 2 * temperature

    def step(number):
        first, second = images[number][:2]
        queries = predictor(base(first)), predictor(base(second))
        m = 1 - 0.5 * (1 + math.cos(math.pi * number / STEPS)) * (1 - 0.6)
        with torch.no_grad():
            for fast, slow in zip(base.parameters(), momentum.parameters(), strict=True):
                slow.data = slow.data * m + fast.data * (1 - m)
            keys = momentum(first), momentum(second)
        loss = direction(queries[0], keys[1]) + direction(queries[1], keys[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item()}

    return parts, step


def dino(images):
    """DINO with AdamW, scheduled decay without biases, clipping by tensor, and a last layer frozen for one step."""

    def network():
        head = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, DIM))
        last = nn.utils.weight_norm(nn.Linear(DIM, COUNT, bias=False))
        last.weight_g.data.fill_(1.0)
        return nn.ModuleList([Encoder(), head, last])

    student = network()
    scaled_up(student[0], student[1])
    teacher = network()
    teacher.load_state_dict(student.state_dict())
    student[2].weight_g.requires_grad = False
    center = torch.zeros(1, COUNT)
    parameters = [parameter for parameter in student.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1]},
        {"params": [parameter for parameter in parameters if parameter.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-2)
    clip = 0.05

    def through(net, pictures):
        embedding = in_runs(net[0], pictures) if len(pictures) > 2 else net[0](torch.cat(pictures))
        return net[2](functional.normalize(net[1](embedding), dim=-1))

    def step(number):
        nonlocal center
        optimizer.param_groups[0]["weight_decay"] = 0.4 + 0.5 * (0.04 - 0.4) * (1 + math.cos(math.pi * number / STEPS))
        with torch.no_grad():
            teacher_scores = through(teacher, images[number][:2])
        temperature = 0.4 if number < 2 else 0.7
        targets = functional.softmax((teacher_scores - center) / temperature, dim=-1).chunk(2)
        scores = through(student, images[number]).chunk(2 + LOCAL)
        losses = [
            torch.sum(-target * functional.log_softmax(score, dim=-1), dim=-1).mean()
            for i, target in enumerate(targets)
            for v, score in enumerate(scores)
            if v != i
        ]
        loss = sum(losses) / len(losses)
        center = center * 0.9 + teacher_scores.mean(dim=0, keepdim=True) * 0.1
        optimizer.zero_grad()
        loss.backward()
        for parameter in parameters:
            norm = parameter.grad.norm(2)
            if clip / (norm + 1e-6) < 1:
                parameter.grad.mul_(clip / (norm + 1e-6))
        if number < 1:
            student[2].weight_v.grad = None
        optimizer.step()
        m = 1 - 0.5 * (1 + math.cos(math.pi * number / STEPS)) * (1 - 0.6)
        with torch.no_grad():
            for fast, slow in zip(student.parameters(), teacher.parameters(), strict=True):
                slow.data.mul_(m).add_((1 - m) * fast.data)
        return {"loss": loss.item(), "center": center[0].numpy().copy()}

    parts = {"encoder": student[0], "projection": student[1], "prototypes": student[2]}
    parts |= {"target_encoder": teacher[0], "target_projection": teacher[1], "target_prototypes": teacher[2]}
    return parts, step


def sinkhorn(scores):
    """Compute the codes as in the paper's listing."""
    q = torch.exp(scores / 0.05).T
    q /= q.sum()
    for _ in range(3):
        q /= q.sum(dim=1, keepdim=True)
        q /= q.shape[0]
        q /= q.sum(dim=0, keepdim=True)
        q /= q.shape[1]
    return (q * q.shape[1]).T


def swav(images):
    """SwAV with a queue, SGD inside LARC, and a frozen first step of the prototypes."""
    encoder = Encoder()
    projector = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIM)
    )
    prototypes = nn.Linear(DIM, COUNT, bias=False)
    scaled_up(encoder, projector)
    parts = {"encoder": encoder, "projection": projector, "prototypes": prototypes}
    trained = [parameter for part in parts.values() for parameter in part.parameters()]
    optimizer = torch.optim.SGD(trained, lr=RATE, momentum=0.9)
    queue, trust, decay = torch.zeros(2, 2 * BATCH, DIM), 0.5, 1e-2

    def step(number):
        with torch.no_grad():
            prototypes.weight.copy_(functional.normalize(prototypes.weight, dim=1))
        z = functional.normalize(projector(in_runs(encoder, images[number])), dim=1)
        scores = prototypes(z).chunk(2 + LOCAL)
        loss = 0.0
        for i in range(2):
            with torch.no_grad():
                everything = scores[i].detach()
                crop = z.detach()[i * BATCH : (i + 1) * BATCH]
                if not torch.all(queue[i, -1] == 0):
                    everything = torch.cat([prototypes(queue[i]), everything])
                queue[i, BATCH:] = queue[i, :-BATCH].clone()
                queue[i, :BATCH] = crop
                code = sinkhorn(everything)[-BATCH:]
            other_views = [v for v in range(2 + LOCAL) if v != i]
            parted = [-(code * functional.log_softmax(scores[v] / 0.1, dim=1)).sum(dim=1).mean() for v in other_views]
            loss = loss + sum(parted) / len(parted) / 2
        optimizer.zero_grad()
        loss.backward()
        if number < 1:
            prototypes.weight.grad = None
        for parameter in trained:
            if parameter.grad is not None and parameter.norm() > 0 and parameter.grad.norm() > 0:
                local = trust * parameter.data.norm() / (parameter.grad.norm() + decay * parameter.data.norm() + 1e-8)
                parameter.grad = (parameter.grad + decay * parameter.data) * local
        optimizer.step()
        return {"loss": loss.item(), "queue": queue.numpy().copy()}

    return parts, step


def main():
    """Record the arrays of all methods."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", required=True, help="the .npz file to write")
    output = flags.parse_args().output
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(20261)
    images = views(np.random.Generator(np.random.PCG64(20261)))
    record = {f"views/{s}/{v}": view.numpy() for s, step in enumerate(images) for v, view in enumerate(step)}
    for name, method in {"moco_v3": moco, "dino": dino, "swav": swav}.items():
        parts, step = method(images)
        for number in range(STEPS + 1):
            values = {key: value for part, module in parts.items() for key, value in arrays(part, module).items()}
            record |= {f"{name}/{number}/{key}": value for key, value in values.items()}
            if number < STEPS:
                record |= {f"{name}/{number}/{key}": value for key, value in step(number).items()}
    np.savez_compressed(output, **record)


if __name__ == "__main__":
    main()

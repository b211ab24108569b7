"""Record three training steps of AWP, MART, HAT, FGSM-RS, N-FGSM, GradAlign and Free AT in PyTorch.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_modern_training.py --output=tests/golden/modern_training.npz

The arithmetic of the released codes is written anew here, on networks of a few units, in float64, with PyTorch's
gradients and optimizers. Needs neither tfrobust nor TensorFlow.
"""

import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

STEPS, BATCH, SIDE, CHANNELS, WIDTH, CLASSES = 3, 6, 4, 3, 5, 3
EPSILON, RATE, DECAY, GAMMA = 0.1, 0.3, 0.02, 0.05


class Network(nn.Module):
    """A linear classifier of the average over the pixels of tanh(x W + c), for images [b, h, w, c]."""

    def __init__(self):
        super().__init__()
        self.dense, self.head = nn.Linear(CHANNELS, WIDTH), nn.Linear(WIDTH, CLASSES)
        for layer in (self.dense, self.head):
            layer.weight.data *= 3.0

    def forward(self, images):
        """Return the logits."""
        return self.head(torch.tanh(self.dense(images)).mean(dim=(1, 2)))


def gradient_at(model, points, labels, **keywords):
    """Return the gradient of the mean cross-entropy by the images."""
    if not points.requires_grad:
        points = points.detach().requires_grad_()
    loss = functional.cross_entropy(model(points), labels)
    return torch.autograd.grad(loss, points, **keywords)[0]


def fgsm_rs(model, x, labels, noise):
    """Wong et al.: one step of 1.25 epsilon from a start in the ball, then the ball, then the pixels."""
    delta = torch.max(torch.min(EPSILON * noise, 1 - x), 0 - x)
    delta = torch.clamp(delta + 1.25 * EPSILON * torch.sign(gradient_at(model, x + delta, labels)), -EPSILON, EPSILON)
    return x + torch.max(torch.min(delta, 1 - x), 0 - x)


def n_fgsm(model, x, labels, noise):
    """De Jorge et al.: one step of epsilon from noise of 2 epsilon, then the pixels."""
    eta = torch.clamp(x + 2 * EPSILON * noise, 0, 1) - x
    delta = eta + EPSILON * torch.sign(gradient_at(model, x + eta, labels))
    return torch.clamp(x + delta, 0, 1)


def cross_entropy_of(adversary):
    """Return the loss of a method with one given adversary."""

    def loss(model, x, x_adv, noise, labels):
        return functional.cross_entropy(model(adversary(model, x, labels, noise)), labels)

    return loss


def aligned(model, x, x_adv, noise, labels):
    """GradAlign with FGSM from the image: the first gradient is the attack's own, and a constant."""
    first = gradient_at(model, x, labels).detach()
    adversarial = torch.clamp(x + EPSILON * torch.sign(first), 0, 1)
    near = (x + EPSILON * noise).requires_grad_()
    second = gradient_at(model, near, labels, create_graph=True)
    nonzero = (first.flatten(1).norm(dim=1) != 0) & (second.flatten(1).norm(dim=1) != 0)
    first, second = first.flatten(1)[nonzero], second.flatten(1)[nonzero]
    cosine = (first / first.norm(dim=1, keepdim=True) * second / second.norm(dim=1, keepdim=True)).sum(dim=1)
    return functional.cross_entropy(model(adversarial), labels) + 0.7 * (1 - cosine.mean())


def at(model, x, x_adv, noise, labels):
    """Cross-entropy of the adversarial examples."""
    return functional.cross_entropy(model(x_adv), labels)


def trades(model, x, x_adv, noise, labels):
    """Cross-entropy of the images, and 6 times the divergence."""
    logits = model(x)
    kl = functional.kl_div(
        functional.log_softmax(model(x_adv), dim=1), functional.softmax(logits, dim=1), reduction="batchmean"
    )
    return functional.cross_entropy(logits, labels) + 6 * kl


def mart(model, x, x_adv, noise, labels):
    """Boosted cross-entropy and weighted divergence, lambda = 5."""
    clean, attacked = model(x), model(x_adv)
    p_adv, p = functional.softmax(attacked, dim=1), functional.softmax(clean, dim=1)
    order = torch.argsort(p_adv, dim=1)[:, -2:]
    other = torch.where(order[:, -1] == labels, order[:, -2], order[:, -1])
    boosted = functional.cross_entropy(attacked, labels) + functional.nll_loss(torch.log(1.0001 - p_adv + 1e-12), other)
    true_probability = torch.gather(p, 1, labels.unsqueeze(1)).squeeze()
    divergence = functional.kl_div(torch.log(p_adv + 1e-12), p, reduction="none").sum(dim=1)
    return boosted + 5 * (divergence * (1.0000001 - true_probability)).sum() / len(x)


def hat_with(helper):
    """HAT with h = 2, beta 2.5 and gamma 0.5; labels at the far point are the helper's at the adversarial example."""

    def loss(model, x, x_adv, noise, labels):
        far = x + 2.0 * (x_adv - x)
        with torch.no_grad():
            helper_labels = helper(x_adv).argmax(dim=1)
        logits = model(x)
        kl = functional.kl_div(
            functional.log_softmax(model(x_adv), dim=1), functional.softmax(logits, dim=1), reduction="batchmean"
        )
        return (
            functional.cross_entropy(logits, labels)
            + 2.5 * kl
            + 0.5 * functional.cross_entropy(model(far), helper_labels)
        )

    return loss


def perturbed_weights(model, loss):
    """AWP: what one SGD step of a copy up the loss moves, in the length of each matrix."""
    proxy = copy.deepcopy(model)
    optimizer = torch.optim.SGD(proxy.parameters(), lr=0.01)
    optimizer.zero_grad()
    (-loss(proxy)).backward()
    optimizer.step()
    moved = {}
    for (name, old), (_, new) in zip(model.state_dict().items(), proxy.state_dict().items(), strict=True):
        if "weight" in name and old.ndim > 1:
            difference = new - old
            moved[name] = old.norm() / (difference.norm() + 1e-20) * difference
    return moved


def shift(model, moved, coefficient):
    """Add a multiple of the perturbation to the weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in moved:
                parameter.add_(coefficient * moved[name])


def train(model, loss, gamma, batches):
    """Yield the state before each step and after the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=DECAY)
    for batch in batches:
        yield arrays(model)
        moved = perturbed_weights(model, lambda perturbed, batch=batch: loss(perturbed, *batch)) if gamma else {}
        shift(model, moved, gamma)
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()
        shift(model, moved, -gamma)
    yield arrays(model)


def train_free(model, batches, replays):
    """Free adversarial training; yield the state and the perturbations."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=DECAY)
    delta = torch.zeros(BATCH, SIDE, SIDE, CHANNELS)
    for x, _, _, labels in batches:
        yield arrays(model) | {"perturbation": delta.numpy().copy()}
        for _ in range(replays):
            noise = delta.clone().requires_grad_()
            loss = functional.cross_entropy(model((x + noise).clamp(0, 1)), labels)
            optimizer.zero_grad()
            loss.backward()
            delta = (delta + EPSILON * torch.sign(noise.grad)).clamp(-EPSILON, EPSILON)
            optimizer.step()
    yield arrays(model) | {"perturbation": delta.numpy().copy()}


def arrays(model):
    """Return the parameters by place, kernels as [inputs, outputs]."""
    values = [parameter.detach().numpy() for parameter in model.parameters()]
    return {str(number): (value.T if value.ndim > 1 else value).copy() for number, value in enumerate(values)}


def main():
    """Record the arrays of all methods."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", required=True, help="the .npz file to write")
    output = flags.parse_args().output
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(20262)
    generator = np.random.Generator(np.random.PCG64(20262))
    shape, record, batches = (BATCH, SIDE, SIDE, CHANNELS), {}, []
    for number in range(STEPS):
        x, noise = generator.uniform(size=shape), generator.uniform(-1, 1, shape)
        batch = {"images": x, "adversarial": np.clip(x + generator.uniform(-EPSILON, EPSILON, shape), 0, 1)}
        batch |= {"noise": noise, "labels": generator.permutation(np.arange(BATCH) % CLASSES)}
        record |= {f"batch/{number}/{name}": value for name, value in batch.items()}
        batches.append([torch.tensor(value) for value in batch.values()])
    initial, helper = Network(), Network()
    record |= {f"helper/{key}": value for key, value in arrays(helper).items()}
    runs = {"awp": (at, GAMMA), "trades_awp": (trades, GAMMA), "mart": (mart, 0.0), "hat": (hat_with(helper), 0.0)}
    runs |= {"fgsm_rs": (cross_entropy_of(fgsm_rs), 0.0), "n_fgsm": (cross_entropy_of(n_fgsm), 0.0)}
    runs |= {"grad_align": (aligned, 0.0)}
    states = {name: train(copy.deepcopy(initial), loss, gamma, batches) for name, (loss, gamma) in runs.items()}
    states["free"] = train_free(copy.deepcopy(initial), batches, replays=2)
    for name, steps in states.items():
        for number, state in enumerate(steps):
            record |= {f"{name}/{number}/{key}": value for key, value in state.items()}
    np.savez_compressed(output, **record)


if __name__ == "__main__":
    main()

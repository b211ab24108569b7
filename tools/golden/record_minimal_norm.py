"""Record the distances that adv-lib's FMN and DDN and Foolbox's HopSkipJump find on a small network for the digits.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 adv-lib==0.2.8 foolbox==3.3.4 scikit-learn
    torch-env/bin/python tools/golden/record_minimal_norm.py --output=tests/golden/minimal_norm.npz

The network, three dense layers with ReLU in between, is trained here with noise on half of the images. Needs neither
tfrobust nor TensorFlow.
"""

import argparse

import foolbox
import numpy as np
import torch
from adv_lib.attacks import ddn, fmn
from sklearn import datasets
from torch import nn
from torch.nn import functional

HIDDEN, EPOCHS, BATCH, NOISE, COUNT, STEPS = 32, 60, 100, 0.2, 60, 100
NORMS = {"linf": float("inf"), "l2": 2, "l1": 1, "l0": 0}
FOOLBOX = {
    "linf": foolbox.attacks.LInfFMNAttack,
    "l2": foolbox.attacks.L2FMNAttack,
    "l1": foolbox.attacks.L1FMNAttack,
    "l0": foolbox.attacks.L0FMNAttack,
}
# Of HopSkipJump: few steps, so that the file stays quick to test against.
JUMPS, FIRST_SAMPLES = 15, 50


def trained(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Return a network trained on the images, every other one of a batch with uniform noise."""
    torch.manual_seed(0)
    sizes = (images.shape[1], HIDDEN, HIDDEN, 10)
    layers = [nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            noise = NOISE * (2 * torch.rand(len(rows), images.shape[1]) - 1) * (torch.arange(len(rows)) % 2)[:, None]
            loss = functional.cross_entropy(model((images[rows] + noise).clamp(0, 1)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.requires_grad_(False).eval()


def distances(adversarial: torch.Tensor, images: torch.Tensor, model: nn.Module, labels: torch.Tensor, norm: float):
    """Return the distance of each adversarial image, infinite where it is classified correctly; float32 [n]."""
    reached = model(adversarial).argmax(1) != labels
    length = (adversarial - images).norm(p=norm, dim=1)
    return torch.where(reached, length, torch.inf).numpy()


def main() -> None:
    """Train, attack, and write the file."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", required=True)
    flags = flags.parse_args()
    digits = datasets.load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    model = trained(images[COUNT:], labels[COUNT:])
    images = images[:COUNT]
    labels = model(images).argmax(1)
    record = {"images": images.numpy(), "labels": labels.numpy()}
    record |= {name: parameter.numpy() for name, parameter in model.named_parameters()}
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    for name, norm in NORMS.items():
        record[f"fmn/{name}"] = distances(fmn(model, images, labels, norm, steps=STEPS), images, model, labels, norm)
        attack = FOOLBOX[name](steps=STEPS)
        record[f"fmn_foolbox/{name}"] = distances(attack.run(wrapped, images, labels), images, model, labels, norm)
    points = ddn(model, images, labels, steps=STEPS, levels=None)
    record["ddn/l2"] = distances(points, images, model, labels, 2)
    for name in ("l2", "linf"):
        torch.manual_seed(1)
        attack = foolbox.attacks.HopSkipJumpAttack(
            steps=JUMPS, initial_gradient_eval_steps=FIRST_SAMPLES, constraint=name
        )
        points = attack.run(wrapped, images, labels)
        record[f"hop_skip_jump/{name}"] = distances(points, images, model, labels, NORMS[name])
    np.savez_compressed(flags.output, **record)


if __name__ == "__main__":
    main()

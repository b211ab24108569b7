"""Record the outputs of the released ASCL code, as an oracle for tests/losses.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_ascl_losses.py --repository=DIR --output=tests/golden/ascl_losses.npz

DIR is your checkout of https://github.com/tuananhbui89/ASCL. Nothing of it is copied: its modules are imported and run
on drawn inputs, and inputs and outputs are written. Needs neither tfrobust nor TensorFlow.
"""

import argparse
import contextlib
import pathlib
import sys
import types
from unittest import mock

import numpy as np
import torch

IMAGES, CLASSES, FEATURES = 12, 4, 16
# (distance, their hidden_norm, temperature); "cosine" requires raw latents, "matmul", "l1", "l2" normalized ones.
DISTANCES = (
    ("cosine", False, 0.07),
    ("linf", True, 0.2),
    ("linf", True, 0.07),
    ("linf", False, 0.5),
    ("l1", True, 0.5),
    ("l2", True, 0.2),
    ("lkinf", True, 0.2),
    ("matmul", True, 0.07),
)
SELECTIONS = ("all", "hard", "soft", "leaking")


def draw_inputs():
    """Draw two views of a batch whose predictions are often wrong, differently for clean and adversarial."""
    generator = np.random.Generator(np.random.PCG64(20260))
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 0, 1], np.int64)  # class 3 occurs once
    embedding = generator.normal(size=(2, IMAGES, FEATURES)) + 0.5 * np.eye(CLASSES, FEATURES)[labels]
    logits = generator.normal(size=(2, IMAGES, CLASSES)) + 1.5 * np.eye(CLASSES)[labels]
    return {
        "labels": labels,
        "clean_embedding": embedding[0].astype(np.float32),
        "adversarial_embedding": embedding[1].astype(np.float32),
        "clean_logits": logits[0].astype(np.float32),
        "adversarial_logits": logits[1].astype(np.float32),
    }


def one_hot(ids, num_classes):
    """Return float one-hot vectors of ids."""
    return torch.nn.functional.one_hot(torch.as_tensor(ids), num_classes).float()


def import_released(repository, name):
    """Import a module of the checkout, with stubs for its imports that serve only data sets and plots."""
    stand_in = types.ModuleType("utils")
    stand_in.one_hot_tensor = one_hot
    stand_in.add_loss = lambda loss, weight: weight * loss if weight else 0
    status = types.ModuleType("models")
    status.switch_status = None
    with mock.patch.dict(sys.modules, {"utils": stand_in, "models": status}):
        sys.path.insert(0, str(repository))
        try:
            return __import__(name)
        finally:
            sys.path.remove(str(repository))


@contextlib.contextmanager
def on_cpu():
    """Let code that requests a GPU run without one."""
    with mock.patch.object(torch.Tensor, "cuda", lambda self, *_, **__: self):
        yield


class Recorded(torch.nn.Module):
    """A model whose forward passes return given (logits, embedding) in order, whatever the input."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = list(outputs)

    def forward(self, _, return_z=False):
        """Return the next logits, with the embedding if `return_z`."""
        logits, embedding = self.outputs.pop(0)
        return (logits, embedding) if return_z else logits


def record_selections(repository, inputs, record):
    """Record soft_lcscl for every selection and distance, with gradients if they are finite."""
    released = import_released(repository, "contrastive_losses_v2")
    labels = one_hot(np.tile(inputs["labels"], 2), CLASSES).double()
    logits = np.concatenate([inputs["clean_logits"], inputs["adversarial_logits"]])
    predictions = one_hot(logits.argmax(-1), CLASSES).double()
    embedding = np.concatenate([inputs["clean_embedding"], inputs["adversarial_embedding"]])
    for distance, normalized, temperature in DISTANCES:
        for selection in SELECTIONS:
            hidden = torch.tensor(embedding).double().requires_grad_()
            value = released.soft_lcscl(hidden, labels, predictions, distance, selection, normalized, temperature)
            name = f"contrastive/{distance}/{'normalized' if normalized else 'raw'}/{temperature}/{selection}"
            record[name] = value.item()
            (gradient,) = torch.autograd.grad(value, hidden)
            if torch.isfinite(gradient).all():
                record[f"{name}/gradient"] = gradient.numpy()


def record_adr(repository, inputs, record):
    """Record each term of ADR, and its gradients by clean and adversarial embeddings and logits."""
    released = import_released(repository, "compact_loss_pt")
    names = ("clean_embedding", "clean_logits", "adversarial_embedding", "adversarial_logits")
    sources = {name: torch.tensor(inputs[name]).double().requires_grad_() for name in names}
    z, logits, z_p, logits_p = (sources[name] for name in names)
    y = torch.tensor(inputs["labels"])
    local = released.local_loss(y, z, logits, y, z_p, logits_p)
    both_global = released.global_loss(y, z, logits, y, z_p, logits_p, scale=0.99, num_classes=CLASSES)
    terms = {
        "local_compactness": local[0],
        "local_smoothness": local[1],
        "global_compactness": both_global[0],
        "global_smoothness": both_global[1],
        "confidence": released.mysoftmax_cross_entropy_with_two_logits(logits_p, logits_p),
        "vat": released.kl_loss_with_logits(logits_p, logits),
    }
    for name, value in terms.items():
        record[f"robust/{name}"] = value.item()
        gradients = torch.autograd.grad(value, list(sources.values()), retain_graph=True, allow_unused=True)
        for source, gradient in zip(names, gradients, strict=True):
            record[f"robust/{name}/{source}"] = np.zeros(inputs[source].shape) if gradient is None else gradient.numpy()
    record["robust/pair_weights"] = released.label_weight(y, y, 0.99, pairwise=True, num_classes=CLASSES).numpy()


def record_trades(repository, inputs, record):
    """Record trades_loss without attack steps, on a model that returns the drawn logits."""
    released = import_released(repository, "trades")
    clean, adversarial = (
        torch.tensor(inputs[f"{view}_logits"]).double().requires_grad_() for view in ("clean", "adversarial")
    )
    # The order in which the released code calls its model: clean for its cross-entropy, adversarial, clean.
    model = Recorded((clean, None), (adversarial, None), (clean, None))
    with on_cpu():
        _, _, log = released.trades_loss(
            model,
            torch.zeros(IMAGES, 1),
            torch.tensor(inputs["labels"]),
            "cpu",
            mock.Mock(),
            perturb_steps=0,
        )
    value = log["loss_adv_ce"]
    record["robust/trades"] = value.item()
    record["robust/trades_natural"] = log["loss_nat_ce"].item()
    gradients = torch.autograd.grad(value, [clean, adversarial])
    for name, gradient in zip(("clean_logits", "adversarial_logits"), gradients, strict=True):
        record[f"robust/trades/{name}"] = gradient.numpy()


def main():
    """Record the outputs and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=pathlib.Path, required=True, help="checkout of tuananhbui89/ASCL")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the .npz to write")
    flags = parser.parse_args()
    if not (flags.repository / "contrastive_losses_v2.py").is_file():
        parser.error(f"{flags.repository} has no contrastive_losses_v2.py; give a checkout of tuananhbui89/ASCL")
    inputs, record = draw_inputs(), {}
    record_selections(flags.repository.resolve(), inputs, record)
    record_adr(flags.repository.resolve(), inputs, record)
    record_trades(flags.repository.resolve(), inputs, record)
    arrays = {f"input/{name}": value for name, value in inputs.items()} | record
    np.savez_compressed(flags.output, **arrays)
    print(f"{len(record)} outputs with torch {torch.__version__} -> {flags.output}")


if __name__ == "__main__":
    main()

"""The sides that run on PyTorch: torchattacks, Foolbox, ART, the official AutoAttack, a training step, a transformer.

Their networks are those of tfrobust as a PyTorch user would write them, with the faster layout inside. The weights are
frozen, except in the training step: otherwise some libraries would compute gradients of the weights, too.
"""

import importlib.metadata
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

NORMALIZATION_EPSILON = 1e-5
ADAM_EPSILON = 1e-7  # Keras's
BETA = 6.0  # of TRADES


# ---------------------------------------------------------------------------------------------------- networks


class Unit(nn.Module):
    """Convolution with Keras's padding ('same'), then batch normalization if the weights have it, and ReLU."""

    def __init__(self, weights: dict[str, np.ndarray], stride: int = 1, activate: bool = True):
        super().__init__()
        kernel = weights["kernel"]
        size, _, inputs, outputs = kernel.shape
        # At stride 2 Keras pads even sizes by 0 before and 1 after, which nn.Conv2d cannot express.
        self.behind = size > 1 and stride == 2
        padding = 0 if self.behind else size // 2
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, padding, bias="bias" in weights)
        fill(self.convolution, weight=kernel.transpose(3, 2, 0, 1), bias=weights.get("bias"))
        self.normalization = None
        if "gamma" in weights:
            self.normalization = nn.BatchNorm2d(outputs, eps=NORMALIZATION_EPSILON)
            fill(
                self.normalization,
                weight=weights["gamma"],
                bias=weights["beta"],
                running_mean=weights["moving_mean"],
                running_var=weights["moving_variance"],
            )
        self.activate = activate

    def forward(self, hidden):
        hidden = self.convolution(functional.pad(hidden, (0, 1, 0, 1)) if self.behind else hidden)
        if self.normalization is not None:
            hidden = self.normalization(hidden)
        return functional.relu(hidden) if self.activate else hidden


class Block(nn.Module):
    """Two units and a shortcut."""

    def __init__(self, places, stride: int):
        super().__init__()
        self.path = nn.Sequential(Unit(next(places), stride), Unit(next(places), activate=False))
        self.shortcut = Unit(next(places), stride, activate=False) if stride > 1 else nn.Identity()

    def forward(self, hidden):
        return functional.relu(self.path(hidden) + self.shortcut(hidden))


class Network(nn.Module):
    """Convolutions, global average, dense layers with ReLU in between."""

    def __init__(self, convolutions: list[nn.Module], dense: list[nn.Module], layout):
        super().__init__()
        self.convolutions, self.dense, self.layout = nn.Sequential(*convolutions), nn.Sequential(*dense), layout

    def forward(self, images):
        hidden = self.convolutions(images.contiguous(memory_format=self.layout))
        return self.dense(hidden.mean((2, 3)))


def fill(module: nn.Module, **arrays) -> None:
    """Copy arrays into parameters and buffers; skip None."""
    for name, array in arrays.items():
        if array is not None:
            getattr(module, name).data.copy_(torch.from_numpy(np.ascontiguousarray(array)))


def linear(weights: dict[str, np.ndarray]) -> nn.Linear:
    """Build a dense layer."""
    layer = nn.Linear(*weights["kernel"].shape)
    fill(layer, weight=weights["kernel"].T, bias=weights["bias"])
    return layer


def network(task) -> nn.Module:
    """Set the threads and build the network of a task, checked by its logits."""
    torch.set_num_threads(task.settings["threads"])
    by_place = {}
    for name, array in task.weights.items():
        number, _, kind = name.partition("/")
        by_place.setdefault(int(number), {})[kind] = array
    layers = iter([by_place[number] for number in sorted(by_place)])
    if task.network == "resnet20":
        convolutions = [Unit(next(layers))]
        convolutions += [Block(layers, 2 if stage and not block else 1) for stage in range(3) for block in range(3)]
        dense = [linear(next(layers))]
    else:
        convolutions = [Unit(next(layers), stride) for stride in (1, 2, 2)]
        dense = [linear(next(layers)), nn.ReLU(), linear(next(layers))]
    layout = torch.channels_last if task.settings["channels_last"] else torch.contiguous_format
    model = Network(convolutions, dense, layout).eval().requires_grad_(False).to(memory_format=layout)
    with torch.no_grad():
        task.check(model(first(task.images)).numpy())
    return model


def first(images: np.ndarray) -> torch.Tensor:
    """Convert images to PyTorch's layout, [n, c, h, w]."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, -1, 1)))


def inputs(task) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return images and labels by batch."""
    images, labels = first(task.images), torch.from_numpy(task.labels)
    return [(images[rows], labels[rows]) for rows in task.batches()]


def judge(model, task):
    """Return the function that evaluates adversaries by batch: {'right': number of correctly classified images}."""

    def outcome(adversaries):
        images = torch.cat([torch.as_tensor(batch) for batch in adversaries])
        distance = (images - first(task.images)).abs().max().item()
        if distance > task.settings["epsilon"] * (1 + 1e-4):
            raise SystemExit(f"an adversary is {distance} away; the radius is {task.settings['epsilon']}")
        with torch.no_grad():
            return {"right": int((model(images).argmax(1) == torch.from_numpy(task.labels)).sum())}

    return outcome


def versions(*packages: str) -> str:
    """Return the installed versions as 'name version'."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*packages, "torch"))


# --------------------------------------------------------------------------------------------- sides: PGD


def torchattacks_pgd(task):
    """Build torchattacks.PGD."""
    import torchattacks

    model, settings = network(task), task.settings
    attack = torchattacks.PGD(model, eps=settings["epsilon"], alpha=settings["step_size"], steps=settings["steps"])
    batches = inputs(task)
    return lambda: [attack(*batch) for batch in batches], judge(model, task), versions("torchattacks")


def foolbox_pgd(task):
    """Build foolbox.attacks.LinfPGD."""
    import foolbox

    model, settings = network(task), task.settings
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(abs_stepsize=settings["step_size"], steps=settings["steps"])
    batches = inputs(task)

    def run():
        return [attack(wrapped, *batch, epsilons=settings["epsilon"])[1] for batch in batches]

    return run, judge(model, task), versions("foolbox")


def art_pgd(task):
    """Build ART's ProjectedGradientDescent for PyTorch."""
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    model, settings = network(task), task.settings
    classifier = PyTorchClassifier(
        model,
        nn.CrossEntropyLoss(),
        input_shape=first(task.images[:1]).shape[1:],
        nb_classes=task.logits.shape[1],
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = ProjectedGradientDescentPyTorch(
        classifier,
        eps=settings["epsilon"],
        eps_step=settings["step_size"],
        max_iter=settings["steps"],
        num_random_init=1,
        batch_size=settings["batch"],
        verbose=False,
    )
    batches = [tuple(tensor.numpy() for tensor in batch) for batch in inputs(task)]
    return (
        lambda: [attack.generate(*batch) for batch in batches],
        judge(model, task),
        versions("adversarial-robustness-toolbox"),
    )


def official_apgd(task):
    """Build the official APGD on the cross-entropy, with as many iterations as PGD has steps."""
    from autoattack.autopgd_base import APGDAttack

    model, settings = network(task), task.settings
    attack = APGDAttack(
        model, n_iter=settings["steps"], norm="Linf", eps=settings["epsilon"], loss="ce", seed=0, device="cpu"
    )
    batches = inputs(task)
    return lambda: [attack.perturb(*batch) for batch in batches], judge(model, task), versions()


# -------------------------------------------------------------------------------------- side: AutoAttack


def official_autoattack(task):
    """Build AutoAttack 'standard', with the time of each member."""
    from autoattack import AutoAttack

    model, settings = network(task), task.settings
    attack = AutoAttack(
        model, norm=settings["norm"], eps=settings["epsilon"], version="standard", seed=0, verbose=False, device="cpu"
    )
    members = {"apgd_ce": attack.apgd, "apgd_t": attack.apgd_targeted, "fab_t": attack.fab, "square": attack.square}
    seconds = {}
    for name, member in members.items():
        member.perturb = timed(member.perturb, seconds, name)
    images, labels = first(task.images), torch.from_numpy(task.labels)

    def run():
        seconds.clear()
        return attack.run_standard_evaluation(images, labels, bs=settings["batches"]["official"])

    def outcome(adversarial):
        with torch.no_grad():
            correct = int((model(adversarial).argmax(1) == labels).sum())
        return {"right": correct, "members": dict(seconds)}

    return run, outcome, versions()


def timed(function, seconds: dict, name: str):
    """Wrap the function so that it adds its wall time to seconds[name]."""

    def call(*arguments):
        began = time.perf_counter()
        answer = function(*arguments)
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
        return answer

    return call


# --------------------------------------------------------------------------------------- side: a training step


def torchattacks_training(task):
    """Build a training step of ADV or TRADES as a PyTorch user writes it, with the adversaries of torchattacks."""
    import torchattacks

    model, settings = network(task).requires_grad_(True), task.settings
    divergence = settings["method"] == "trades"
    make = torchattacks.TPGD if divergence else torchattacks.PGD
    attack = make(model, eps=settings["epsilon"], alpha=settings["step_size"], steps=settings["steps"])
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"], eps=ADAM_EPSILON)
    images, labels = first(task.images), torch.from_numpy(task.labels)

    def run():
        model.train()
        adversarial = attack(images, labels)  # sets the model to inference mode and back
        clean, attacked = model(images), model(adversarial)
        loss = functional.cross_entropy(clean, labels)
        if divergence:
            log_p, log_q = clean.log_softmax(1), attacked.log_softmax(1)
            loss = loss + BETA * functional.kl_div(log_q, log_p, log_target=True, reduction="batchmean")
        else:
            loss = loss + functional.cross_entropy(attacked, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run, lambda loss: {"loss": loss}, versions("torchattacks")


# ----------------------------------------------------------------------------- side: the vision transformer


class VisionBlock(nn.Module):
    """Block of a vision transformer in the form of timm: fused attention, exact GELU."""

    def __init__(self, parts: dict[str, dict], heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = normalization(parts["norm_1"]), normalization(parts["norm_2"])
        self.qkv, self.out = linear(parts["qkv"]), linear(parts["out"])
        self.mlp = nn.Sequential(linear(parts["mlp_1"]), nn.GELU(), linear(parts["mlp_2"]))

    def forward(self, hidden):
        count, length, width = hidden.shape
        mixed = self.qkv(self.norm_1(hidden)).reshape(count, length, 3, self.heads, width // self.heads)
        attended = functional.scaled_dot_product_attention(*mixed.permute(2, 0, 3, 1, 4).unbind(0))
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(count, length, width))
        return hidden + self.mlp(self.norm_2(hidden))


class VisionTransformer(nn.Module):
    """Vision transformer that classifies by its class token."""

    def __init__(self, weights: dict[str, np.ndarray], heads: int):
        super().__init__()
        parts = {}
        for name, array in weights.items():
            prefix, _, kind = name.partition("/")
            parts.setdefault(prefix, {})[kind] = array
        tokens = parts.pop("tokens")
        side, _, channels, width = tokens["kernel"].shape
        self.patches = nn.Conv2d(channels, width, side, side)
        fill(self.patches, weight=tokens["kernel"].transpose(3, 2, 0, 1), bias=tokens["bias"])
        self.token, self.positions = (nn.Parameter(torch.from_numpy(tokens[n])) for n in ("class_token", "positions"))
        self.norm, self.head = normalization(parts.pop("norm")), linear(parts.pop("head"))
        blocks = {}
        for prefix, part_weights in parts.items():
            _, number, part = prefix.split("_", 2)
            blocks.setdefault(int(number), {})[part] = part_weights
        self.blocks = nn.Sequential(*(VisionBlock(blocks[number], heads) for number in sorted(blocks)))

    def forward(self, images):
        hidden = self.patches(images).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.token.expand(len(images), -1, -1), hidden], 1) + self.positions
        return self.head(self.norm(self.blocks(hidden))[:, 0])


def normalization(weights: dict[str, np.ndarray]) -> nn.LayerNorm:
    """Build a layer normalization."""
    layer = nn.LayerNorm(len(weights["gamma"]), eps=1e-6)
    fill(layer, weight=weights["gamma"], bias=weights["beta"])
    return layer


def vision_transformer(task):
    """Build the forward pass of a vision transformer, and its gradient by the images."""
    torch.set_num_threads(task.settings["threads"])
    model = VisionTransformer(task.weights, task.settings["heads"]).eval().requires_grad_(False)
    images, labels = first(task.images), torch.from_numpy(task.labels)
    seconds = {}

    def forward():
        with torch.no_grad():
            return model(images).numpy()

    def gradient():
        points = images.detach().requires_grad_(True)
        loss = functional.cross_entropy(model(points), labels, reduction="sum")
        return torch.autograd.grad(loss, points)[0].numpy()

    task.check(forward())
    timed_forward, timed_gradient = timed(forward, seconds, "forward"), timed(gradient, seconds, "gradient")

    def run():
        seconds.clear()
        forward()  # the first call after the other side's turn is slower
        timed_forward()
        return timed_gradient()

    return run, lambda outputs: {"members": dict(seconds), "size": float(np.abs(outputs).mean())}, versions()

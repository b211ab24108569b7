"""The sides of tools/benchmarks/bench_bounds.py: linear bounds by tfrobust and by auto_LiRPA, and their task."""

import importlib.metadata

import numpy as np
from _peers import Task

# Kernels in Keras's layout, as the network of Wong and Kolter (2018) has them.
SHAPES = {"0": (4, 4, 1, 16), "1": (4, 4, 16, 32), "2": (1568, 100), "3": (100, 10)}
# The widths of five dense ReLU networks, and steps of the ascent on slopes.
WIDTHS = ((8, 20, 12, 3), (8, 24, 24, 24, 3), (8, 30, 30, 3), (8, 16, 16, 16, 16, 3), (8, 40, 20, 3))
STEPS, STEP_SIZE = 20, 0.1


def shipped(settings: dict) -> Task:
    """Make a task of a SavedModel with these kernels, and of test images that it classifies correctly.

    Without the data it takes noise with the model's own classes.
    """
    import _recipes  # noqa: F401, PLC0415 - finds tfrobust
    import tensorflow as tf  # noqa: PLC0415

    from tfrobust import keras as robust  # noqa: PLC0415
    from tfrobust.errors import InputError  # noqa: PLC0415

    variables = [variable.numpy() for variable in tf.saved_model.load(settings["model"]).variables]
    weights = {}
    for name, shape in SHAPES.items():
        weights[f"{name}/kernel"] = next(value for value in variables if value.shape == shape)
        weights[f"{name}/bias"] = next(value for value in variables if value.shape == shape[-1:])
    try:
        images, labels = (values[:2000] for values in robust.data.FashionMnist().load().test.arrays())
    except InputError:
        images, labels = np.random.default_rng(0).random((settings["count"], 28, 28, 1)), None
    logits = keras_model(weights)(images).numpy()
    labels = logits.argmax(1) if labels is None else labels
    rows = np.flatnonzero(logits.argmax(1) == labels)[: settings["count"]]
    return Task("wk", images[rows].astype(np.float32), labels[rows], logits[rows], weights, settings)


def drawn(settings: dict) -> Task:
    """Make a task of five dense networks with random weights, and of images with the classes that each gives them."""
    generator = np.random.default_rng(0)
    images, weights, logits = generator.uniform(size=(settings["count"], WIDTHS[0][0])).astype(np.float32), {}, []
    for network, widths in enumerate(WIDTHS):
        hidden = images
        for layer, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
            kernel, bias = (
                generator.normal(size=(before, after)) * np.sqrt(2 / before),
                generator.normal(size=after) / 3,
            )
            weights[f"{network}/{layer}/kernel"], weights[f"{network}/{layer}/bias"] = map(np.float32, (kernel, bias))
            hidden = (np.maximum(hidden, 0) if layer else hidden) @ np.float32(kernel) + np.float32(bias)
        logits.append(hidden)
    logits = np.concatenate(logits)
    return Task("dense", images, logits.argmax(1), logits, weights, settings)


def layers_of(task: Task) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return (kernel, bias) of the layers of each drawn network."""
    return [
        [
            (task.weights[f"{network}/{layer}/kernel"], task.weights[f"{network}/{layer}/bias"])
            for layer in range(len(widths) - 1)
        ]
        for network, widths in enumerate(WIDTHS)
    ]


def keras_model(weights: dict):
    """Return the network in Keras."""
    import keras  # noqa: PLC0415

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 4, 2, "same", activation="relu"),
            layers.Conv2D(32, 4, 2, "same", activation="relu"),
            layers.Flatten(),
            layers.Dense(100, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.set_weights([weights[f"{name}/{part}"] for name in SHAPES for part in ("kernel", "bias")])
    return model


def tfrobust(task: Task):
    """Bound the margins by tfrobust."""
    import _recipes  # noqa: F401, PLC0415 - finds tfrobust
    import keras  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    from tfrobust import keras as robust  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(task.settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(task.settings["threads"])
    model = keras_model(task.weights)
    task.check(model(task.images).numpy())

    def run():
        return robust.certification.certified_margins(
            model, task.images, task.labels, epsilon=task.settings["epsilon"], method="crown"
        )

    return run, summary, f"tensorflow {tf.__version__}, keras {keras.__version__}, float64 with rounding"


def tfrobust_slopes(task: Task):
    """Bound the margins of the drawn networks by the best slopes."""
    import _recipes  # noqa: F401, PLC0415 - finds tfrobust
    import keras  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    from tfrobust.certification import intervals, linear_bounds, slopes, tightening  # noqa: PLC0415
    from tfrobust.certification.network import walk  # noqa: PLC0415

    networks = []
    for layers in layers_of(task):
        model = keras.Sequential([keras.Input(task.images.shape[1:])])
        for number, (_, bias) in enumerate(layers, 1):
            model.add(keras.layers.Dense(len(bias), None if number == len(layers) else "relu"))
        model.set_weights([array for pair in layers for array in pair])
        networks.append(model)
    task.check(np.concatenate([model(task.images).numpy() for model in networks]))
    box = intervals.input_box(tf.constant(task.images, tf.float64), task.settings["epsilon"])
    labels = np.split(task.labels, len(WIDTHS))

    def run():
        worst = []
        for model, targets in zip(networks, labels, strict=True):
            network = walk(model)
            boxes = tightening.tightened(network, intervals.propagate(network, box))
            functions = linear_bounds.margin_coefficients(targets, WIDTHS[0][-1], tf.float64)
            first = linear_bounds.lower_bounds(network, boxes, functions)
            boxes = tightening.tightened(network, boxes, steps=STEPS)
            bounds = tf.maximum(first, slopes.best_bounds(network, boxes, functions, STEPS)).numpy()
            bounds[np.arange(len(targets)), targets] = np.inf
            worst.append(bounds.min(1))
        return np.concatenate(worst)

    return run, listed, f"tensorflow {tf.__version__}, keras {keras.__version__}, float64 with rounding"


def auto_lirpa(task: Task):
    """Bound the margins by auto_LiRPA's CROWN, on patches."""
    torch, auto_LiRPA = prepared(task)
    model = torch_model(task.weights, torch)
    images = torch.tensor(task.images.transpose(0, 3, 1, 2))
    task.check(model(images).detach().numpy())
    bounded = auto_LiRPA.BoundedModule(model, images[:1], bound_opts={"conv_mode": "patches"})
    labels, epsilon = torch.tensor(task.labels.astype(np.int64)), task.settings["epsilon"]
    rivals = torch.stack([torch.tensor([k for k in range(10) if k != label]) for label in labels.tolist()])
    functions = torch.eye(10)[labels][:, None] - torch.eye(10)[rivals]

    def run():
        worst = []
        for rows in task.batches():
            lower, upper = (images[rows] - epsilon).clamp(0, 1), (images[rows] + epsilon).clamp(0, 1)
            ball = auto_LiRPA.PerturbationLpNorm(norm=np.inf, eps=epsilon, x_L=lower, x_U=upper)
            point = auto_LiRPA.BoundedTensor(images[rows], ball)
            bounds, _ = bounded.compute_bounds(x=(point,), C=functions[rows], method="CROWN", bound_upper=False)
            worst.append(bounds.detach().min(1).values.numpy())
        return np.concatenate(worst)

    return run, summary, f"torch {torch.__version__}, auto_LiRPA {importlib.metadata.version('auto-lirpa')}, float32"


def auto_lirpa_slopes(task: Task):
    """Bound the margins of the drawn networks by auto_LiRPA's CROWN-Optimized."""
    torch, auto_LiRPA = prepared(task)
    images, options = torch.tensor(task.images), {"iteration": STEPS, "lr_alpha": STEP_SIZE}
    models = []
    for layers in layers_of(task):
        parts = [part for kernel, bias in layers for part in (torch.nn.Linear(*kernel.shape), torch.nn.ReLU())][:-1]
        for part, (kernel, bias) in zip(parts[::2], layers, strict=True):
            part.weight.data, part.bias.data = torch.tensor(kernel.T.copy()), torch.tensor(bias)
        models.append(torch.nn.Sequential(*parts))
    task.check(np.concatenate([model(images).detach().numpy() for model in models]))
    epsilon, classes = task.settings["epsilon"], WIDTHS[0][-1]
    ends = {"x_L": (images - epsilon).clamp(0, 1), "x_U": (images + epsilon).clamp(0, 1)}
    point = auto_LiRPA.BoundedTensor(images, auto_LiRPA.PerturbationLpNorm(norm=np.inf, eps=epsilon, **ends))

    def run():
        worst = []
        for model, targets in zip(models, np.split(task.labels, len(WIDTHS)), strict=True):
            rivals = torch.tensor([[k for k in range(classes) if k != label] for label in targets.tolist()])
            functions = torch.eye(classes)[torch.tensor(targets)][:, None] - torch.eye(classes)[rivals]
            bounded = auto_LiRPA.BoundedModule(model, images[:1], bound_opts={"optimize_bound_args": options})
            bounds, _ = bounded.compute_bounds(x=(point,), C=functions, method="CROWN-Optimized", bound_upper=False)
            worst.append(bounds.detach().min(1).values.numpy())
        return np.concatenate(worst)

    return run, listed, f"torch {torch.__version__}, auto_LiRPA {importlib.metadata.version('auto-lirpa')}, float32"


def prepared(task: Task):
    """Return the modules torch and auto_LiRPA, the latter made to work with later releases of the former."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(task.settings["threads"])
    # auto_LiRPA 0.3 was written for earlier releases of PyTorch, which had both.
    symbolic = importlib.import_module("torch.onnx.symbolic_helper")
    symbolic._set_opset_version = lambda version: None
    torch._C.Node.__getitem__ = lambda node, key: getattr(node, node.kindOf(key))(key)
    import auto_LiRPA  # noqa: PLC0415

    # Slopes begin at 0 and 1, where the derivative of `torch.clamp` became 0 in PyTorch 2.14, so that none would move.
    # The library itself cuts them after each step.
    activation = importlib.import_module("auto_LiRPA.operators.activation")
    for kind in vars(activation).values():
        if hasattr(kind, "_relu_mask_alpha"):
            kind._relu_mask_alpha = staticmethod(masked_slopes)
    return torch, auto_LiRPA


def masked_slopes(lower, upper, *slopes):
    """Return slopes of lower lines, 1 of active and 0 of inactive ReLUs, and whether all are inactive."""
    active, inactive = (lower >= 0).to(lower.dtype), upper <= 0
    unstable = (1.0 - active) * (1.0 - inactive.to(upper.dtype))
    return *(slope if slope is None else slope * unstable + active for slope in slopes), inactive.all()


def torch_model(weights: dict, torch):
    """Return the network in PyTorch, channels first."""
    layers = torch.nn
    model = layers.Sequential(
        layers.Conv2d(1, 16, 4, 2, 1), layers.ReLU(), layers.Conv2d(16, 32, 4, 2, 1), layers.ReLU(), layers.Flatten(),
        layers.Linear(1568, 100), layers.ReLU(), layers.Linear(100, 10),
    )  # fmt: skip
    weighted = [layer for layer in model if hasattr(layer, "weight")]
    for name, layer in zip(SHAPES, weighted, strict=True):
        kernel = weights[f"{name}/kernel"]
        if name == "2":  # the flattened map: rows, columns, channels in Keras; channels first in PyTorch
            kernel = kernel.reshape(7, 7, 32, 100).transpose(2, 0, 1, 3).reshape(1568, 100)
        axes = (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)
        layer.weight.data = torch.tensor(np.ascontiguousarray(kernel.transpose(axes)))
        layer.bias.data = torch.tensor(weights[f"{name}/bias"])
    return model


def summary(margins: np.ndarray) -> dict:
    """Return the mean of the bounds and how many images they certify."""
    return {"mean": float(margins.mean()), "certified": int((margins > 0).sum())}


def listed(margins: np.ndarray) -> dict:
    """Return the bounds as a list."""
    return {"bounds": margins.tolist()}

"""Loading of weights trained in PyTorch into encoders and classifiers, all of them or none."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from typing import NamedTuple

import keras
import numpy as np

from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.vit import POOLINGS, ViT
from tfrobust.models.weights import clip_names, residual_names, vit_names
from tfrobust.models.weights.destinations import Destination, layer_destinations
from tfrobust.models.weights.weight_files import StoredTensor, display_name, open_tensors

HEADS = ("fc", "linear", "logits", "classifier", "head")
_PROJECTIONS = (
    "projection_head",
    "projection",
    "projector",
    "proj_head",
    "prototypes",
    "predictor",
    "contrastive_head",
)
_COMPANIONS = ("momentum_encoder",)  # networks that are stored next to the one that is used
_MEANS, _DEVIATIONS = ("mu", "mean", "new_mean"), ("sigma", "std", "new_std")
_PIXEL_TOLERANCE = 1e-4
_COMPARED = 2000  # names searched for the nearest one

NAMINGS = (*residual_names.NAMINGS, *vit_names.NAMINGS, *clip_names.NAMINGS)
Naming = residual_names.Naming | vit_names.ViTNaming | clip_names.ClipNaming
Tensors = dict[str, StoredTensor]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Result of loading a checkpoint.

    Attributes:
        naming: family whose names the file has: "torchvision", "RobustBench", "TRADES", "DeepMind" or "timm".
        prefix: prefix of the encoder's names, such as "module.encoder.".
        used: names of the tensors that are now in the model.
        ignored: names of the others: batch counters, classifiers and projections that the model does not have, mean and
            deviation of pixels (which were compared with the encoder's), blocks that are never used, momentum encoders,
            and what `prefix` leaves out.
        note: a setting that no file contains and that decides the outputs; "" if there is none.
    """

    naming: str
    prefix: str
    used: tuple[str, ...]
    ignored: tuple[str, ...]
    note: str = ""

    def __str__(self) -> str:
        names = [name for name in self.ignored if not name.endswith("num_batches_tracked")]
        listed = f"; ignored: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}" if names else ""
        prefix = f", prefix {self.prefix!r}" if self.prefix else ""
        return f"{len(self.used)} tensors with {self.naming}'s names{prefix}{listed}{self.note and f'; {self.note}'}"


class _Classifier(NamedTuple):
    encoder: Encoder
    head: keras.layers.Layer


def load(model: keras.Model, path, *, prefix: str | None = None) -> Loaded:
    """Load the weights of a PyTorch network into an encoder, or into the encoder and head of a classifier.

    Every tensor of the file is used or known to be unnecessary, every variable is set, and shapes agree; otherwise
    nothing changes. All batch-norm branches get the same values. Settings that no file contains must be set correctly:
    the activation, the epsilon of batch norm (1e-5 in PyTorch and here), and where shortcuts begin.

    Example:
        >>> import numpy as np, tempfile
        >>> from tfrobust import keras as robust
        >>> from tfrobust.models.weights import checkpoints
        >>> encoder = robust.models.ResNet18(width=2)
        >>> tensors = {f"module.{name}": np.ones(shape) for name, shape in checkpoints.shapes(encoder).items()}
        >>> path = f"{tempfile.mkdtemp()}/weights.npz"  # for want of a real one
        >>> np.savez(path, **tensors)
        >>> print(robust.models.load_checkpoint(encoder, path))
        100 tensors with torchvision's names, prefix 'module.'

    Args:
        model: a ResNet18, ResNet50, PreActResNet18, WideResNet, ViT, R2Plus1D18 or R3D18; or a model with one of them
            as `encoder` and a `LinearHead` or `Dense` as `head`, such as a method. It is built for color images of any
            size if it is not built.
        path: `.safetensors` or `.npz`. A pickle (`.pt`, `.pth`) is refused with the command that converts it.
        prefix: prefix of the encoder's names if the file holds several networks, of which the others are ignored; None
            detects it.

    Returns:
        The names of used and of ignored tensors.

    Raises:
        InputError (a ValueError): the file cannot be read or does not fit. The message names tensors that are missing,
            left over or of another shape, and the nearest names.
    """
    encoder, head = (model.encoder, model.head) if hasattr(model, "encoder") else (model, None)
    _build(encoder, head)
    with open_tensors(path) as stored:
        tensors = stored if prefix is None else _of_network(encoder, stored, prefix)
        naming, start, destinations = _match(encoder, tensors, prefix, display_name(path))
        _account(encoder, tensors, destinations, start, naming, display_name(path))
        if head is not None:
            name = _head_name(tensors, start, encoder, display_name(path))
            destinations = destinations | layer_destinations(name, _dense(head))
            if f"{name}.bias" in tensors.keys() - destinations.keys():
                raise _refusal(f"{display_name(path)} has {name}.bias, and the head has no bias: set use_bias=True.")
            _account(encoder, tensors, destinations, start, naming, display_name(path))
        _check_function(encoder, naming, start, tensors, display_name(path))
        values = {
            name: _value(name, tensors[name], destination, display_name(path))
            for name, destination in destinations.items()
        }
        ignored = [name for name in stored if name not in destinations]
    for name, destination in destinations.items():
        destination.assign(values[name])
    return Loaded(naming.name, start, tuple(destinations), tuple(ignored), naming.note(encoder))


def classifier(encoder: Encoder, path, *, prefix: str | None = None) -> tuple[keras.Model, Loaded]:
    """Create a classifier of images of any size: an encoder and a linear head with the classes of the file.

    Example:
        >>> import numpy as np, tempfile
        >>> from tfrobust import keras as robust
        >>> from tfrobust.models.weights import checkpoints
        >>> encoder = robust.models.WideResNet(10, 1, pixel_mean=0.5, pixel_std=0.5)
        >>> tensors = checkpoints.shapes(encoder, "TRADES") | {"fc.weight": (7, 64), "fc.bias": (7,)}
        >>> path = f"{tempfile.mkdtemp()}/weights.npz"  # for want of a real one
        >>> np.savez(path, **{name: np.ones(shape) for name, shape in tensors.items()})
        >>> model, _ = robust.models.classifier_from_checkpoint(encoder, path)
        >>> model(np.zeros([2, 32, 32, 3]))["logits"].shape
        TensorShape([2, 7])

    Args:
        encoder: as in `load`. Images lie in [0, 1]: set the mean and deviation that the weights expect as `pixel_mean`
            and `pixel_std` of the encoder.
        path: as in `load`.
        prefix: as in `load`.

    Returns:
        A functional Keras model, images -> {"logits", "embedding"}, and the names of used and of ignored tensors.

    Raises:
        InputError (a ValueError): as in `load`, or the file holds no linear classifier.
    """
    _build(encoder, None)
    with open_tensors(path) as stored:
        tensors = stored if prefix is None else _of_network(encoder, stored, prefix)
        naming, start, destinations = _match(encoder, tensors, prefix, display_name(path))
        _account(encoder, tensors, destinations, start, naming, display_name(path))
        class_count = tensors[f"{_head_name(tensors, start, encoder, display_name(path))}.weight"].shape[0]
    if class_count < 2:
        raise _refusal(f"{display_name(path)} holds a head of {class_count} class; a classifier has at least two.")
    head = LinearHead(class_count)
    loaded = load(_Classifier(encoder, head), path, prefix=prefix)
    images = keras.Input(tuple(encoder.input_spec.shape[1:]))
    embedding = encoder(images)
    outputs = {"logits": head(embedding), "embedding": embedding}
    name = re.sub(r"\W+", "_", pathlib.Path(path).stem, flags=re.ASCII).strip("_")  # Keras allows no others
    return keras.Model(images, outputs, name=name or "checkpoint"), loaded


def shapes(encoder: Encoder, naming: str | None = None) -> dict[str, tuple[int, ...]]:
    """Return the tensors that an encoder needs, with the names of a family of PyTorch networks.

    Example:
        >>> from tfrobust import keras as robust
        >>> shapes = robust.models.checkpoint_shapes(robust.models.WideResNet(10, 1), "TRADES")
        >>> len(shapes), shapes["conv1.weight"]
        (37, (16, 3, 3, 3))

    Args:
        encoder: as in `load`.
        naming: "torchvision", "RobustBench", "TRADES", "DeepMind" or "timm"; None takes the first family with such a
            network.

    Returns:
        A dict from name to shape, with PyTorch's order of axes.

    Raises:
        InputError (a ValueError): no such family, or it has no such network.
    """
    _build(encoder, None)
    for family in NAMINGS:
        destinations = family.destinations(encoder) if naming in (None, family.name) else None
        if destinations is not None:
            return {name: destination.shape for name, destination in destinations.items()}
    raise _refusal(
        f"{naming!r} names no {_summary(encoder)}; families are {', '.join(dict.fromkeys(n.name for n in NAMINGS))}."
    )


# ---------------------------------------------------------------------------------------------------- matching


def _build(encoder, head) -> None:
    if not isinstance(encoder, Encoder):
        raise _refusal(f"weights can be loaded into encoders of tfrobust only, not into {type(encoder).__name__}.")
    is_vit_or_clip = isinstance(encoder, ViT | R2Plus1D18 | R3D18)
    if not is_vit_or_clip and not residual_names.is_residual(encoder):
        raise _refusal(
            f"{type(encoder).__name__} is not supported: weights can be loaded into ResNet18, ResNet50, "
            "PreActResNet18, WideResNet, ViT, R2Plus1D18 and R3D18 with PyTorch-compatible settings. Build other "
            "networks in Keras, copy the arrays, and save a .keras file."
        )
    if not encoder.built:
        encoder.build((*[None] * (encoder.input_rank - 1), 3))
    if head is not None and not head.built:
        head.build((None, encoder.dim))


def _match(encoder, tensors: Tensors, prefix: str | None, where: str) -> tuple[Naming, str, dict[str, Destination]]:
    """Find the family and the prefix that match most of the encoder's names, and return them with its destinations."""
    matches = []
    for naming in NAMINGS:
        destinations = naming.destinations(encoder) or {}
        stem = f"{naming.stem}.weight"
        starts = {name.removesuffix(stem) for name in tensors if name.endswith(stem) and not _is_companion(name)}
        starts = starts if prefix is None else {prefix}
        for start in starts if destinations else ():
            if not start or start.endswith("."):
                full = {f"{start}{name}": destination for name, destination in destinations.items()}
                matches.append((len(full.keys() & tensors.keys()), naming, start, full))
    if not any(count for count, *_ in matches):
        names = ", ".join(sorted(tensors)[:3]) or "none"
        raise _refusal(f"{where} has no known tensor names of {_summary(encoder)}; its first names are {names}.")
    first, *rest = sorted(matches, key=lambda match: (-match[0], len(match[2])))
    alike = sorted({start for count, _, start, _ in rest if count == first[0]} | {first[2]})
    if len(alike) > 1 and first[0] == len(first[3]):
        raise _refusal(
            f"{where} holds several networks, {', '.join(map(repr, alike))[:120]}: choose one with prefix=, or "
            "convert only that one."
        )
    return first[1:]


def _of_network(encoder, tensors: Tensors, prefix: str) -> Tensors:
    """Return the tensors of the network that a prefix chooses, without those of other networks.

    Tensors outside of the prefix belong to others, except for a classifier above it and the statistics of the pixels.
    Inside of it, those of a second network that is complete do. A prefix of no name leaves all tensors.
    """
    if not any(name.startswith(prefix) for name in tensors):
        return tensors
    inner = tuple(start for start in _complete_starts(encoder, tensors) if start != prefix and start.startswith(prefix))
    return {
        name: tensor
        for name, tensor in tensors.items()
        if not (inner and name.startswith(inner))
        and (name.startswith(prefix) or _is_pixel_statistic(name, tensor) or set(name.split(".")) & {*HEADS})
    }


def _complete_starts(encoder, tensors: Tensors) -> set[str]:
    """Return the prefixes under which a file has each tensor of the encoder in the names of a family."""
    starts: set[str] = set()
    for naming in NAMINGS:
        destinations, stem = naming.destinations(encoder) or {}, f"{naming.stem}.weight"
        candidates = {name.removesuffix(stem) for name in tensors if name.endswith(stem)} if destinations else set()
        starts |= {start for start in candidates if all(f"{start}{name}" in tensors for name in destinations)}
    return starts


def _is_companion(name: str) -> bool:
    return any(part in _COMPANIONS for part in name.split("."))


def _head_name(tensors: Tensors, prefix: str, encoder: Encoder, where: str) -> str:
    """Return the name of the linear classifier, next to the encoder or above it."""
    heads, dim = [], encoder.dim
    for name, tensor in tensors.items():
        start, _, last = name.removesuffix(".weight").rpartition(".")
        # torchvision's ViT has heads.head. A classifier trained alone on several devices has module.linear.
        start = f"{start}." if start else ""
        starts = (start.removesuffix("heads."), start.removesuffix("heads.").removeprefix("module."))
        if name.endswith(".weight") and last in HEADS and prefix.startswith(starts) and len(tensor.shape) == 2:
            heads.append((tensor.shape[1] == dim, len(start), name.removesuffix(".weight")))
    fitting = sorted(name for fits, _, name in heads if fits)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _refusal(f"{where} holds several classifiers, {', '.join(fitting[:4])}: convert it with one.")
    unfitting = "; ".join(
        f"{name}.weight is {list(tensors[f'{name}.weight'].shape)}"
        f"{_pooling_hint(encoder, tensors[f'{name}.weight'].shape[1])}"
        for _, _, name in heads[:3]
    )
    raise _refusal(
        f"{where} holds no classifier of {dim} features ({', '.join(HEADS)}){': ' + unfitting if unfitting else ''}. "
        "Add its weight and bias when you convert, or load the encoder alone."
    )


def _pooling_hint(encoder: Encoder, features: int) -> str:
    poolings = [
        name for name, factor in POOLINGS.items() if isinstance(encoder, ViT) and factor * encoder.width == features
    ]
    return f" (ViT.pooling={poolings[0]!r})" if poolings else ""


def _dense(head) -> keras.layers.Dense:
    layer = head.chain[0] if isinstance(head, LinearHead) else head
    if not isinstance(layer, keras.layers.Dense):
        raise _refusal(f"the head is {type(head).__name__}; it must be a LinearHead or a Dense layer.")
    if isinstance(head, LinearHead) and head.batch_normalized:
        raise _refusal("the head is a LinearHead with batch_normalized=True, of which no family has weights.")
    return layer


def _ignored_names(tensors: Tensors, destinations: dict, prefix: str, naming: Naming) -> list[str]:
    unused = tuple(f"{prefix}{name}" for name in naming.unused)
    return [
        name
        for name in tensors
        if name not in destinations
        and (
            name.endswith("num_batches_tracked")
            or _is_companion(name)
            or _is_pixel_statistic(name, tensors[name])
            or any(part in HEADS + _PROJECTIONS for part in name.split("."))
            or bool(unused and name.startswith(unused))
        )
    ]


def _is_pixel_statistic(name: str, tensor: StoredTensor) -> bool:
    return name.rpartition(".")[2] in _MEANS + _DEVIATIONS and math.prod(tensor.shape) in (1, 3) and tensor.floating


# ----------------------------------------------------------------------------------------------------- checking


def _account(encoder, tensors: Tensors, destinations: dict, prefix: str, naming: Naming, where: str) -> None:
    """Raise InputError if a tensor is missing, left over or of another shape."""
    fault = _fault(tensors, destinations, _ignored_names(tensors, destinations, prefix, naming))
    if fault:
        raise _refusal(f"{where} is no {_summary(encoder)}: {fault}")


def _fault(tensors: Tensors, destinations: dict[str, Destination], ignored: list[str]) -> str:
    """Describe the first mismatch of each kind, with the nearest name; "" if there is none."""
    missing = [name for name in destinations if name not in tensors]
    unused = sorted(tensors.keys() - destinations.keys() - set(ignored))
    other = [
        name
        for name, destination in destinations.items()
        if name in tensors and tensors[name].shape != destination.shape
    ]
    counts = [name for name in destinations if name in tensors and not tensors[name].floating]
    faults = []
    if other:
        name = other[0]
        shape, here = list(tensors[name].shape), list(destinations[name].shape)
        faults.append(f"{name} is {shape}, not {here}{_more(other)}{_stem_hint(shape, here)}")
    if missing:
        near = nearest(missing[0], unused[:_COMPARED], count=1)
        hint = f" (nearest: {near[0]} {list(tensors[near[0]].shape)})" if near else ""
        faults.append(f"there is no {missing[0]} {list(destinations[missing[0]].shape)}{_more(missing)}{hint}")
    if unused:
        faults.append(f"unused tensor {unused[0]} {list(tensors[unused[0]].shape)}{_more(unused)}")
    if counts:
        faults.append(f"{counts[0]} holds no floating-point numbers{_more(counts)}")
    return "; ".join(faults)


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _stem_hint(shape: list[int], here: list[int]) -> str:
    stems = {7: "kinetics", 3: "small"} if len(here) == 5 else {7: "imagenet", 3: "cifar"}
    if len(shape) == len(here) > 3 and {shape[-1], here[-1]} == set(stems):
        return f" (stem={stems[shape[-1]]!r})"
    side = math.isqrt(max(shape[1] - 1, 0)) if len(shape) == 3 else 0
    return f" (ViT.grid={side})" if side and side**2 + 1 == shape[1] else ""


def _summary(encoder) -> str:
    """Describe the class and the arguments that decide its shapes: "ResNet50 (stem='cifar', width=64)"."""
    names = [name for name in ("depth", "stem", "width", "final_normalization", "patch_size") if hasattr(encoder, name)]
    settings = ", ".join(f"{name}={getattr(encoder, name)!r}" for name in names)
    return f"{type(encoder).__name__} ({settings})" if settings else type(encoder).__name__


def _check_function(encoder, naming: Naming, prefix: str, tensors: Tensors, where: str) -> None:
    """Check what shapes do not show, and the normalization of pixels if the file contains it."""
    kind = type(encoder).__name__
    fault = naming.fault(encoder, tensors, prefix)
    if fault:
        raise _refusal(f"{where}: {fault}")
    for argument, names, neutral in (("pixel_mean", _MEANS, 0.0), ("pixel_std", _DEVIATIONS, 1.0)):
        here = getattr(encoder, argument)
        for name, tensor in tensors.items():
            if not (name.rpartition(".")[2] in names and _is_pixel_statistic(name, tensor)):
                continue
            there = np.asarray(tensor.read(), np.float64).reshape(-1)
            if not np.allclose(neutral if here is None else here, there, rtol=0, atol=_PIXEL_TOLERANCE):
                values = ", ".join(f"{value:.6g}" for value in there)
                raise _refusal(f"{where}: {name} is ({values}), but {kind}.{argument} is {here}: set it to that.")


def _refusal(message: str) -> InputError:
    """Create the error with its message on one line, because a file may have given names any text."""
    return InputError(" ".join(message.split()))


def _value(name: str, tensor: StoredTensor, destination: Destination, where: str) -> np.ndarray:
    value = np.asarray(tensor.read()).astype(np.float32)
    if value.shape != destination.shape:
        raise _refusal(f"{where}: {name} has another shape than the file's header.")
    if not np.all(np.isfinite(value)):
        raise _refusal(f"{where}: {name} holds NaN or infinity.")
    if destination.positive and value.size and value.min() < 0:
        raise _refusal(f"{where}: {name} is a variance and has negative values.")
    return value

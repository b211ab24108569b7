"""Keras models that others have made, as parts of an encoder: where they come from and which pixels they expect."""

import hashlib
import pathlib
import sys
import types
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from tfrobust.common import files, outside
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError
from tfrobust.ops import keras_private
from tfrobust.security import weight_archives

# KerasHub's backbones that return tokens [b, n, d], and what its classifiers pool. Others return maps.
_TOKEN_POOLINGS = {
    "DeiTBackbone": "class",
    "DINOV2Backbone": "class",
    "DINOV3Backbone": "class",
    "SwinTransformerBackbone": "average",
    "ViTBackbone": "class",
}
_POOLINGS = {
    3: {"average": keras.layers.GlobalAveragePooling1D, "max": keras.layers.GlobalMaxPooling1D},
    4: {"average": keras.layers.GlobalAveragePooling2D, "max": keras.layers.GlobalMaxPooling2D},
}


class PixelMap(NamedTuple):
    """Map from pixels x in [0, 1] to the pixels of a model: (x - mean) / std, in the order of channels `order`.

    mean, std: a float, or one per channel of x in RGB. order: "rgb" or "bgr".
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    order: str = "rgb"


class ForeignModel(NamedTuple):
    """A model and what is known of it.

    model: the Keras model. pixels: what it expects of pixels, None if unknown. origin: the digest of the file that
    its weights were read from, the name they were asked for by, or "" for random weights.
    """

    model: keras.Model
    pixels: PixelMap | None
    origin: str = ""


# ------------------------------------------------------------------------------------------------- sources


def application_name(application) -> str:
    """Return the name of a constructor of keras.applications.

    Args:
        application: the name, or the constructor itself.

    Raises:
        ValueError: keras.applications has no such constructor.
    """
    names = [name for name in dir(keras.applications) if name[0].isupper()]
    name = getattr(application, "__name__", application)
    if name not in names or (callable(application) and getattr(keras.applications, name) is not application):
        near = nearest(str(name), names, count=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ". Build other models first, and pass model=."
        raise InputError(f"Backbone.application is {name!r}, which keras.applications does not have{hint}")
    return name


def from_application(name: str, arguments: dict, side: int | None) -> ForeignModel:
    """Build a model of keras.applications, with random weights unless `arguments` has `weights`.

    Args:
        name: of the constructor.
        arguments: of the constructor. `weights` is a local file; 'imagenet' downloads.
        side: of the square images that the model will see, or None for any.

    Raises:
        ValueError: arguments that the constructor refuses, or a file that cannot be read.
    """
    make = getattr(keras.applications, name)
    weights = arguments.get("weights")
    origin = "" if weights is None else str(weights)
    if weights == "imagenet":
        outside.require_download(f"weights of keras.applications.{name} (Backbone.arguments)")
    elif weights is not None:
        weight_archives.check_hdf5(weights)
        origin = digest(weights)
    keywords = {"include_top": False, "weights": None, "input_shape": (side, side, 3), **arguments}
    try:
        model = make(**keywords)
    except (TypeError, ValueError) as error:
        raise InputError(f"keras.applications.{name} refuses its arguments: {_first_line(error)}") from error
    # Without its own rescaling, a model has no preprocess_input that would fit.
    rescales = arguments.get("include_preprocessing", True)
    preprocess = sys.modules[make.__module__].preprocess_input
    return ForeignModel(model, pixel_map(preprocess) if rescales else None, origin)


def from_preset(preset, arguments: dict, policy) -> ForeignModel:
    """Load a preset of KerasHub, or build one of its backbones with random weights.

    Args:
        preset: a local folder; a handle such as 'hf://owner/name', which downloads; the name of a backbone class or
            that class, for random weights.
        arguments: of the backbone's constructor, which replace those of a preset.
        policy: dtype policy of the layers.

    Raises:
        ValueError: KerasHub is not installed, the preset is missing or damaged, or the constructor refuses.
    """
    hub = require_keras_hub()
    kind = getattr(hub.models, preset, None) if isinstance(preset, str) else preset
    loads = kind is None
    if loads and "://" in preset:
        outside.require_download(f"the preset {preset[:100]!r} (Backbone.preset)")
    elif loads:
        _check_preset_folder(hub, preset)
    elif not loads and not (isinstance(kind, type) and issubclass(kind, hub.models.Backbone)):
        raise InputError(f"Backbone.preset is {preset!r}, which is no backbone class of KerasHub.")
    try:
        if kind is not None:
            return ForeignModel(kind(**arguments, dtype=policy), None)
        model = hub.models.Backbone.from_preset(preset, **arguments, dtype=policy)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"KerasHub could not make {preset!r}: {_first_line(error)}") from error
    weights = pathlib.Path(preset, weight_archives.PRESET_WEIGHTS)
    return ForeignModel(model, _converter_map(hub, preset), preset if "://" in preset else digest(weights))


def require_keras_hub():
    """Return the module keras_hub.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import keras_hub
    except ImportError:
        raise InputError(
            "KerasHub's backbones need the package keras-hub: pip install 'tfrobust[keras_hub]'."
        ) from None
    return keras_hub


def _check_preset_folder(hub, preset: str) -> None:
    if not pathlib.Path(preset).is_dir():
        handle = hub.models.Backbone.presets.get(preset, {}).get("kaggle_handle")
        remedy = f"to download it, write {handle!r}" if handle else "name a local folder, or a handle 'hf://owner/name'"
        raise InputError(f"Backbone.preset is {preset!r}, which is no folder and no class of KerasHub; {remedy}.")
    weight_archives.check_preset(preset)


def _converter_map(hub, preset: str) -> PixelMap | None:
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except (FileNotFoundError, ValueError):
        return None  # the preset has no converter
    return pixel_map(converter)


def digest(path) -> str:
    """Return the SHA-256 of a file."""
    with files.regular(pathlib.Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -------------------------------------------------------------------------------------------------- pixels


def pixel_map(preprocess: Callable) -> PixelMap | None:
    """Derive the map of pixels from a function that prepares images in [0, 255].

    Args:
        preprocess: [b, h, w, 3] in [0, 255] -> [b, h', w', 3], the same map for every pixel.

    Returns:
        The map, or None if the function is no per-channel affine map with its channels in the order RGB or BGR.
    """
    colors = np.vstack([np.zeros(3), 255 * np.eye(3), np.full(3, 51.0)])
    prepared = np.asarray(preprocess(np.tile(colors[:, None, None], (1, 4, 4, 1))), np.float64)
    if prepared.shape[0] != 5 or prepared.ndim != 4 or prepared.shape[3] != 3:
        return None
    offset, *columns, middle = prepared[:, 0, 0]
    slopes = np.array(columns) - offset
    for order in ("rgb", "bgr"):
        turn = slice(None, None, -1) if order == "bgr" else slice(None)
        slope, shift = np.diag(slopes[:, turn]), offset[turn]
        alike = np.allclose(slopes[:, turn], np.diag(slope), atol=1e-5 * np.abs(slopes).max())
        if alike and (slope > 0).all() and np.allclose(middle[turn], 0.2 * slope + shift, rtol=1e-4, atol=1e-4):
            return PixelMap(_short(-shift / slope), _short(1 / slope), order)
    return None


def range_map(low: float, high: float) -> PixelMap:
    """Return the map of [0, 1] to [low, high]."""
    return PixelMap(-low / (high - low), 1 / (high - low))


def _short(values: np.ndarray) -> float | tuple[float, ...]:
    """Return the shortest numbers that are as close as float32 resolves, one if all channels have the same."""

    def shortest(value: float) -> float:
        candidates = (float(f"{value:.{digits}g}") for digits in range(1, 17))
        return next(candidate for candidate in candidates if abs(candidate - value) <= 1e-7 * abs(value)) + 0.0

    short = [shortest(float(value)) for value in values]
    return short[0] if len(set(short)) == 1 else tuple(short)


# --------------------------------------------------------------------------------------------------- parts


def input_shape(model: keras.Model) -> tuple:
    """Return (h, w, c) of the images that a model takes, with None for any size.

    Raises:
        ValueError: a model that is not built, or whose input is not one batch of images.
    """
    shapes = [tuple(tensor.shape) for tensor in getattr(model, "inputs", None) or []]
    if not shapes and model.built:
        shapes = [tuple((model.get_build_config() or {}).get("input_shape") or ())]
    if not shapes or not shapes[0]:
        raise InputError(f"Backbone takes a built model: call {model.name!r} once on a batch of images.")
    if len(shapes) > 1 or len(shapes[0]) != 4 or shapes[0][-1] is None:
        raise InputError(f"Backbone takes a model of images [b, h, w, c]; the inputs of {model.name!r} are {shapes}.")
    return shapes[0][1:]


def single_tensor(model: keras.Model, output: str | None) -> tuple[keras.Model, tuple]:
    """Return a model from one tensor to one tensor, and the shape of its output.

    A functional model with a dict as input or output is rewired; the layers are the same objects.

    Args:
        model: functional, sequential or subclassed.
        output: name of the output, for a model with several.

    Raises:
        ValueError: several outputs and none named, or a name that does not exist.
    """
    images = (None, *input_shape(model))
    if not getattr(model, "inputs", None):  # subclassed
        shape = model.compute_output_shape(images)
        if output is not None or not isinstance(shape, tuple):
            raise InputError(f"{model.name!r} has its own call: let it return one tensor, and set no output_name.")
        return model, tuple(shape)
    structure = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    named = structure if isinstance(structure, dict) else {}
    if output is not None and output not in named:
        raise InputError(f"Backbone.output_name is {output!r}; {model.name!r} has {sorted(named) or 'one output'}.")
    if output is None and len(model.outputs) > 1:
        remedy = f"set output_name to one of {sorted(named)}" if named else "pass a model with one of them"
        raise InputError(f"{model.name!r} has {len(model.outputs)} outputs; {remedy}.")
    chosen = named[output] if output is not None else model.outputs[0]
    plain = isinstance(model, keras.Sequential) or (structure is chosen and model.input is model.inputs[0])
    return (model if plain else keras.Model(model.inputs[0], chosen)), tuple(chosen.shape)


def pooling_of(model: keras.Model, shape: tuple, pooling: str | None) -> str | None:
    """Return how the output of a model becomes a vector: "average", "max", "class", or None for vectors.

    Args:
        model: the model, whose class may be known.
        shape: of its output, with the batch axis.
        pooling: the user's choice, or None to find one.

    Raises:
        ValueError: a choice that does not fit, or a sequence whose pooling is not known.
    """
    rank = len(shape)
    fitting = {2: (), 3: ("class", "average", "max"), 4: ("average", "max")}.get(rank)
    if fitting is None or shape[-1] is None:
        raise InputError(
            f"Backbone takes maps, sequences or vectors; the output of {model.name!r} has the shape {shape}."
        )
    if pooling is None and rank == 3:
        pooling = next((_TOKEN_POOLINGS[base.__name__] for base in type(model).__mro__ if _is_known(base)), None)
        if not getattr(model, "use_class_token", True):
            pooling = "average"
        if pooling is None:
            raise InputError(f"{model.name!r} returns a sequence {shape}: set pooling='class' (token 0) or 'average'.")
    if pooling is None and rank == 4:
        return "average"
    if pooling is not None and pooling not in fitting:
        raise InputError(f"Backbone.pooling is {pooling!r}; for an output {shape} it is one of {[*fitting, None]}.")
    return pooling


def _is_known(kind: type) -> bool:
    return kind.__name__ in _TOKEN_POOLINGS and kind.__module__.startswith("keras_hub.")


def pooling_layers(pooling: str | None, rank: int, dtype) -> list:
    """Return the layers of a pooling, for an output of that rank."""
    if pooling is None:
        return []
    return [FirstToken(dtype=dtype) if pooling == "class" else _POOLINGS[rank][pooling](dtype=dtype)]


@keras.saving.register_keras_serializable(package="tfrobust")
class FirstToken(keras.layers.Layer):
    """Select the first token of a sequence [b, n, d]."""

    def compute_output_shape(self, input_shape):
        """Return (b, d)."""
        return (input_shape[0], input_shape[2])

    def call(self, hidden):
        """Return hidden[:, 0]."""
        return hidden[:, 0]


def layers_of(model: keras.Model, kind: type = keras.layers.Layer) -> list:
    """Return all layers of a class, at any depth."""
    return [layer for layer in keras_private.all_layers(model, include_self=False) if isinstance(layer, kind)]


def vocabulary_size(model: keras.layers.Layer) -> int | None:
    """Return the number of token ids that a model accepts: its attribute of that name, or its largest embedding table.

    None if it has neither.
    """
    size = getattr(getattr(model, "encoder", model), "vocabulary_size", None)
    tables = [layer.input_dim for layer in keras_private.all_layers(model) if isinstance(layer, keras.layers.Embedding)]
    return size if isinstance(size, int) else max(tables, default=None)


def with_policy(model: keras.Model, policy) -> keras.Model:
    """Return a model whose layers compute in the dtype of a policy: itself if some already do, otherwise a copy."""
    weighted = [layer for layer in layers_of(model) if layer.weights]
    if not weighted or any(layer.compute_dtype == policy.compute_dtype for layer in weighted):
        return model
    layers = [model, *layers_of(model)]
    before = [layer.dtype_policy for layer in layers]
    try:
        for layer in layers:
            layer.dtype_policy = policy
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    finally:
        for layer, original in zip(layers, before, strict=True):
            layer.dtype_policy = original
    copy.set_weights(model.get_weights())
    return copy


def load_exactly(model: keras.Model) -> None:
    """Let layers with resized position embeddings read these from files as they were, not resize them again.

    DINOv2 of KerasHub resizes its table at each loading, which changes embeddings that have been trained.
    """
    for layer in layers_of(model):
        if hasattr(layer, "interpolated_position_embeddings"):
            layer.load_own_variables = types.MethodType(keras.layers.Layer.load_own_variables, layer)


def random_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers that draw from Keras's stateful seeds in training, such as Dropout with a rate above 0."""
    drawing = [layer for layer in layers_of(model) if isinstance(getattr(layer, "seed_generator", None), _SEEDS)]
    return [layer for layer in drawing if getattr(layer, _rate_name(layer), 1.0)]


def stop_dropout(model: keras.Model) -> None:
    """Set the rates of dropout and drop path to 0."""
    for layer in random_layers(model):
        if hasattr(layer, _rate_name(layer)):
            setattr(layer, _rate_name(layer), 0.0)


def _rate_name(layer: keras.layers.Layer) -> str:
    return "rate" if hasattr(layer, "rate") else "drop_path_rate"


_SEEDS = keras.random.SeedGenerator


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split()).split(". ")[0]

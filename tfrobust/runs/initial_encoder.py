"""Pretrained encoders: initial weights from a published or saved model."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrobust import saving
from tfrobust.common import files, fingerprint
from tfrobust.common.configured import Configured
from tfrobust.common.kinds import CLIPS, IMAGES
from tfrobust.common.outside import LocalPath
from tfrobust.errors import InputError
from tfrobust.methods.shared.method import Method
from tfrobust.models.shared import trained_parts
from tfrobust.models.weights import checkpoints, weight_files
from tfrobust.report.comparison.reports import find_report
from tfrobust.report.schema import Report
from tfrobust.runs.fine_tuning import trains_within_a_radius
from tfrobust.security import saved_models
from tfrobust.serving.export.golden import golden_images

_PROBES = 2
_FRAMES = 8  # of the clips that compare two encoders of clips of any length
# Maximum relative difference of features if both are float32, and if one may have 16 bits.
_TOLERANCE, _LOOSE_TOLERANCE = 1e-3, 0.05


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(Configured):
    """The encoder of another model, whose weights are taken over before training (transfer).

    ENCODER must be the same network as the model's encoder: the number and shapes of its variables are compared, and
    then its features of two images. The head is always new, so the classes may differ; so may the size of the images,
    if the network takes any size.

    Args:
        path: an export (the folder of a version, or of versions: then the newest), or a `.keras` file of a method or of
            an encoder; or weights from PyTorch, `.safetensors` or `.npz` (see `models.weights.checkpoints`), without
            their classifier. A resumed run reads the file again, and refuses weights that differ from those it began
            with.
        frozen: True for a linear probe: the encoder is not changed and runs in inference mode (its batch norm
            statistics are fixed, dropout is off), and only the head is trained. False for fine-tuning of all weights.

    Source:
        Erichson et al. 2022, section 4.5.
    """

    path: LocalPath
    frozen: bool = False

    def give(self, encoder: keras.Model, image_shape: Sequence[int]) -> dict:
        """Assign the weights to a built encoder, and freeze it if `frozen`.

        Args:
            encoder: built for images of `image_shape`.
            image_shape: (h, w, c), or (t, h, w, c) of clips.

        Returns:
            Entries for the report: {"source", "weights_sha256", "frozen"}.

        Raises:
            InputError (a ValueError): no such model, or its encoder is another network than this one.
        """
        if weight_files.is_weights(self.path):
            print(f"{weight_files.display_name(self.path)}: {checkpoints.load(encoder, self.path)}")
            return self._finish(encoder, pathlib.Path(self.path).name, encoder.variables)
        source = _read(self.path)
        shapes = [tuple(variable.shape) for variable in trained_parts.without_adapters(encoder)]
        values = source.values[: len(shapes)]
        self._require(len(values) == len(shapes), encoder, source, "which has too few variables")
        for here, value in zip(shapes, values, strict=True):
            fault = f"where a variable has the shape {list(value.shape)} in place of {list(here)}"
            self._require(here == value.shape, encoder, source, fault)
        resized = _of_size(encoder, image_shape, source)
        for variables in {id(network): network for network in (encoder, resized)}.values():
            for variable, value in zip(trained_parts.without_adapters(variables), values, strict=True):
                variable.assign(value)
        images = tf.constant(golden_images(source.image_shape, _PROBES))
        expected, features = (np.asarray(tf.cast(model(images), tf.float32)) for model in (source.embedding, resized))
        tolerance = _TOLERANCE if encoder.compute_dtype == "float32" else _LOOSE_TOLERANCE
        agrees = expected.shape == features.shape and np.linalg.norm(features - expected) <= tolerance * np.linalg.norm(
            expected
        )
        self._require(agrees, encoder, source, "which gives other features with the same weights")
        return self._finish(encoder, source.name, values, source.robust)

    def _finish(self, encoder: keras.Model, name: str, values: Sequence, robust: bool | None = None) -> dict:
        encoder.trainable = not self.frozen
        facts = {"source": name, "weights_sha256": fingerprint.weights_sha256(values), "frozen": self.frozen}
        return facts if robust is None else facts | {"robust": robust}

    def _require(self, holds: bool, encoder, source: _Source, fault: str) -> None:
        if not holds:
            raise InputError(
                f"ENCODER is {type(encoder).__name__}, another network than the encoder of {source.name}"
                f"{source.described}, {fault}. Set ENCODER and its arguments as that model has them."
            )


@dataclasses.dataclass(frozen=True)
class _Source:
    """A model read from `path`.

    Attributes:
        name: name for messages and the report.
        values: its variables, those of the encoder first.
        embedding: images -> features.
        image_shape: (h, w, c) or (t, h, w, c) of its inputs.
        described: class of the encoder in parentheses, or "" if unknown.
        robust: whether it was trained within a radius, on adversarial examples or on bounds; None if unknown.
    """

    name: str
    values: list[np.ndarray]
    embedding: Callable
    image_shape: tuple[int, ...]
    described: str = ""
    robust: bool | None = None


def _read(path: str) -> _Source:
    model_path = files.expanded(path)
    if not model_path.exists():
        raise InputError(
            f"Pretrained.path: there is no model at {path}; train and export one first, or name the folder of an "
            "export or a .keras file."
        )
    try:
        return _from_export(files.saved_model_directory(model_path)) if model_path.is_dir() else _from_keras(model_path)
    except (ValueError, OSError) as error:
        raise InputError(f"Pretrained.path: {' '.join(str(error).split())}") from error


def _from_export(directory: pathlib.Path) -> _Source:
    loaded = saved_models.load(directory)
    signature = saved_models.signatures(loaded).get("serving_default")
    inputs = {} if signature is None else signature.structured_input_signature[1]
    name = next((kind.input for kind in (IMAGES, CLIPS) if kind.input in inputs), None)
    if name is None or "embedding" not in signature.structured_outputs or not hasattr(loaded, "variables"):
        raise InputError(
            f"{directory} is not a tfrobust export: its signature must map `images` or `clips` to an `embedding`."
        )
    shape = tuple(inputs[name].shape[1:])

    def embedding(images):
        with saved_models.answering(str(directory), (Exception,)):
            return loaded.signatures["serving_default"](**{name: images})["embedding"]

    shown = f"{directory.parent.name}/{directory.name}"
    # The encoder's variables come first, as `serving.export.saved_model` tracks them.
    values = [variable.numpy() for variable in loaded.variables]
    return _Source(shown, values, embedding, shape, *_of_report(directory))


def _of_report(directory: pathlib.Path) -> tuple[str, bool | None]:
    """Return what the export's own report says: the encoder's class, such as " (ResNet)", or "", and `robust`."""
    report_file = find_report(directory)
    training = Report.from_json(files.read_bounded(report_file)).training if report_file else {}
    try:
        method = training["configuration"]["method"]["config"]
        described = f" ({method['encoder']['class_name']})"
        stages = [training, method, training.get("pretraining") or {}]
        return described, any(stage.get("epsilon") is not None for stage in stages)
    except (AttributeError, KeyError, TypeError):
        return "", None


def _from_keras(path: pathlib.Path) -> _Source:
    model = saving.load(path)
    encoder = getattr(model, "encoder", model)
    shape = getattr(encoder.input_spec, "shape", None) or getattr(encoder, "input_shape", None)
    if shape is None or len(shape) not in (4, 5):
        raise InputError(f"{path} holds no encoder of images [b, h, w, c] or clips [b, t, h, w, c].")
    values = [variable.numpy() for variable in trained_parts.without_adapters(encoder)]  # a file holds them merged
    frames = [size or _FRAMES for size in shape[1:-3]]
    shape = (*frames, *(32 if size is None else int(size) for size in shape[-3:]))
    described = f" ({type(encoder).__name__})"
    robust = trains_within_a_radius(model) if isinstance(model, Method) else None
    return _Source(path.name, values, lambda images: encoder(images, training=False), shape, described, robust)


def _of_size(encoder: keras.Model, image_shape: Sequence[int], source: _Source) -> Callable:
    """Return the encoder, or a copy for images of the source's size, to compare features with the source."""
    if tuple(image_shape) == source.image_shape:
        return encoder
    alike = type(encoder).from_config(encoder.get_config())
    alike.build((None, *source.image_shape))
    return alike

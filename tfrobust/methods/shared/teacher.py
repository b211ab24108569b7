"""Logits and utility of another model, an export, for methods that learn from it."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrobust.attacks.shared import objectives
from tfrobust.common import files
from tfrobust.common.configured import Configured
from tfrobust.common.outside import LocalPath
from tfrobust.errors import InputError
from tfrobust.ops import sensitivity_maps
from tfrobust.security import saved_models


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher(Configured):
    """Base of the functions of an exported model, which is read at the first call.

    Attributes:
        path: an export: the folder of a version or of versions (then the newest is used). It must take the same images
            and have the same classes.
    """

    path: LocalPath

    @property
    def argument(self) -> str:
        """The argument, for messages."""
        return f"{type(self).__name__}.path"

    @functools.cached_property
    def logits(self) -> Callable:
        """The function images -> logits of the version that was the newest at the first call."""
        return _logits_of(self.path, self.argument)

    def check(self, image_shape: tuple[int, ...], class_count: int) -> None:
        """Check the signature of the export without loading the model.

        Raises:
            ValueError: there is no such export, or it takes other images or has other classes.
        """
        folder = _directory(self.path, self.argument)
        try:
            saved_models.check(folder)
        except InputError as error:
            raise InputError(f"{self.argument} cannot be read: {error}") from error
        saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
        signature = saved.meta_graphs[0].signature_def["serving_default"]
        _refuse_foreign(self.path, self.argument, signature.inputs, signature.outputs)
        images, logits = (
            tf.TensorShape(part.tensor_shape) for part in (signature.inputs["images"], signature.outputs["logits"])
        )
        if not images.is_compatible_with([None, *image_shape]) or logits[-1] not in (None, class_count):
            raise InputError(
                f"{self.argument}: {self.path} maps {images} to {logits}; the data have the shape "
                f"{list(image_shape)} and {class_count} classes."
            )


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherLogits(Teacher):
    """The logits of an exported model, for `HAT.helper`.

    Example:
        >>> from tfrobust import keras as robust
        >>> helper = robust.methods.TeacherLogits(path="exported/supervised")
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.2), steps=10)
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.HAT(*parts, helper=helper, attack=attack).helper.path
        'exported/supervised'

    Attributes:
        path: as in `Teacher`.
    """

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        """Compute the logits, float32 [b, k], of images [b, h, w, c] in [0, 1].

        Raises:
            ValueError: there is no such model, or it has no output `logits`.
        """
        return self.logits(images)


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherUtility(Teacher):
    """|d CE / d x| of an exported model, for `FCL.teacher`.

    Example:
        >>> from tfrobust import keras as robust
        >>> teacher = robust.methods.TeacherUtility(path="exported/ascl_leaked")
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.FCL(*parts, teacher=teacher, combine="add").teacher.path
        'exported/ascl_leaked'

    Attributes:
        path: as in `Teacher`.

    Source:
        Kim et al. 2021, section 3, discussion.
    """

    def __call__(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Compute the teacher's utility of each input value.

        Args:
            images: float32 [b, h, w, c] in [0, 1].
            labels: int32 [b].

        Returns:
            float32 in the shape of `images`, >= 0.

        Raises:
            ValueError: there is no such model, or it has no output `logits`.
        """
        return sensitivity_maps.utility(objectives.cross_entropy(self.logits, labels), images)


def _logits_of(path: str, argument: str):
    """Return the function images -> logits of an export; of several versions, of the newest."""
    folder = _directory(path, argument)
    return _loaded(folder, (folder / "saved_model.pb").stat().st_mtime_ns, path, argument)


@functools.lru_cache(maxsize=4)
def _loaded(folder: pathlib.Path, changed: int, path: str, argument: str):
    """Load the function of the export in a folder whose file has changed at that time."""
    with tf.init_scope():
        loaded = saved_models.load(folder)
        signature = saved_models.signatures(loaded).get("serving_default")
        inputs = {} if signature is None else signature.structured_input_signature[1]
        _refuse_foreign(path, argument, inputs, {} if signature is None else signature.structured_outputs)
        batch, *size = inputs["images"].shape
        if None not in size:  # run it once, so that a broken teacher fails here and not inside a training step
            with saved_models.answering(path, (Exception,)):
                signature(images=tf.fill([batch or 1, *size], 0.5))
    # The signature does not keep its variables alive; the reference to the loaded object does.
    return lambda images, owner=loaded: owner.signatures["serving_default"](images=images)["logits"]


def _directory(path: str, argument: str) -> pathlib.Path:
    folder = files.expanded(path)
    if not folder.is_dir():
        raise InputError(f"{argument}: there is no folder {path}; train and export the teacher first.")
    return files.saved_model_directory(folder)


def _refuse_foreign(path: str, argument: str, inputs, outputs) -> None:
    if "images" not in inputs or "logits" not in outputs:
        raise InputError(f"{argument}: {path} is not a tfrobust export: its signature must map `images` to `logits`.")

"""Utility of another model, for distillation and for models with little training data."""

import dataclasses
import functools
import pathlib

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrobust.attacks.shared import objectives
from tfrobust.common import files
from tfrobust.common.configured import Configured
from tfrobust.errors import InputError
from tfrobust.ops import sensitivity
from tfrobust.security import saved_models


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherUtility(Configured):
    """|d CE / d x| of an exported model, for `FCL.teacher`.

    Example:
        >>> from tfrobust import keras as robust
        >>> teacher = robust.methods.TeacherUtility(path="exported/ascl_leaked")
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.FCL(*parts, teacher=teacher, combine="add").teacher.path
        'exported/ascl_leaked'

    Attributes:
        path: an export: the folder of a version or of versions (then the newest is used). The model is read at the
            first call. It must take the same images and have the same classes.

    Source:
        Paper 000, section 3, discussion.
    """

    path: str

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
        return sensitivity.utility(objectives.cross_entropy(_logits_of(self.path), labels), images)

    def check(self, image_shape: tuple[int, ...], class_count: int) -> None:
        """Check the signature of the export without loading the model.

        Args:
            image_shape: (h, w, c) of the data.
            class_count: classes of the data.

        Raises:
            ValueError: there is no such export, or it takes other images or has other classes.
        """
        place = _directory(self.path)
        try:
            saved_models.check(place)
        except InputError as error:
            raise InputError(f"TeacherUtility.path cannot be read: {error}"[:300]) from error
        saved = saved_model_pb2.SavedModel.FromString((place / "saved_model.pb").read_bytes())
        signature = saved.meta_graphs[0].signature_def["serving_default"]
        _refuse_foreign(self.path, signature.inputs, signature.outputs)
        images, logits = (
            tf.TensorShape(part.tensor_shape) for part in (signature.inputs["images"], signature.outputs["logits"])
        )
        if not images.is_compatible_with([None, *image_shape]) or logits[-1] not in (None, class_count):
            raise InputError(
                f"TeacherUtility.path: {self.path} maps {images} to {logits}; the data have the shape "
                f"{list(image_shape)} and {class_count} classes."
            )


@functools.lru_cache(maxsize=4)
def _logits_of(path: str):
    """Load the function images -> logits of an export."""
    with tf.init_scope():
        loaded = saved_models.load(_directory(path))
        signature = saved_models.signatures(loaded).get("serving_default")
        inputs = {} if signature is None else signature.structured_input_signature[1]
        _refuse_foreign(path, inputs, {} if signature is None else signature.structured_outputs)
        batch, *size = inputs["images"].shape
        if None not in size:  # run it once, so that a broken teacher fails here and not inside a training step
            with saved_models.answering(path, (Exception,)):
                signature(images=tf.fill([batch or 1, *size], 0.5))
    # The signature does not keep its variables alive; the reference to the loaded object does.
    return lambda images, owner=loaded: owner.signatures["serving_default"](images=images)["logits"]


def _directory(path: str) -> pathlib.Path:
    place = pathlib.Path(path)
    if not place.is_dir():
        raise InputError(f"TeacherUtility.path: there is no folder {path}; train and export the teacher first.")
    return files.saved_model_directory(place)


def _refuse_foreign(path: str, inputs, outputs) -> None:
    if "images" not in inputs or "logits" not in outputs:
        raise InputError(
            f"TeacherUtility.path: {path} is not a tfrobust export: its signature must map `images` to `logits`."
        )

"""Utility from another model: for distillation, and where the model's own data are few."""

import dataclasses
import functools
import pathlib

import keras
import tensorflow as tf

from tfrobust.attacks import objectives
from tfrobust.ops import files, sensitivity
from tfrobust.ops.configured import Configured


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherUtility(Configured):
    """|d CE / d x| of a published model, for `FCL.teacher`.

    Example:
        >>> from tfrobust import keras as robust
        >>> teacher = robust.methods.TeacherUtility(path="exported/ascl_leaked")
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.FCL(*parts, teacher=teacher, combine="add").teacher.path
        'exported/ascl_leaked'

    Attributes:
        path: an export, the folder of a version or of versions (then the newest); read when it is first asked. It
            takes the same images and has the same classes.

    Source:
        Paper 000, section 3, discussion.
    """

    path: str

    def __call__(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The teacher's utility of each input value.

        Args:
            images: float32 [b, h, w, c] in [0, 1].
            labels: int32 [b].

        Returns:
            float32 in the shape of `images`, >= 0.

        Raises:
            ValueError: there is no such model, or it has no output `logits`.
        """
        return sensitivity.utility(objectives.cross_entropy(_logits_of(self.path), labels), images)


@functools.lru_cache(maxsize=4)
def _logits_of(path: str):
    """images -> logits of an export."""
    place = pathlib.Path(path)
    if not place.is_dir():
        raise ValueError(f"TeacherUtility.path: there is no folder {path}; train and export the teacher first.")
    with tf.init_scope():
        loaded = tf.saved_model.load(str(files.saved_model_directory(place)))
    signature = loaded.signatures.get("serving_default")
    inputs = {} if signature is None else signature.structured_input_signature[1]
    if "images" not in inputs or "logits" not in signature.structured_outputs:
        raise ValueError(
            f"TeacherUtility.path: {path} is no export of tfrobust: it does not turn `images` into `logits`."
        )
    # A signature alone does not keep its variables alive.
    return lambda images, owner=loaded: owner.signatures["serving_default"](images=images)["logits"]

"""SavedModels that load but fail, or that pass the scan and do not load: one line, and no traceback."""

import numpy as np
import pytest
import tensorflow as tf
from hostile import failing

from tfrobust.commands import evaluate
from tfrobust.errors import InputError
from tfrobust.methods.shared.teacher import TeacherUtility
from tfrobust.runs import initial_encoder as pretrained
from tfrobust.security import saved_models

pytestmark = pytest.mark.usefixtures("rehearsed_here")


@pytest.mark.parametrize("name", failing.CASES)
def test_the_command_says_so_in_one_line(export_copy, not_judged, name):
    build, part = failing.CASES[name]
    build(export_copy)
    not_judged(model=export_copy, part=part)


class _Dark(tf.Module):
    """Answers images that are dark, and no others."""

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")])
    def __call__(self, images):
        tf.debugging.assert_less(tf.reduce_max(images), 0.6, "too bright")
        return {"logits": tf.reshape(images, (-1, 64))[:, :3]}


def test_a_model_that_fails_when_it_is_attacked(tmp_path, refused):
    module = _Dark()
    tf.saved_model.save(module, str(tmp_path / "dark"), signatures={"serving_default": module.__call__})
    images, labels = np.full((6, 8, 8, 1), 127, np.uint8), np.arange(6) % 3
    images[np.arange(6), 0, labels] = 140
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    flags = [f"--model={tmp_path / 'dark'}", f"--data={tmp_path / 'data.npz'}", "--gin_file=gin/eval/quick.gin"]
    refused(evaluate.main, *flags, "--gin_param=EVAL_EPSILON=0.3", part="too bright")


def test_a_teacher_and_a_source_of_weights_fail_before_they_give(export_copy):
    failing.CASES["false assertion"][0](export_copy)
    with pytest.raises(InputError, match="fails when it is called"):
        TeacherUtility(path=str(export_copy))(tf.zeros((2, 8, 8, 1)), tf.zeros(2, tf.int32))
    source = pretrained._read(str(export_copy))
    with pytest.raises(InputError, match="fails when it is called"):
        source.embedding(tf.zeros((1, 8, 8, 1)))


def test_other_errors_of_tensorflow_keep_their_traceback():
    def fails(images):
        raise tf.errors.InternalError(None, None, "ours")

    with pytest.raises(tf.errors.InternalError), saved_models.answering("a model", (tf.errors.NotFoundError,)):
        fails(None)
    with pytest.raises(InputError, match="^a model fails when it is called: ours$"), saved_models.answering("a model"):
        fails(None)
    with pytest.raises(InputError, match="^as it was$"), saved_models.answering("a model", (Exception,)):
        raise InputError("as it was")

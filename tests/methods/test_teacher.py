"""A teacher's utility is the size of the gradient of its own loss."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network as tiny
from tfrobust.methods.fcl import FCL
from tfrobust.methods.supervised import Supervised
from tfrobust.methods.teacher import TeacherUtility


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(the model, the folder of its versions)."""
    model, folder = tiny.build(Supervised, seed=5), tmp_path_factory.mktemp("teacher")
    module = tf.Module()
    module.model = model

    def serve(images):
        return {"logits": model(images, training=False)}

    signature = tf.function(serve, input_signature=[tf.TensorSpec([None, *tiny.SHAPE], name="images")])
    for version in ("2", "10"):
        tf.saved_model.save(module, str(folder / version), signatures={"serving_default": signature})
    return model, folder


def test_it_is_the_size_of_the_teachers_input_gradient(exported):
    teacher, folder = exported
    batch, context = tiny.batch()
    expected = np.abs(tiny.input_gradient(teacher, batch.images, np.eye(tiny.CLASSES)[batch.labels]))
    found = TeacherUtility(path=str(folder))(batch.images, batch.labels)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    student = tiny.build(FCL, teacher=TeacherUtility(path=str(folder)))
    step = tf.function(lambda: student.make_views(batch, context), autograph=False)
    assert set(step()) == {"images", "least", "most", "usable"}
    np.testing.assert_allclose(student.utility(batch.images, batch.labels), expected, rtol=1e-4, atol=1e-6)


def test_what_is_no_teacher_is_refused(exported, tmp_path):
    batch, _ = tiny.batch()
    with pytest.raises(ValueError, match="there is no folder"):
        TeacherUtility(path=str(tmp_path / "none"))(batch.images, batch.labels)
    with pytest.raises(ValueError, match="holds neither"):
        TeacherUtility(path=str(tmp_path))(batch.images, batch.labels)
    module = tf.Module()
    signature = tf.function(
        lambda tokens: {"logits": tf.cast(tokens, tf.float32)},
        input_signature=[tf.TensorSpec([None, 3], tf.int32, name="tokens")],
    )
    tf.saved_model.save(module, str(tmp_path / "text" / "1"), signatures={"serving_default": signature})
    with pytest.raises(ValueError, match="does not turn `images` into `logits`"):
        TeacherUtility(path=str(tmp_path / "text"))(batch.images, batch.labels)

"""A teacher's utility is the size of the gradient of its own loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from faults.whole_run import train_in

from oracles import tiny_network as tiny
from tfrobust.keras.augment import UtilityPerturbation
from tfrobust.keras.data import Digits
from tfrobust.keras.methods import FCL, Supervised, TeacherLogits, TeacherUtility
from tfrobust.security import rehearsal


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
        rehearsal.remember(folder / version)
    return model, folder


def test_it_is_the_size_of_the_teachers_input_gradient(exported):
    teacher, folder = exported
    batch, context = tiny.batch()
    expected = np.abs(tiny.input_gradient(teacher, batch.images, np.eye(tiny.CLASSES)[batch.labels]))
    utility = TeacherUtility(path=str(folder))(batch.images, batch.labels)
    np.testing.assert_allclose(utility, expected, rtol=1e-4, atol=1e-6)
    student = tiny.build(FCL, perturbation=UtilityPerturbation(count=2), teacher=TeacherUtility(path=str(folder)))
    step = tf.function(lambda: student.make_views(batch, context), autograph=False)
    assert set(step()) == {"images", "least", "most", "usable"}
    np.testing.assert_allclose(student.utility(batch.images, batch.labels), expected, rtol=1e-4, atol=1e-6)


def test_a_new_teacher_reads_the_newest_version(tmp_path):
    batch, _ = tiny.batch()
    teachers = []
    for version, factor in (("1", 1.0), ("2", 3.0)):
        module = tf.Module()
        serve = tf.function(
            lambda images, factor=factor: {"logits": factor * tf.reshape(images, [-1, 6])[:, :3]},
            input_signature=[tf.TensorSpec([None, *tiny.SHAPE], name="images")],
        )
        tf.saved_model.save(module, str(tmp_path / version), signatures={"serving_default": serve})
        rehearsal.remember(tmp_path / version)
        teachers.append(TeacherLogits(path=str(tmp_path)))
        pixels = tf.reshape(batch.images, [-1, 6])[:, :3]
        np.testing.assert_allclose(teachers[-1](batch.images), factor * pixels, rtol=1e-6)
        np.testing.assert_allclose(teachers[0](batch.images), pixels, rtol=1e-6)  # the same throughout a training


def refuse(teacher, message, shape=tiny.SHAPE, classes=tiny.CLASSES):
    with pytest.raises(ValueError, match=message):
        teacher.check(shape, classes)


def test_a_teacher_is_checked_without_being_loaded(exported, tmp_path):
    teacher = TeacherUtility(path=str(exported[1]))
    teacher.check(tiny.SHAPE, tiny.CLASSES)
    refuse(teacher, r"the data have the shape \[9, 9, 1\] and 3 classes", shape=(9, 9, 1))
    refuse(teacher, r"the data have the shape \[16\] and 3 classes", shape=(16,))
    refuse(teacher, "and 4 classes", classes=4)
    for content in (b"no protocol buffer", b""):
        (tmp_path / "saved_model.pb").write_bytes(content)
        refuse(TeacherUtility(path=str(tmp_path)), "cannot be read")


@pytest.mark.parametrize("path", ["none", "other"])
def test_a_run_with_a_teacher_that_does_not_fit_writes_nothing(exported, tmp_path, path):
    teacher = TeacherUtility(path=str(exported[1] if path == "other" else tmp_path / path))
    with pytest.raises(
        ValueError, match="there is no folder" if path == "none" else r"the data have the shape \[8, 8, 1\]"
    ):
        train_in(
            tmp_path,
            method=lambda **parts: FCL(teacher=teacher, perturbation=UtilityPerturbation(count=2), **parts),
            encoder=lambda: keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(4)]),
            data=Digits(),
        )
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_teacher_is_refused(exported, tmp_path):
    batch, _ = tiny.batch()
    refuse(TeacherUtility(path=str(tmp_path / "none")), "there is no folder")
    with pytest.raises(ValueError, match="there is no folder"):
        TeacherUtility(path=str(tmp_path / "none"))(batch.images, batch.labels)
    with pytest.raises(ValueError, match="has neither"):
        TeacherUtility(path=str(tmp_path))(batch.images, batch.labels)
    module = tf.Module()
    signature = tf.function(
        lambda tokens: {"logits": tf.cast(tokens, tf.float32)},
        input_signature=[tf.TensorSpec([None, 3], tf.int32, name="tokens")],
    )
    tf.saved_model.save(module, str(tmp_path / "text" / "1"), signatures={"serving_default": signature})
    rehearsal.remember(tmp_path / "text" / "1")
    with pytest.raises(ValueError, match="must map `images` to `logits`"):
        TeacherUtility(path=str(tmp_path / "text"))(batch.images, batch.labels)
    refuse(TeacherUtility(path=str(tmp_path / "text")), "must map `images` to `logits`")

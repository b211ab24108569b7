"""HAT: helper examples beyond the adversarial ones, with the labels of another model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import robust, tiny_network
from tfrobust.keras.methods import HAT, TeacherLogits
from tfrobust.security import rehearsal


def helper(images):
    return tf.reshape(images, [-1, 6])[:, :3]


def built(**keywords):
    return tiny_network.build(HAT, helper=helper, **keywords)


@pytest.mark.parametrize(("distance", "forward"), [(2.0, "separate"), (3.5, "joint")])
def test_helper_examples_have_the_helpers_labels(distance, forward):
    method = built(distance=distance, forward=forward)
    _, views, terms, logits = tiny_network.run(method)
    images, adversarial = (views[name].numpy().astype(np.float64) for name in ("images", "adversarial"))
    far = images + distance * (adversarial - images)
    helper_labels = adversarial.reshape(-1, 6)[:, :3].argmax(-1)
    assert len(set(helper_labels)) > 1 and (far.min() < 0 or far.max() > 1)
    clean, attacked, beyond = (tiny_network.forward(method, view)[1] for view in (images, adversarial, far))
    expected = tiny_network.cross_entropy(beyond, helper_labels)
    np.testing.assert_allclose(terms["helper"], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(terms["kl"], robust.kl(clean, attacked), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(logits, clean, rtol=1e-4, atol=1e-5)


def test_the_loss_has_the_published_weights():
    method = built()
    method.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
    batch, _ = tiny_network.batch()
    logs = {key: float(value) for key, value in method.train_step((batch.images, batch.labels)).items()}
    assert logs["loss"] == pytest.approx(logs["ce"] + 2.5 * logs["kl"] + 0.5 * logs["helper"], rel=1e-5)


def test_a_keras_model_helps_as_it_is():
    layers = keras.layers
    dense = layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.1))
    model = keras.Sequential([keras.Input(tiny_network.SHAPE), layers.RandomFlip(), layers.Flatten(), dense])
    method = tiny_network.build(HAT, helper=model, term_weights={"kl": 0.0})
    _, views, terms, _ = tiny_network.run(method)
    far = views["images"] + 2.0 * (views["adversarial"] - views["images"])
    labels = tf.argmax(model(views["adversarial"], training=False), axis=-1).numpy()
    expected = tiny_network.cross_entropy(tiny_network.forward(method, far)[1], labels)
    np.testing.assert_allclose(terms["helper"], expected, rtol=1e-4, atol=1e-4)
    before = dense.get_weights()
    for trainable in (False, True):
        method.trainable = trainable
    method.compile(keras.optimizers.AdamW(0.1, weight_decay=0.1), jit_compile=False)
    batch, _ = tiny_network.batch()
    logs = method.train_step((batch.images, batch.labels))
    assert "regularization" not in logs
    assert all(np.array_equal(*pair) for pair in zip(dense.get_weights(), before, strict=True))


def test_an_export_helps_by_its_logits_and_is_checked_before(tmp_path):
    model = tiny_network.build(HAT, seed=5, helper=helper)
    module = tf.Module()
    module.model = model
    spec = tf.TensorSpec([None, *tiny_network.SHAPE], name="images")
    serve = tf.function(lambda images: {"logits": model(images, training=False)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": serve})
    rehearsal.remember(tmp_path / "1")
    method = tiny_network.build(HAT, helper=TeacherLogits(path=str(tmp_path)))
    method.check_ready(tiny_network.SHAPE, tiny_network.CLASSES)
    batch, _ = tiny_network.batch()
    np.testing.assert_allclose(method.helper(batch.images), model(batch.images), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"TeacherLogits.path: .* and 4 classes"):
        method.check_ready(tiny_network.SHAPE, 4)

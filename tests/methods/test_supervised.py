"""Plain training: the cross-entropy of the images as they are, and of noisy copies beside them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.augment.noise import AddGaussian
from tfrobust.keras.models import LinearHead
from tfrobust.methods.supervised import Supervised


def test_the_term_is_the_cross_entropy_of_the_images():
    method = tiny_network.build(Supervised)
    batch, views, terms, logits = tiny_network.run(method)
    assert list(views) == ["images"]
    np.testing.assert_array_equal(views["images"], batch.images)
    _, expected = tiny_network.forward(method, batch.images)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert set(terms) == set(method.terms) == {"ce"}
    np.testing.assert_allclose(
        terms["ce"], tiny_network.cross_entropy(expected, batch.labels.numpy()), rtol=1e-4, atol=1e-5
    )
    assert method.passes_per_step == 1


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_with_noise_it_is_xe_gaussian(forward):
    method = tiny_network.build(Supervised, noise=AddGaussian(deviation=0.5), forward=forward)
    batch, context = tiny_network.batch()
    views = method.make_views(batch, context)
    np.testing.assert_array_equal(views["images"], batch.images)
    noisy, images = views["noisy"].numpy(), batch.images.numpy()
    assert 0.2 < np.std(noisy - images) < 0.5 and np.all(np.any(noisy != images, axis=(1, 2, 3)))
    terms, logits = method.loss_terms(views, batch, context)
    _, expected = tiny_network.forward(method, images)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert list(terms) == ["ce", "ce_noisy"]
    for name, view in (("ce", images), ("ce_noisy", noisy)):
        _, view_logits = tiny_network.forward(method, view)
        np.testing.assert_allclose(
            terms[name], tiny_network.cross_entropy(view_logits, batch.labels.numpy()), rtol=1e-4, atol=1e-5
        )
    assert method.passes_per_step == 2
    later = context._replace(key=context.key + 1, step=tf.constant(4, tf.int64))
    assert np.all(np.any(method.make_views(batch, later)["noisy"].numpy() != noisy, axis=(1, 2, 3)))


def test_the_weight_of_noisy_copies_is_the_papers():
    method = tiny_network.build(Supervised, noise=AddGaussian())
    method.compile("sgd", jit_compile=False)
    batch, _ = tiny_network.batch()
    logs = method.train_step(batch)
    assert float(logs["loss"]) == pytest.approx(float(logs["ce"]) + 1e-4 * float(logs["ce_noisy"]), rel=1e-6)
    assert method.noise.deviation == 0.3 and float(logs["ce_noisy"]) != float(logs["ce"])


def test_the_penalty_of_an_activity_is_logged():
    image = keras.Input((4, 4, 1))
    hidden = keras.layers.Dense(3, activity_regularizer="l2")(keras.layers.Flatten()(image))
    method = Supervised(keras.Model(image, hidden), LinearHead(2))
    method.compile("sgd")
    history = method.fit(np.ones((4, 4, 4, 1), np.float32), np.arange(4) % 2, verbose=0).history
    assert sorted(history) == ["ce", "loss", "regularization"]
    assert history["loss"][0] == pytest.approx(history["ce"][0] + history["regularization"][0], rel=1e-5)

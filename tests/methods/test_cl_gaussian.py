"""CL+Gaussian against eq. 6 without an own negative, and against FCL where the two are one."""

import numpy as np
import tensorflow as tf

from oracles import feature_contrast
from oracles import tiny_network as tiny
from tfrobust.keras.augment import AddGaussian, UtilityPerturbation
from tfrobust.keras.methods import FCL, CLGaussian, FeatureContrast

TEMPERATURE = 0.3


def test_cl_gaussian_is_eq_6_without_an_own_negative():
    method = tiny.build(CLGaussian, objective=FeatureContrast(temperature=TEMPERATURE, scale="mean"))
    batch, views, terms, _ = tiny.run(method)
    clean, noisy = (tiny.forward(method, views[name])[0] for name in ("images", "noisy"))
    expected = feature_contrast.contrast(clean, noisy, None, None, TEMPERATURE)
    np.testing.assert_allclose(terms["feature_contrast"], expected, rtol=2e-5)


def test_without_its_own_negative_and_with_the_same_noise_fcl_is_cl_gaussian():
    batch, context = tiny.batch()
    images = 0.5 + 0 * batch.images  # in the middle: AddGaussian clips, FCL does not
    batch = batch._replace(images=images)
    fcl = tiny.build(FCL, perturbation=UtilityPerturbation(count=3, deviation=0.01))
    plain = tiny.build(CLGaussian, noise=AddGaussian(deviation=0.01))
    views = fcl.make_views(batch, context)
    assert np.any((views["least"] - images).numpy() != 0)
    views["usable"] = tf.zeros_like(views["usable"])
    expected, _ = plain.loss_terms({"images": images, "noisy": views["least"]}, batch, context)
    noisy_terms, _ = fcl.loss_terms(views, batch, context)
    np.testing.assert_allclose(noisy_terms["feature_contrast"], expected["feature_contrast"], rtol=1e-6)

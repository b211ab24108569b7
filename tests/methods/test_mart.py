"""MART: its terms in NumPy, and the published adversary."""

import keras
import numpy as np
import pytest

from oracles import robust, tiny_network
from tfrobust.methods.mart import MART


def test_the_terms_are_boosted_and_weighted_by_the_doubt_in_the_clean_image():
    method = tiny_network.build(MART)
    batch, views, terms, logits = tiny_network.run(method)
    clean, adversarial = (tiny_network.forward(method, views[name])[1] for name in ("images", "adversarial"))
    labels = batch.labels.numpy()
    np.testing.assert_allclose(terms["bce"], robust.boosted(adversarial, labels), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms["kl"], robust.doubted(clean, adversarial, labels), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(logits, clean, rtol=1e-4, atol=1e-5)


def test_the_loss_weighs_the_divergence_five_times_and_smooths_the_labels_of_the_cross_entropy():
    logs = {}
    for smoothing in (0.0, 0.3):
        method = tiny_network.build(MART, label_smoothing=smoothing)
        method.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
        batch, _ = tiny_network.batch()
        logs[smoothing] = {key: float(value) for key, value in method.train_step((batch.images, batch.labels)).items()}
        metrics = logs[smoothing]
        assert metrics["loss"] == pytest.approx(metrics["bce"] + 5 * metrics["kl"], rel=1e-5)
    assert logs[0.3]["kl"] == pytest.approx(logs[0.0]["kl"], rel=1e-5)
    assert abs(logs[0.3]["bce"] - logs[0.0]["bce"]) > 0.05

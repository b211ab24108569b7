"""TRADES: CE(clean) + 6 KL(clean || adversarial), by loops."""

import keras
import numpy as np
import pytest

from oracles import robust, tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import TRADES, Adversary


def test_the_terms_are_clean_cross_entropy_and_divergence_from_the_clean_prediction():
    method = tiny_network.build(TRADES)
    batch, views, terms, _ = tiny_network.run(method)
    _, clean = tiny_network.forward(method, views["images"])
    _, adversarial = tiny_network.forward(method, views["adversarial"])
    assert set(terms) == {"ce", "kl"}
    np.testing.assert_allclose(
        terms["ce"], tiny_network.cross_entropy(clean, batch.labels.numpy()), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(terms["kl"], robust.kl(clean, adversarial), rtol=1e-3, atol=1e-5)
    # The direction matters: the reverse divergence is another number.
    assert np.abs(robust.kl(clean, adversarial) - robust.kl(adversarial, clean)).max() > 0.05


def test_the_loss_weighs_the_divergence_six_times():
    method = tiny_network.build(TRADES)
    method.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
    batch, _ = tiny_network.batch()
    logs = method.train_step((batch.images, batch.labels))
    assert float(logs["kl"]) > 0.1
    assert float(logs["loss"]) == pytest.approx(float(logs["ce"]) + 6 * float(logs["kl"]), rel=1e-5)


def test_the_start_of_the_authors_is_small():
    attack = PGD(ThreatModel(epsilon=0.2), random_start="gaussian")
    batch, context = tiny_network.batch()
    start = attack._begin(batch.images, context.key) - batch.images
    inside = np.asarray(start)[(batch.images.numpy() > 0.01) & (batch.images.numpy() < 0.99)]
    assert np.std(inside) == pytest.approx(0.001, rel=0.3)


def test_the_labels_do_not_steer_the_adversary():
    method = tiny_network.build(
        TRADES, adversary=Adversary(attack=PGD(ThreatModel(epsilon=0.1), steps=2), objective="kl")
    )
    batch, context = tiny_network.batch()
    wrong = batch._replace(labels=(batch.labels + 1) % 3)
    first, second = (method.make_views(data, context)["adversarial"] for data in (batch, wrong))
    np.testing.assert_array_equal(first, second)

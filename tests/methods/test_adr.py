"""ADR: the five terms of the released code on both robust objectives, by loops over all pairs."""

import keras
import numpy as np
import pytest

from oracles import robust, tiny_network
from tfrobust.methods.adr import ADR

FIVE = ("local_compactness", "local_smoothness", "global_compactness", "global_smoothness", "confidence")


@pytest.mark.parametrize("scale", [0.99, 0.5])
@pytest.mark.parametrize("objective", ["adversarial_training", "trades"])
def test_the_terms_are_the_reference_s(objective, scale):
    method = tiny_network.build(ADR, objective=objective, label_scale=scale)
    batch, views, terms, _ = tiny_network.run(method)
    labels = batch.labels.numpy()
    clean, adversarial = (tiny_network.forward(method, views[name]) for name in ("images", "adversarial"))
    expected = robust.adr(clean, adversarial, labels, scale)
    for name in FIVE:
        assert terms[name].shape == labels.shape
        assert float(np.mean(terms[name])) == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name
    np.testing.assert_allclose(terms["ce"], tiny_network.cross_entropy(clean[1], labels), rtol=1e-4, atol=1e-5)
    second = (
        tiny_network.cross_entropy(adversarial[1], labels)
        if objective == "adversarial_training"
        else robust.kl(clean[1], adversarial[1])
    )
    name = method.terms[1]
    assert method.terms == ("ce", "ce_adv" if objective == "adversarial_training" else "kl", *FIVE)
    np.testing.assert_allclose(terms[name], second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("objective", ["adversarial_training", "trades"])
def test_the_loss_leaves_global_smoothness_out_and_weighs_the_rest(objective):
    method = tiny_network.build(ADR, objective=objective)
    method.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
    batch, _ = tiny_network.batch()
    logs = {name: float(value) for name, value in method.train_step((batch.images, batch.labels)).items()}
    robust_part = logs["ce"] + (6 * logs["kl"] if objective == "trades" else logs["ce_adv"])
    rest = sum(logs[name] for name in FIVE if name != "global_smoothness")
    assert abs(logs["global_smoothness"]) > 0.01
    assert logs["loss"] == pytest.approx(robust_part + rest, rel=1e-5)


def test_the_weights_are_those_of_the_released_code():
    assert {"kl": 6.0, "global_smoothness": 0.0} == ADR.default_weights

"""SupCon is eq 2, with its code's factor as an argument."""

import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from conformance.contrast import COUNT, LABELS, contrast, projections
from oracles import self_supervised as oracle
from tfrobust.keras.methods import SimCLR, SupCon


def test_supcon_is_equation_2():
    vectors = projections(1)
    value, _ = contrast(SupCon, vectors)
    np.testing.assert_allclose(value, oracle.sup_con(vectors, LABELS, 0.1).mean(axis=0), rtol=2e-6)
    alone, _ = contrast(SupCon, vectors, labels=np.arange(COUNT, dtype=np.int32), temperature=0.5)
    np.testing.assert_allclose(alone, contrast(SimCLR, vectors)[0], rtol=2e-6)  # every image its own class


def test_the_code_s_factor_of_supcon():
    images, labels = (tf.constant(part) for part in battery.data())
    logs = [
        {name: float(value) for name, value in method.train_step((images, labels)).items()}
        for method in (battery.build("supcon"), _supcon_without_factor())
    ]
    assert logs[0]["contrastive"] == pytest.approx(logs[1]["contrastive"] * 0.1 / 0.07, rel=1e-5)


def _supcon_without_factor():
    method = battery.build("supcon")
    method.base_temperature = None
    return method

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from oracles import projections
from tfrobust.ops import norms, proximal

KINDS = ["linf", "l2", "l1", "l0"]
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}


def objective(v, s, kind, strength):
    return 0.5 * np.sum((v - s) ** 2) + strength * projections.measure(v, kind)


@pytest.mark.parametrize(
    "kind,strength,expected",
    [
        ("l2", 2.5, [1.5, -2.0, 0.0]),  # half of the length 5 is left
        ("l2", 5.0, [0.0, 0.0, 0.0]),
        ("l1", 1.0, [2.0, -3.0, 0.0]),
        ("l0", 4.5, [0.0, -4.0, 0.0]),  # sqrt(2 T) = 3, which 3 does not exceed
        ("l0", 4.4, [3.0, -4.0, 0.0]),
        ("linf", 0.5, [3.0, -3.5, 0.0]),
        ("linf", 2.0, [2.5, -2.5, 0.0]),  # the largest share what is taken away
        ("linf", 7.0, [0.0, 0.0, 0.0]),
        ("linf", 9.0, [0.0, 0.0, 0.0]),  # inside the dual ball: not pushed out to its sphere
    ],
)
def test_by_hand(kind, strength, expected):
    got = proximal.proximal(tf.constant([[3.0, -4.0, 0.0]]), kind, strength)
    np.testing.assert_allclose(got, [expected], atol=1e-6)


@pytest.mark.parametrize("kind", ["linf", "l2", "l1"])
@pytest.mark.parametrize("strength", [1e-3, 0.4, 1.5, 30.0])
def test_moreau(kind, strength):
    # s = prox_T(s) + the projection onto the dual ball of radius T, here by bisection in float64.
    s = np.random.default_rng(0).standard_normal([6, 9]).astype(np.float32)
    got = proximal.proximal(tf.constant(s), kind, strength)
    rest = [projections.project(0 * one, one, DUAL[kind], strength) for one in s]
    np.testing.assert_allclose(got + np.array(rest), s, atol=3e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_general_minimiser_finds_nothing_lower(kind):
    rng = np.random.default_rng(1)
    for s in rng.standard_normal([4, 3]):
        got = proximal.proximal(tf.constant(s[None], tf.float32), kind, 0.6).numpy()[0].astype(float)
        value = objective(got, s, kind, 0.6)
        starts = [s, 0 * s, got, *rng.standard_normal([6, 3])]
        if kind == "l0":  # every support: the best v on it is s itself
            others = [np.where(np.array(mask), s, 0.0) for mask in np.ndindex(2, 2, 2)]
        else:
            options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
            arguments = (s, kind, 0.6)
            others = [
                scipy.optimize.minimize(objective, start, arguments, "Nelder-Mead", options=options).x
                for start in starts
            ]
        lowest = min(objective(other, s, kind, 0.6) for other in others)
        assert value == pytest.approx(lowest, abs=1e-6)


def test_a_strength_of_its_own_for_each_example():
    s = tf.random.stateless_normal([4, 2, 3, 1], [1, 2])
    strengths = tf.constant([0.1, 0.5, 1.0, 3.0])
    for kind in KINDS:
        together = proximal.proximal(s, kind, strengths)
        apart = tf.concat([proximal.proximal(s[i : i + 1], kind, float(strengths[i])) for i in range(4)], axis=0)
        np.testing.assert_allclose(together, apart, atol=1e-6)
        assert not np.any(proximal.proximal(0.0 * s, kind, strengths))
        assert np.all(norms.norm(together, kind) <= norms.norm(s, kind) + 1e-6)


def test_unknown_kind_names_the_valid_ones():
    with pytest.raises(ValueError, match="linf.*l2.*l1.*l0"):
        proximal.proximal(tf.zeros([1, 2]), "l3", 1.0)

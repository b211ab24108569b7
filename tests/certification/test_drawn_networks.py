"""Bounds hold in the arithmetic of the deployed model: casts, policies, and weights near the ends of float32."""

import warnings

import keras
import numpy as np
import pytest
import stored

from oracles import decided_networks, drawn_networks
from tfrobust.certification import certify, network
from tfrobust.models.shared.blocks import ConvolutionUnit

LAYERS = keras.layers
SHAPE = (2, 2, 1)


@pytest.mark.parametrize("count", [pytest.param(8, marks=pytest.mark.first), pytest.param(300, marks=pytest.mark.rest)])
def test_no_point_inside_the_ball_contradicts_a_bound(count):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that overflow, which is meant
        outcomes, contradictions = drawn_networks.examine_all(count, seed=count)
    assert contradictions == []
    assert outcomes["certified"] >= count // 4 and outcomes["refused"] + outcomes["none"] > 0


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.first), pytest.param(40, marks=pytest.mark.rest)])
def test_no_attack_and_no_exact_margin_contradicts_a_method(count):
    outcomes, contradictions = decided_networks.examine_all(count, seed=1)
    assert contradictions == []
    assert outcomes["certified"] >= count and outcomes["broken"] >= count // 4 and outcomes["solved exactly"] >= count


def dense(image, *policies):
    hidden = LAYERS.Flatten()(image)
    for policy in policies:
        hidden = LAYERS.Dense(2, activation="relu", dtype=policy, name=f"in_{policy}")(hidden)
    return keras.Model(image, LAYERS.Dense(2)(hidden), name="whole")


def quantized():
    model = dense(keras.Input(SHAPE), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model


@pytest.mark.parametrize("make, named", stored.rows(globals(), "casts_are_refused_by_name"))
def test_casts_are_refused_by_name(make, named):
    with pytest.raises(network.NoBoundsError, match=named):
        certify.certified_margins(make(), np.zeros((1, *SHAPE)), np.zeros(1), epsilon=0.1)


def test_calls_with_arguments_are_refused():
    image = keras.Input(SHAPE)
    hidden = LAYERS.BatchNormalization(name="norm")(image, training=True)
    model = keras.Model(image, LAYERS.Dense(2)(LAYERS.Flatten()(hidden)))
    with pytest.raises(network.NoBoundsError, match="norm of type BatchNormalization .called with arguments"):
        network.walk(model)


def chain(*weights):
    """Return a network of one value between its layers: ReLU(w x + b), and at the end logits (b_0, w x + b_1)."""
    model = keras.Sequential([keras.Input((1,))])
    for weight, offset in weights[:-1]:
        model.add(LAYERS.Dense(1, activation="relu"))
        model.layers[-1].set_weights([np.array([[weight]]), np.array([offset])])
    model.add(LAYERS.Dense(2))
    weight, *offsets = weights[-1]
    model.layers[-1].set_weights([np.array([[0.0, weight]]), np.array(offsets)])
    return model


def folded(kernel, scale, first, last):
    """Return such a network with a convolution of one pixel in the middle, whose normalization the model folds."""
    hidden, logits = chain(first, last).layers
    unit = ConvolutionUnit(1, size=1, activate=False)
    unit.build((None, 1, 1, 1))
    unit.chain[0].kernel.assign([[[[kernel]]]])
    unit.chain[1].norms[0].gamma.assign([scale])
    return keras.Sequential([keras.Input((1,)), hidden, LAYERS.Reshape((1, 1, 1)), unit, LAYERS.Flatten(), logits])


@pytest.mark.parametrize("model, flipped", stored.rows(globals(), "what_float32_cannot_hold_is_not_certified"))
def test_what_float32_cannot_hold_is_not_certified(model, flipped):
    model, images = model(), np.array([[0.5]], np.float32)
    moved = model(np.linspace(0.45, 0.55, 21, dtype=np.float32)[:, None], training=False).numpy()
    correct = np.isfinite(moved).all(1) & (moved[:, 0] > moved[:, 1])
    assert correct.all() != flipped
    for method in certify.METHODS:
        norm = "l2" if method == "lipschitz" else "linf"  # the same ball of one value
        margin = certify.certified_margins(model, images, np.array([0]), epsilon=0.05, norm=norm, method=method)
        assert certify.certified(margin)[0] == (not flipped), method

"""IBP and CROWN-IBP: terms against known numbers, regularizers against a loop, schedules and initialization."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.certification import affine, intervals, operations
from tfrobust.certification.network import walk
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import CROWNIBP, IBP, MTLIBP, ReLUStability
from tfrobust.keras.models import CNN, LinearHead
from tfrobust.keras.schedules import SmoothedRamp
from tfrobust.methods import crown_ibp
from tfrobust.methods.shared import interval_training

RAMP = SmoothedRamp(delay=10, length=100)
# A network of two layers whose bounds are known from linear programs.
FIRST = np.array([[1.0, -1.0], [1.0, 1.0], [-2.0, 1.0]]), np.array([0.0, -0.5, 0.5])
LAST = np.array([[1.0, 1.0, -1.0], [-1.0, 2.0, 1.0], [0.5, -1.0, 1.0]]), np.array([0.2, -0.5, 0.0])


def small(kind, **keywords):
    encoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation="relu")])
    method = kind(encoder, LinearHead(3), initialization=False, enlargement=1.0, **keywords)
    method.build((None, 2))
    for layer, (matrix, offset) in ((encoder.layers[0], FIRST), (method.head.chain[0], LAST)):
        layer.set_weights([matrix.T, offset])
    return method


def terms_of(method, step=0, images=((0.6, 0.5),), labels=(0,)):
    method.step.assign(step)
    batch = method.as_batch((tf.constant(images, tf.float32), tf.constant(labels)))
    terms, logits = method.evaluate_terms({"images": batch.images}, batch, method.context(batch))
    return {name: value.numpy() for name, value in terms.items()}, logits.numpy()


@pytest.mark.parametrize(("epsilon", "certified"), [(0.1, 1.029329), (0.2, 1.653564)])
def test_the_terms_of_a_network_of_two_layers_are_the_known_ones(epsilon, certified):
    terms, logits = terms_of(small(IBP, epsilon=epsilon))
    np.testing.assert_allclose(logits, [[0.9, 0.6, -0.55]], atol=1e-6)
    np.testing.assert_allclose(terms["ce"], [0.680765], atol=1e-5)
    np.testing.assert_allclose(terms["ce_certified"], [certified], atol=1e-5)


def test_bounds_hold_for_the_enlarged_radius():
    method = small(IBP, epsilon=0.1)
    method.enlargement = 2.0
    terms, _ = terms_of(method)
    np.testing.assert_allclose(terms["ce_certified"], [1.653564], atol=1e-5)


@pytest.mark.parametrize(("beta", "margins"), [(1.0, (-0.3, 0.916667)), (0.5, (-0.3, 0.858333)), (0.0, (-0.3, 0.8))])
def test_crown_ibp_mixes_the_margins(beta, margins):
    terms, _ = terms_of(small(CROWNIBP, epsilon=0.1, final_beta=beta))
    expected = np.log(1 + np.exp(-np.array(margins)).sum())
    np.testing.assert_allclose(terms["ce_certified"], [expected], atol=1e-5)
    # At the beginning of a ramp beta is 1; a quarter into it the radius has 1 / 13 of its length.
    terms, _ = terms_of(small(CROWNIBP, epsilon=1.3, final_beta=beta, ramp=RAMP), step=35)
    mixture = 1 - (1 - beta) / 13
    expected = mixture * np.array((-0.3, 0.916667)) + (1 - mixture) * np.array((-0.3, 0.8))
    np.testing.assert_allclose(terms["ce_certified"], [np.log(1 + np.exp(-expected).sum())], atol=1e-5)


def test_crown_ibp_computes_linear_bounds_only_while_they_weigh(monkeypatch):
    bounded, lower_bounds = [], crown_ibp.linear_bounds.lower_bounds

    def counted(*args, slope, **keywords):
        if slope:  # without a slope they are the intervals
            bounded.append(slope)
        return lower_bounds(*args, slope=slope, **keywords)

    monkeypatch.setattr(crown_ibp.linear_bounds, "lower_bounds", counted)
    for beta, step, expected in ((0.0, 109, True), (0.0, 110, False), (0.5, 110, True)):
        method = small(CROWNIBP, epsilon=0.1, final_beta=beta, ramp=RAMP)
        bounded.clear()
        terms_of(method, step)
        assert bool(bounded) == expected
    terms, _ = terms_of(small(CROWNIBP, epsilon=0.1, ramp=RAMP), step=110)
    np.testing.assert_allclose(terms["ce_certified"], [1.029329], atol=1e-5)  # as IBP
    # In a graph too, with its gradient.
    gradients = []
    for kind in (IBP, CROWNIBP):
        method = small(kind, epsilon=0.1, ramp=RAMP)

        @tf.function
        def step(method=method):
            with tf.GradientTape() as tape:
                batch = method.as_batch((tf.constant([[0.6, 0.5]]), tf.constant([0])))
                terms, _ = method.evaluate_terms({"images": batch.images}, batch, method.context(batch))
                loss = tf.reduce_sum(terms["ce_certified"])
            return tape.gradient(loss, method.trainable_variables)

        method.step.assign(110)
        gradients.append(step())
    for expected, gradient in zip(*gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert np.any(gradients[0][0])


def test_the_smoothed_ramp_has_the_published_values():
    values = [float(RAMP(step)) for step in (0, 10, 20, 35, 60, 85, 110, 10**6)]
    np.testing.assert_allclose(values, [0, 0, 0.00197, 0.07692, 0.38462, 0.69231, 1, 1], atol=5e-6)
    for wrong in ({"delay": -1}, {"length": 0}, {"steps_per_unit": 0}):
        with pytest.raises(ValueError, match="SmoothedRamp has delay"):
            SmoothedRamp(**wrong)


def test_weights_follow_the_ramp():
    method = small(IBP, epsilon=0.1, ramp=RAMP, kappa=0.25)
    for step, ce, certified, regularizer in (
        (0, 1, 0, 0.5),
        (60, 1 - 0.75 * 5 / 13, 0.75 * 5 / 13, 0.5 * 8 / 13),
        (110, 0.25, 0.75, 0),
    ):
        method.step.assign(step)
        weights = [float(method._weight(name)) for name in method.terms]
        np.testing.assert_allclose(weights, [ce, certified, regularizer, regularizer], atol=1e-6)
    assert small(IBP, epsilon=0.1).default_weights == {"ce": 0.5, "ce_certified": 0.5, "tightness": 0.0, "balance": 0.0}


def test_bounds_use_the_statistics_of_the_clean_batch():
    keras.utils.set_random_seed(0)
    method = IBP(CNN(((4,), (6,)), dense=(5,)), LinearHead(3), ramp=RAMP, epsilon=0.1)
    method.build((None, 8, 8, 1))
    images = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype(np.float32)
    terms, logits = terms_of(method, images=images, labels=(0, 1, 2, 0, 1, 2))
    # Before the ramp the box is almost a point, so both terms agree; moving statistics would give another value.
    np.testing.assert_allclose(terms["ce_certified"], terms["ce"], atol=1e-3)
    assert np.abs(logits - method(images, training=False).numpy()).max() > 0.01


def regularizers_by_loops(boxes, first):
    """Both regularizers from (lower, upper) before each activation, as the authors' code computes them."""
    penalty = lambda ratio: max(0.0, 0.5 - ratio) / 0.5  # noqa: E731
    tightness = balance = 0.0
    start = np.mean((first[1] - first[0]) / 2)
    for lower, upper in boxes:
        center = (lower + upper) / 2
        tightness += penalty(start / np.mean((upper - lower) / 2))
        deviation = (center - center.mean()) ** 2
        active, inactive = lower > 0, upper < 0
        for over, under in (
            (np.sum(center[active]) / center.size, -np.sum(center[inactive]) / center.size),
            (np.sum(deviation[active]), np.sum(deviation[inactive])),
        ):
            if under > 0:
                ratio = over / under
                balance += penalty(min(ratio, 1 / max(ratio, 1e-12)))
    return tightness / len(boxes), balance / len(boxes)


def test_the_regularizers_are_those_of_a_loop():
    network = walk(small(IBP, epsilon=0.1))
    generator = np.random.default_rng(5)
    for _ in range(4):
        center = generator.uniform(size=(7, 2))
        box = operations.Box(*(tf.constant(center + sign * 0.05, tf.float64) for sign in (-1, 1)))
        boxes = intervals.propagate(network, box, operations.Arithmetic(tf.float64, 0.0))
        before = (boxes[1].lower.numpy(), boxes[1].upper.numpy())
        expected = regularizers_by_loops([before], [end.numpy() for end in box])
        values = [float(value) for value in interval_training.regularizers(network, boxes)]
        np.testing.assert_allclose(values, expected, rtol=1e-9)
        assert expected[0] > 0  # this layer widens the box


def test_kernels_behind_a_residual_sum_are_drawn_half_as_large():
    layers = keras.layers
    image = keras.Input((40,))
    plain = layers.Dense(40, name="plain")(image)
    total = layers.Add()([image, plain])
    direct = layers.Dense(40, name="half_1")(total)
    activated = layers.Dense(40, name="half_2")(layers.ReLU()(total))
    farther = layers.Dense(40, name="plain_2")(layers.ReLU()(layers.BatchNormalization()(total)))
    end = layers.Dense(40, name="half_3", activation="relu")(layers.Add()([direct, activated, farther]))
    model = keras.Model(image, layers.Dense(3)(layers.Dense(40, name="plain_3")(end)))
    interval_training.initialize(walk(model), seed=1)
    for layer in model.layers:
        if layer.name.startswith(("plain", "half")):
            expected = np.sqrt(2 * np.pi) / 40 / (2 if layer.name.startswith("half") else 1)
            assert layer.kernel.numpy().std() == pytest.approx(expected, rel=0.08), layer.name


def test_new_kernels_but_the_last_are_drawn_for_intervals():
    keras.utils.set_random_seed(0)
    parts = lambda: (CNN(((64,), (64,)), dense=()), LinearHead(10, kernel_initializer="zeros"))  # noqa: E731
    method = IBP(*parts(), seed=3, epsilon=0.1)
    method.build((None, 8, 8, 3))
    kernels = [operation.kernel.numpy() for operation, _ in walk(method).nodes if isinstance(operation, affine.Dense)]
    assert kernels[0].std() == pytest.approx(0.0928, rel=0.06)  # sqrt(2 pi) / 27
    assert kernels[1].std() == pytest.approx(0.00435, rel=0.02)  # sqrt(2 pi) / 576
    assert not kernels[2].any()
    again = IBP(*parts(), seed=3, epsilon=0.1)
    again.build((None, 8, 8, 3))
    np.testing.assert_array_equal(again.encoder.trainable_variables[0], method.encoder.trainable_variables[0])
    # An encoder that was built, such as a trained one, keeps its weights.
    pretrained = IBP(method.encoder, LinearHead(10), seed=4, epsilon=0.1)
    pretrained.build((None, 8, 8, 3))
    np.testing.assert_array_equal(pretrained.encoder.trainable_variables[0], again.encoder.trainable_variables[0])


def test_mtl_ibp_mixes_adversarial_training_and_bounds():
    attack = PGD(threat=ThreatModel(epsilon=0.1), steps=3, random_start="none")
    mixed = small(MTLIBP, epsilon=0.1, attack=attack, kappa=0.75)
    batch = mixed.as_batch((tf.constant([[0.6, 0.5]]), tf.constant([0])))
    context = mixed.context(batch)
    views = mixed.make_views(batch, context)
    terms, logits = mixed.evaluate_terms(views, batch, context)
    np.testing.assert_allclose(logits, [[0.9, 0.6, -0.55]], atol=1e-6)
    np.testing.assert_allclose(terms["ce_certified"], [1.029329], atol=1e-5)
    moved = np.array(mixed.propagate(views["adversarial"])[1])[0]
    np.testing.assert_allclose(terms["ce_adv"], [np.log(np.exp(moved - moved[0]).sum())], rtol=1e-5)
    assert terms["ce_adv"] > 0.680765 and np.abs(views["adversarial"] - [[0.6, 0.5]]).max() <= 0.1 + 1e-6
    weights = mixed.default_weights
    assert (weights["ce_adv"], weights["ce_certified"], weights["tightness"]) == (0.75, 0.25, 0.0)
    ramped = small(MTLIBP, epsilon=0.1, attack=attack, kappa=0.75, ramp=RAMP).default_weights
    assert [float(ramped["ce_certified"](step)) for step in (0, 110)] == [0.0, 0.25]
    assert [float(ramped["ce_adv"](step)) for step in (0, 110)] == [1.0, 0.75]


def test_relu_stability_counts_the_inputs_of_unknown_sign():
    """The inputs are x - y, x + y - 1/2 and y - 2 x + 1/2: 0.1 and 0.6 within 0.2, and -0.2 within 0.3."""
    encoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation="relu")])
    attack = PGD(threat=ThreatModel(epsilon=0.1), steps=3, random_start="none")
    method = ReLUStability(encoder, LinearHead(3), epsilon=0.1, attack=attack)
    method.build((None, 2))
    for layer, (matrix, offset) in ((encoder.layers[0], FIRST), (method.head.chain[0], LAST)):
        layer.set_weights([matrix.T, offset])
    batch = method.as_batch((tf.constant([[0.6, 0.5]]), tf.constant([0])))
    context = method.context(batch)
    terms, _ = method.evaluate_terms(method.make_views(batch, context), batch, context)
    products = np.array([-0.1 * 0.3, 0.4 * 0.8, -0.5 * 0.1])
    np.testing.assert_allclose(terms["stability"], [-np.tanh(1 + products).sum()], rtol=1e-5)
    assert method.default_weights == {"stability": 1e-4} and set(terms) == {"ce", "ce_adv", "stability"}

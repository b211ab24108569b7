"""AWP beside a step written out in NumPy, and its closed form; label smoothing of the adversarial methods."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import tiny_network as tiny
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import ADR, ASCL, TRADES, AdversarialTraining, WeightPerturbation
from tfrobust.keras.models import LinearHead
from tfrobust.methods.shared.weight_perturbation import perturbation
from tfrobust.structs import Batch

RATE, DECAY, GAMMA = 0.1, 0.3, 0.2


def gradients(arrays, images, labels):
    """d mean CE / d (W, c, V, d) of tanh(x W + c) V + d, in float64."""
    flat = np.asarray(images, np.float64).reshape(len(images), -1)
    kernel, offset, head, bias = arrays
    z = np.tanh(flat @ kernel + offset)
    residual = (tiny.probabilities(z @ head + bias) - np.eye(tiny.CLASSES)[labels]) / len(flat)
    hidden = residual @ head.T * (1 - z**2)
    return [flat.T @ hidden, hidden.sum(0), z.T @ residual, residual.sum(0)]


def stepped(method, views, batch):
    """Take a step on given views; return the four arrays of the network."""
    method.make_views = lambda *_: views
    method.compile(keras.optimizers.SGD(RATE, weight_decay=DECAY), jit_compile=False)
    method.train_step(Batch(*batch))
    return tiny.arrays(method)


def test_a_step_is_taken_at_the_perturbed_kernels_which_move_back():
    method = tiny.build(AdversarialTraining, weight_perturbation=WeightPerturbation(gamma=GAMMA))
    batch, context = tiny.batch()
    views = method.make_views(batch, context)
    labels, before = batch.labels.numpy(), tiny.arrays(method)

    def total(arrays):
        pairs = [gradients(arrays, view.numpy(), labels) for view in (views["images"], views["adversarial"])]
        return [first + other for first, other in zip(*pairs, strict=True)]

    moved = []
    for array, gradient in zip(before, total(before), strict=True):
        length = np.sqrt((array**2).sum()) / np.sqrt((gradient**2).sum())
        moved.append(GAMMA * length * gradient if array.ndim == 2 else np.zeros_like(array))
    worst = [array + move for array, move in zip(before, moved, strict=True)]
    expected = [
        array - RATE * (gradient + DECAY * array) - move
        for array, gradient, move in zip(worst, total(worst), moved, strict=True)
    ]
    after = stepped(method, views, batch)
    plain = stepped(tiny.build(AdversarialTraining), views, batch)
    for number, (weight, expected_weight, other) in enumerate(zip(after, expected, plain, strict=True)):
        np.testing.assert_allclose(weight, expected_weight, rtol=1e-4, atol=1e-5)
        assert np.abs(expected_weight - other).max() > 1e-3, number


def test_the_perturbation_has_gamma_times_the_length_of_the_weights():
    change = perturbation(tf.constant([3.0, 4.0]), tf.constant([0.0, -2.0]), 0.01)
    np.testing.assert_allclose(change, [0.0, -0.05], rtol=1e-6)
    tiny_gradient = perturbation(tf.constant([3.0, 4.0]), tf.constant([1e-30, 0.0]), 0.01)
    assert float(tf.norm(tiny_gradient)) <= 0.05 + 1e-6 and np.all(np.isfinite(tiny_gradient))
    for bad in (np.nan, np.inf):  # a skipped step of loss scaling
        assert np.all(np.isfinite(perturbation(tf.constant([3.0, 4.0]), tf.constant([bad, 1.0]), 0.01)))
    np.testing.assert_array_equal(perturbation(tf.ones([2]), tf.zeros([2]), 0.01), [0, 0])


def test_the_first_pass_leaves_no_trace_but_the_kernels_move_which_is_taken_back():
    kernel, bias = keras.Variable([3.0, 4.0], name="kernel"), keras.Variable([1.0, 1.0], name="bias")
    statistic = keras.Variable(1.0, name="moving_mean")

    def differentiate():
        statistic.assign(2.0)
        return None, [tf.constant([0.0, -2.0]), tf.constant([1.0, 1.0])]

    with WeightPerturbation(gamma=0.1).applied([kernel, bias], tf.constant(0), differentiate):
        np.testing.assert_allclose(kernel, [3.0, 3.5], rtol=1e-6)
        kernel.assign_add([1.0, 1.0])
    np.testing.assert_allclose(kernel, [4.0, 5.0], rtol=1e-6)
    assert statistic.numpy() == 1.0 and np.all(bias.numpy() == 1.0)


@pytest.mark.rest
def test_a_schedule_of_gamma_starts_after_its_warm_up_and_statistics_move_once():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.0, 0.5])  # 0 in step 0, then 0.5
    runs = {}
    for name, part in {"none": None, "late": WeightPerturbation(gamma=schedule), "now": WeightPerturbation()}.items():
        method = battery.build("adversarial_training", weight_perturbation=part)
        step = tf.function(method.train_step, autograph=False)
        runs[name] = []
        for _ in range(2):
            step(tuple(tf.constant(part) for part in battery.data()))
            runs[name].append([variable.numpy() for variable in method.encoder.weights + method.head.weights])
    names = [variable.path for variable in method.encoder.weights + method.head.weights]
    for path, none, late, now in zip(names, *(runs[name][0] for name in ("none", "late", "now")), strict=True):
        np.testing.assert_allclose(late, none, atol=1e-6, err_msg=path)
        if "moving" in path:  # one update by the second pass, whose kernels differ by a hundredth
            np.testing.assert_allclose(now, none, atol=0.1 * np.abs(none).max() + 1e-3, err_msg=path)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(runs["none"][1], runs["late"][1], strict=True))


class Unnamed(keras.layers.Layer):
    """A dense layer whose matrix has another name."""

    def build(self, shape):
        self.matrix = self.add_weight(shape=(int(np.prod(shape[1:])), 3), name="matrix")

    def call(self, inputs):
        return keras.ops.reshape(inputs, (-1, 6)) @ self.matrix


def test_it_is_refused_where_nothing_would_move():
    with pytest.raises(ValueError, match=r"WeightPerturbation.gamma is -1"):
        WeightPerturbation(gamma=-1.0)
    parts = keras.Sequential([keras.Input(tiny.SHAPE), Unnamed()]), keras.layers.Activation("linear")
    method = AdversarialTraining(
        *parts, weight_perturbation=WeightPerturbation(), attack=PGD(ThreatModel(epsilon=0.2), steps=10)
    )
    method.build((None, *tiny.SHAPE))
    method.compile("sgd", jit_compile=False)
    batch, _ = tiny.batch()
    with pytest.raises(ValueError, match="no trained variable is named so"):
        method.train_step((batch.images, batch.labels))


def test_it_is_refused_where_moved_weights_would_stay():
    """Averages of the optimizer and constraints are taken while the kernels are moved."""
    method = tiny.build(TRADES, weight_perturbation=WeightPerturbation())
    averaging = keras.optimizers.SGD(0.1, use_ema=True)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, use_ema=True))
    for optimizer in (averaging, scaled, keras.optimizers.ScheduleFreeAdamW(0.1)):
        with pytest.raises(ValueError, match="TRADES.weight_perturbation moves the weights .* would average the moved"):
            method.compile(optimizer)
    layers = [keras.Input(tiny.SHAPE), keras.layers.Flatten(), keras.layers.Dense(4, kernel_constraint="non_neg")]
    attack = PGD(ThreatModel(epsilon=0.2), steps=1)
    constrained = AdversarialTraining(
        keras.Sequential(layers), LinearHead(3), attack=attack, weight_perturbation=WeightPerturbation()
    )
    constrained.compile("sgd", jit_compile=False)
    batch, _ = tiny.batch()
    with pytest.raises(ValueError, match="a kernel has a constraint"):
        constrained.fit(batch.images, batch.labels, verbose=0)


@pytest.mark.parametrize(
    "kind", [AdversarialTraining, TRADES, *(pytest.param(kind, marks=pytest.mark.rest) for kind in (ADR, ASCL))]
)
def test_smoothed_labels_enter_the_cross_entropies_alone(kind):
    smoothing = 0.3
    plain, smooth = (tiny.build(kind, label_smoothing=value) for value in (0.0, smoothing))
    batch, context = tiny.batch()
    views = plain.make_views(batch, context)
    np.testing.assert_array_equal(smooth.make_views(batch, context)["adversarial"], views["adversarial"])
    (before, _), (terms, _) = (method.loss_terms(views, batch, context) for method in (plain, smooth))
    targets = (1 - smoothing) * np.eye(tiny.CLASSES)[batch.labels] + smoothing / tiny.CLASSES
    for name, view in (("ce", views["images"]), ("ce_adv", views["adversarial"])):
        if name in terms:
            logs = np.log(tiny.probabilities(tiny.forward(smooth, view)[1]))
            np.testing.assert_allclose(terms[name], -(targets * logs).sum(-1), rtol=1e-4, atol=1e-5)
            assert np.abs(terms[name] - before[name]).max() > 0.1
    for name in set(terms) - {"ce", "ce_adv"}:
        np.testing.assert_array_equal(terms[name], before[name])

"""Tikhonov terms: closed forms, NumPy's differences, and exact against finite-difference mode."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import contrastive as oracle
from oracles import tiny_network
from tfrobust.keras.losses import GradAlign, LayerWiseTikhonov, PairMasks, Tikhonov, masked_contrastive
from tfrobust.keras.methods import Supervised
from tfrobust.keras.models import BranchedBatchNormalization
from tfrobust.ops import gradients

COUNT, PIXELS = 6, 4
DIVISORS = {"example": 1.0, "batch": COUNT, "released": COUNT**2}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def added(penalty, evaluate, views, weights=None):
    """The terms that a penalty adds."""
    views = {name: tf.constant(view, tf.float32) for name, view in views.items()}
    values, _ = penalty(
        lambda views: (evaluate(views), None), views, tuple(views), lambda n: tf.constant((weights or {}).get(n, 1.0))
    )
    return {name: values[name].numpy() for name in penalty.weights}


# ---------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("mode", ["exact", "finite_difference"])
@pytest.mark.parametrize("form", DIVISORS)
def test_a_quadratic_loss(form, mode):
    """l = a |x|^2 / 2: the gradient is a x, and the difference quotient of length h along it is a |x| + a h / 2."""
    images, slope, step = drawn(COUNT, PIXELS), 3.0, 0.1
    norms = np.linalg.norm(images, axis=1)
    penalty = Tikhonov(form=form, mode=mode, step=step)
    with tf.GradientTape() as tape:
        factor = tf.Variable(slope)
        values, _ = penalty(
            lambda views: ({"ce": 0.5 * factor * tf.reduce_sum(views["images"] ** 2, axis=1)}, None),
            {"images": tf.constant(images, tf.float32)},
            ("images",),
            lambda name: tf.constant(1.0),
        )
        mean = tf.reduce_mean(values["tikhonov"])
    if mode == "exact":
        expected = slope**2 * norms**2 / 2 / DIVISORS[form]
    elif form == "batch":  # one direction for all: |x| is the whole batch's
        quotient = slope * np.linalg.norm(norms) + slope * step / 2
        expected = np.full(COUNT, (quotient / COUNT) ** 2 / 2)
    else:
        expected = (slope * norms + slope * step / 2) ** 2 / 2 / DIVISORS[form]
    np.testing.assert_allclose(values["tikhonov"], expected, rtol=1e-4)
    # Either is proportional to the square of the slope.
    assert float(tape.gradient(mean, factor)) == pytest.approx(2 * expected.mean() / slope, rel=1e-4)


@pytest.mark.parametrize("mode", ["exact", "finite_difference"])
def test_statistics_move_once_and_without_the_step(mode):
    seen = keras.Variable(0.0)

    def evaluate(views):
        seen.assign(seen + tf.reduce_sum(views["images"]))
        return {"ce": tf.reduce_sum(views["images"] ** 2, axis=1)}

    added(Tikhonov(mode=mode, step=0.5), evaluate, {"images": np.ones((COUNT, PIXELS))})
    assert float(seen.value) == COUNT * PIXELS


def test_terms_are_summed_with_their_weights_and_views_averaged():
    images, other = drawn(COUNT, PIXELS), drawn(COUNT, PIXELS, seed=1)

    def evaluate(views):
        return {name: tf.reduce_sum(views[view] ** 2, axis=1) for name, view in (("a", "images"), ("b", "other"))}

    views = {"images": images, "other": other}
    squares = [(view**2).sum(axis=1) for view in (images, other)]
    penalty = added(Tikhonov(), evaluate, views, {"a": 1.0, "b": 3.0})["tikhonov"]
    np.testing.assert_allclose(penalty, (4 * squares[0] + 36 * squares[1]) / 2 / 2, rtol=1e-5)
    penalty = added(Tikhonov(of=("b",), on=("other",)), evaluate, views, {"b": 3.0})["tikhonov"]
    np.testing.assert_allclose(penalty, 36 * squares[1] / 2, rtol=1e-5)


def test_terms_of_their_own_are_penalized_each_by_itself():
    views = {name: drawn(COUNT, PIXELS, seed=seed) for seed, name in enumerate(("images", "other"))}

    def evaluate(views):
        total = tf.add_n([tf.reduce_sum(view**2, axis=1) for view in views.values()])
        return {"a": total, "b": 3.0 * total}

    layered = added(LayerWiseTikhonov(betas={"a": 0.1, "b": 1.0}), evaluate, views, {"a": 5.0})
    squares = sum((view**2).sum(axis=1) for view in views.values())
    for name, factor in (("a", 4), ("b", 36)):  # eq 5: the mean over two views
        np.testing.assert_allclose(layered[f"tikhonov_{name}"], factor * squares / 2 / COUNT, rtol=1e-5)


@pytest.mark.parametrize("penalty, message", stored.rows(globals(), "a_term_that_does_not_depend_on_a_view_is_no"))
def test_a_term_that_does_not_depend_on_a_view_is_no_penalty_of_nothing(penalty, message):
    def evaluate(views):
        return {"a": tf.reduce_sum(views["images"] ** 2, axis=1), "idle": tf.zeros(COUNT)}

    views = {name: drawn(COUNT, PIXELS) for name in ("images", "other")}
    with pytest.raises(ValueError, match=message):
        added(penalty, evaluate, views)


# ------------------------------------------------------------------------------------------ contrastive, eq 3


def contrastive_terms(views, block_size=None):
    z = tf.concat([tf.tanh(view @ tf.constant(drawn(PIXELS, 3, seed=5), tf.float32)) for view in views.values()], 0)
    alike = tf.concat([tf.concat([tf.eye(COUNT)] * 2, 1)] * 2, 0) > 0
    pairs = PairMasks(alike & ~tf.eye(2 * COUNT, dtype=tf.bool), ~alike)
    values = masked_contrastive(z, z, pairs, temperature=0.5, block_size=block_size)
    return {"contrastive": (values[:COUNT] + values[COUNT:]) / 2}


def test_equation_3_by_differences_of_the_batch_loss():
    """L in float64 from its definition, differentiated pixel by pixel."""
    views = [drawn(COUNT, PIXELS, seed=seed) for seed in (1, 2)]
    kernel = drawn(PIXELS, 3, seed=5).astype(np.float32).astype(np.float64)

    def loss(both):
        z = np.tanh(np.concatenate(both) @ kernel)
        s = np.array([[oracle.similarity(row, other, "cosine") for other in z] for row in z]) / 0.5
        total = 0.0
        for i in range(2 * COUNT):
            rest = [k for k in range(2 * COUNT) if k != i]
            total -= s[i, (i + COUNT) % (2 * COUNT)] - np.log(np.exp(s[i, rest]).sum())
        return total / (2 * COUNT)

    expected = np.zeros(COUNT)
    for view in range(2):
        for index in np.ndindex(COUNT, PIXELS):
            moved = []
            for sign in (1, -1):
                both = [view_copy.copy() for view_copy in views]
                both[view][index] += sign * 1e-5
                moved.append(loss(both))
            expected[index[0]] += ((moved[0] - moved[1]) / 2e-5) ** 2 / 2
    named = dict(zip(("view_1", "view_2"), views, strict=True))
    # lambda/2 R, R the sum: the mean over the batch of what the terms of its images say.
    exact = added(Tikhonov(form="batch"), contrastive_terms, named)["tikhonov"]
    np.testing.assert_allclose(exact / COUNT, expected / 2, rtol=2e-3)
    penalty = Tikhonov(form="batch", mode="finite_difference", step=2e-3)
    near = added(penalty, contrastive_terms, named)["tikhonov"]
    assert near.mean() == pytest.approx(exact.mean(), rel=0.02) and np.ptp(near) == 0
    # Taken in blocks of anchors, whose backward pass is a loop, it is the same.
    blocks = added(Tikhonov(form="batch"), lambda v: contrastive_terms(v, block_size=5), named)["tikhonov"]
    np.testing.assert_allclose(blocks, exact, rtol=1e-4)


def test_blockwise_and_whole_penalties_have_one_weight_gradient():
    """The second derivative passes through the loop over blocks of anchors."""
    views = {f"view_{n}": tf.constant(drawn(COUNT, PIXELS, seed=n), tf.float32) for n in (1, 2)}
    gradients = []
    for block_size in (None, 5):
        scale = tf.Variable(1.5)
        with tf.GradientTape() as tape:
            values, _ = Tikhonov(form="batch")(
                lambda v, s=scale, b=block_size: (contrastive_terms({n: s * x for n, x in v.items()}, b), None),
                views,
                tuple(views),
                lambda name: tf.constant(1.0),
            )
            total = tf.reduce_sum(values["tikhonov"])
        gradients.append(float(tape.gradient(total, scale)))
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-4) and abs(gradients[0]) > 1e-3


# -------------------------------------------------------------------------------------------------- in a method


def numeric_total(method, images, labels, strength):
    """mean_k ( ce_k + strength/2 |grad ce_k|^2 ) in float64, from the network's written-out forward pass."""
    _, logits = tiny_network.forward(method, images)
    gradient = tiny_network.input_gradient(method, images, np.eye(3)[labels]).reshape(len(images), -1)
    return np.mean(tiny_network.cross_entropy(logits, labels) + strength / 2 * (gradient**2).sum(axis=1))


def test_a_method_descends_equation_2():
    """The step of SGD on the regularised loss, against differences of that loss by every weight of the head."""
    method = tiny_network.build(Supervised, penalty=Tikhonov(weight=0.7))
    method.compile("sgd", jit_compile=False)
    method.optimizer.learning_rate = 1.0
    batch, _ = tiny_network.batch()
    images, labels = batch.images.numpy(), batch.labels.numpy()
    kernel = method.head.trainable_variables[0]
    before, expected = kernel.numpy(), np.zeros(kernel.shape)
    loss = numeric_total(method, images, labels, 0.7)
    for index in np.ndindex(*kernel.shape):
        sides = []
        for sign in (1, -1):
            changed = before.copy()
            changed[index] += sign * 1e-2
            kernel.assign(changed)
            sides.append(numeric_total(method, images, labels, 0.7))
        expected[index] = (sides[0] - sides[1]) / 2e-2
    kernel.assign(before)
    logs = method.train_step((batch.images, batch.labels))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-5)
    assert float(logs["loss"]) == pytest.approx(float(logs["ce"]) + 0.7 * float(logs["tikhonov"]), rel=1e-5)
    np.testing.assert_allclose(before - kernel.numpy(), expected, rtol=2e-3, atol=2e-4)


def test_a_view_that_does_not_exist_is_named():
    method = tiny_network.build(Supervised, penalty=Tikhonov(on=("view_1",)))
    method.compile("sgd", jit_compile=False)
    batch, _ = tiny_network.batch()
    with pytest.raises(ValueError, match=r"no views \['view_1'\].*\['images'\]"):
        method.train_step((batch.images, batch.labels))


# ------------------------------------------------------------------------------------- weights of normalizations

NORMALIZATIONS = {
    "batch": lambda: keras.layers.BatchNormalization(dtype="float64"),
    "layer": lambda: keras.layers.LayerNormalization(dtype="float64"),
    "group": lambda: keras.layers.GroupNormalization(2, dtype="float64"),
    "branched": lambda: BranchedBatchNormalization(dtype="float64"),
}
PENALTIES = {
    "tikhonov": Tikhonov(),
    "tikhonov_a": LayerWiseTikhonov(betas={"a": 1.0}),
    "grad_align": GradAlign(epsilon=0.3, of=("a",)),
}


@pytest.mark.parametrize("term", PENALTIES)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_weights_get_the_gradient_of_the_penalty_through_batch_statistics(normalization, term):
    """In float64, against central differences of the term by the entries of a kernel in front of the normalization."""
    images = tf.constant(drawn(5, 3, 3, 2))
    kernel, layer = tf.Variable(drawn(2, 4, seed=1)), NORMALIZATIONS[normalization]()
    last = tf.constant(drawn(4, seed=2))

    def evaluate(views):
        hidden = layer(tf.tensordot(views["images"], kernel, 1), training=True)
        return {"a": tf.reduce_sum(tf.sin(tf.tensordot(hidden, last, 1)), [1, 2])}, None

    def value():
        arguments = ("images",), lambda name: tf.constant(1.0, tf.float64), tf.constant([1, 2])
        return tf.reduce_sum(PENALTIES[term](evaluate, {"images": images}, *arguments)[0][term])

    if term == "grad_align":  # its first gradient is a constant
        first = gradients.directions(tf.reshape(_input_gradient(evaluate, images), [5, -1]))[0]
        noise = PENALTIES[term]._noise(tf.constant([1, 2]), "images", images)

        def value_to_differ():
            moved = _input_gradient(evaluate, images + tf.cast(noise, tf.float64))
            return -tf.reduce_sum(first * gradients.directions(tf.reshape(moved, [5, -1]))[0])
    else:
        value_to_differ = value
    with tf.GradientTape() as tape:
        total = value()
    gradient, start, step = tape.gradient(total, kernel).numpy(), kernel.numpy(), 1e-5
    expected = np.zeros_like(start)
    for entry in np.ndindex(start.shape):
        ends = []
        for sign in (1, -1):
            moved = start.copy()
            moved[entry] += sign * step
            kernel.assign(moved)
            ends.append(float(value_to_differ()))
        expected[entry] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(gradient, expected, atol=1e-5 * np.abs(expected).max())


def _input_gradient(evaluate, images):
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = tf.reduce_sum(evaluate({"images": images})[0]["a"])
    return tape.gradient(total, images)


def test_moments_are_tensorflow_s_again_afterwards():
    before, hidden = tf.nn.moments, tf.constant(drawn(5, 4), tf.float16)
    with gradients.twice_differentiable(), gradients.twice_differentiable():
        assert tf.nn.moments is not before
        inside = tf.nn.moments(hidden, [0], keepdims=True)
    assert tf.nn.moments is before
    for ours, theirs in zip(inside, before(hidden, [0], keepdims=True), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)

"""Feature contrastive learning against the formulas of Kim et al. 2021, on a network written out in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import feature_contrast
from oracles import tiny_network as tiny
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import TokenRemoval, UtilityPerturbation
from tfrobust.keras.methods import FCL, Adversary, CLGaussian, FeatureContrast, FeatureMargin
from tfrobust.keras.models import LinearHead
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context

TEMPERATURE = 0.3
SOME = UtilityPerturbation(count=2)


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_the_terms_are_those_of_the_paper(scale):
    method = tiny.build(FCL, perturbation=SOME, objective=FeatureContrast(temperature=TEMPERATURE, scale=scale))
    batch, context = tiny.batch()
    views = method.make_views(batch, context)
    views["usable"] = tf.constant([1.0, 0.0, 1.0] * 3)
    terms, logits = method.loss_terms(views, batch, context)
    clean, least, most = (tiny.forward(method, views[name])[0] for name in ("images", "least", "most"))
    expected = feature_contrast.contrast(clean, least, most, views["usable"].numpy(), TEMPERATURE)
    expected = expected * (len(expected) if scale == "sum" else 1)
    np.testing.assert_allclose(terms["feature_contrast"], expected, rtol=2e-5)
    logits_of_images = tiny.forward(method, batch.images)[1]
    np.testing.assert_allclose(logits, logits_of_images, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        terms["ce"], tiny.cross_entropy(logits_of_images, batch.labels.numpy()), rtol=1e-5, atol=1e-6
    )
    assert terms["usable"].numpy().tolist() == [1, 0, 1] * 3


def test_utility_is_the_size_of_the_input_gradient():
    method = tiny.build(FCL, perturbation=SOME)
    batch, _ = tiny.batch()
    targets = np.eye(tiny.CLASSES)[batch.labels]
    expected = np.abs(tiny.input_gradient(method, batch.images, targets))
    np.testing.assert_allclose(method.utility(batch.images, batch.labels), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["inference", "batch"])
def test_utility_is_measured_in_the_mode_of_batch_norm(mode):
    encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.BatchNormalization(momentum=0.5)])
    method = FCL(encoder, LinearHead(3), perturbation=SOME, mode=mode)
    method.build((None, *tiny.SHAPE))
    batch, _ = tiny.batch()
    with tf.GradientTape() as tape:
        tape.watch(batch.images)
        normalized = encoder.layers[1](encoder.layers[0](batch.images), training=mode == "batch")
        entropy = keras.losses.sparse_categorical_crossentropy(batch.labels, method.head(normalized), True)
    expected = np.abs(tape.gradient(entropy, batch.images))
    for variable in encoder.layers[1].non_trainable_variables:
        variable.assign(tf.ones_like(variable) if "variance" in variable.name else tf.zeros_like(variable))
    np.testing.assert_allclose(method.utility(batch.images, batch.labels), expected, rtol=1e-3, atol=1e-6)


def test_a_confident_model_in_float16_has_a_utility():
    method, images, labels, expected = tiny.confident(FCL, perturbation=SOME)
    utility = method.utility(images, labels).numpy()
    largest = [np.max(maps, axis=(1, 2, 3), keepdims=True) for maps in (utility, expected)]
    np.testing.assert_allclose(utility / largest[0], expected / largest[1], atol=0.01)


def test_views_have_noise_on_the_features_of_least_and_most_utility():
    method = tiny.build(FCL, perturbation=SOME)
    batch, context = tiny.batch()
    utility = method.utility(batch.images, batch.labels).numpy().reshape(9, -1)
    views = method.make_views(batch, context)
    order = np.argsort(utility, axis=1)
    for name, expected in (("least", order[:, :2]), ("most", order[:, -2:])):
        change = (views[name] - batch.images).numpy().reshape(9, -1) != 0
        assert [set(np.flatnonzero(row)) for row in change] == [set(row) for row in expected]


def test_the_margin_objective_is_eq_9():
    method = tiny.build(FCL, perturbation=SOME, objective=FeatureMargin(margin=0.8, scale="mean"))
    batch, views, terms, _ = tiny.run(method)
    clean, least, most = (tiny.forward(method, views[name])[0] for name in ("images", "least", "most"))
    near, far = np.sum((clean - least) ** 2, -1), np.linalg.norm(clean - most, axis=-1)
    np.testing.assert_allclose(terms["feature_contrast"], near + np.maximum(0, 0.8 - far) ** 2, rtol=1e-4, atol=1e-6)


def test_a_teacher_decides_alone_or_as_well():
    batch, _ = tiny.batch()
    teacher_utility = tf.random.stateless_uniform(batch.images.shape, [1, 2])
    plain, replaced, added = (
        tiny.build(FCL, perturbation=SOME, **keywords)
        for keywords in (
            {},
            {"teacher": lambda *_: teacher_utility},
            {"teacher": lambda *_: teacher_utility, "combine": "add"},
        )
    )
    student_utility, taken, both = (
        method.utility(batch.images, batch.labels).numpy() for method in (plain, replaced, added)
    )
    assert np.array_equal(taken, teacher_utility)
    largest = [np.max(part, axis=(1, 2, 3), keepdims=True) for part in (student_utility, teacher_utility.numpy())]
    np.testing.assert_allclose(both, student_utility / largest[0] + teacher_utility / largest[1], rtol=1e-5)


@pytest.mark.parametrize("kind, keywords, passes", [(FCL, {"perturbation": SOME}, (4, 7)), (CLGaussian, {}, (2, 5))])
def test_with_an_adversary_it_trains_on_its_images_as_well(kind, keywords, passes):
    adversary = Adversary(attack=PGD(ThreatModel(epsilon=0.1), steps=2))
    alone, method = tiny.build(kind, **keywords), tiny.build(kind, adversary=adversary, **keywords)
    batch, context = tiny.batch()
    expected, _ = alone.loss_terms(alone.make_views(batch, context), batch, context)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    assert np.max(np.abs(views["adversarial"] - batch.images)) == pytest.approx(0.1, abs=1e-6)
    entropy = tiny.cross_entropy(tiny.forward(method, views["adversarial"])[1], batch.labels.numpy())
    np.testing.assert_allclose(terms.pop("ce_adv"), entropy, rtol=1e-4, atol=1e-5)
    assert all(np.array_equal(terms[name], expected[name]) for name in alone.terms)
    assert (alone.passes_per_step, method.passes_per_step) == passes


def test_nothing_is_differentiated_through_the_choice():
    """The weights move as if the views had been given, and a delayed term does not move them at all."""
    batch, _ = tiny.batch()
    method, unweighted = (
        tiny.build(FCL, perturbation=SOME),
        tiny.build(FCL, perturbation=SOME, term_weights={"feature_contrast": 0.0}),
    )
    ce = tiny.build(
        FCL, perturbation=SOME, term_weights={"feature_contrast": lambda step: tf.where(step < 5, 0.0, 1.0)}
    )
    for trained in (method, unweighted, ce):
        trained.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        trained.train_step(batch)
    for first, other in zip(unweighted.trainable_variables, ce.trainable_variables, strict=True):
        np.testing.assert_array_equal(first, other)
    changed = zip(method.trainable_variables, unweighted.trainable_variables, strict=True)
    assert any(np.any(first.numpy() != other.numpy()) for first, other in changed)


def test_utility_is_not_measured_with_synchronised_statistics_of_encoder_or_head():
    batch, context = tiny.batch()
    plain = [keras.layers.Flatten(), keras.layers.Dense(4)], [keras.layers.Dense(3)]
    for number in (0, 1):
        parts = [list(layers) for layers in plain]
        parts[number].append(keras.layers.BatchNormalization(synchronized=True))
        method = FCL(*map(keras.Sequential, parts), mode="train", perturbation=SOME)
        method.build((None, *batch.images.shape[1:]))
        with pytest.raises(ValueError, match="Batch-norm mode 'train' cannot gather"):
            method.make_views(batch, context)


# ------------------------------------------------------------------------------------------------- sentences

WORDS, LENGTH = 9, 6
VECTORS = np.random.default_rng(7).normal(size=(WORDS, LENGTH, tiny.FEATURES))


@keras.saving.register_keras_serializable(package="tests")
class BagOfPlacedWords(keras.Model):
    """tanh of the sum of a vector by word and place."""

    def call(self, tokens, training=None):
        vectors = tf.gather_nd(tf.constant(VECTORS, tf.float32), tf.stack([tokens, tokens * 0 + range(LENGTH)], -1))
        return tf.tanh(tf.reduce_sum(tf.where(tokens[..., None] != 0, vectors, 0.0), axis=1))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], tiny.FEATURES)


def embedded(sentence):
    return np.tanh(sum((VECTORS[word, position] for position, word in enumerate(sentence)), np.zeros(tiny.FEATURES)))


def test_of_sentences_the_terms_are_those_of_the_paper_too():
    """Eq. 6 on removals chosen one by one; no choice hangs on rounding."""
    head = tiny.parts()[1]
    objective = FeatureContrast(temperature=TEMPERATURE, scale="mean")
    method = FCL(BagOfPlacedWords(), head, perturbation=TokenRemoval(fraction=0.3), objective=objective)
    method.build((None, LENGTH))
    generator = np.random.default_rng(1)
    rows = [generator.integers(1, WORDS, length).tolist() for length in (6, 5, 6, 1, 3, 2, 4)]
    labels = np.array([0, 1, 2, 0, 1, 2, 0], np.int32)
    tokens = tf.constant([[*row, *[0] * (LENGTH - len(row))] for row in rows])
    kernel, bias = (variable.numpy().astype(np.float64) for variable in head.variables)

    def cross_entropy(sentence, label):
        return tiny.cross_entropy(embedded(sentence)[None] @ kernel + bias, np.array([label]))[0]

    copies = {"least": [], "most": []}
    for row, label in zip(rows, labels, strict=True):
        shorter = [row[:position] + row[position + 1 :] for position in range(len(row))]
        utility = np.array([abs(cross_entropy(row, label) - cross_entropy(variant, label)) for variant in shorter])
        count = min(max(round(0.3 * len(row)), 1), len(row) - 1)
        for name, order in (("least", np.argsort(utility)), ("most", np.argsort(-utility))):
            copies[name].append([word for position, word in enumerate(row) if position not in order[:count]])
    batch = Batch(tokens, tf.constant(labels), tf.range(7, dtype=tf.int64), {})
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), batch.index)
    views = method.make_views(batch, context)
    for name, expected in copies.items():
        assert [[word for word in row if word] for row in views[name].numpy().tolist()] == expected
    assert views["usable"].numpy().tolist() == [1, 1, 1, 0, 1, 1, 1]
    terms, _ = method.loss_terms(views, batch, context)
    clean, least, most = (np.array(list(map(embedded, part))) for part in (rows, copies["least"], copies["most"]))
    expected = feature_contrast.contrast(clean, least, most, views["usable"].numpy(), TEMPERATURE)
    np.testing.assert_allclose(terms["feature_contrast"], expected, rtol=2e-5)
    assert method.passes_per_step == 1 + 2 + LENGTH // 3

"""SimCLR and SupCon against the papers' sums, and what the contrastive methods share."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import self_supervised as oracle
from tfrobust import saving
from tfrobust.augment.noise import AddGaussian
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.losses.gradient_penalty import Tikhonov
from tfrobust.methods.self_supervised import embedding_deviation
from tfrobust.methods.simclr import SimCLR
from tfrobust.methods.supcon import SupCon
from tfrobust.models.heads import LinearHead, LinearProjection
from tfrobust.models.projection import ProjectionHead
from tfrobust.ops import randomness
from tfrobust.pairs import masks, selection
from tfrobust.pairs.false_negatives import IFND, AdaptiveFNC
from tfrobust.structs import Batch, Context

COUNT = 7
LABELS = np.array([0, 1, 1, 2, 0, 1, 3], np.int32)  # 2 and 3 have no other image of their class


def projections(seed=0, views=2):
    return np.random.default_rng(seed).normal(size=(views, COUNT, 5)).astype(np.float32)


def contrast(cls, vectors, *, labels=LABELS, features=None, **keywords):
    method = cls(battery.encoder(), LinearHead(4), **keywords)
    rows = tf.range(COUNT, dtype=tf.int64)
    batch = Batch(tf.zeros([COUNT, *battery.IMAGE_SHAPE]), tf.constant(labels), rows, {})
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    return method.contrast([tf.constant(z) for z in vectors], context, batch, features=features)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("itself", [False, True])
def test_simclr_is_equation_1(temperature, itself):
    vectors = projections()
    expected = oracle.nt_xent(vectors, temperature, with_itself=itself)
    given = {"temperature": temperature, "self_in_denominator": itself}
    mean, _ = contrast(SimCLR, vectors, **given)
    np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=2e-6)  # over 2N anchors, once averaged over images
    doubled, _ = contrast(SimCLR, vectors, scale="sum", **given)
    np.testing.assert_allclose(doubled, expected.sum(axis=0), rtol=2e-6)


def test_more_views_attract_each_other():
    vectors = projections(views=3)
    value, _ = contrast(SimCLR, vectors)
    np.testing.assert_allclose(value, oracle.nt_xent(vectors, 0.5).mean(axis=0), rtol=2e-6)


def test_supcon_is_equation_2():
    vectors = projections(1)
    value, _ = contrast(SupCon, vectors)
    np.testing.assert_allclose(value, oracle.sup_con(vectors, LABELS, 0.1).mean(axis=0), rtol=2e-6)
    alone, _ = contrast(SupCon, vectors, labels=np.arange(COUNT, dtype=np.int32), temperature=0.5)
    np.testing.assert_allclose(alone, contrast(SimCLR, vectors)[0], rtol=2e-6)  # every image its own class


@pytest.mark.parametrize(("itself", "expected"), [(False, 2 * COUNT - 1), (True, 2 * COUNT)])
def test_identical_embeddings_give_the_logarithm_of_the_candidates(itself, expected):
    value, observed = contrast(SimCLR, np.ones([2, COUNT, 5], np.float32), self_in_denominator=itself)
    np.testing.assert_allclose(value, np.log(expected), rtol=1e-6)
    np.testing.assert_allclose(observed["embedding_deviation"], 0.0, atol=1e-7)


def test_views_that_agree_and_images_that_oppose():
    """One-hot images, both views alike, t = 1: -log( e / (e + 2 (n - 1)) )."""
    one_hot = np.stack([np.eye(COUNT, dtype=np.float32)] * 2)
    value, _ = contrast(SimCLR, one_hot, temperature=1.0)
    np.testing.assert_allclose(value, np.log1p(2 * (COUNT - 1) / np.e), rtol=1e-6)


def test_the_spread_of_embeddings():
    vectors = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
    assert float(embedding_deviation(tf.constant(vectors * 3.0))) == pytest.approx(1 / 4, rel=0.01)


@pytest.mark.parametrize("features", ["projection", "embedding"])
def test_false_negatives_leave_the_denominator_and_are_counted(features):
    vectors = projections(2)
    near = np.stack([np.eye(4, dtype=np.float32)[LABELS]] * 2)  # same label: cosine 1, else 0
    compared = {"features": [tf.constant(z) for z in near]} if features == "embedding" else {}
    shown = vectors if compared else near
    rule = AdaptiveFNC(threshold=0.5, features=features)
    value, observed = contrast(SimCLR, shown, false_negatives=rule, **compared)
    stacked = tf.concat(list(shown), axis=0)
    tags = masks.join(*(masks.tag(tf.range(COUNT), view=view, label=LABELS) for view in (0, 1)))
    pairs = selection.sample_ids(tags, tags)
    kept = pairs._replace(negative=pairs.negative & ~masks.same_label(tags, tags))
    by_hand = masked_contrastive(stacked, stacked, kept, temperature=0.5)
    np.testing.assert_allclose(value, np.mean(np.split(by_hand, 2), axis=0), rtol=1e-6)
    assert not np.allclose(value, contrast(SimCLR, shown)[0])
    np.testing.assert_array_equal(observed["false_negatives_found"], 1.0)
    np.testing.assert_array_equal(observed["true_negatives_removed"], 0.0)


def test_pseudo_labels_are_looked_up_by_the_index_of_the_image():
    method = SimCLR(battery.encoder(), LinearHead(4), false_negatives=IFND(clusters=2), examples=20)
    method.build((None, *battery.IMAGE_SHAPE))
    assert method.pseudo_labels.numpy().tolist() == [-1] * 20
    method.pseudo_labels.assign(np.arange(20) // 10)
    index = np.array([0, 19, 5, 12, 13, 1, 2])
    vectors = [tf.constant(z) for z in projections(4)]
    rows = tf.range(COUNT, dtype=tf.int64)
    batch = Batch(tf.zeros([COUNT, 8, 8, 1]), tf.constant((index // 10).astype(np.int32)), tf.constant(index), {})
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    _, observed = method.contrast(vectors, context, batch, features=vectors)
    np.testing.assert_array_equal(observed["false_negatives_found"], 1.0)
    np.testing.assert_array_equal(observed["true_negatives_removed"], 0.0)


def test_the_probe_teaches_the_head_alone():
    method = battery.build("simclr")
    images, labels = (tf.constant(part) for part in battery.data())
    rows = tf.range(len(labels), dtype=tf.int64)
    batch, context = Batch(images, labels, rows, {}), Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    views = method.make_views(batch, context)
    with tf.GradientTape(persistent=True) as tape:
        terms, _ = method.loss_terms(views, batch, context)
        sums = {name: tf.reduce_sum(terms[name]) for name in method.terms}
    parts = {"encoder": method.encoder, "projection": method.projection, "head": method.head}
    learns = {
        (term, name): any(g is not None for g in tape.gradient(value, part.trainable_variables))
        for term, value in sums.items()
        for name, part in parts.items()
    }
    assert {pair for pair, has in learns.items() if has} == {
        ("contrastive", "encoder"),
        ("contrastive", "projection"),
        ("probe", "head"),
    }


@pytest.mark.parametrize("mode", ["exact", "finite_difference"])
def test_a_penalty_does_not_teach_the_encoder_the_labels(mode):
    images, labels = battery.data()
    encoders = []
    for given in (labels, labels[::-1].copy()):
        keras.utils.set_random_seed(0)
        penalty = Tikhonov(form="batch", mode=mode)
        method = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT, penalty=penalty)
        method.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        logs = method.train_step((images, given))
        assert float(logs["tikhonov"]) > 0
        encoders.append(method.encoder.get_weights())
    assert not np.array_equal(labels, labels[::-1])
    for one, other in zip(*encoders, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_a_probe_it_trains_without_labels(tmp_path):
    method = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT, probe=False)
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(keras.optimizers.SGD(0.05), jit_compile=False)
    images, _ = battery.data()
    head, encoder = method.head.get_weights(), method.encoder.get_weights()
    batch = Batch(tf.constant(images), None, tf.range(len(images), dtype=tf.int64), {})
    logs = method.train_step(batch)
    assert set(logs) == {"loss", "contrastive", "embedding_deviation"} and method.terms == ("contrastive",)
    np.testing.assert_array_equal(head[0], method.head.get_weights()[0])
    assert not np.array_equal(encoder[0], method.encoder.get_weights()[0])
    saving.save(method, tmp_path / "method.keras")
    assert len(saving.load(tmp_path / "method.keras").trainable_variables) == len(method.trainable_variables)


def test_each_view_can_have_an_augmentation_of_its_own():
    views = (battery.SHIFT, AddGaussian(deviation=0.5))
    method = SimCLR(battery.encoder(), LinearHead(3), views=views)
    images, key = tf.constant(battery.data()[0]), randomness.make_key(3)
    made = method.host_views(images, key)
    for (name, view), own in zip(made.items(), views, strict=True):
        np.testing.assert_array_equal(view, own(images, randomness.fold(key, name)))
    same = SimCLR(battery.encoder(), LinearHead(3), views=battery.SHIFT).host_views(images, key)
    assert not np.array_equal(same["view_1"], same["view_2"])  # two draws


def test_a_linear_projection_will_do_and_batch_norm_is_synchronised_with_the_encoder_s():
    linear = SimCLR(battery.encoder(), LinearHead(3), projection=LinearProjection(4))
    linear.build((None, *battery.IMAGE_SHAPE))
    assert linear.projected_dim == 4 and linear.project(tf.ones([2, 5]), True).shape == (2, 4)
    head = ProjectionHead((6,), dim=4, normalization="hidden")
    method = SimCLR(battery.encoder(synchronized=True), LinearHead(3), projection=head)
    method.build((None, *battery.IMAGE_SHAPE))
    assert head.synchronized and all(norm.synchronized for norm in head.chain[1].norms)


def test_temperature_follows_a_schedule():
    vectors = projections(5)
    falling = keras.optimizers.schedules.PolynomialDecay(0.5, 10, end_learning_rate=0.1)
    np.testing.assert_allclose(
        contrast(SimCLR, vectors, temperature=falling)[0], contrast(SimCLR, vectors)[0], rtol=1e-6
    )


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


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"temperature": 0.0}, "SimCLR.temperature is 0.0"),
        ({"scale": "paper"}, "SimCLR.scale is 'paper'"),
        ({"views": (battery.SHIFT,)}, "SimCLR.views has 1 augmentations"),
        ({"forward": "both"}, "forward is 'both'"),
        ({"false_negatives": IFND()}, "IFND needs a pseudo-label of each training image"),
    ],
)
def test_wrong_arguments_are_named(keywords, message):
    with pytest.raises(ValueError, match=message):
        SimCLR(battery.encoder(), LinearHead(3), **keywords).build((None, *battery.IMAGE_SHAPE))


def test_what_supcon_refuses():
    parts = battery.encoder(), LinearHead(3)
    with pytest.raises(ValueError, match="SupCon.base_temperature is 0"):
        SupCon(*parts, base_temperature=0.0)
    with pytest.raises(ValueError, match="no false_negatives"):
        SupCon(*parts, false_negatives=AdaptiveFNC())


def test_a_probe_without_labels_is_refused():
    images, _ = battery.data()
    batch = Batch(tf.constant(images), None, tf.range(len(images), dtype=tf.int64), {})
    with pytest.raises(ValueError, match="probe=False trains without"):
        battery.build("simclr").train_step(batch)

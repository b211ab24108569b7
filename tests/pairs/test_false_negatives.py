import functools

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import false_negatives as oracle
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.ops.schedules import LinearRamp
from tfrobust.pairs import masks, selection
from tfrobust.pairs.false_negatives import FNC, IFND, AdaptiveFNC, FilteredMasks, detection

COUNT, FEATURES, CLASSES = 9, 4, 3
PSEUDO_LABELS = np.array([0, 1, 1, -1, 0, 2, -1, 0, 1])
# Transformer -> what the loops suspect of anchor (i, view).
CASES = {
    "fnc": (FNC(threshold=0.4, top_k=5), functools.partial(oracle.fnc, threshold=0.4, top_k=5, combine="intersection")),
    **stored.table(globals(), "cases"),
    **{
        f"adaptive_{views}": (
            AdaptiveFNC(threshold=0.3, key_views=views),
            functools.partial(oracle.adaptive, threshold=0.3, key_views=views),
        )
        for views in ("each", "any", "all")
    },
}
CANCELLING = ("adaptive_each", "adaptive_any", "fnc_union", "ifnd")
TRANSFORMERS = {name: transformer for name, (transformer, _) in CASES.items()}


def drawn(seed=0, views=2):
    """Features [views, b, d] in loose clusters, and their classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, COUNT)
    centres = generator.normal(size=(CLASSES, FEATURES))
    return (centres[labels] + generator.normal(size=(views, COUNT, FEATURES))).astype(np.float32), labels


def filtered(transformer, z, labels, *, step=0, rows=None, order=None):
    views = len(z)
    tags = masks.join(
        *(masks.tag(np.arange(COUNT), view=view, label=labels, prediction=PSEUDO_LABELS) for view in range(views))
    )
    features = np.concatenate(z)
    keys = (tags, features) if order is None else (masks.take(tags, order), features[order])
    if rows is not None:
        tags, features = masks.take(tags, rows), features[rows]
    return FilteredMasks(selection.sample_ids, transformer, tags, keys[0], features, keys[1], step, views)


def as_keys(row):
    return {(int(position) % COUNT, int(position) // COUNT) for position in np.flatnonzero(row)}


@pytest.mark.parametrize("views", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_suspects_are_the_loops(name, views):
    transformer, suspects = CASES[name]
    z, labels = drawn(views=views)
    before, after = filtered(transformer, z, labels).both(tf.range(views * COUNT))
    sizes = []
    for anchor in range(views * COUNT):
        view, i = divmod(anchor, COUNT)
        expected = suspects(z, i, view)
        sizes.append(len(expected))
        removed = before.negative[anchor] & ~after.negative[anchor]
        assert as_keys(removed) == expected
        added = as_keys(after.positive[anchor] & ~before.positive[anchor])
        assert added == (expected if transformer.action == "attract" else set())
    assert 0 < np.mean(sizes), "the case suspects no key"


@pytest.mark.parametrize("name, views", [("fnc", 2), ("fnc", 3), *((name, 2) for name in CANCELLING)])
def test_attraction_gives_the_released_loss_and_cancellation_equation_4(name, views):
    """Suspects attracted are among the positives and in the denominator: google-research/fnc for each anchor."""
    transformer, suspects = CASES[name]
    z, labels = drawn(2 if name in CANCELLING else 1, views)
    features = np.concatenate(z)
    values = masked_contrastive(features, features, filtered(transformer, z, labels), temperature=0.3)
    anchors = [divmod(anchor, COUNT) for anchor in range(views * COUNT)]
    loss = oracle.cancelling_loss if name in CANCELLING else oracle.attracting_loss
    expected = [loss(z, i, view, suspects(z, i, view), 0.3) for view, i in anchors]
    np.testing.assert_allclose(values, expected, rtol=2e-5)


@pytest.mark.parametrize("name", ["fnc", "adaptive_any", "ifnd_attract"])
def test_in_blocks_the_loss_and_its_gradients_are_the_same(name):
    z, labels = drawn(3)
    features = tf.constant(np.concatenate(z))

    def loss(features, block):
        pairs = filtered(TRANSFORMERS[name], z, labels)
        return masked_contrastive(features, features, pairs, temperature=0.2, block_size=block)

    results = []
    for block in (None, 4):
        with tf.GradientTape() as tape:
            tape.watch(features)
            values = tf.function(loss)(features, block)
        results.append((values, tape.gradient(values, features)))
    for dense, blocks in zip(*results, strict=True):
        np.testing.assert_allclose(blocks, dense, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transformer", stored.rows(globals(), "a_threshold_of_one_changes_nothing"))
def test_a_threshold_of_one_changes_nothing(transformer):
    z, labels = drawn()
    z[:] = z[:, :1]  # all features equal, so that rounding puts some cosines at 1 and above
    before, after = filtered(transformer, z, labels).both(tf.range(2 * COUNT))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("name", CASES)
def test_own_views_are_never_touched(name):
    """Also where a rule has them among its negatives."""
    z, labels = drawn()
    pairs = filtered(TRANSFORMERS[name], z, labels)
    everything = tf.ones([2 * COUNT, 2 * COUNT], tf.bool)
    own_views = masks.same_sample(pairs.anchors, pairs.keys).numpy()
    after = pairs.false_negatives(
        masks.PairMasks(~everything, everything), tf.ones([2 * COUNT] * 2), pairs.anchors, pairs.keys, 0
    )
    assert after.negative.numpy()[own_views].all() and not after.positive.numpy()[own_views].any()


@pytest.mark.parametrize("name", CASES)
def test_masks_follow_a_permutation_of_the_keys(name):
    z, labels = drawn(4)
    order = np.random.default_rng(0).permutation(2 * COUNT)
    moved = filtered(TRANSFORMERS[name], z, labels, order=order)(tf.range(2 * COUNT))
    for mask, other in zip(filtered(TRANSFORMERS[name], z, labels)(tf.range(2 * COUNT)), moved, strict=True):
        np.testing.assert_array_equal(mask.numpy()[:, order], other)


@pytest.mark.parametrize("name", CASES)
def test_local_anchors_take_rows_of_the_whole(name):
    """As on a replica: some images' anchors, in all their views, against the keys of all."""
    z, labels = drawn(5)
    mine = np.array([3, 4, 5, 12, 13, 14])
    full = filtered(TRANSFORMERS[name], z, labels)(tf.range(2 * COUNT))
    for part, mask in zip(filtered(TRANSFORMERS[name], z, labels, rows=mine)(tf.range(6)), full, strict=True):
        np.testing.assert_array_equal(part, mask.numpy()[mine])


@pytest.mark.parametrize("name", CASES)
def test_detection_is_the_loops(name, monkeypatch):
    transformer, suspects = CASES[name]
    z, labels = drawn(6)
    expected = oracle.detection(labels, 2, lambda i, view: suspects(z, i, view))
    dense = detection(filtered(transformer, z, labels))
    monkeypatch.setattr(masks, "BLOCK_ELEMENTS", 2 * 2 * COUNT * 5)  # five anchors, and a shorter last block
    compute = tf.function(detection, autograph=False) if name == "fnc" else detection
    for fractions in (dense, compute(filtered(transformer, z, labels))):
        assert list(fractions) == ["false_negatives_found", "true_negatives_removed", "negatives_left"]
        np.testing.assert_allclose(list(fractions.values()), expected, rtol=1e-6)


def test_no_gradient_flows_through_the_features():
    z, labels = drawn()
    features = tf.constant(np.concatenate(z))
    with tf.GradientTape() as tape:
        tape.watch(features)
        tags = filtered(AdaptiveFNC(threshold=0.3), z, labels).keys
        pairs = FilteredMasks(selection.sample_ids, AdaptiveFNC(threshold=0.3), tags, tags, features, features, 0, 2)
        total = tf.reduce_sum(pairs.anchor_features) + tf.reduce_sum(pairs.key_features)
    assert tape.gradient(total, features) is None


@pytest.mark.parametrize("shape", ["PolynomialDecay", "CosineDecay"])
def test_the_threshold_decreases_with_the_step(shape):
    ends = {"end_learning_rate": 0.7} if shape == "PolynomialDecay" else {"alpha": 0.7 / 0.99}
    falling = AdaptiveFNC(threshold=getattr(keras.optimizers.schedules, shape)(0.99, decay_steps=100, **ends))
    z, labels = drawn()
    for step, value in ((0, 0.99), (50, 0.845), (100, 0.7), (1000, 0.7)):
        at = filtered(falling, z, labels, step=tf.constant(step, tf.int64))(tf.range(18))
        fixed = filtered(AdaptiveFNC(threshold=value), z, labels)(tf.range(18))
        np.testing.assert_array_equal(at.negative, fixed.negative)


# ------------------------------------------------------------------------------------------------- pseudo-labels


def clusters(seed=0, count=60):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 5)) + 2 * np.eye(5)[np.arange(count) % 4]


def test_clusters_are_a_fixed_point_of_k_means_on_the_sphere():
    features = clusters()
    labels = IFND(clusters=4).pseudo_labels(features, step=0, seed=1)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    centroids = np.array([unit[labels == cluster].mean(axis=0) for cluster in range(4)])
    for vector, label in zip(unit, labels, strict=True):
        assert np.argmin([np.sum((vector - centroid) ** 2) for centroid in centroids]) == label


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_most_confident_share_is_accepted(share):
    features, temperature = clusters(1), 0.3
    options = {"clusters": 4, "temperature": temperature}
    everything = IFND(**options).pseudo_labels(features, step=0, seed=3)
    ramp = LinearRamp(1.0, length=100)
    accepted = IFND(acceptance=ramp, **options).pseudo_labels(features, step=round(100 * share), seed=3)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    confidence = []
    for vector, label in zip(unit, everything, strict=True):
        weights = []
        for cluster in range(4):
            centroid = unit[everything == cluster].mean(axis=0)
            weights.append(np.exp(oracle.cosine(vector, centroid) / temperature))
        confidence.append(weights[label] / sum(weights))
    chosen = np.argsort(confidence)[len(features) - round(share * len(features)) :]
    expected = np.full(len(features), -1)
    expected[chosen] = everything[chosen]
    np.testing.assert_array_equal(accepted, expected)


def test_pseudo_labels_follow_from_the_seed():
    first, again = (IFND(clusters=6).pseudo_labels(clusters(2), step=0, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, again)

import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from oracles import contrastive as oracle
from tfrobust.keras.losses import PairMasks, masked_contrastive
from tfrobust.ops import similarity as similarities
from tfrobust.pairs import masks, selection

GOLDEN = recordings.arrays("ascl_losses")
CONFIGURATIONS = [name for name in GOLDEN if name.startswith("contrastive/") and not name.endswith("gradient")]
RULES = stored.table(globals(), "rules")
RELEASED = stored.table(globals(), "released")


def two_views(labels, predictions):
    rows = np.arange(len(labels))
    return masks.join(*(masks.tag(rows, view=view, label=labels, prediction=predictions[view]) for view in (0, 1)))


def drawn(seed, count=9, classes=3, features=6):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    predictions = generator.integers(0, classes, (2, count))
    return generator.normal(size=(2, count, features)).astype(np.float32), labels, predictions


@pytest.mark.parametrize("kind", similarities.SIMILARITIES)
@pytest.mark.parametrize("strategy", RULES)
def test_ascl_matches_the_equations(strategy, kind):
    z, labels, predictions = drawn(11)
    tags, stacked = two_views(labels, predictions), z.reshape(-1, z.shape[-1])
    values = masked_contrastive(
        stacked, stacked, masks.ByRows(RULES[strategy], tags, tags), temperature=0.3, similarity=kind
    )
    values = values.numpy()
    expected = oracle.ascl(z, labels, predictions, strategy, 0.3, kind)
    np.testing.assert_allclose(values[: len(labels)] + values[len(labels) :], expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kind", similarities.SIMILARITIES)
def test_any_masks_match_the_definition(kind):
    generator = np.random.default_rng(2)
    anchors, keys = (generator.normal(size=(n, 12)).astype(np.float32) for n in (5, 8))
    positive = generator.random((5, 8)) < 0.3
    negative = (generator.random((5, 8)) < 0.5) & ~positive
    positive[2] = False  # one anchor without positives
    values = masked_contrastive(
        anchors, keys, PairMasks(tf.constant(positive), tf.constant(negative)), temperature=0.07, similarity=kind
    )
    expected = oracle.masked(anchors, keys, positive, negative, 0.07, kind)
    np.testing.assert_allclose(values, expected, rtol=3e-6, atol=3e-6)
    assert values[2] == 0


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_released_code_is_reproduced(name):
    _, distance, form, temperature, rule = name.split("/")
    labels = GOLDEN["input/labels"]
    z = np.concatenate([GOLDEN["input/clean_embedding"], GOLDEN["input/adversarial_embedding"]])
    predictions = [GOLDEN[f"input/{view}_logits"].argmax(-1) for view in ("clean", "adversarial")]
    tags, z = two_views(labels, predictions), tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        embedding = similarities.normalize(z) if form == "normalized" else z
        values = masked_contrastive(
            embedding,
            embedding,
            RELEASED[rule](tags, tags),
            temperature=float(temperature),
            similarity="dot" if distance == "matmul" else distance,
        )
        # Their mean over both anchors' 2N rows is half of eq 3's sum over the anchors, averaged over N.
        mean = tf.reduce_mean(values)
    np.testing.assert_allclose(mean, GOLDEN[name], rtol=2e-6)
    if f"{name}/gradient" in GOLDEN:
        expected = GOLDEN[f"{name}/gradient"]
        error = np.abs(tape.gradient(mean, z).numpy() - expected).max()
        assert error < 1e-5 * np.abs(expected).max()


def test_keys_in_no_mask_do_not_exist():
    generator = np.random.default_rng(4)
    anchors, keys = (generator.normal(size=(n, 3)).astype(np.float32) for n in (4, 6))
    positive, negative = np.zeros((4, 6), bool), np.zeros((4, 6), bool)
    positive[:, 0], negative[:, 1:4] = True, True
    chosen = PairMasks(tf.constant(positive), tf.constant(negative))
    of_numpy = PairMasks(positive, negative)
    before = masked_contrastive(anchors, keys, of_numpy, temperature=0.1, similarity="dot")
    keys[4:] = 1e4 * anchors[:2]
    keys = tf.constant(keys)
    with tf.GradientTape() as tape:
        tape.watch(keys)
        after = masked_contrastive(anchors, keys, chosen, temperature=0.1, similarity="dot")
    np.testing.assert_array_equal(before, after)
    gradient = tape.gradient(after, keys).numpy()
    assert np.isfinite(gradient).all() and not gradient[4:].any()


def test_rows_without_positives_give_zero_and_no_gradient():
    z = tf.constant(np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32))
    for negative in (tf.ones([4, 4], tf.bool), tf.zeros([4, 4], tf.bool)):
        with tf.GradientTape() as tape:
            tape.watch(z)
            values = masked_contrastive(z, z, PairMasks(tf.zeros([4, 4], tf.bool), negative), temperature=0.1)
        np.testing.assert_array_equal(values, np.zeros(4))
        np.testing.assert_array_equal(tape.gradient(values, z), np.zeros([4, 3]))


def value_and_gradients(block_size, kind, graph, shared=False, lazy=True):
    z, labels, predictions = drawn(21, count=10)
    tags = two_views(labels, predictions)
    anchors = tf.constant(z.reshape(-1, z.shape[-1]))
    keys = anchors if shared else tf.constant(z[::-1].reshape(-1, z.shape[-1]))
    temperature = tf.constant(0.2)
    rule = masks.ByRows(selection.LeakedSelection(), tags, tags)
    weights = tf.linspace(0.5, 2.0, 20)

    def compute(anchors, keys, temperature):
        with tf.GradientTape() as tape:
            sources = [anchors, temperature] if shared else [anchors, keys, temperature]
            tape.watch(sources)
            values = masked_contrastive(
                anchors,
                anchors if shared else keys,
                rule if lazy else selection.LeakedSelection()(tags, tags),
                temperature=temperature,
                similarity=kind,
                block_size=block_size,
            )
            total = tf.reduce_sum(weights * values)
        return [values, *tape.gradient(total, sources)]

    compute = tf.function(compute) if graph else compute
    return [tensor.numpy() for tensor in compute(anchors, keys, temperature)]


@pytest.mark.parametrize("block_size, kind, graph, shared, lazy", stored.rows(globals(), "blockwise_equals_dense"))
def test_blockwise_equals_dense(block_size, kind, graph, shared, lazy):
    dense = value_and_gradients(None, kind, False, shared, lazy=False)
    blocks = value_and_gradients(block_size, kind, graph, shared, lazy)
    for first, second in zip(dense, blocks, strict=True):
        np.testing.assert_allclose(first, second, rtol=2e-5, atol=2e-5 * np.abs(first).max())


def test_blockwise_differentiates_twice():
    """A gradient penalty on the loss differentiates its gradient."""
    z, labels, predictions = drawn(5)
    tags = two_views(labels, predictions)
    rule = masks.ByRows(selection.GlobalSelection(), tags, tags)
    stacked = tf.constant(z.reshape(-1, z.shape[-1]))

    @tf.function
    def penalty(block_size):
        with tf.GradientTape() as outer:
            outer.watch(stacked)
            with tf.GradientTape() as inner:
                inner.watch(stacked)
                values = masked_contrastive(stacked, stacked, rule, temperature=0.5, block_size=block_size)
            size = tf.reduce_sum(tf.square(inner.gradient(values, stacked)))
        return outer.gradient(size, stacked)

    np.testing.assert_allclose(penalty(None), penalty(4), rtol=1e-4, atol=1e-4)


def test_the_automatic_block_keeps_dense_sizes_dense(monkeypatch):
    from tfrobust.losses import contrastive

    monkeypatch.setattr(contrastive, "_BLOCK_ELEMENTS", 64)
    automatic = contrastive._automatic_block
    assert automatic(tf.zeros([8, 4]), tf.zeros([8, 4]), "cosine") == 8
    assert automatic(tf.zeros([8, 4]), tf.zeros([16, 4]), "cosine") == 4
    assert automatic(tf.zeros([8, 4]), tf.zeros([8, 4]), "l1") == 2
    blocks = value_and_gradients(None, "cosine", True)
    monkeypatch.undo()
    for first, second in zip(value_and_gradients(None, "cosine", True), blocks, strict=True):
        np.testing.assert_allclose(first, second, rtol=2e-5, atol=2e-5 * np.abs(first).max())


def test_unknown_batch_size_is_traced():
    compute = tf.function(
        lambda z: masked_contrastive(
            z,
            z,
            lambda rows: PairMasks(tf.not_equal(rows[:, None], tf.range(tf.shape(z)[0])), rows[:, None] < 0),
            temperature=1.0,
        ),
        input_signature=[tf.TensorSpec([None, 3])],
    )
    np.testing.assert_allclose(compute(tf.ones([5, 3])), np.log(4) * np.ones(5), rtol=1e-6)

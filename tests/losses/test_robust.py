import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from oracles import robust as oracle
from tfrobust.losses import robust

TERMS = ("local_compactness", "local_smoothness", "global_compactness", "global_smoothness", "confidence")
INPUTS = ("clean_embedding", "clean_logits", "adversarial_embedding", "adversarial_logits")


GOLDEN = recordings.arrays("ascl_losses")


def test_mart_of_two_rows():
    """The figures were computed apart, in float64."""
    clean, adversarial, labels = [[2.0, 1.0, 0.0]], [[0.5, 1.0, 0.0]], [0]
    boosted = robust.boosted_cross_entropy(adversarial, labels)
    weighted = robust.misclassification_aware_kl(clean, adversarial, labels)
    np.testing.assert_allclose(boosted, [1.886259751], rtol=1e-6)
    np.testing.assert_allclose(weighted, [0.090560764], rtol=1e-5)
    np.testing.assert_allclose(boosted, oracle.boosted(adversarial, labels), rtol=1e-6)
    np.testing.assert_allclose(weighted, oracle.doubted(clean, adversarial, labels), rtol=1e-5)
    sure = robust.boosted_cross_entropy([[0.0, 100.0, 0.0]], labels)  # the second logarithm is bounded
    np.testing.assert_allclose(sure, [100 - np.log(1e-4)], rtol=1e-4)


@pytest.mark.parametrize("loss, definition", stored.rows(globals(), "no_gradient_of_mart_is_stopped"))
def test_no_gradient_of_mart_is_stopped(loss, definition):
    """The gradients by both predictions, against central differences in float64."""
    generator = np.random.default_rng(3)
    (p, q), labels = 2 * generator.normal(size=(2, 5, 4)), generator.integers(0, 4, 5)
    sources = [tf.constant(logits, tf.float32) for logits in (p, q)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        value = tf.reduce_sum(loss(*sources, labels))
    gradients = tape.gradient(value, sources, unconnected_gradients="zero")
    expected = np.zeros((2, 5, 4))
    for entry in np.ndindex(expected.shape):
        moved = np.zeros_like(expected)
        moved[entry] = 1e-5
        ends = [np.sum(definition(*(np.stack([p, q]) + sign * moved), labels)) for sign in (1, -1)]
        expected[entry] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-5)


def adr_terms(sources, labels, **options):
    z, logits, z_a, logits_a = sources
    return robust.adversarial_divergence((z, logits), (z_a, logits_a), labels, **options)


def check(name, compute, rtol=3e-6):
    """The mean of the returned values, and its gradients by all four inputs, against the released code's."""
    sources = [tf.constant(GOLDEN[f"input/{source}"]) for source in INPUTS]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        values = compute(sources)
        mean = tf.reduce_mean(values)
    assert values.shape == [len(GOLDEN["input/labels"])]
    np.testing.assert_allclose(mean, GOLDEN[f"robust/{name}"], rtol=rtol)
    gradients = tape.gradient(mean, sources, unconnected_gradients="zero")
    for source, gradient in zip(INPUTS, gradients, strict=True):
        if f"robust/{name}/{source}" in GOLDEN:
            expected = GOLDEN[f"robust/{name}/{source}"]
            np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("term", TERMS)
def test_adr_reproduces_the_released_code(term):
    check(term, lambda sources: adr_terms(sources, GOLDEN["input/labels"])[term])


def test_vat_trades_and_pair_weights_reproduce_the_released_code():
    check("vat", lambda s: robust.virtual_adversarial(s[1], s[3], divide_by_classes=True))
    check("trades", lambda s: robust.trades_kl(s[1], s[3]))
    labels = tf.constant(GOLDEN["input/labels"])
    np.testing.assert_allclose(robust.pair_weights(labels, labels), GOLDEN["robust/pair_weights"], rtol=2e-5)


def drawn(count=7, classes=4, features=5):
    generator = np.random.default_rng(13)
    z, z_a = generator.normal(size=(2, count, features)).astype(np.float32)
    logits, logits_a = 2 * generator.normal(size=(2, count, classes)).astype(np.float32)
    return (z, logits), (z_a, logits_a), generator.integers(0, classes, count)


def test_adr_matches_the_loops():
    clean, adversarial, labels = drawn()
    terms = robust.adversarial_divergence(clean, adversarial, labels)
    expected = oracle.adr(clean, adversarial, labels)
    assert tuple(terms) == TERMS
    for name, values in terms.items():
        np.testing.assert_allclose(np.mean(values), expected[name], rtol=3e-6, err_msg=name)


def test_kl_matches_the_loops():
    (_, p), (_, q), _ = drawn()
    expected = oracle.kl(p, q)
    # The smallest divergence is a sum of terms that cancel: float32 leaves it good to about 1e-7 nats.
    for values, scale in (
        (robust.trades_kl(p, q), 1),
        (robust.virtual_adversarial(p, q), 1),
        (robust.virtual_adversarial(p, q, divide_by_classes=True), 4),
    ):
        np.testing.assert_allclose(values, expected / scale, rtol=2e-6, atol=1e-7)
    assert np.abs(expected - oracle.kl(q, p)).max() > 0.1  # the direction matters


def test_gathered_keys_give_the_global_mean():
    """Two halves of a batch, each against the keys of both, average to the whole."""
    (z, logits), (z_a, logits_a), labels = drawn(count=8)
    full = robust.adversarial_divergence((z, logits), (z_a, logits_a), labels)
    halves = [
        robust.adversarial_divergence(
            (z[part], logits[part]), (z_a[part], logits_a[part]), labels[part], keys=(z, logits, labels)
        )
        for part in (slice(0, 4), slice(4, 8))
    ]
    for name in TERMS:
        np.testing.assert_allclose(np.concatenate([half[name] for half in halves]), full[name], rtol=1e-6, err_msg=name)


def test_equal_labels_weigh_one_and_need_no_normalization():
    weights = robust.pair_weights(tf.constant([1, 1, 0]), tf.constant([1, 1]))
    np.testing.assert_allclose(weights, [[1, 1], [1, 1], [1 - 1 / 0.99] * 2], rtol=1e-5)
    for scale in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="scale"):
            robust.pair_weights(tf.constant([0]), tf.constant([0]), scale=scale)

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.ops import batch_checks

LABELS = np.array([0, 2, 1, 2])
ROWS = np.eye(3)[LABELS]


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype("float32"), LABELS[:, None], ROWS, ROWS.astype("int64")])
def test_ids_and_one_hot_rows_are_ids_whatever_of_their_shape_is_known(labels):
    np.testing.assert_array_equal(batch_checks.class_ids(labels, "it"), LABELS)
    for shape in ([None] * labels.ndim, labels.shape):
        traced = tf.function(batch_checks.class_ids, autograph=False).get_concrete_function(
            tf.TensorSpec(shape, labels.dtype), "it"
        )
        np.testing.assert_array_equal(traced(tf.constant(labels)), LABELS)


@pytest.mark.parametrize("labels, message", stored.rows(globals(), "what_is_no_class_is_refused_eagerly_and_in_a"))
def test_what_is_no_class_is_refused_eagerly_and_in_a_graph(labels, message):
    with pytest.raises(ValueError, match=message):
        batch_checks.class_ids(labels, "it", "; mix later")
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        tf.function(batch_checks.class_ids, autograph=False)(tf.constant(labels), "it", "; mix later")


def test_pixels_lie_in_their_bounds_up_to_rounding():
    inside = tf.constant([[0.0, 1.000001]])
    batch_checks.check_pixels(inside, "it")
    batch_checks.check_pixels(255 * inside, "it", 0.0, 255.0)
    for bad in (255 * inside, -inside, inside * np.nan):
        with pytest.raises(ValueError, match=r"it takes float pixels in \[0, 1\].*divide bytes by 255"):
            batch_checks.check_pixels(bad, "it")
        with pytest.raises(tf.errors.InvalidArgumentError, match="divide bytes by 255"):
            tf.function(batch_checks.check_pixels, autograph=False)(bad, "it")
    with pytest.raises(ValueError, match="got uint8; divide bytes by 255"):
        batch_checks.check_pixels(tf.constant([1], tf.uint8), "it")
    with pytest.raises(ValueError, match="got uint8; cast bytes to float32 and scale"):
        batch_checks.check_pixels(tf.constant([1], tf.uint8), "it", 0.0, 255.0)


@pytest.mark.parametrize("bad", [-1, 7, 10**6])
def test_token_ids_outside_the_vocabulary_are_named(bad):
    tokens = tf.constant([[3, 6, 0], [1, bad, 0]])
    traced = tf.function(batch_checks.known_tokens, autograph=False)
    for function in (batch_checks.known_tokens, traced):
        with pytest.raises(ValueError, match=f"^it takes the token ids of its vocabulary, 0 to 6; one is {bad}"):
            with batch_checks.plain_refusals():
                function(tokens, 7, "it")
        np.testing.assert_array_equal(function(tokens[:1], 7, "it"), tokens[:1])

import numpy as np
import tensorflow as tf

from tfrobust.ops.gradients import finite, input_gradient


def test_values_and_gradients_of_known_functions_of_a_nest_and_in_half_precision():
    images = tf.constant([[1.0, 2.0], [3.0, -1.0]])
    values, gradient = input_gradient(lambda x: tf.reduce_sum(x**3, axis=1), images)
    np.testing.assert_allclose(values, [9.0, 26.0])
    np.testing.assert_allclose(gradient, 3 * images.numpy() ** 2)
    views = {"a": tf.constant([[2.0]]), "b": tf.constant([[5.0]])}
    objective = lambda v: (v["a"][:, 0] * v["b"][:, 0], "logits")  # noqa: E731
    values, gradient, auxiliary = input_gradient(objective, views, has_auxiliary=True)
    assert auxiliary == "logits" and values.numpy() == [10.0]
    assert gradient["a"].numpy() == [[5.0]] and gradient["b"].numpy() == [[2.0]]
    objective = lambda x: tf.reduce_sum(tf.cast(x, tf.float16) ** 2, axis=1)  # noqa: E731
    values, gradient = input_gradient(objective, tf.constant([[0.5]]))
    assert values.dtype == gradient.dtype == tf.float32


def test_the_gradient_does_not_depend_on_the_batch_size():
    images = tf.constant(np.random.default_rng(0).random([5, 3]), tf.float32)
    objective = lambda x: tf.reduce_sum(tf.sin(x), axis=1)  # noqa: E731
    np.testing.assert_array_equal(input_gradient(objective, images)[1][:1], input_gradient(objective, images[:1])[1])


def test_finite_repairs_what_is_broken_and_leaves_the_rest():
    gradient = tf.constant([[1.0, float("nan")], [float("-inf"), 2e-30], [3.0, -4.0]])
    np.testing.assert_array_equal(finite(gradient), np.float32([[1, 0], [-1e30, 2e-30], [3, -4]]))
    large = tf.constant([[3e38, 3e38]])  # whose sum overflows
    assert np.all(np.isfinite(finite(large))) and finite(gradient[2:]).numpy().tolist() == [[3.0, -4.0]]

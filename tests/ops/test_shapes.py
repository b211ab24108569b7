import tensorflow as tf

from tfrobust.ops import frames
from tfrobust.ops.shapes import batch_size, by_example, shape_of


def test_what_is_known_stays_static():
    shapes = []

    def look(images):
        shapes.append((batch_size(images), *shape_of(images)[1:]))
        return tf.fill(shape_of(images), 1.0) * by_example(tf.range(1.0, batch_size(images) + 1), images)

    for count in (3, None):
        scaled = tf.function(look, [tf.TensorSpec([count, 2, 1])])(tf.zeros([3, 2, 1]))
        assert scaled.numpy().tolist() == [[[1], [1]], [[2], [2]], [[3], [3]]]
    assert shapes[0] == (3, 2, 1) and tf.is_tensor(shapes[1][0]) and shapes[1][1:] == (2, 1)
    assert by_example(2.0, tf.zeros([3, 2])).shape == (1, 1)


def test_the_values_of_frames_are_in_the_order_of_the_frames():
    values = tf.constant([1.0, 2.0])
    clips = tf.tile(by_example(values, tf.zeros([2, 3, 1, 1, 1])), [1, 3, 1, 1, 1])
    assert tf.reduce_all(frames.per_frame(values, clips) == tf.reshape(frames.split(clips), [-1]))

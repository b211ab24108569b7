"""A tiny encoder of sentences: the mean of the tokens' vectors, padding left out."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tests")
class BagOfWords(keras.Model):
    """Tokens int32 [b, length] -> [b, width]."""

    def __init__(self, vocabulary_size=170, width=8, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size, self.width = vocabulary_size, width
        self.vectors = keras.layers.Embedding(vocabulary_size, width)

    def build(self, input_shape):
        self.vectors.build(input_shape)
        self.built = True

    def call(self, tokens, training=None):
        assert tokens.dtype == tf.int32
        here = tf.cast(tokens > 0, tf.float32)[..., None]
        return tf.reduce_sum(self.vectors(tokens) * here, axis=1) / tf.reduce_sum(here, axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.width)

    def get_config(self):
        return {"vocabulary_size": self.vocabulary_size, "width": self.width}

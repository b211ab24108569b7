import keras
import pytest
import tensorflow as tf

from tfrobust.commands.failures import one_line
from tfrobust.errors import Failure, InputError, RefusedByGate


@pytest.mark.parametrize("kind", [InputError, Failure, RefusedByGate])
def test_a_message_has_at_most_300_characters(kind):
    assert str(kind("a sentence.")) == "a sentence."
    assert str(kind("x" * 200 + "y" * 200)) == "x" * 200 + "y" * 100


class Refusing(keras.layers.Layer):
    def call(self, inputs):
        raise InputError(f"the inputs are wrong. {'x' * 240}")


def test_the_sentence_survives_what_keras_and_tensorflow_write_around_it():
    layer = Refusing()
    for call in (layer, tf.function(layer)):
        with pytest.raises(InputError) as caught:
            call(tf.zeros([1, 2]))
        assert one_line(caught.value) == f"the inputs are wrong. {'x' * 240}"

"""Check what models refuse, and the messages."""

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrobust.keras.models import BranchedBatchNormalization, DigitsCNN

SMALL = {"patch_size": 2, "width": 8, "depth": 5, "heads": 2}
NAMES = {"PICTURE": np.zeros((2, 8, 8, 1), np.float32), "Norm": BranchedBatchNormalization, "SMALL": SMALL}
NAMES |= {"SHAPE": (None, 6, 8, 3)}


def functional(outputs=lambda maps: maps):
    inputs = keras.Input((None, None, 3))
    return keras.Model(inputs, outputs(keras.layers.Conv2D(4, 3)(inputs)))


def sequence(maps):
    return keras.layers.Reshape((-1, 4))(maps)


class SubclassedBackbone(keras.Model):
    """Say nothing of a shape before it is called."""


NAMES |= {"functional": functional, "sequence": sequence, "SubclassedBackbone": SubclassedBackbone}


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, **NAMES)


def test_a_branch_that_is_a_tensor_of_the_graph_is_refused():
    encoder = DigitsCNN(branches=2)
    encoder.build((None, 8, 8, 1))
    with pytest.raises(ValueError, match="known before tracing"):
        tf.function(lambda x, k: encoder(x, branch=k))(NAMES["PICTURE"], tf.constant(1))

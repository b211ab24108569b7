"""A TPU compiles the whole training step with XLA, or refuses it: so does the CPU here, for every method."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery

# Rows whose step XLA cannot compile -> why. Nobody is here now; a row comes with its reason or not at all.
EXCEPTIONS: dict[str, str] = {}

# What a TPU has no kernel for, or what leaves the device. Random numbers must be stateless.
FORBIDDEN = re.compile(
    r"PyFunc|EagerPyFunc|NumpyFunction|^Where$|Unique|BooleanMask|DynamicPartition|NonMaxSuppression|^Random|Gamma"
    r"|Decode(Jpeg|Png|Image)|^String|LookupTable|TensorArrayGatherV3Ragged|Bincount"
)
STATELESS = {"RandomIndexShuffle"}


def operations(function) -> set[str]:
    """The types of all operations of a concrete function and of those it calls."""
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *(body.node_def for body in graph.library.function)]
    return {node.op for nodes in bodies for node in nodes}


def dynamic_results(function) -> list[str]:
    """The operations of the step itself whose results have a shape that is not known when it is traced."""
    made = function.graph.get_operations()
    return [op.name for op in made for out in op.outputs if out.dtype != tf.resource and not known(out)]


def known(tensor) -> bool:
    return tensor.dtype == tf.variant or tensor.shape.is_fully_defined()


@pytest.mark.slow
@pytest.mark.parametrize("row", battery.ROWS)
def test_the_training_step_compiles_and_gives_what_the_plain_one_gives(row):
    if row in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[row])
    images, labels = (tf.constant(part) for part in battery.data())
    compiled, plain = (battery.build(row, optimizer=keras.optimizers.SGD(0.05)) for _ in range(2))
    logs = tf.function(compiled.train_step, autograph=False, jit_compile=True)((images, labels))
    wanted = plain.train_step((images, labels))
    assert int(compiled.step) == 1
    # The first term sees the clean images alone. Sign steps on kinks may turn rounding into other adversaries.
    first = plain.terms[0]
    assert float(logs[first]) == pytest.approx(float(wanted[first]), rel=1e-3)
    assert all(np.isfinite(float(value)) for value in logs.values())


@pytest.mark.parametrize("row", battery.ROWS)
def test_the_training_step_has_static_shapes_and_no_operation_that_leaves_the_device(row):
    method = battery.build(row)
    images, labels = battery.data()
    step = tf.function(method.train_step, autograph=False).get_concrete_function(
        (tf.TensorSpec(images.shape), tf.TensorSpec(labels.shape, tf.int32))
    )
    assert {op for op in operations(step) if FORBIDDEN.search(op)} - STATELESS == set()
    assert dynamic_results(step) == []


def test_the_search_for_operations_finds_what_it_looks_for():
    def inner(x):
        rare = tf.unique(tf.py_function(lambda y: y, [x], tf.float32))[0]
        return tf.boolean_mask(rare, rare > 0) + tf.random.normal([])

    function = tf.function(lambda x: tf.function(inner)(x)).get_concrete_function(tf.TensorSpec([3]))
    found = {op for op in operations(function) if FORBIDDEN.search(op)}
    assert {"EagerPyFunc", "Unique", "Where", "RandomStandardNormal"} <= found
    assert dynamic_results(function) != []

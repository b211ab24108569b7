"""A TPU compiles the whole training step with XLA, or refuses it: so does the CPU here, for every method."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery

# Every step is traced and translated; these are also compiled for this processor and run, which takes far longer.
RUN = ("supervised", "adversarial_training", "simclr")

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
    all_operations = function.graph.get_operations()
    return [
        op.name for op in all_operations for out in op.outputs if out.dtype != tf.resource and not has_static_shape(out)
    ]


def has_static_shape(tensor) -> bool:
    return tensor.dtype == tf.variant or tensor.shape.is_fully_defined()


@pytest.mark.parametrize("row", battery.ROWS)
def test_the_training_step_is_static_stays_on_the_device_and_compiles(row):
    method = battery.build(row, optimizer=keras.optimizers.SGD(0.05))
    images, labels = (tf.constant(part) for part in battery.data(row=row))
    step = tf.function(method.train_step, autograph=False, jit_compile=True)
    traced = step.get_concrete_function((images, labels))
    assert {op for op in operations(traced) if FORBIDDEN.search(op)} - STATELESS == set()
    assert dynamic_results(traced) == []
    assert "ENTRY" in translated(step, (images, labels))
    if row in RUN:
        expected = battery.build(row).train_step((images, labels))
        logs = traced((images, labels))
        assert int(method.step) == 1
        assert all(np.isfinite(float(value)) for value in logs.values()), logs
        # Not closer: on the CPU, XLA draws other random numbers than TensorFlow from the same keys.
        first = method.terms[0]
        assert float(logs[first]) == pytest.approx(float(expected[first]), rel=0.05)


def translated(function, *arguments) -> str:
    """The program that XLA compiles for a device; it is made of nothing else, whatever the device."""
    return function.experimental_get_compiler_ir(*arguments)(stage="hlo")


def test_the_search_for_operations_finds_what_it_looks_for():
    def inner(x):
        rare = tf.unique(tf.py_function(lambda y: y, [x], tf.float32))[0]
        return tf.boolean_mask(rare, rare > 0) + tf.random.normal([])

    function = tf.function(lambda x: tf.function(inner)(x)).get_concrete_function(tf.TensorSpec([3]))
    forbidden = {op for op in operations(function) if FORBIDDEN.search(op)}
    assert {"EagerPyFunc", "Unique", "Where", "RandomStandardNormal"} <= forbidden
    assert dynamic_results(function) != []
    with pytest.raises(Exception, match="EagerPyFunc|XLA"):
        translated(tf.function(lambda x: inner(x), jit_compile=True), tf.zeros([3]))

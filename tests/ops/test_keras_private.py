"""Each private name of Keras that the library uses does what its function says; keras 3.15.0 and 3.15.1 have them all.

A release that fails here needs another way to the same thing in `tfrobust/ops/keras_private.py`, and nowhere else.
"""

import pathlib
import re
import runpy

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

import tfrobust
from tfrobust.errors import InputError
from tfrobust.ops import keras_private

IMAGES = np.ones((2, 4), "float32")


class Holder(keras.layers.Layer):
    """A layer that holds others in a list, as branches are, and builds them in its call."""

    def __init__(self):
        super().__init__(name="holder")
        self.parts = [keras.layers.Dense(3, name="inner", activity_regularizer="l2")]

    def call(self, inputs):
        return self.parts[0](inputs)


def _functional():
    inputs = keras.Input((4,), name="start")
    shared = keras.layers.Dense(4, name="shared")
    return keras.Model(inputs, keras.layers.Add(name="sum")([shared(shared(inputs)), inputs]))


def test_another_backend_of_keras_is_refused_at_import(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with pytest.raises(InputError, match="Keras runs on torch: set the environment variable KERAS_BACKEND=tensorflow"):
        runpy.run_path(keras_private.__file__)


def test_layers_at_any_depth_are_listed():
    model = keras.Sequential([keras.Input((4,)), Holder()])
    assert [layer.name for layer in keras_private.all_layers(model, include_self=False)][-2:] == ["holder", "inner"]
    assert model in keras_private.all_layers(model)


def test_calls_are_in_the_order_of_the_computation():
    model = _functional()
    calls = keras_private.calls(keras_private.functional(model))
    assert [call.operation.name for call in calls] == ["start", "shared", "shared", "sum"]
    assert [call.is_input for call in calls] == [True, False, False, False] and calls[1] in calls[2].parent_nodes
    assert keras_private.operation_of(model.outputs[0]).name == "sum"
    assert keras_private.call_of(model, calls[2].outputs[0]) is calls[2]
    wrapped = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    assert len(keras_private.calls(keras_private.functional(wrapped))) == 2
    assert keras_private.functional(keras.Sequential([keras.layers.Dense(2)])) is None
    assert keras_private.functional(Holder()) is None


def test_the_losses_of_a_call_and_what_is_built_in_it():
    layer = Holder()
    assert keras_private.builds_in_call(layer) and not keras_private.builds_in_call(keras.layers.Dense(2))
    outputs = layer(IMAGES)
    (loss,) = keras_private.losses_of_last_call(layer)
    # Keras divides the loss of an activity regularizer by the batch size.
    assert float(loss) == pytest.approx(0.01 * float(tf.reduce_sum(tf.square(outputs))) / 2, rel=1e-5)


def test_an_archive_takes_attributes_once_the_model_was_called(tmp_path):
    model = _functional()
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.call, input_signature=[tf.TensorSpec((None, 4))])
    keras_private.trackable(archive).note = tf.Variable(7)
    archive.write_out(str(tmp_path), verbose=False)
    assert int(tf.saved_model.load(str(tmp_path)).note) == 7
    called = keras.Sequential([keras.layers.Dense(2)])
    assert not keras_private.was_called(called)
    called(IMAGES)
    assert keras_private.was_called(called)


def test_an_optimizer_tells_its_batches_gradients_and_schedule():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.1])
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=3)
    first, second = keras.Variable([1.0]), keras.Variable([2.0, 3.0])
    optimizer.build([first, second])
    assert keras_private.learning_rate(optimizer) is schedule
    assert [id(variable) for variable in keras_private.trained_variables(optimizer)] == [id(first), id(second)]
    for _ in range(2):
        optimizer.apply([tf.ones(1), tf.constant([2.0, 4.0])], [first, second])
    assert int(keras_private.batches_seen(optimizer)) == 2 and int(optimizer.iterations) == 0
    sums = keras_private.accumulated_gradients(optimizer, [second, first])
    assert [total.numpy().tolist() for total in sums] == [[4.0, 8.0], [2.0]]


def test_no_other_module_names_them():
    package = pathlib.Path(tfrobust.__file__).parent
    home = package / "ops" / "keras_private.py"
    names = set(re.findall(r"\b(?!self)\w+\)?\.(_[a-z]\w+)", home.read_text())) | {"_nodes_by_depth", "_is_default"}
    assert len(names) >= 12
    used = re.compile(rf"(?<!self)\.({'|'.join(names)})\b|\"({'|'.join(names)})\"")
    for path in package.rglob("*.py"):
        assert path == home or not used.search(path.read_text()), path


@pytest.mark.parametrize("layer, shape", stored.rows(globals(), "the_update"), ids=lambda value: type(value).__name__)
def test_the_update_of_low_rank_is_listed_and_merged(layer, shape):
    inputs = np.ones(shape, "int32" if isinstance(layer, keras.layers.Embedding) else "float32")
    plain = layer(inputs).numpy()
    assert keras_private.lora_variables(layer) == []
    layer.enable_lora(2, lora_alpha=4)
    for variable in keras_private.lora_variables(layer):
        variable.assign(np.full(variable.shape, 0.5))
    updated, count = layer(inputs).numpy(), len(layer.variables)
    assert np.abs(updated - plain).min() > 0.5
    keras_private.merge_lora(layer)
    np.testing.assert_allclose(layer(inputs), updated, atol=1e-5)
    assert len(layer.variables) == count - 2 and keras_private.lora_variables(layer) == []
    assert "lora_rank" not in layer.get_config() and layer.trainable_variables

"""Use layers, augmentations, losses and metrics in an ordinary `compile` and `fit`.

In functional and in subclassed models, on `tf.data`, through `evaluate`, `.keras` files and `clone_model`, under every
precision that Keras has a policy for. The objects come from the lists of the facade (`conformance.facade`). Tests of
dtypes or calls alone run their steps eagerly, which shows the same and traces nothing.
"""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import facade
from conformance.facade import KINDS_OF_MODELS, call, compiled, copies, stream
from tfrobust import keras as robust

# tests/models trains, saves and clones the encoders: here one of images and one of tokens stand for them.
ENCODERS = ("CNN", "TextTransformer")
LAYERS = [
    name
    for name in facade.names("layer")
    if name in ENCODERS or not issubclass(facade.CLASSES_OFFERED[name], robust.models.Encoder)
]
# What draws, moves statistics or has none of these: their steps are traced, the others run eagerly.
TRACED = {"Augment", "BranchedBatchNormalization", "LinearHead"}
# A subclassed clone lacks the clocks of its dropout: Keras traces it without them.
CASES = [
    (name, kind) for name in LAYERS for kind in KINDS_OF_MODELS if (name, kind) != ("TextTransformer", "subclassed")
]


# ---------------------------------------------------------------------------------------- layers and encoders


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_layer_trains_is_saved_and_cloned(name, kind, tmp_path):
    inputs, (_, labels) = facade.inputs_of(name), facade.data()
    model = facade.functional(name) if kind == "functional" else facade.Subclassed(name)
    compiled(model, run_eagerly=kind == "subclassed" or name not in TRACED, metrics=["accuracy"])
    history = model.fit(stream(inputs, labels), epochs=1, verbose=0).history
    assert np.isfinite(history["loss"][0]), history
    expected, judged = call(model, inputs), model.evaluate(stream(inputs, labels), verbose=0)
    assert expected.shape == (len(labels), facade.CLASSES) and np.all(np.isfinite(expected))
    again, clone = copies(model, tmp_path)
    for copy in (again, clone):
        np.testing.assert_array_equal(call(copy, inputs), expected)
    assert again.evaluate(stream(inputs, labels), verbose=0) == judged


# One pass uses one branch; Keras does not restore the scale of the loss.
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"], indirect=True)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_obeys_the_policy_of_the_process(name, policy, tmp_path):
    inputs, (_, labels) = facade.inputs_of(name), facade.data()
    model = compiled(facade.functional(name), run_eagerly=True)
    history = model.fit(stream(inputs, labels, batch=len(labels)), verbose=0).history
    assert np.isfinite(history["loss"][0])
    assert {str(v.dtype) for v in model.trainable_variables} <= {"float32"}
    outputs = call(model, inputs)
    keras.config.set_dtype_policy("float32")
    if policy == "mixed_float16":  # the file knows its policy, whatever that of the process is
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
        np.testing.assert_array_equal(call(again, inputs), outputs)
    single = facade.functional(name)
    single.set_weights(model.get_weights())
    scale = max(1.0, float(np.abs(outputs).max()))
    np.testing.assert_allclose(call(single, inputs), outputs, atol=(0.02 if policy == "mixed_float16" else 0.1) * scale)


def test_layers_that_draw_are_exported_as_the_identity(tmp_path):
    inputs = keras.Input(facade.SHAPE)
    hidden = robust.layers.AugMix()(robust.layers.Augment(robust.augment.RandomShift())(inputs))
    model = keras.Model(inputs, keras.layers.Dense(facade.CLASSES)(keras.layers.Flatten()(hidden)))
    model.export(tmp_path / "export", verbose=False)
    images, _ = facade.data()
    served = tf.saved_model.load(tmp_path / "export")
    np.testing.assert_allclose(served.serve(images), model(images), atol=1e-6)


def test_xla_compiles_layers_that_draw():
    """Compile as `jit_compile="auto"` does where there is an accelerator."""
    images, labels = facade.data()
    inputs = keras.Input(facade.SHAPE)
    hidden = robust.layers.Corrupt("fog")(robust.layers.Augment(robust.augment.RandomShift())(inputs))
    model = keras.Model(inputs, keras.layers.Dense(facade.CLASSES)(keras.layers.Flatten()(hidden)))
    history = compiled(model, jit_compile=True).fit(images, labels, verbose=0).history
    assert model.jit_compile and np.isfinite(history["loss"]).all()


def test_a_layer_that_xla_cannot_compile_keeps_its_model_out_of_it():
    images, labels = facade.data()
    inputs = keras.Input(facade.SHAPE)
    hidden = robust.layers.Corrupt("jpeg_compression")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(facade.CLASSES)(keras.layers.Flatten()(hidden)))
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        compiled(model, jit_compile=True)
    model.fit(images, labels, verbose=0)


# ------------------------------------------------------------------------------------------------------ tf.data

DRAWING = {
    "Augment": lambda: robust.layers.Augment(robust.augment.RandomShift(fraction=0.3), seed=4),
    "AugMix": lambda: robust.layers.AugMix(width=1, depth=1, severity=8.0, seed=4),
    "Corrupt": lambda: robust.layers.Corrupt("gaussian_noise", 5, seed=4),
}


@pytest.mark.parametrize("name", ["Augment", "Corrupt", "AugMix"])
def test_a_layer_that_draws_works_inside_a_map(name):
    """On batches it is the layer itself, call by call; on single images too; each epoch draws anew."""
    images, labels = facade.data()
    for batched in (True, False):
        layer, twin = DRAWING[name](), DRAWING[name]()
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        data = data.batch(5) if batched else data
        data = data.map(lambda x, y, layer=layer: (layer(x, training=True), y))
        epochs = [np.concatenate([np.atleast_1d(x) for x, _ in data.as_numpy_iterator()]) for _ in range(2)]
        parts = [images[i : i + 5] for i in range(0, 12, 5)] if batched else images
        expected = np.concatenate([np.atleast_1d(twin(part, training=True)) for part in parts])
        np.testing.assert_allclose(epochs[0], expected, atol=1e-6)
        assert np.any(epochs[0] != epochs[1]) and int(layer.calls) == 2 * len(parts)


@pytest.mark.parametrize("work", ["corrupt", "sequence"])
def test_corruptions_work_in_a_map(work):
    images, _ = facade.data()
    keys = np.stack([np.zeros(12), np.arange(12)], axis=1).astype("int32")
    change = {
        "corrupt": lambda x, key: robust.corruptions.corrupt(x, "shot_noise", 3, key),
        "sequence": lambda x, key: robust.corruptions.sequence(x, "brightness", key),
    }[work]
    mapped = tf.data.Dataset.from_tensor_slices((images, keys)).batch(5).map(change)
    expected = np.asarray(change(images, keys))
    np.testing.assert_allclose(np.concatenate(list(mapped.as_numpy_iterator())), expected, atol=1e-6)


# ----------------------------------------------------------------------------------------------- losses, metrics

# Functions of tensors as a loss of `compile`: Keras hands over the truth first, ids as floats.


def truth(ids):
    return 4.0 * tf.one_hot(tf.cast(ids, tf.int32), facade.CLASSES)


def pairs_of(ids):
    equal = ids[:, None] == ids[None]
    return robust.losses.PairMasks(positive=equal & ~tf.eye(tf.shape(ids)[0], dtype=tf.bool), negative=~equal)


FUNCTION_LOSSES = stored.cases(__file__, "losses", globals(), "losses.toml")


def test_every_loss_of_the_list_is_here():
    kinds = {name: facade.kind_of(getattr(robust.losses, name)) for name in robust.losses.__all__}
    listed = {name for name, kind in kinds.items() if kind != "part"}
    assert listed == set(facade.names("loss")) | set(FUNCTION_LOSSES)


POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
NAMES = [*facade.names("loss"), *FUNCTION_LOSSES]
# Every loss in every precision, in the two kinds of models by turns.
TURNS = [
    (name, KINDS_OF_MODELS[(row + column) % 2], policy)
    for row, name in enumerate(NAMES)
    for column, policy in enumerate(POLICIES)
]


@pytest.mark.parametrize(("name", "kind", "policy"), TURNS, indirect=["policy"])
def test_a_loss_trains_a_plain_model(name, kind, policy, tmp_path):
    images, labels = facade.data()
    targets = np.asarray(truth(labels)) if name == "LogitsKLDivergence" else labels
    loss = FUNCTION_LOSSES.get(name) or facade.instance(name)
    traced = policy == "float32" and name not in FUNCTION_LOSSES
    model = compiled(facade.plain(kind), loss, run_eagerly=not traced)
    data = stream(images, targets, batch=len(labels))
    history = model.fit(data, epochs=4, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    if traced:
        again, _ = copies(model, tmp_path)
        assert again.evaluate(data, verbose=0) == model.evaluate(data, verbose=0)


@pytest.mark.parametrize(
    "kind, policy",
    [("functional", "float32"), ("subclassed", "mixed_float16"), ("subclassed", "mixed_bfloat16")],
    indirect=["policy"],
)
def test_metrics_stream_through_fit_and_evaluate_and_are_saved(kind, policy, tmp_path):
    images, labels = facade.data()
    ids = {
        "expected_calibration_error": "calibration.ece",
        "rms_calibration_error": "calibration.rms",
        "aurra": "calibration.aurra",
        "brier_score": "calibration.brier",
        "negative_log_likelihood": "calibration.nll",
    }
    offered = [robust.metrics.__dict__[name]() for name in facade.names("metric")]
    model = compiled(facade.plain(kind), metrics=offered, run_eagerly=policy != "float32")
    assert {metric.name for metric in offered} == set(ids)
    assert set(ids) < set(model.fit(stream(images, labels), verbose=0).history)
    values = model.evaluate(stream(images, labels), verbose=0, return_dict=True)
    again, _ = copies(model, tmp_path)
    assert again.evaluate(stream(images, labels), verbose=0, return_dict=True) == values
    if policy == "float32":
        outcome = robust.evaluate(model, images, labels, epsilon=0.1, steps=1)
        report = {measurement.id: measurement.value for measurement in outcome.measurements}
        for name, identity in ids.items():
            # Twelve examples may share cells of the ranking metrics.
            assert values[name] == pytest.approx(report[identity], abs=0.05 if name == "aurra" else 1e-6), name

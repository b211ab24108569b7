"""Predictors from functions, Keras models, `.keras` files and SavedModels; what they refuse."""

import dataclasses
import shutil

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.common import fingerprint
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading, predictor
from tfrobust.security import rehearsal

IMAGES = np.random.default_rng(0).uniform(size=(5, 4, 4, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Conv2D(2, 3),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(6, activation="relu"),
            keras.layers.Dense(3),
        ],
        name="small",
    )


def _export(model, directory, outputs=("logits", "probabilities", "embedding"), **names):
    archive = keras.export.ExportArchive()
    archive.track(model)
    penultimate = keras.Model(model.inputs, model.layers[-1].input)

    def forward(images):
        logits = model(images, training=False)
        values = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
        values["embedding"] = penultimate(images, training=False)
        return {names.get(name, name): values[name] for name in outputs}

    archive.add_endpoint("serving_default", forward, input_signature=[tf.TensorSpec([None, 4, 4, 1], name="images")])
    archive.write_out(str(directory), verbose=False)
    rehearsal.remember(directory)
    return str(directory)


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    return _export(model, tmp_path_factory.mktemp("served") / "3")


@pytest.mark.parametrize("layers_are_shared", [False, True])
def test_from_keras(model, layers_are_shared):
    if layers_are_shared:  # with another model, whose tensors are not those of this one
        model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Rescaling(0.5), *model.layers], name="small")
    loaded = loading.from_keras(model)
    assert (loaded.image_shape, loaded.class_count, loaded.name) == ((4, 4, 1), 3, "small")
    assert loaded.parameters == model.count_params()
    np.testing.assert_allclose(loaded.compiled_logits(IMAGES), model.predict(IMAGES, verbose=0), atol=1e-6)
    np.testing.assert_allclose(
        keras.ops.matmul(loaded.compiled_embedding(IMAGES), model.layers[-1].kernel) + model.layers[-1].bias,
        loaded.compiled_logits(IMAGES),
        atol=1e-6,
    )


def test_saved_model_is_the_live_model(model, served):
    live, served = loading.from_keras(model), loading.load(served)
    np.testing.assert_array_equal(served.compiled_logits(IMAGES), live.compiled_logits(IMAGES))
    np.testing.assert_array_equal(served.compiled_embedding(IMAGES), live.compiled_embedding(IMAGES))
    assert (served.image_shape, served.class_count) == (live.image_shape, live.class_count)
    assert (served.weights_sha256, served.parameters) == (live.weights_sha256, live.parameters)
    assert live.weights_sha256 == fingerprint.weights_sha256(model.variables)
    gradients = []
    for variant in (live, served):
        with tf.GradientTape() as tape:
            images = tf.constant(IMAGES)
            tape.watch(images)
            value = tf.reduce_sum(variant.logits(images)[:, 0])
        gradients.append(tape.gradient(value, images).numpy())
    np.testing.assert_array_equal(*gradients)


def test_output_names(model, tmp_path):
    only = loading.load(_export(model, tmp_path / "1", ("logits",), logits="scores"))
    assert only.class_count == 3 and only.embedding is None
    several = _export(model, tmp_path / "2", ("logits", "embedding"), logits="scores")
    with pytest.raises(ValueError, match=r"embedding.*scores.*--logits_output"):
        loading.load(several)
    with pytest.raises(ValueError, match="no output 'logitz'"):
        loading.load(several, logits_output="logitz")
    assert loading.load(several, logits_output="scores").class_count == 3


def test_the_newest_version_is_taken(served, tmp_path):
    for version in ("2", "10"):
        shutil.copytree(served, tmp_path / version)
    (tmp_path / "11").mkdir()
    (tmp_path / ".tmp-12").mkdir()
    assert loading.load(str(tmp_path)).name == f"{tmp_path.name}/10"


def test_the_outputs_of_a_keras_file_are_named_too(model, tmp_path):
    hidden, scores = model.layers[-1].input, model.layers[-1].output
    keras.Model(model.inputs, {"scores": scores, "embedding": hidden}).save(tmp_path / "dict.keras")
    names = [f"{name}_of_two" for name in ("embedding", "logits")]
    relay = [keras.layers.Identity(name=name)(output) for name, output in zip(names, (hidden, scores), strict=True)]
    keras.Model(model.inputs, relay).save(tmp_path / "list.keras")
    model.save(tmp_path / "one.keras")
    expected = model.predict(IMAGES, verbose=0)
    for file, name in (("dict", "scores"), ("list", names[1]), ("one", None)):
        loaded = loading.load(str(tmp_path / f"{file}.keras"), logits_output=name)
        np.testing.assert_allclose(loaded.compiled_logits(IMAGES), expected, atol=1e-6)
    assert loaded.weights_sha256 == loading.from_keras(model).weights_sha256
    assert loading.load(str(tmp_path / "dict.keras"), "scores").compiled_embedding(IMAGES).shape == (5, 6)
    for file, name, message in stored.table(globals(), "the_outputs_of_a_keras_file_are_named_too"):
        with pytest.raises(ValueError, match=message) as caught:
            loading.load(str(tmp_path / f"{file}.keras"), logits_output=name)
        assert len(str(caught.value)) <= 300


def test_probabilities_become_log_probabilities(model):
    soft = keras.Sequential([model, keras.layers.Softmax()], name="soft")
    raw = loading.from_keras(soft)
    converted = raw.as_logits(IMAGES)
    assert converted.outputs_probabilities and not raw.outputs_probabilities
    expected = tf.nn.log_softmax(model(IMAGES, training=False))
    np.testing.assert_allclose(converted.compiled_logits(IMAGES), expected, atol=1e-5)
    assert converted.as_logits(IMAGES) is converted
    plain = loading.from_keras(model)
    assert plain.as_logits(IMAGES) is plain


def test_sigmoids_become_their_logits():
    generator = np.random.default_rng(0)
    kernel = generator.normal(size=(16, 3)).astype(np.float32)
    images = generator.uniform(size=(64, 4, 4, 1)).astype(np.float32)
    scores = lambda images: 4 * tf.reshape(images - 0.5, [-1, 16]) @ kernel  # noqa: E731
    raw = predictor.from_function(lambda images: tf.sigmoid(scores(images)), image_shape=(4, 4, 1))
    converted = raw.as_logits(images)
    assert converted.outputs_probabilities and converted.one_per_class and not raw.one_per_class
    np.testing.assert_allclose(converted.compiled_logits(images), scores(images), rtol=0.1, atol=1e-3)
    assert converted.as_logits(images) is converted


def test_batches_are_padded_to_one_shape():
    shapes, calls = set(), []

    def function(images):
        shapes.add(tuple(images.shape))
        return tf.reduce_sum(images, axis=(1, 2, 3))

    sums = predictor.in_batches(function, IMAGES, 2, progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(sums, IMAGES.sum(axis=(1, 2, 3)), rtol=1e-6)
    assert shapes == {(2, 4, 4, 1)} and calls == [(2, 5), (4, 5), (5, 5)]


def test_what_load_refuses(tmp_path):
    (tmp_path / "old.h5").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    (tmp_path / "broken.keras").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for name, message in stored.table(globals(), "what_load_refuses"):
        with pytest.raises(ValueError, match=message) as caught:
            loading.load(str(tmp_path / name))
        assert len(str(caught.value)) < 300 + len(str(tmp_path)) and "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no model"):
        loading.load(str(tmp_path / "missing"))


class Eager(keras.Model):
    """A model that fails when it is traced."""

    input_shape = (None, 4, 4, 1)

    def __init__(self):
        super().__init__()
        self.built = True

    def call(self, images):
        if not tf.executing_eagerly():
            raise ValueError("never traced")
        return images[:, 0, :2, 0]


def test_what_predictors_refuse(model):
    with pytest.raises(ValueError, match="not built"):
        loading.from_keras(keras.Sequential([keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match="two classes"):
        predictor.from_function(lambda images: tf.reduce_mean(images, axis=(1, 2)), image_shape=(4, 4, 1))
    assert predictor.from_function(lambda images: {"output_0": model(images)}, image_shape=(4, 4, 1)).class_count == 3
    with pytest.raises(ValueError, match="fails on one example"):
        predictor.from_function(model, image_shape=(3, 3, 1))
    with pytest.raises(ValueError, match="fails on one example"):
        loading.from_keras(Eager())
    with pytest.raises(ValueError, match="returns complex64; logits are real numbers"):
        predictor.from_function(lambda images: tf.cast(model(images), tf.complex64), image_shape=(4, 4, 1))
    nan = predictor.from_function(lambda images: model(images) / 0.0 * 0.0, image_shape=(4, 4, 1))
    with pytest.raises(ValueError, match="NaN"):
        nan.as_logits(IMAGES)


@pytest.mark.parametrize("is_real", [True, False])
def test_a_saved_model_may_have_complex_weights_but_no_complex_logits(tmp_path, monkeypatch, is_real):
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_: None)
    module = tf.Module()
    module.weights = tf.Variable(tf.complex(*np.random.default_rng(0).normal(size=(2, 16, 3))))

    def predict(images):
        products = tf.cast(tf.reshape(images, (-1, 16)), tf.complex128) @ module.weights
        return {"logits": tf.abs(products) if is_real else products}

    signature = tf.function(predict).get_concrete_function(tf.TensorSpec([None, 4, 4, 1], name="images"))
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    if is_real:
        outputs = loading.from_saved_model(str(tmp_path)).compiled_logits(IMAGES)
        return np.testing.assert_allclose(outputs, np.abs(IMAGES.reshape(-1, 16) @ module.weights.numpy()), rtol=1e-5)
    with pytest.raises(InputError, match="returns complex128; logits are real numbers"):
        loading.from_saved_model(str(tmp_path))


def test_unit_pixels_reach_every_part_of_a_predictor_in_the_models_range():
    means = lambda images: tf.reduce_mean(images, axis=[1, 2])  # noqa: E731
    surrogate = predictor.from_function(lambda images: 3.0 * means(images), image_shape=(2, 2, 2))
    levels = predictor.from_function(means, image_shape=(2, 2, 2), embedding=lambda images: -means(images))
    levels = dataclasses.replace(levels, grid=0.5, surrogate=surrogate)  # stores -1, -0.5, ..., 3
    unit, images = levels.on_unit_pixels(-1.0, 3.0), tf.fill([1, 2, 2, 2], 0.75)
    for function, value in ((unit.logits, 2.0), (unit.embedding, -2.0), (unit.surrogate.logits, 6.0)):
        np.testing.assert_array_equal(function(images), [[value, value]])
    np.testing.assert_array_equal(unit.onto_grid(np.float32([0.0, 0.2, 0.3, 0.44, 0.99])), [0, 0.25, 0.25, 0.5, 1])
    # A range whose ends lie between two stored values: 0.25 + 0.5 k in [-1, 1].
    odd = dataclasses.replace(levels, grid=0.5, grid_origin=0.25).on_unit_pixels(-1.0, 1.0)
    np.testing.assert_allclose(odd.onto_grid(np.float32([0.1, 0.3, 0.49, 0.7])), [0.125, 0.375, 0.375, 0.625])
    assert levels.on_unit_pixels(0.0, 1.0) is levels
    text = predictor.from_function(lambda tokens: tf.zeros([len(tokens), 2]), image_shape=(4,), class_count=2)
    with pytest.raises(InputError, match="takes tokens: leave them out"):
        text.on_unit_pixels(0.0, 255.0)

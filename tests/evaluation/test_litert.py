"""LiteRT files as predictors: outputs of the interpreter, gradients of the copy, what is refused."""

import concurrent.futures
import functools
import sys

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import litert_files
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import litert, loading, predictor
from tfrobust.evaluation.engine.litert_operators import OPERATORS

SHAPE = (6, 6, 2)
IMAGES = np.random.default_rng(0).uniform(size=(40, *SHAPE)).astype(np.float32)
_RANDOM = np.random.default_rng(1)
_KERNEL = _RANDOM.normal(size=(3, 3, 2, 8)).astype(np.float32)
_DENSE = _RANDOM.normal(size=(72, 4)).astype(np.float32)


def network(images):
    """Logits [b, 4]."""
    hidden = tf.nn.relu(tf.nn.conv2d(images - 0.5, _KERNEL, 2, "SAME"))
    return tf.matmul(tf.reshape(hidden, [-1, 72]), _DENSE)


def probabilities(images):
    """The softmax of the logits."""
    return tf.nn.softmax(network(images))


@functools.cache
def content(kind="int8", output="logits", function=network, **options):
    """The network as a file."""
    return litert_files.converted({output: function}, IMAGES, kind, **options)


@pytest.fixture
def loaded(tmp_path):
    def load(name="model.tflite", **options):
        (tmp_path / name).write_bytes(content(**options))
        return loading.load(str(tmp_path / name))

    return load


def tape_gradient(function, images, weights):
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = tf.reduce_sum(weights * function(images))
    return tape.gradient(total, images)


def gradient(function, images, weights):
    return tape_gradient(function, tf.constant(images), weights).numpy()


@pytest.mark.parametrize(("kind", "steps"), [("float32", 0), ("float16", 0), ("int8", 6), ("int8_io", 6)])
def test_outputs_are_those_of_the_network_within_the_precision_of_the_file(loaded, kind, steps):
    model, expected = loaded(kind=kind), network(IMAGES).numpy()
    assert (model.image_shape, model.class_count, model.name) == (SHAPE, 4, "model.tflite")
    assert model.differentiable and model.parameters >= _KERNEL.size + _DENSE.size
    step = expected.std() / 30
    np.testing.assert_allclose(model.compiled_logits(IMAGES), expected, atol=2e-2 + steps * step)
    assert model.grid == pytest.approx(1 / 255, rel=0.02) if kind == "int8_io" else model.grid == 0
    batches = predictor.in_batches(model.compiled_logits, IMAGES, 7)
    np.testing.assert_allclose(batches, model.compiled_logits(IMAGES), atol=1e-4)


def test_gradients_are_those_of_the_network_and_reach_through_the_rounding(loaded):
    weights = _RANDOM.normal(size=(40, 4)).astype(np.float32)
    expected = gradient(network, IMAGES, weights)
    np.testing.assert_allclose(gradient(loaded(kind="float32").logits, IMAGES, weights), expected, rtol=1e-3, atol=1e-4)
    file = loaded(kind="int8")
    slopes = gradient(file.logits, IMAGES, weights)
    directions = [
        gradients.reshape(40, -1) / np.linalg.norm(gradients.reshape(40, -1), axis=1)[:, None]
        for gradients in (slopes, expected)
    ]
    assert np.sum(directions[0] * directions[1], axis=1).mean() > 0.98
    compiled = tf.function(lambda images: tape_gradient(file.logits, images, weights), autograph=False)
    np.testing.assert_allclose(compiled(tf.constant(IMAGES)), slopes, rtol=1e-4, atol=1e-4)


def test_the_surrogate_of_a_file_is_its_copy_without_rounding(loaded):
    model = loaded(kind="int8")
    outputs, expected = model.surrogate.logits(tf.constant(IMAGES)).numpy(), network(IMAGES).numpy()
    assert np.abs(outputs - expected).mean() < np.abs(model.logits(tf.constant(IMAGES)) - expected).mean()
    assert not np.array_equal(outputs, model.logits(tf.constant(IMAGES)))


@pytest.mark.parametrize("kind", ["float32", "int8_io"])
def test_a_file_of_one_image_without_names_takes_any_number(loaded, kind):
    alone = loaded(kind=kind, batch=1, signature=False)
    np.testing.assert_allclose(alone.logits(tf.constant(IMAGES)), loaded(kind=kind).logits(IMAGES), atol=1e-4)
    weights = np.ones([40, 4], np.float32)
    assert np.abs(gradient(alone.logits, IMAGES, weights)).max() > 0


@pytest.mark.parametrize("kind", ["float32", "int8_io"])
def test_a_softmax_is_converted_and_has_the_gradient_before_it(loaded, kind):
    model = loaded(kind=kind, output="probabilities", function=probabilities)
    assert model.outputs_probabilities and not model.one_per_class
    logits = model.logits(tf.constant(IMAGES)).numpy()
    expected = tf.nn.log_softmax(network(IMAGES)).numpy()
    likely = expected > -3
    np.testing.assert_allclose(logits[likely], expected[likely], atol=0.01 if kind == "float32" else 0.6)
    assert logits.min() >= np.log(1e-30 if kind == "float32" else 1 / 513)
    # A probability that is rounded to 0 still has a gradient.
    weights = np.zeros([40, 4], np.float32)
    weights[np.arange(40), expected.argmin(axis=1)] = 1.0
    assert np.all(np.abs(gradient(model.logits, IMAGES, weights)).max(axis=(1, 2, 3)) > 0)


def test_an_operator_without_a_copy_leaves_a_predictor_without_gradients(loaded, monkeypatch):
    monkeypatch.delitem(OPERATORS, "CONV_2D")
    model = loaded().as_logits(IMAGES)
    assert not model.differentiable and model.surrogate is None
    assert model.no_gradient == "its differentiable copy does not cover CONV_2D"
    assert model.compiled_logits(IMAGES).shape == (40, 4)


def test_a_copy_that_differs_from_the_file_is_not_used(loaded, monkeypatch):
    monkeypatch.setitem(
        OPERATORS, "CONV_2D", lambda op, value, kernel, bias=None: value[:, ::2, ::2, :1] * tf.ones([8])
    )
    model = loaded()
    assert not model.differentiable
    assert model.no_gradient.startswith("its differentiable copy differs by ")


def test_threads_share_a_file():
    file = litert.File(content(), "shared")
    (position,) = file.graph.outputs.values()
    batches = [IMAGES[: 1 + number % 5] for number in range(40)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda batch: file.run(batch, position), batches))
    expected = file.run(IMAGES[:5], position)
    for batch, outputs in zip(batches, results, strict=True):
        np.testing.assert_allclose(outputs, expected[: len(batch)], atol=1e-6)


def test_few_interpreters_are_kept():
    file = litert.File(content(), "many sizes")
    (position,) = file.graph.outputs.values()
    for size in range(1, 30):
        assert file.run(IMAGES[:size], position).shape == (size, 4)
    assert len(file._interpreters) == 16


def test_the_newest_version_of_an_export_is_loaded(tmp_path):
    for version in ("9", "10"):
        (tmp_path / "net-int8" / version).mkdir(parents=True)
        (tmp_path / "net-int8" / version / "model.tflite").write_bytes(content())
    model = loading.load(str(tmp_path / "net-int8"))
    assert model.name == "net-int8/10"
    assert model.weights_sha256 == loading.load(str(tmp_path / "net-int8" / "9" / "model.tflite")).weights_sha256


@pytest.mark.parametrize("function, part", stored.rows(globals(), "outputs_that_are_no_logits_are_refused"))
def test_outputs_that_are_no_logits_are_refused(loaded, function, part):
    with pytest.raises(InputError, match=part):
        loaded(kind="float32", function=function)


def test_what_is_no_classifier_of_images_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.tflite"
    path.write_bytes(litert_files.converted({"a": network, "b": network}, IMAGES))
    with pytest.raises(InputError, match=r"model.tflite has the outputs \['a', 'b'\]: name the logits with"):
        loading.load(str(path))
    assert loading.load(str(path), "b").class_count == 4
    path.write_bytes(litert_files.converted({"logits": lambda images: images + 1.0}, IMAGES))
    with pytest.raises(InputError, match=r"logits are \[b, k\]"):
        loading.load(str(path))
    path.write_bytes(litert_files.converted({"logits": lambda images: images + 1.0}, IMAGES[:, :, :, 0]))
    with pytest.raises(InputError, match=r"float or quantized images \[b, h, w, c\] are needed"):
        loading.load(str(path))
    path.write_bytes(content())
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(InputError, match=r"needs the package ai-edge-litert: pip install 'tfrobust\[litert\]'"):
        loading.load(str(path))

import io

import keras
import numpy as np
import PIL.Image
import pytest
import stored
import tensorflow as tf
from serving.helpers import encoded
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tfrobust.common import fingerprint
from tfrobust.data.spec import decode_image
from tfrobust.serving.export import golden, probe
from tfrobust.serving.export import saved_model as export
from tfrobust.serving.server import recipes

IMAGE_SHAPE = (8, 8, 1)


@pytest.fixture(scope="module")
def signatures(attached):
    loaded = tf.saved_model.load(str(attached))
    yield loaded.signatures
    del loaded  # its variables live as long as it does


def test_each_variable_is_stored_once(exported, parts):
    """Keras would store its own variable next to the one that it wraps, and double the size of every export."""
    stored = tf.train.list_variables(str(exported / "1" / "variables" / "variables"))
    shapes = [tuple(variable.shape) for part in parts for variable in part.variables]
    assert sorted(tuple(shape) for name, shape in stored if not name.startswith("_CHECK")) == sorted(shapes)


@pytest.mark.parametrize("batch", [1, 7])
def test_outputs_are_those_of_the_live_model(signatures, parts, batch):
    encoder, head = parts
    images = golden.golden_images(IMAGE_SHAPE, batch)
    logits = keras.Sequential([encoder, head]).predict(images, verbose=0)
    outputs = signatures["serving_default"](images=tf.constant(images))
    np.testing.assert_array_equal(outputs["logits"], logits)
    np.testing.assert_array_equal(outputs["embedding"], encoder.predict(images, verbose=0))
    np.testing.assert_allclose(
        outputs["probabilities"], np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-5
    )
    assert {value.dtype for value in outputs.values()} == {tf.float32}


def test_gradients_are_those_of_the_live_model(signatures, parts):
    encoder, head = parts
    images = tf.constant(golden.golden_images(IMAGE_SHAPE))

    @tf.function
    def gradient(logits, images):
        with tf.GradientTape() as tape:
            tape.watch(images)
            total = tf.reduce_sum(tf.square(logits(images)))
        return tape.gradient(total, images)

    live = gradient(lambda x: head(encoder(x, training=False)), images)
    served = gradient(lambda x: signatures["serving_default"](images=x)["logits"], images)
    np.testing.assert_array_equal(served, live)
    assert np.any(live)


def test_png_bytes_give_the_bits_of_the_float_path(signatures):
    pixels = golden.golden_pixels(IMAGE_SHAPE, 6)
    assert len(np.unique(pixels)) > 60
    floats = signatures["serving_default"](images=tf.constant(golden.golden_images(IMAGE_SHAPE, 6)))
    files = signatures["serving_bytes"](image_bytes=tf.constant([encoded(p, "png") for p in pixels]))
    for name in probe.PREDICTIONS:
        np.testing.assert_array_equal(files[name], floats[name])


def test_jpeg_is_decoded_to_the_channels_of_the_model_and_resized(signatures):
    colour = np.full((16, 24, 3), (255, 255, 255), np.uint8)
    outputs = signatures["serving_bytes"](image_bytes=tf.constant([encoded(colour, "jpeg")]))
    white = signatures["serving_default"](images=tf.ones((1, *IMAGE_SHAPE)))
    np.testing.assert_allclose(outputs["logits"], white["logits"], rtol=1e-6)


def test_bytes_are_framed_as_the_data_were(parts, tmp_path):
    encoder, head = parts
    reading = {"fit": 10, "interpolation": "bicubic"}
    export.write_saved_model(tmp_path / "framed", encoder=encoder, head=head, image_shape=IMAGE_SHAPE, **reading)
    loaded = tf.saved_model.load(str(tmp_path / "framed"))
    picture = encoded(np.random.default_rng(0).integers(0, 256, (20, 31, 1), np.uint8), "png")
    answers = loaded.signatures["serving_bytes"](image_bytes=tf.constant([picture]))
    for *reading, agrees in ((10, "bicubic", True), (10, "bilinear", False), ("stretch", "bicubic", False)):
        framed = decode_image(tf.constant(picture), IMAGE_SHAPE, *reading)[None]
        expected = loaded.signatures["serving_default"](images=framed)
        assert np.allclose(answers["logits"], expected["logits"], rtol=1e-6) == agrees


def test_bytes_of_a_lying_photograph_are_turned_upright(signatures):
    height, width, _ = IMAGE_SHAPE
    upright = np.kron(np.random.default_rng(0).integers(0, 256, (height, width)), np.ones((8, 8))).astype(np.uint8)
    pictures = []
    for picture, orientation in ((upright, 1), (np.rot90(upright), 6), (upright[::-1, ::-1], 3)):
        tags, file = PIL.Image.Exif(), io.BytesIO()
        tags[0x0112] = orientation
        PIL.Image.fromarray(picture).save(file, "jpeg", exif=tags, quality=100)
        pictures.append(file.getvalue())
    logits = signatures["serving_bytes"](image_bytes=tf.constant(pictures))["logits"].numpy()
    np.testing.assert_allclose(logits[1:], logits[[0, 0]], atol=0.02 * np.abs(logits).max())


@pytest.mark.parametrize("signature, inputs", stored.rows(globals(), "a_wrong_size_dtype_key_or_image_is_refused"))
def test_a_wrong_size_dtype_key_or_image_is_refused(signatures, signature, inputs):
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        signatures[signature](**inputs)


def test_a_wrong_size_is_refused_inside_the_graph_of_known_operations_without_xla(attached):
    """A server does not look at the signature's shape; `ensure_shape` does."""
    model = saved_model_pb2.SavedModel.FromString((attached / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = [*graph.node, *(node for function in functions.values() for node in function.node_def)]
    assert "EnsureShape" in {node.op for node in nodes}
    assert all(op_def_registry.get(node.op) is not None or node.op in functions for node in nodes)
    for name, function in functions.items():
        assert not function.attr["_XlaMustCompile"].b and "tfrobust" not in name


def test_more_reports_than_a_batch_holds_are_refused_in_the_graph(signatures):
    """By any server: a report takes megabytes, and asking for it a byte."""
    ask = signatures["robustness_report"]
    assert ask(request=tf.constant([""] * 256))["report"].shape == [256]
    assert "max_batch_size { value: 256 }" in recipes.batching_parameters()
    for count in (257, 20_000):
        with pytest.raises(tf.errors.InvalidArgumentError, match="more reports requested than"):
            ask(request=tf.constant([""] * count))


def test_weights_hash_of_live_and_loaded_model_agree(parts, attached):
    encoder, head = parts
    loaded = export.saved_model_sha256(tf.saved_model.load(str(attached)))
    assert loaded == export.deployable_sha256(encoder, head)
    arrays = [variable.numpy() for variable in [*head.variables, *encoder.variables]]
    assert loaded == fingerprint.weights_sha256(arrays)


def test_channels_that_no_image_file_has_leave_the_bytes_endpoint_out(tmp_path):
    encoder = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten()])
    head = keras.layers.Dense(2)
    head.build((None, 32))
    export.write_saved_model(tmp_path / "m", encoder=encoder, head=head, image_shape=(4, 4, 2))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    assert sorted(loaded.signatures) == ["robustness_report", "serving_default"]
    assert loaded.signatures["robustness_report"](request=tf.constant(["a"]))["report"].numpy() == [b""]


def test_mixed_precision_and_parts_without_a_training_argument(tmp_path):
    class Plain(keras.layers.Layer):
        def call(self, images):
            return tf.reduce_mean(images, axis=[1, 2])

    encoder, head = Plain(dtype="mixed_float16"), keras.layers.Dense(2, dtype="mixed_bfloat16")
    encoder.build((None, *IMAGE_SHAPE))
    head.build((None, 1))
    export.write_saved_model(tmp_path / "m", encoder=encoder, head=head, image_shape=IMAGE_SHAPE)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    images = tf.constant(golden.golden_images(IMAGE_SHAPE))
    outputs = loaded.signatures["serving_default"](images=images)
    assert {value.dtype for value in outputs.values()} == {tf.float32}
    np.testing.assert_array_equal(outputs["logits"], tf.cast(head(encoder(images)), tf.float32))

"""LiteRT and ONNX files hold the endpoint of the SavedModel that they were converted from."""

import sys

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from tfrobust import keras as robust
from tfrobust.errors import InputError
from tfrobust.security import saved_models
from tfrobust.serving.export import litert, onnx
from tfrobust.serving.export import saved_model as export

IMAGES = np.random.default_rng(0).uniform(size=(50, 8, 8, 1)).astype(np.float32)
# Kind -> the largest difference of an output that its arithmetic explains, as a share of the outputs' range.
GAPS = {"float32": 1e-4, "float16": 1e-2, "int8": 0.1}


@pytest.fixture(scope="module")
def reference(staged):
    """The outputs of the SavedModel."""
    outputs = saved_models.load(staged).signatures["serving_default"](images=tf.constant(IMAGES))
    return {name: output.numpy() for name, output in outputs.items()}


_REST = pytest.mark.rest


@pytest.mark.parametrize("kind", ["int8", *(pytest.param(kind, marks=_REST) for kind in ("float32", "float16"))])
def test_a_litert_file_has_the_outputs_by_their_names(staged, reference, kind, capfd):
    content = litert.convert(staged, kind, IMAGES)
    assert capfd.readouterr().err == ""
    interpreter = Interpreter(model_content=content)
    outputs = interpreter.get_signature_runner("serving_default")(images=IMAGES)
    assert set(outputs) == {"logits", "probabilities", "embedding"}
    for name, values in outputs.items():
        gap = np.abs(values - reference[name]).max() / np.ptp(reference[name])
        assert values.dtype == np.float32 and gap < GAPS[kind], name
    kernels = {d["dtype"] for d in interpreter.get_tensor_details() if d["shape"].tolist() == [4, 3, 3, 1]}
    assert {"float32": {np.float32}, "float16": {np.float16}, "int8": {np.int8}}[kind] <= kernels


# Encoders of one stage each, whose operators differ: strides, batch norm and shortcuts, attention and GELU.
ENCODERS = {
    "DigitsCNN": lambda: robust.models.DigitsCNN(),
    "WideResNet": lambda: robust.models.WideResNet(10, 1),
    "ViT": lambda: robust.models.ViT(4, heads=2, width=16, depth=1, grid=2),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_of_each_kind_are_converted(tmp_path, name):
    encoder, head = ENCODERS[name](), keras.layers.Dense(10)
    expected = np.asarray(head(encoder(IMAGES)))
    export.write_saved_model(tmp_path / "model", encoder=encoder, head=head, image_shape=(8, 8, 1))
    for kind in litert.KINDS:
        interpreter = Interpreter(model_content=litert.convert(tmp_path / "model", kind, IMAGES))
        logits = interpreter.get_signature_runner("serving_default")(images=IMAGES)["logits"]
        assert np.abs(logits - expected).max() / np.ptp(expected) < GAPS[kind], kind


@pytest.mark.rest
def test_int8_takes_its_ranges_from_the_images(staged, reference):
    """Images of another scale convert without an error, and ruin the outputs."""
    gaps = []
    for images in (IMAGES, 255 * IMAGES):
        interpreter = Interpreter(model_content=litert.convert(staged, "int8", images))
        logits = interpreter.get_signature_runner("serving_default")(images=IMAGES)["logits"]
        gaps.append(np.abs(logits - reference["logits"]).max())
    assert gaps[1] > 5 * gaps[0]


# Name -> (a function of the pixels [b, 64], part of the line).
IMPOSSIBLE = {
    "no operator": (lambda x: tf.math.betainc(x + 1.0, x + 1.0, x), "no operator for Betainc: replace its layer"),
    "the error function": (tf.math.erf, "no operator for Erf: set approximate=True in GELU"),
    "a loop": (lambda x: tf.map_fn(lambda row: 2.0 * row, x), "it has the operator WHILE"),
}


@pytest.mark.parametrize("name", ["no operator", *(pytest.param(name, marks=_REST) for name in list(IMPOSSIBLE)[1:])])
def test_what_cannot_be_converted_is_one_line(tmp_path, name, capfd):
    function, part = IMPOSSIBLE[name]

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")])
        def __call__(self, images):
            return {"logits": function(tf.reshape(images, [-1, 64]))[:, :3]}

    module = Model()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": module.__call__})
    with pytest.raises(InputError) as error:
        litert.convert(tmp_path / "model", "float32", IMAGES)
    assert part in str(error.value) and len(str(error.value)) <= 300 and "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_an_onnx_file_has_the_outputs_by_their_names(staged, reference):
    content = onnx.convert(staged)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert set(names) == {"logits", "probabilities", "embedding"}
    for name, values in zip(names, session.run(None, {"images": IMAGES}), strict=True):
        np.testing.assert_allclose(values, reference[name], atol=1e-4)
    np.testing.assert_array_equal(onnx.run(content, IMAGES, "logits"), session.run(["logits"], {"images": IMAGES})[0])


@pytest.mark.rest
@pytest.mark.parametrize("dilated", [False, True])
def test_an_onnx_file_takes_clips(tmp_path, dilated):
    clips = np.random.default_rng(1).uniform(size=(5, 8, 16, 16, 1)).astype(np.float32)
    encoder, head = robust.models.R2Plus1D18(width=2, dilated=dilated), keras.layers.Dense(4)
    expected = np.asarray(head(encoder(clips)))
    export.write_saved_model(tmp_path / "model", encoder=encoder, head=head, image_shape=clips.shape[1:])
    content = onnx.convert(tmp_path / "model")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_inputs()] == ["clips"]
    assert np.abs(onnx.run(content, clips, "logits") - expected).max() / np.ptp(expected) < GAPS["float32"]


@pytest.mark.parametrize("package", ["tf2onnx", "onnxruntime"])
def test_a_package_of_onnx_is_missing(staged, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'tfrobust\[onnx\]'"):
        onnx.convert(staged)

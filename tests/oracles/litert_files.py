"""LiteRT files for tests, made by TensorFlow's converter from functions of images."""

import flatbuffers
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema


def converted(functions, images, kind="float32", batch=None, signature=True):
    """The content of a file.

    Args:
        functions: {name of the output: function of images}.
        images: float32 [n, h, w, c], representative ones.
        kind: "float32", "float16", "int8", or "int8_io" with integer input and outputs.
        batch: images at a time; None: any number.
        signature: False: no named inputs and outputs.
    """
    spec = tf.TensorSpec([batch, *images.shape[1:]], name="images")

    @tf.function(input_signature=[spec], autograph=False)
    def run(images):
        return {name: function(images) for name, function in functions.items()}

    module = tf.Module()
    module.run = run
    converter = tf.lite.TFLiteConverter.from_concrete_functions([run.get_concrete_function()], module)
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind.startswith("int8"):
        size = batch or 1
        converter.representative_dataset = lambda: (
            [images[i : i + size]] for i in range(0, len(images) - size + 1, size)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if kind == "int8_io":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    content = converter.convert()
    return content if signature else changed(content, lambda model: setattr(model, "signatureDefs", None))


def changed(content, change):
    """The content after `change` of its flatbuffer, a `schema.ModelT`."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    change(model)
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def with_last_operator(name, options_kind=0, options=None):
    """A change that replaces the last operator by another one that takes the same inputs."""

    def change(model):
        operator = model.subgraphs[0].operators[-1]
        code = model.operatorCodes[operator.opcodeIndex]
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        operator.builtinOptionsType, operator.builtinOptions = options_kind, options

    return change

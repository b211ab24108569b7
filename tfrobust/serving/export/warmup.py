"""Warm-up requests: TF Serving runs them before a new version takes traffic, so that no client waits."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.common.files import replacing
from tfrobust.serving.export import golden, probe
from tfrobust.serving.export import saved_model as export


def write(
    directory,
    *,
    image_shape: Sequence[int],
    signatures: Sequence[str],
    name: str = "model",
    vocabulary_size: int = 0,
) -> None:
    """Write one genuine `PredictionLog` per endpoint to the uncompressed TFRecord that TF Serving looks for.

    The images are the golden ones, as floats and as PNG, and the tokens are the golden ones, so that a replay can be
    checked.

    Args:
        directory: version directory; the file is `assets.extra/tf_serving_warmup_requests`.
        image_shape: (h, w, c), or (length,) for text.
        signatures: the endpoints of the SavedModel.
        name: the model's name in the server's configuration.
        vocabulary_size: size of the vocabulary, for text.
    """
    requests = {
        export.PREDICT: lambda: golden.golden_input(image_shape, vocabulary_size),
        export.PREDICT_BYTES: lambda: _png(golden.golden_pixels(image_shape)),
        export.REPORT: lambda: np.array([b""], dtype=object),
    }
    inputs = probe.inputs_of(image_shape)
    path = pathlib.Path(directory, probe.WARMUP_FILE)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for signature, make_input in requests.items():
            if signature in signatures:
                log = _prediction_log(name, signature, inputs[signature], make_input())
                writer.write(log.SerializeToString(deterministic=True))


def _prediction_log(name: str, signature: str, input_name: str, value: np.ndarray):
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    request.inputs[input_name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def _png(pixels: np.ndarray) -> np.ndarray:
    return np.array([tf.io.encode_png(image).numpy() for image in pixels], dtype=object)

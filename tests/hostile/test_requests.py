"""Requests to the development server, and responses to the client, are refused or bounded."""

import io
import json

import pytest
import stored
from hostile import small
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2

from tfrobust.serving.client import Client, transport
from tfrobust.serving.server import development


def _tensor(dtype: int, sizes, **values) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The models of a development server with one model."""
    folder = tmp_path_factory.mktemp("served")
    small.write(folder)
    (folder / "model").mkdir()
    (folder / "export").rename(folder / "model" / "1")
    models = development.Models({"model": folder / "model"})
    models.refresh()
    return models


TENSORS = {
    "gigabytes of text": _tensor(types_pb2.DT_STRING, [2**26], string_val=[b"a"]),
    "more numbers than a request has": _tensor(types_pb2.DT_FLOAT, [2**25], float_val=[1.0]),
    "sizes below nothing": _tensor(types_pb2.DT_FLOAT, [-1, -1], float_val=[1.0]),
    "no text": _tensor(types_pb2.DT_STRING, [3]),
    "no values": _tensor(types_pb2.DT_FLOAT, [1, 8, 8, 1]),
    **{f"type {kind}": _tensor(kind, []) for kind in (*range(31), 99, 107, 120, 121, 2**31 - 1)},
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(served, name):
    request = predict_pb2.PredictRequest(inputs={"images": TENSORS[name]})
    request.model_spec.name = "model"
    try:
        development.Handlers(served).predict(request)
    except development.Failure as failure:
        assert failure.code == "INVALID_ARGUMENT"
    else:
        assert name == "no values"  # zeros


BODIES = stored.table(globals(), "bodies")


@pytest.mark.parametrize("body", BODIES)
def test_names_that_are_no_utf8(served, body):
    content, statuses = json.dumps(body).encode(), []
    environ = {"REQUEST_METHOD": "POST", "HTTP_HOST": "localhost", "REQUEST_URI": "/v1/models/model:predict"}
    environ |= {"CONTENT_LENGTH": str(len(content)), "wsgi.input": io.BytesIO(content)}
    answer = development.rest_application(development.Handlers(served))
    (text,) = answer(environ, lambda status, headers: statuses.append(status))
    assert statuses == ["400 Bad Request"] and json.loads(text)["error"]


ANSWERS = stored.table(globals(), "answers")


@pytest.mark.parametrize("answer", ANSWERS)
def test_tensors_of_servers(monkeypatch, answer):
    with Client("grpc://127.0.0.1:1", "model") as client:
        rpc = client._transport
        monkeypatch.setattr(rpc, "_request", lambda *_: predict_pb2.PredictResponse(outputs=answer))
        with pytest.raises(transport.ServerUnavailable) as error:
            rpc.predict("serving_default", {}, dict.fromkeys(answer))
    assert len(str(error.value)) <= 300 and str(error.value).isprintable()

"""The development server: what it answers must be what TensorFlow Serving's documents and sources say it answers."""

import base64
import concurrent.futures
import contextlib
import json
import shutil
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import stored
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from tfrobust.errors import InputError
from tfrobust.serving.client import Client
from tfrobust.serving.export import golden, probe
from tfrobust.serving.server import development
from tfrobust.serving.server.development import Server


def ask(server, path, document=None):
    body = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(f"{server.rest_url}{path}", body, timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.grpc_url.removeprefix("grpc://")) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_the_genuine_warm_up_file_is_replayed_over_the_genuine_stub(stub, exported):
    """The very records that TensorFlow Serving would replay, as requests; the answers are the golden ones."""
    answers = {}
    for record in tf.data.TFRecordDataset(str(exported / "1" / probe.WARMUP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        response = stub.Predict(request, timeout=20)
        assert response.model_spec.name == "small" and response.model_spec.version.value == 1
        answers[request.model_spec.signature_name] = {
            name: tf.make_ndarray(value) for name, value in response.outputs.items()
        }
    assert sorted(answers) == ["robustness_report", "serving_bytes", "serving_default"]
    expected = golden.read(exported / "1")
    for name in ("serving_bytes", "serving_default"):
        assert probe.differences(expected, answers[name]) == []
    assert answers["robustness_report"]["report"][0] == (exported / "1" / probe.REPORT_FILE).read_bytes()


def test_rows_and_columns_of_the_documented_rest_format_agree(server, exported):
    expected = golden.read(exported / "1")
    images = expected["images"].tolist()
    columns = {"inputs": {"images": images}}, {"inputs": images}
    rows = {"instances": [{"images": image} for image in images]}, {"instances": images}
    for document in columns:
        status, answer = ask(server, "/v1/models/small:predict", document)
        assert status == 200 and list(answer) == ["outputs"]
        np.testing.assert_array_equal(np.float32(answer["outputs"]["logits"]), expected["logits"])
    for document in rows:
        status, answer = ask(server, "/v1/models/small/versions/1:predict", document)
        assert status == 200 and list(answer) == ["predictions"] and len(answer["predictions"]) == len(images)
        assert set(answer["predictions"][0]) == set(probe.PREDICTIONS)
        logits = np.float32([row["logits"] for row in answer["predictions"]])
        np.testing.assert_array_equal(logits, expected["logits"])


def test_one_output_loses_its_name_and_text_stays_text(server, report):
    asked = {"signature_name": "robustness_report", "instances": ["x", {"b64": base64.b64encode(b"y").decode()}]}
    assert ask(server, "/v1/models/small/labels/stable:predict", asked) == (
        200,
        {"predictions": [report.to_json()] * 2},
    )
    asked = {"signature_name": "robustness_report", "inputs": {"request": ["x"]}}
    assert ask(server, "/v1/models/small:predict", asked) == (200, {"outputs": [report.to_json()]})
    for inputs in ("text", {"b64": "eHg="}):  # neither is a list of its parts
        asked["inputs"] = inputs
        assert ask(server, "/v1/models/small:predict", asked) == (200, {"outputs": report.to_json()})


def test_status_is_the_documents_example(server):
    """api_rest.md, "Make REST API calls to ModelServer"."""
    entry = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    expected = (200, {"model_version_status": [entry]})
    assert ask(server, "/v1/models/small") == ask(server, "/v1/models/small/versions/1") == expected


def test_metadata_are_the_model_files_own_signatures(server, stub, exported):
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model_pb2.SavedModel.FromString((exported / "1" / "saved_model.pb").read_bytes())
    signatures = dict(file.meta_graphs[0].signature_def)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "small"
    signature_map = get_model_metadata_pb2.SignatureDefMap()
    assert stub.GetModelMetadata(request, timeout=20).metadata["signature_def"].Unpack(signature_map)
    assert dict(signature_map.signature_def) == signatures
    status, answer = ask(server, "/v1/models/small/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "small", "signature_name": "", "version": "1"}
    parsed = json_format.ParseDict(answer["metadata"]["signature_def"], get_model_metadata_pb2.SignatureDefMap())
    assert dict(parsed.signature_def) == signatures
    image = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["images"]
    assert image["dtype"] == "DT_FLOAT" and [d["size"] for d in image["tensor_shape"]["dim"]] == ["-1", "8", "8", "1"]


IMAGES = np.zeros((1, 8, 8, 1)).tolist()


@pytest.mark.parametrize("path, document, status, message", stored.rows(globals(), "a_bad_request_gets_an_error_in"))
def test_a_bad_request_gets_an_error_in_json_and_the_servers_status(server, path, document, status, message):
    actual_status, answer = ask(server, path, document)
    assert actual_status == status and list(answer) == ["error"] and message in answer["error"]


@pytest.mark.parametrize("name, signature, inputs, code", stored.rows(globals(), "grpc_fails_with_the_servers_codes"))
def test_grpc_fails_with_the_servers_codes(stub, name, signature, inputs, code):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request, timeout=20)
    assert caught.value.code().name == code


def test_an_output_filter_and_what_is_not_there(stub, server):
    request = predict_pb2.PredictRequest(output_filter=["logits"])
    request.model_spec.name = "small"
    request.inputs["images"].CopyFrom(tf.make_tensor_proto(np.zeros((1, 8, 8, 1), np.float32)))
    assert list(stub.Predict(request, timeout=20).outputs) == ["logits"]
    with grpc.insecure_channel(server.grpc_url.removeprefix("grpc://")) as channel:
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "small"
        (entry,) = models.GetModelStatus(request, timeout=20).model_version_status
        assert entry.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            from tensorflow_serving.apis import model_management_pb2

            models.HandleReloadConfigRequest(model_management_pb2.ReloadConfigRequest(), timeout=20)


def test_new_versions_take_over_and_a_broken_one_does_not(exported, tmp_path):
    base = tmp_path / "small"
    shutil.copytree(exported / "1", base / "2")
    with Server({"small": base}, rest_port=0, grpc_port=0, poll_seconds=0) as server:
        shutil.copytree(exported / "1", base / "10")
        server.models.refresh()
        with Client(server.rest_url, "small") as client:
            assert client.metadata()["version"] == 10 and [v["version"] for v in client.status()] == ["10"]
        (base / "11").mkdir()
        (base / "11" / "saved_model.pb").write_bytes(b"garbage")
        server.models.refresh()
        with Client(server.grpc_url, "small") as client:
            assert client.metadata()["version"] == 10
            states = {entry["version"]: entry["state"] for entry in client.status()}
            assert states == {"11": "END", "10": "AVAILABLE"}


def test_a_model_that_cannot_be_loaded_is_not_found_for_a_reason(tmp_path):
    (tmp_path / "small" / "1").mkdir(parents=True)
    (tmp_path / "small" / "1" / "model.tflite").touch()
    with Server({"small": tmp_path / "small"}, rest_port=0, grpc_port=0, poll_seconds=0) as server:
        for choice, request in (({}, "Latest"), ({"version": 1}, "Specific"), ({"version": 2}, "Specific")):
            message = rf"request: {request}\(small.*\)" + r" \(.*saved_model.pb" * (choice != {"version": 2})
            with Client(server.rest_url, "small", **choice) as client, pytest.raises(InputError, match=message):
                client.metadata()


def exchange(server, *lines, body=b"", close=True):
    """The answer to a request that no client library would send: its status, and all of it."""
    with socket.create_connection(server.http.server_address, timeout=20) as raw:
        raw.sendall("\r\n".join([*lines, *(["Connection: close"] if close else []), "", ""]).encode("latin-1") + body)
        content = b"".join(iter(lambda: raw.recv(65536), b""))
    return int(content.split()[1]), content


STATUS = "GET /v1/models/small HTTP/1.1"
PREDICT = "POST /v1/models/small:predict HTTP/1.1"
HOST = "Host: 127.0.0.1:8501"


@pytest.mark.parametrize("host, status", stored.rows(globals(), "a_page_of_another_site_gets_no_answer"))
def test_a_page_of_another_site_gets_no_answer(server, host, status):
    """A name of its own may lead to 127.0.0.1, and a browser then lets the page read what is answered."""
    assert exchange(server, STATUS, *host)[0] == status


@pytest.mark.parametrize("length", stored.rows(globals(), "a_length_that_is_none_or_too_large_is_refused"))
def test_a_length_that_is_none_or_too_large_is_refused(server, length):
    # What is left unread when the server closes makes the kernel send a reset, which may overtake the answer.
    with contextlib.suppress(ConnectionError):
        status, answer = exchange(server, PREDICT, HOST, *length, body=b"none\r\n\r\n" * 2)
        assert 400 <= status <= 501 and b"Traceback" not in answer
    assert exchange(server, STATUS, HOST)[0] == 200


def test_a_body_in_chunks_is_read_as_any_other(server):
    body = json.dumps({"inputs": IMAGES}).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:50], body[50:])) + b"0\r\n\r\n"
    assert exchange(server, PREDICT, HOST, "Transfer-Encoding: chunked", body=chunks)[0] == 200


def test_clients_that_go_away_leave_no_word_and_no_trace(server, capfd):
    half = f"{PREDICT}\r\n{HOST}\r\nContent-Length: 1000\r\n\r\nhalf".encode()
    body = json.dumps({"signature_name": "robustness_report", "instances": ["x"] * 256}).encode()
    report = f"{PREDICT}\r\n{HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for begin in (b"", b"GET", half, report, report * 20, b"\x16\x03\x01\x02\x00", bytes(range(256))):
        for reset in (True, False):
            with socket.create_connection(server.http.server_address, timeout=20) as raw:
                if reset:  # closing sends a reset, so that the answer meets an error
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raw.sendall(begin)
    assert exchange(server, STATUS, HOST)[0] == 200
    output = capfd.readouterr()
    assert output.out == "" and output.err == ""


def test_a_request_that_has_begun_is_answered_before_the_server_stops(monkeypatch):
    begun = threading.Event()

    def slow(handlers, path):
        begun.set()
        time.sleep(0.5)
        return {"text": "x" * 2**24}  # more than the buffers of the kernel hold

    monkeypatch.setattr(development, "_read", slow)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with Server({}, rest_port=0, grpc_port=0, poll_seconds=0) as server:
            answer = pool.submit(exchange, server, STATUS, HOST)
            assert begun.wait(20)
        status, content = answer.result(timeout=20)
    assert status == 200 and content.endswith(b'x"}') and len(content) > 2**24


def test_head_has_no_body(server):
    assert exchange(server, STATUS.replace("GET", "HEAD"), HOST)[1].endswith(b"\r\n\r\n")


def test_many_clients_at_once_are_all_answered(server):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(server.http.server_address)) for _ in range(60)]
        for client in clients:
            client.settimeout(60)
            client.sendall(f"{STATUS}\r\n{HOST}\r\n\r\n".encode())
        assert [client.recv(100).split()[1] for client in clients] == [b"200"] * 60


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1e300"])
def test_pixels_that_are_not_finite_are_refused_over_rest(server, value):
    images = json.dumps(IMAGES).replace("0.0", value, 1)
    body = f'{{"inputs": {images}}}'.encode()
    status, answer = exchange(server, PREDICT, HOST, f"Content-Length: {len(body)}", body=body)
    assert status == 400 and b"images holds NaN or infinity" in answer


@pytest.mark.parametrize("token", [2**31, 2**32 + 5, -(2**31) - 1])
def test_integers_outside_of_the_dtype_of_an_input_are_refused(token):
    with pytest.raises(development.Failure, match="JSON Value of tokens: .* lie outside of int32"):
        development._json_array("tokens", [[token, 2]], np.int32)
    assert development._json_array("tokens", [[2**31 - 1, 2]], np.int32).tolist() == [[2**31 - 1, 2]]


def test_pixels_that_are_not_finite_or_not_there_are_refused_over_grpc(stub):
    not_there = tf.make_tensor_proto(np.zeros(1, np.float32))
    not_there.tensor_shape.CopyFrom(tf.TensorShape([2**30, 8, 8, 1]).as_proto())
    negative = tf.make_tensor_proto(np.zeros(1, np.float32))
    negative.tensor_shape.dim[0].size = -5
    for value, message in (
        (tf.make_tensor_proto(np.full((1, 8, 8, 1), np.nan, np.float32)), "NaN or infinity"),
        (not_there, "images has more than"),
        (negative, "images has more than"),
    ):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "small"
        request.inputs["images"].CopyFrom(value)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(request, timeout=20)
        assert caught.value.code().name == "INVALID_ARGUMENT" and message in caught.value.details()


def test_without_waitress_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "waitress", None)
    with pytest.raises(InputError, match=r"needs the package waitress: pip install 'tfrobust\[serve\]'"):
        Server({}, rest_port=0, grpc_port=0)


def test_it_listens_on_loopback_alone_and_says_what_it_is(server):
    assert server.http.server_address[0] == "127.0.0.1"
    with urllib.request.urlopen(f"{server.rest_url}/v1/models/small", timeout=20) as response:
        assert "NOT_TensorFlow_Serving" in response.headers["Server"]
    port = server.http.server_address[1]
    with pytest.raises(OSError):
        Server({}, rest_port=port, grpc_port=0)
    with pytest.raises(OSError, match="gRPC cannot listen"):
        Server({}, rest_port=0, grpc_port=int(server.grpc_url.rpartition(":")[2]))


def test_a_request_without_a_length_or_with_too_long_a_body_is_refused(server, monkeypatch):
    monkeypatch.setattr(development, "LARGEST_REQUEST", 100)
    status, answer = ask(server, "/v1/models/small:predict", {"inputs": IMAGES})
    assert status == 400 and "Content-Length is needed, of at most 100 bytes" in answer["error"]

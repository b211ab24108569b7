"""The client against the development server, over genuine REST and gRPC on loopback."""

import contextlib
import http.server
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import threading
import wsgiref.simple_server

import numpy as np
import pytest
import stored
import tensorflow as tf
from serving.helpers import encoded

from tfrobust.errors import InputError
from tfrobust.security import rehearsal
from tfrobust.serving.client import Client
from tfrobust.serving.client.rest import Rest
from tfrobust.serving.client.transport import ServerUnavailable, Signature, TensorSpecification
from tfrobust.serving.export import golden, probe
from tfrobust.serving.server import development, recipes


@pytest.fixture
def client(url):
    with Client(url, "small", timeout=20) as asked:
        yield asked


@pytest.fixture
def answer(exported):
    return golden.read(exported / "1")


def test_the_golden_request_gets_the_recorded_bits(client, answer):
    """Floats cross REST as decimal numbers; they come back bit for bit all the same. So do bytes and image files."""
    pixels = golden.golden_pixels((8, 8, 1))
    for images in (answer["images"], pixels, [encoded(image) for image in pixels]):
        assert probe.differences(answer, client.predict(images)) == []


def test_one_image_and_more_than_one_request_hold(client):
    images = golden.golden_images((8, 8, 1), 7)
    in_one_request = client.predict(images)
    assert in_one_request["logits"].shape == (7, 3) and in_one_request["logits"].dtype == np.float32
    parts = client.predict(images, batch_size=3)
    for name in probe.PREDICTIONS:
        # Some processors round differently in another batch.
        np.testing.assert_allclose(in_one_request[name], parts[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(client.predict(images[5])["logits"], in_one_request["logits"][5:6], rtol=1e-6)
    assert client.predict(images.astype(np.float64))["logits"].dtype == np.float32


def test_metadata_and_status_name_the_version_and_the_endpoints(client):
    metadata = client.metadata()
    assert (metadata["name"], metadata["version"]) == ("small", 1)
    assert sorted(metadata["signatures"]) == ["robustness_report", "serving_bytes", "serving_default"]
    signature = metadata["signatures"]["serving_default"]
    assert {name: str(tensor) for name, tensor in signature.inputs.items()} == {"images": "float32 [b, 8, 8, 1]"}
    assert str(signature.outputs["logits"]) == "float32 [b, 3]"
    (version,) = client.status()
    assert (version["version"], version["state"]) == ("1", "AVAILABLE")


def test_the_report_is_the_one_that_lies_beside_the_model(client, exported, report):
    assert client.report_text() == (exported / "1" / probe.REPORT_FILE).read_text() == report.to_json()
    assert client.report()["data"]["class_names"] == ["cat", "dog", "owl"]


@pytest.mark.parametrize("choice", [{"version": 1}, {"label": "stable"}])
def test_a_version_is_chosen_by_number_or_label(url, choice, answer):
    with Client(url, "small", **choice) as asked:
        assert probe.differences(answer, asked.predict(answer["images"])) == []
        assert asked.metadata()["version"] == 1 and len(asked.status()) == 1


@pytest.mark.parametrize("model, choice, message", stored.rows(globals(), "an_unknown_model_is_the_askers_mistake"))
def test_an_unknown_model_is_the_askers_mistake(url, model, choice, message):
    with Client(url, model, **choice) as asked, pytest.raises(InputError, match=message):
        asked.predict(golden.golden_images((8, 8, 1)))


@pytest.mark.parametrize("images, message", stored.rows(globals(), "what_the_model_cannot_take_is_one_line"))
def test_what_the_model_cannot_take_is_one_line(client, images, message):
    with pytest.raises(InputError, match=message) as caught:
        client.predict(images)
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


@pytest.fixture
def recorded(monkeypatch):
    """Return a function that makes a client of a model with one output, and the list of its requests."""
    requests = []

    def request(transport, method, path, body):
        requests.append(body)
        return {"outputs": [0.0] * len(_examples(body))}

    def asked(name, dtype, shape):
        client = Client("http://host", "m")
        signature = Signature(
            {name: TensorSpecification(dtype, (None, *shape))}, {"y": TensorSpecification("float32", None)}
        )
        client._metadata = {"signatures": dict.fromkeys(("serving_default", "serving_bytes"), signature)}
        return client, requests

    monkeypatch.setattr(Rest, "_request", request)
    return asked


def _examples(body):
    (values,) = json.loads(body)["inputs"].values()
    return values


@pytest.mark.parametrize("shape, count, sizes", [((8, 8, 1), 40, [32, 8]), ((224, 224, 3), 7, [3, 3, 1])])
def test_default_requests_stay_below_the_limits_of_both_servers(recorded, shape, count, sizes):
    client, requests = recorded("images", "float32", shape)
    images = np.full((count, *shape), np.float32(1.1754944e-38))  # the longest text of a number
    client.predict(images)
    assert [len(_examples(body)) for body in requests] == sizes
    assert "client_max_body_size 16m" in recipes.nginx(["m"]) and max(map(len, requests)) < 16 * 2**20
    assert max(sizes) * images[0].size <= development.MOST_VALUES
    client.predict(images[:5], batch_size=5)
    assert len(_examples(requests[-1])) == 5


def test_default_requests_of_files_stay_below_the_limit_of_nginx(recorded):
    client, requests = recorded("image_bytes", "string", ())
    client.predict([bytes(3 * 2**20)] * 5 + [b"small"])
    assert [len(_examples(body)) for body in requests] == [2, 2, 2] and max(map(len, requests)) < 16 * 2**20


@pytest.mark.parametrize("tokens", [[[2**32 + 5, 2]], np.array([[2**31, 2]], np.uint32), [[-(2**31) - 1, 0]]])
def test_integers_outside_of_the_dtype_of_the_model_are_refused(recorded, tokens):
    client, requests = recorded("tokens", "int32", (2,))
    with pytest.raises(InputError, match=r"reaches from .* to .*; the model takes tokens int32 \[b, 2\]"):
        client.predict(np.array(tokens))
    client.predict(np.array([[2**31 - 1, -(2**31)]]))
    assert len(requests) == 1


def test_the_server_itself_refuses_a_wrong_shape(server):
    """A client that does not look at the metadata gets the refusal of the graph's own `ensure_shape`."""
    for url in (server.rest_url, server.grpc_url):
        with Client(url, "small") as asked, pytest.raises(InputError, match="'small': .*"):
            outputs = asked.metadata()["signatures"]["serving_default"].outputs
            asked._transport.predict("serving_default", {"images": np.zeros((1, 4, 4, 1), np.float32)}, outputs)


def test_ports_are_the_servers_own_unless_given():
    places = {"host": 8501, "http://host": 8501, "https://host/prefix": 443, "http://[::1]:7": 7}
    assert {url: Client(url, "m")._transport.address.port for url in places} == places
    assert Client("https://host/prefix/", "m")._transport.path == "/prefix/v1/models/m"


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_is_not_there_or_says_nothing_is_named(scheme):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with Client(f"{scheme}://127.0.0.1:{port}", "small", timeout=5) as asked:
            with pytest.raises(ServerUnavailable, match=f"{scheme}://127.0.0.1:{port} cannot be reached"):
                asked.metadata()
        listening.listen()
        with Client(f"{scheme}://127.0.0.1:{port}", "small", timeout=0.3) as asked:
            with pytest.raises(ServerUnavailable, match="within 0.3 s|cannot be reached"):
                asked.metadata()


@contextlib.contextmanager
def dripping(begin: bytes):
    """A server that says `begin` and then a byte every hundredth of a second, for longer than a test lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip():
            asked, _ = listening.accept()
            with asked, contextlib.suppress(OSError):
                asked.sendall(begin)
                for _ in range(6000):
                    asked.sendall(b"x")
                    if ended.wait(0.01):
                        return

        worker = threading.Thread(target=drip)
        worker.start()
        yield listening.getsockname()[1]
        ended.set()
        worker.join()


_OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("scheme, begin", stored.rows(globals(), "a_server_that_drips_is_cut_off"))
def test_a_server_that_drips_is_cut_off(scheme, begin):
    """Each byte comes long before the timeout of a single read, which is therefore never reached."""
    with dripping(begin) as port, Client(f"{scheme}://127.0.0.1:{port}", "small", timeout=0.5) as asked:
        with pytest.raises(ServerUnavailable, match="within 0.5 s|cannot be reached, or fails"):
            asked.metadata()


@pytest.mark.parametrize("status, body, kind, message", stored.rows(globals(), "foreign_and_failing_servers_are_told"))
def test_foreign_and_failing_servers_are_told_apart(status, body, kind, message):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as foreign:
        threading.Thread(target=foreign.handle_request, daemon=True).start()
        with Client(f"127.0.0.1:{foreign.server_address[1]}", "small") as asked, pytest.raises(kind, match=message):
            asked.metadata()


def test_nan_and_infinity_cross_both_wires(tmp_path):
    """REST writes them as the bare words NaN, Infinity and -Infinity, which are no JSON."""
    module = tf.Module()
    specification = tf.TensorSpec((None, 2), tf.float32, name="x")
    divide = tf.function(
        lambda x: {"ratio": x[:, 0] / x[:, 1], "sum": x[:, 0] + x[:, 1]}, input_signature=[specification]
    )
    tf.saved_model.save(module, str(tmp_path / "foreign" / "1"), signatures=divide)
    rehearsal.remember(tmp_path / "foreign" / "1")
    with development.Server({"foreign": tmp_path / "foreign"}, rest_port=0, grpc_port=0, poll_seconds=0) as server:
        for url in (server.rest_url, server.grpc_url):
            with Client(url, "foreign") as asked:
                ratio = asked.predict(np.array([[1, 0], [-1, 0], [0, 0], [1, 3]], np.float32))["ratio"]
                np.testing.assert_array_equal(ratio, np.array([np.inf, -np.inf, np.nan, 1 / np.float32(3)], np.float32))
                with pytest.raises(InputError, match="foreign has no endpoint 'robustness_report'"):
                    asked.report()


def test_tls_is_spoken_and_checked(server, certificate, answer, tmp_path):
    import grpc

    key, certificate_file = certificate
    answers = development.Handlers(server.models)
    rest = wsgiref.simple_server.make_server("127.0.0.1", 0, development.rest_application(answers))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key)
    rest.socket = context.wrap_socket(rest.socket, server_side=True)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    rpc = development.grpc_server(answers)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate_file.read_bytes())])
    port = rpc.add_secure_port("127.0.0.1:0", credentials)
    rpc.start()
    try:
        for url in (f"https://127.0.0.1:{rest.server_address[1]}", f"grpcs://localhost:{port}"):
            with Client(url, "small", authority=str(certificate_file)) as asked:
                assert probe.differences(answer, asked.predict(answer["images"])) == []
            with Client(url, "small", timeout=5) as asked, pytest.raises(ServerUnavailable, match="cannot be reached"):
                asked.metadata()
    finally:
        rpc.stop(None)
        rest.shutdown()
        rest.server_close()
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(InputError, match="holds no certificates"):
        Client("https://host", "small", authority=str(tmp_path / "none.pem"))


def test_rest_imports_no_tensorflow(server):
    """Nor does gRPC import Keras; TensorFlow comes with the genuine stubs."""
    code = (
        "import sys, json, numpy; from tfrobust.serving.client import Client\n"
        "found = Client(sys.argv[1], 'small').predict(numpy.zeros((1, 8, 8, 1), 'float32'))\n"
        "print(json.dumps([sorted(found), sorted({m.split('.')[0] for m in sys.modules})]))"
    )
    root = str(pathlib.Path(development.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, server.rest_url], capture_output=True, text=True, timeout=60, cwd=root
    )
    assert done.returncode == 0, done.stderr
    outputs, modules = json.loads(done.stdout)
    assert outputs == sorted(probe.PREDICTIONS)
    assert not {"tensorflow", "keras", "grpc", "gin"} & set(modules)

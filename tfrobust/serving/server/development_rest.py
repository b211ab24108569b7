"""The REST interface of the development server (NOT TensorFlow Serving): JSON to the genuine protos and back."""

from __future__ import annotations

import base64
import binascii
import http
import json
import logging
import re
import threading
import urllib.parse
from collections.abc import Callable

import numpy as np

from tfrobust.errors import InputError
from tfrobust.serving.server.development_models import LARGEST_REQUEST, NAME, Answers, Failure

# The mapping of TensorFlow Serving, model_servers/http_server.cc.
_STATUS = {"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "NOT_FOUND": 404, "UNIMPLEMENTED": 501}
_STATUS["PERMISSION_DENIED"] = 403  # not in TensorFlow Serving: a refused Host header
LARGEST_HEADERS, MOST_CONNECTIONS, LONGEST_SILENCE = 2**16, 100, 60
_CHOICE = r"(?:/versions/(?P<version>\d{1,18})|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(rf"/v1/models/(?P<name>[^/:]+){_CHOICE}:(?P<what>predict|classify|regress)")
_READ = re.compile(rf"/v1/models/(?P<name>[^/:]+){_CHOICE}(?P<what>/metadata)?")


class HttpServer:
    """An HTTP server with TensorFlow Serving's paths; it serves from `serve_forever` to `shutdown`.

    Raises:
        InputError: the package waitress is missing.
        OSError: the port is taken.
    """

    def __init__(self, answers: Answers, address: tuple[str, int]):
        try:
            from waitress import server, wasyncore
        except ImportError:
            raise InputError(
                "the development server needs the package waitress: pip install 'tfrobust[serve]'"
            ) from None
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # a client that disconnects is no error
        self._sockets, self._loop, self._close_all = {}, wasyncore.loop, wasyncore.close_all
        self._server = server.create_server(
            application(answers),
            self._sockets,
            host=address[0],
            port=address[1],
            ident=NAME.replace(" ", "_"),
            backlog=128,
            connection_limit=MOST_CONNECTIONS,
            channel_timeout=LONGEST_SILENCE,
            max_request_header_size=LARGEST_HEADERS,
            max_request_body_size=LARGEST_REQUEST,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=True,
        )
        self.server_address = self._server.socket.getsockname()
        self._asked_to_stop, self._stopped = threading.Event(), threading.Event()

    def serve_forever(self) -> None:
        """Serve requests until `shutdown` is called from another thread."""
        while not self._asked_to_stop.is_set():
            self._loop(timeout=1, use_poll=True, map=self._sockets, count=1)
        self._stopped.set()

    def shutdown(self) -> None:
        """Stop `serve_forever`, and return once it has stopped."""
        self._asked_to_stop.set()
        self._server.pull_trigger()
        self._stopped.wait()

    def server_close(self) -> None:
        """Release the port; call it only after `shutdown`."""
        self._server.task_dispatcher.shutdown()
        self._close_all(self._sockets)


def application(answers: Answers) -> Callable:
    """Create the WSGI application of the REST interface."""

    def answer(environ: dict, start_response: Callable) -> list[bytes]:
        try:
            _check_host(environ.get("HTTP_HOST", ""))
            # PATH_INFO is already decoded, so that a slash within a name (`a%2Fb`) would look like a separator.
            path = environ.get("REQUEST_URI") or urllib.parse.quote(environ["PATH_INFO"], safe="/:%")
            if environ["REQUEST_METHOD"] == "GET":
                found = _read(answers, path)
            elif environ["REQUEST_METHOD"] == "POST":
                found = _predict(answers, path, _body(environ))
            else:
                raise Failure("UNIMPLEMENTED", f"The {NAME} has no {environ['REQUEST_METHOD']}"[:300])
            status = 200
        except Failure as failure:
            status, found = _STATUS.get(failure.code, 500), {"error": failure.message}
        except UnicodeEncodeError:  # JSON can write halves of a surrogate pair, which no name holds
            status, found = 400, {"error": "a name in the request is no UTF-8"}
        except Exception as error:
            status, found = 500, {"error": f"{type(error).__name__}: {error}"[:500]}
        content = json.dumps(found).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response(f"{status} {http.HTTPStatus(status).phrase}", headers)
        return [content]

    return answer


def _check_host(host: str) -> None:
    """Refuse requests whose Host is not loopback, since DNS rebinding would let pages of other sites read responses."""
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in ("127.0.0.1", "localhost", "::1"):
        raise Failure("PERMISSION_DENIED", f"the Host {host[:60]!r} is not this machine's loopback interface")


def _body(environ: dict) -> bytes:
    length = environ.get("CONTENT_LENGTH", "")
    if not (length.isascii() and length.isdigit()) or int(length[:18]) > LARGEST_REQUEST:
        raise Failure("INVALID_ARGUMENT", f"Content-Length is needed, of at most {LARGEST_REQUEST} bytes")
    return environ["wsgi.input"].read(int(length))


def _read(answers: Answers, path: str) -> dict:
    """Handle GET: return the status of a model, or its metadata."""
    from google.protobuf import json_format
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

    match = _matched(_READ, "GET", path)
    if match["what"] is None:
        request = get_model_status_pb2.GetModelStatusRequest()
        _fill(request.model_spec, match)
        return json_format.MessageToDict(answers.status(request), always_print_fields_with_no_presence=True)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    _fill(request.model_spec, match)
    response = answers.metadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    how = {"always_print_fields_with_no_presence": True, "preserving_proto_field_name": True}
    return {
        "model_spec": json_format.MessageToDict(response.model_spec, **how),
        "metadata": {"signature_def": json_format.MessageToDict(signatures, **how)},
    }


def _predict(answers: Answers, path: str, body: bytes) -> dict:
    """Handle POST :predict, in row or column format."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    match = _matched(_PREDICT, "POST", path)
    if match["what"] != "predict":
        raise Failure("UNIMPLEMENTED", f"The {NAME} has no {match['what']}")
    document = _parsed(body)
    request = predict_pb2.PredictRequest()
    _fill(request.model_spec, match)
    request.model_spec.signature_name = document.get("signature_name", "serving_default")
    _, version = answers.models.find(request.model_spec)
    definition = version.signature_defs.get(request.model_spec.signature_name)
    if definition is None:
        name = request.model_spec.signature_name
        raise Failure("INVALID_ARGUMENT", f'Serving signature name: "{name}" not found in signature def')
    rows = "instances" in document
    for key, value in (_of_rows if rows else _of_columns)(document, list(definition.inputs)).items():
        if key in definition.inputs:
            dtype = tf.dtypes.as_dtype(definition.inputs[key].dtype)
            request.inputs[key].CopyFrom(tf.make_tensor_proto(_array(key, value, dtype.as_numpy_dtype)))
    outputs = {key: _jsonable(key, tf.make_ndarray(value)) for key, value in answers.predict(request).outputs.items()}
    if len(outputs) == 1:  # TensorFlow Serving omits the name of a single output
        return {"predictions" if rows else "outputs": next(iter(outputs.values()))}
    if not rows:
        return {"outputs": outputs}
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}


def _parsed(body: bytes) -> dict:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failure("INVALID_ARGUMENT", f"JSON Parse error: {error}"[:300]) from None
    if not isinstance(document, dict) or ("instances" in document) == ("inputs" in document):
        raise Failure("INVALID_ARGUMENT", "JSON Value: expecting one of 'inputs' or 'instances' keys to exist")
    if not isinstance(document.get("signature_name", ""), str):
        raise Failure("INVALID_ARGUMENT", "'signature_name' key must be a string value.")
    return document


def _of_rows(document: dict, names: list[str]) -> dict:
    rows = document["instances"]
    if not isinstance(rows, list) or not rows:
        raise Failure("INVALID_ARGUMENT", "Expecting 'instances' to be a list with values")
    if all(isinstance(row, dict) and set(row) != {"b64"} for row in rows):
        for number, row in enumerate(rows):
            if set(row) != set(names):
                keys = ",".join(sorted(names))
                raise Failure("INVALID_ARGUMENT", f"Failed to process element: {number}; keys must be equal to: {keys}")
        return {name: [row[name] for row in rows] for name in names}
    return _of_one(rows, names)


def _of_columns(document: dict, names: list[str]) -> dict:
    values = document["inputs"]
    if not isinstance(values, dict) or set(values) == {"b64"}:
        return _of_one(values, names)
    missing = sorted(set(names) - set(values))
    if missing:
        raise Failure("INVALID_ARGUMENT", f"Missing named input: {missing[0]} in 'inputs' object.")
    return values


def _of_one(values, names: list[str]) -> dict:
    if len(names) != 1:
        raise Failure("INVALID_ARGUMENT", "A plain list was given, but several input tensors are required")
    return {names[0]: values}


def _array(name: str, value, dtype) -> np.ndarray:
    try:
        if dtype is object:
            return np.array([_string(item) for item in value], dtype=object)
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise InputError("not numbers, or lists of different lengths")
        if np.dtype(dtype).kind in "iu" and array.dtype.kind not in "iu":
            raise InputError(f"not of expected type {np.dtype(dtype).name}")
        return array.astype(dtype)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise Failure("INVALID_ARGUMENT", f"JSON Value of {name}: {error}"[:300]) from None


def _string(value) -> bytes:
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not of expected type string")
    return value.encode()


def _jsonable(name: str, array: np.ndarray):
    if array.dtype != object:
        return array.tolist()
    if name.endswith("_bytes"):
        return [{"b64": base64.b64encode(item).decode()} for item in array]
    return [item.decode("utf-8", errors="replace") for item in array]


def _matched(pattern: re.Pattern, method: str, path: str) -> re.Match:
    match = pattern.fullmatch(path)
    if match is None:
        raise Failure("INVALID_ARGUMENT", f"Malformed request: {method} {path}"[:300])
    return match


def _fill(specification, match: re.Match) -> None:
    specification.name = urllib.parse.unquote(match["name"])
    if match["version"] is not None:
        specification.version.value = int(match["version"])
    elif match["label"] is not None:
        specification.version_label = urllib.parse.unquote(match["label"])

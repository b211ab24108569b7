"""A small substitute for TensorFlow Serving, to test an export without Docker. It is NOT TensorFlow Serving.

It handles the same requests over REST and gRPC, built from the genuine protos, on this machine only. It has no
batching, no monitoring, no warm-up and no TLS, and its performance has not been measured. Do not use it in production.
"""

from __future__ import annotations

import base64
import binascii
import concurrent.futures
import contextlib
import http
import json
import logging
import math
import pathlib
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping

import numpy as np

from tfrobust.errors import InputError, cut
from tfrobust.serving.client.transport import integers_fit
from tfrobust.serving.export import publish

NAME = "tfrobust development server, NOT TensorFlow Serving"
LARGEST_REQUEST = 64 * 2**20
# The mapping of TensorFlow Serving, model_servers/http_server.cc.
_STATUS = {"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "NOT_FOUND": 404, "UNIMPLEMENTED": 501}
_STATUS["PERMISSION_DENIED"] = 403  # not in TensorFlow Serving: a refused Host header
LARGEST_HEADERS, MOST_CONNECTIONS, LONGEST_SILENCE = 2**16, 500, 60
LONGEST_DRAIN = 20  # seconds in which a server that stops finishes the requests that have begun
# Numbers in the inputs of one request. A model takes many times the memory of its inputs, and JSON more than arrays.
MOST_VALUES = 2**20
_CHOICE = r"(?:/versions/(?P<version>\d{1,18})|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(rf"/v1/models/(?P<name>[^/:]+){_CHOICE}:(?P<what>predict|classify|regress)")
_READ = re.compile(rf"/v1/models/(?P<name>[^/:]+){_CHOICE}(?P<what>/metadata)?")


class Failure(Exception):
    """A request that cannot be served: the name of a gRPC status code, and a sentence."""

    def __init__(self, code: str, message: str):
        self.code, self.message = code, cut(message)
        super().__init__(self.message)


class _Version:
    """One loaded version directory."""

    def __init__(self, directory: pathlib.Path):
        from tensorflow.core.protobuf import saved_model_pb2

        from tfrobust.security import saved_models

        self.loaded = saved_models.load(directory)  # kept because it owns the variables
        self.signatures = saved_models.signatures(self.loaded)
        graph = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes()).meta_graphs[0]
        self.signature_defs = dict(graph.signature_def)

    def run(self, name: str, inputs: Mapping):
        import tensorflow as tf

        if name not in self.signatures:
            raise Failure("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        required = set(self.signature_defs[name].inputs)
        if set(inputs) != required:
            extra, missing = (",".join(sorted(names)) for names in (set(inputs) - required, required - set(inputs)))
            message = f"Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
            raise Failure("INVALID_ARGUMENT", f"input size does not match signature. {message}")
        try:
            tensors = {key: tf.constant(_array(key, value)) for key, value in inputs.items()}
            return self.signatures[name](**tensors)
        except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
            raise Failure("INVALID_ARGUMENT", " ".join(str(error).split())[:500]) from None


def _array(name: str, value) -> np.ndarray:
    """Convert a TensorProto to an array; refuse non-finite values and tensors larger than a request may be."""
    import tensorflow as tf

    from tfrobust.security.program_sizes import element_size

    sizes = [axis.size for axis in value.tensor_shape.dim]
    # A TensorProto of a few bytes can stand for any number of equal values.
    if min(sizes, default=0) < 0 or math.prod(sizes) * (element_size(value.dtype) or 1) > LARGEST_REQUEST:
        raise Failure("INVALID_ARGUMENT", f"{name} has more than {LARGEST_REQUEST} bytes, or none that can be counted")
    if value.dtype != tf.string.as_datatype_enum and math.prod(sizes) > MOST_VALUES:
        raise Failure("INVALID_ARGUMENT", f"{name} has {math.prod(sizes)} numbers; one request takes {MOST_VALUES}")
    array = tf.make_ndarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise Failure("INVALID_ARGUMENT", f"{name} holds NaN or infinity")
    return array


class Models:
    """The served models: the newest version of each, or all labeled versions, as in `recipes.models_config`.

    Args:
        folders: name -> folder with the version directories.
        labels: name -> {label: version}.
    """

    def __init__(
        self, folders: Mapping[str, str | pathlib.Path], labels: Mapping[str, Mapping[str, int]] | None = None
    ):
        self.folders = {name: pathlib.Path(folder) for name, folder in folders.items()}
        self.labels = {name: dict(of_model) for name, of_model in (labels or {}).items()}
        self._served: dict[str, dict[int, _Version]] = {name: {} for name in folders}
        self._failed: dict[str, dict[int, str]] = {name: {} for name in folders}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Load the requested versions that are new, then release those no longer requested."""
        with self._lock:
            for name, folder in self.folders.items():
                there = publish.versions(folder)
                labeled = set(self.labels.get(name, {}).values())
                requested = labeled & set(there) if labeled else set(there[-1:])
                served, failed = self._served[name], self._failed[name]
                loaded = {version: served[version] for version in requested & served.keys()}
                for version in sorted(requested - served.keys() - failed.keys()):
                    try:
                        loaded[version] = _Version(folder / str(version))
                    except Exception as error:  # a broken version must not stop the previous one
                        failed[version] = cut(f"{type(error).__name__}: {error}")
                if loaded or not requested:
                    self._served[name] = loaded

    def find(self, specification) -> tuple[int, _Version]:
        """Return the version that a genuine ModelSpec requests."""
        name, served = specification.name, self._served.get(specification.name, {})
        choice = specification.WhichOneof("version_choice")
        if choice == "version_label":
            version = self.labels.get(name, {}).get(specification.version_label)
            if version is None:
                raise Failure("INVALID_ARGUMENT", f"Unrecognized servable version label: {specification.version_label}")
        else:
            version = specification.version.value if choice == "version" else max(served, default=None)
        if version not in served:
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            failed = self._failed.get(name, {})
            reason = failed.get(max(failed, default=0) if version is None else version)
            cause = f" ({reason})" if reason else ""
            raise Failure("NOT_FOUND", f"Servable not found for request: {request}{cause}")
        return version, served[version]

    def states(self, specification) -> dict[int, str]:
        """Return version -> why it could not be loaded, or "" for a version that is served."""
        name = specification.name
        reasons = {**self._failed.get(name, {}), **{version: "" for version in self._served.get(name, {})}}
        if specification.WhichOneof("version_choice") == "version":
            reasons = {version: why for version, why in reasons.items() if version == specification.version.value}
            if not reasons:
                number = specification.version.value
                raise Failure("NOT_FOUND", f"Could not find version {number} of model {name}")
        if not reasons:
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        return reasons


class Handlers:
    """The request handlers of both interfaces: genuine request protos in, genuine response protos out."""

    def __init__(self, models: Models):
        self.models = models

    def predict(self, request):
        """Handle a PredictRequest; return a PredictResponse."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        number, version = self.models.find(request.model_spec)
        name = request.model_spec.signature_name or "serving_default"
        outputs = version.run(name, request.inputs)
        unknown = set(request.output_filter) - set(outputs)
        if unknown:
            raise Failure("INVALID_ARGUMENT", f"output tensor alias not found in signature: {sorted(unknown)[0]}")
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = request.model_spec.name, name
        response.model_spec.version.value = number
        for key, value in outputs.items():
            if not request.output_filter or key in request.output_filter:
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    def metadata(self, request):
        """Handle a GetModelMetadataRequest; return a GetModelMetadataResponse."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        if list(request.metadata_field) != ["signature_def"]:
            raise Failure("INVALID_ARGUMENT", f"Metadata field {list(request.metadata_field)} is not supported")
        number, version = self.models.find(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in version.signature_defs.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name, response.model_spec.version.value = request.model_spec.name, number
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request):
        """Handle a GetModelStatusRequest; return a GetModelStatusResponse."""
        from tensorflow_serving.apis import get_model_status_pb2

        response = get_model_status_pb2.GetModelStatusResponse()
        state = get_model_status_pb2.ModelVersionStatus
        for number, why in sorted(self.models.states(request.model_spec).items(), reverse=True):
            entry = response.model_version_status.add(version=number, state=state.END if why else state.AVAILABLE)
            entry.status.error_code, entry.status.error_message = (13 if why else 0), why
        return response


class Server:
    """A context manager that serves models over REST and gRPC on the loopback interface.

        with Server({"ascl_leaked": "exported/ascl_leaked"}, rest_port=0, grpc_port=0) as server:
            Client(server.rest_url, "ascl_leaked").predict(images)

    Args:
        folders: see `Models`.
        labels: see `Models`.
        rest_port: port for REST; 0 takes a free one.
        grpc_port: port for gRPC; 0 takes a free one.
        poll_seconds: interval in seconds between searches for new versions; 0 searches only at the start.

    Raises:
        InputError: the package waitress is missing.
        OSError: a port is taken.
    """

    def __init__(self, folders, labels=None, *, rest_port: int = 8501, grpc_port: int = 8500, poll_seconds: float = 1):
        self.models = Models(folders, labels)
        handlers = Handlers(self.models)
        self.http = HttpServer(handlers, ("127.0.0.1", rest_port))
        self.rpc = grpc_server(handlers)
        try:
            grpc_port = self.rpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
        except RuntimeError as error:
            self.http.server_close()
            raise OSError(f"gRPC cannot listen on port {grpc_port}: {error}") from None
        self.rest_url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.grpc_url = f"grpc://127.0.0.1:{grpc_port}"
        self._poll_seconds, self._closed = poll_seconds, threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Server:
        self.models.refresh()
        work = [self.http.serve_forever, *([self._poll] if self._poll_seconds else [])]
        self._threads = [threading.Thread(target=target, daemon=True) for target in work]
        for thread in self._threads:
            thread.start()
        self.rpc.start()
        return self

    def __exit__(self, *_) -> None:
        self._closed.set()
        rpc_stopped = self.rpc.stop(grace=LONGEST_DRAIN)
        self.http.shutdown()
        self.http.server_close()
        rpc_stopped.wait()
        for thread in self._threads:
            thread.join()

    def _poll(self) -> None:
        while not self._closed.wait(self._poll_seconds):
            with contextlib.suppress(OSError):
                self.models.refresh()


def grpc_server(handlers: Handlers):
    """Create a gRPC server with the genuine PredictionService and ModelService, not yet bound to a port."""
    import grpc
    from tensorflow_serving.apis import model_service_pb2_grpc as model_service
    from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

    def served(handler):
        def method(self, request, context):
            try:
                return handler(request)
            except Failure as failure:
                context.abort(grpc.StatusCode[failure.code], failure.message)

        return method

    prediction = {"Predict": served(handlers.predict), "GetModelMetadata": served(handlers.metadata)}
    status = {"GetModelStatus": served(handlers.status)}
    limits = [("grpc.max_receive_message_length", LARGEST_REQUEST), ("grpc.max_send_message_length", -1)]
    # With port reuse two servers could listen on one port, and half of the requests would go to the other.
    limits.append(("grpc.so_reuseport", 0))
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=limits)
    prediction_service.add_PredictionServiceServicer_to_server(
        type("Prediction", (prediction_service.PredictionServiceServicer,), prediction)(), server
    )
    model_service.add_ModelServiceServicer_to_server(
        type("Model", (model_service.ModelServiceServicer,), status)(), server
    )
    return server


# ------------------------------------------------------------------------------------------------------ REST


class HttpServer:
    """An HTTP server with TensorFlow Serving's paths; it serves from `serve_forever` to `shutdown`.

    Raises:
        InputError: the package waitress is missing.
        OSError: the port is taken.
    """

    def __init__(self, handlers: Handlers, address: tuple[str, int]):
        try:
            from waitress import server, wasyncore
        except ImportError:
            raise InputError(
                "the development server needs the package waitress: pip install 'tfrobust[serve]'"
            ) from None
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # a client that disconnects is no error
        self._sockets: dict = {}
        self._loop, self._close_all, self._close_one = wasyncore.loop, wasyncore.close_all, wasyncore.dispatcher.close
        self._server = server.create_server(
            rest_application(handlers),
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
        self._stop_requested, self._stopped = threading.Event(), threading.Event()

    def serve_forever(self) -> None:
        """Serve requests until `shutdown` is called from another thread; then finish those that have begun."""
        while not self._stop_requested.is_set():
            self._loop(timeout=1, use_poll=True, map=self._sockets, count=1)
        self._close_one(self._server)  # the listening socket alone
        end = time.monotonic() + LONGEST_DRAIN
        while self._has_work() and time.monotonic() < end:
            self._loop(timeout=0.1, use_poll=True, map=self._sockets, count=1)
        self._stopped.set()

    def _has_work(self) -> bool:
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)

    def shutdown(self) -> None:
        """Stop `serve_forever`, and return once it has stopped."""
        self._stop_requested.set()
        self._server.pull_trigger()
        self._stopped.wait()

    def server_close(self) -> None:
        """Release the port; call it only after `shutdown`."""
        self._server.task_dispatcher.shutdown()
        self._close_all(self._sockets)


def rest_application(handlers: Handlers) -> Callable:
    """Create the WSGI application of the REST interface."""

    def respond(environ: dict, start_response: Callable) -> list[bytes]:
        try:
            _check_host(environ.get("HTTP_HOST", ""))
            # PATH_INFO is already decoded, so that a slash within a name (`a%2Fb`) would look like a separator.
            path = environ.get("REQUEST_URI") or urllib.parse.quote(environ["PATH_INFO"], safe="/:%")
            path = path.partition("?")[0]
            if environ["REQUEST_METHOD"] == "GET":
                answer = _read(handlers, path)
            elif environ["REQUEST_METHOD"] == "POST":
                answer = _predict(handlers, path, _body(environ))
            else:
                raise Failure("UNIMPLEMENTED", f"The {NAME} has no {environ['REQUEST_METHOD']}")
            status = 200
        except Failure as failure:
            status, answer = _STATUS.get(failure.code, 500), {"error": failure.message}
        except UnicodeEncodeError:  # JSON can write halves of a surrogate pair, which no name holds
            status, answer = 400, {"error": "a name in the request is no UTF-8"}
        except Exception as error:
            status, answer = 500, {"error": f"{type(error).__name__}: {error}"[:500]}
        content = json.dumps(answer).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response(f"{status} {http.HTTPStatus(status).phrase}", headers)
        # A body after HEAD would be read as the beginning of the next response.
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    return respond


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


def _read(handlers: Handlers, path: str) -> dict:
    """Handle GET: return the status of a model, or its metadata."""
    from google.protobuf import json_format
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

    match = _matched(_READ, "GET", path)
    if match["what"] is None:
        request = get_model_status_pb2.GetModelStatusRequest()
        _fill(request.model_spec, match)
        return json_format.MessageToDict(handlers.status(request), always_print_fields_with_no_presence=True)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    _fill(request.model_spec, match)
    response = handlers.metadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    how = {"always_print_fields_with_no_presence": True, "preserving_proto_field_name": True}
    return {
        "model_spec": json_format.MessageToDict(response.model_spec, **how),
        "metadata": {"signature_def": json_format.MessageToDict(signatures, **how)},
    }


def _predict(handlers: Handlers, path: str, body: bytes) -> dict:
    """Handle POST :predict, in row or column format."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    match = _matched(_PREDICT, "POST", path)
    if match["what"] != "predict":
        raise Failure("UNIMPLEMENTED", f"The {NAME} has no {match['what']}")
    document = _parsed(body)
    request = predict_pb2.PredictRequest()
    _fill(request.model_spec, match)
    request.model_spec.signature_name = document.get("signature_name") or "serving_default"
    _, version = handlers.models.find(request.model_spec)
    definition = version.signature_defs.get(request.model_spec.signature_name)
    if definition is None:
        name = request.model_spec.signature_name
        raise Failure("INVALID_ARGUMENT", f'Serving signature name: "{name}" not found in signature def')
    rows = "instances" in document
    for key, value in (_of_rows if rows else _of_columns)(document, list(definition.inputs)).items():
        if key in definition.inputs:
            dtype = tf.dtypes.as_dtype(definition.inputs[key].dtype)
            request.inputs[key].CopyFrom(tf.make_tensor_proto(_json_array(key, value, dtype.as_numpy_dtype)))
    outputs = {key: _jsonable(key, tf.make_ndarray(value)) for key, value in handlers.predict(request).outputs.items()}
    if len(outputs) == 1:  # TensorFlow Serving omits the name of a single output
        return {"predictions" if rows else "outputs": next(iter(outputs.values()))}
    if not rows:
        return {"outputs": outputs}
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}


def _parsed(body: bytes) -> dict:
    if sum(map(body.count, (b",", b"[", b"{"))) > 2 * MOST_VALUES:
        raise Failure("INVALID_ARGUMENT", f"the request has too many values; one request takes {MOST_VALUES} numbers")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failure("INVALID_ARGUMENT", f"JSON Parse error: {error}") from None
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


def _json_array(name: str, value, dtype) -> np.ndarray:
    try:
        if dtype is object:
            is_one = not isinstance(value, list)  # a text has parts, too, and a dictionary keys
            return np.array(_string(value) if is_one else [_string(item) for item in value], dtype=object)
        array = np.asarray(value)
        if array.dtype.kind not in ("b" if np.dtype(dtype).kind == "b" else "iuf"):
            raise InputError("not numbers, or lists of different lengths")
        if np.dtype(dtype).kind in "iu" and array.dtype.kind not in "iu":
            raise InputError(f"not of expected type {np.dtype(dtype).name}")
        if not integers_fit(array, dtype):
            raise InputError(f"{array.min()} to {array.max()} lie outside of {np.dtype(dtype).name}")
        with np.errstate(over="ignore"):  # infinity, which is refused later
            return array.astype(dtype)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise Failure("INVALID_ARGUMENT", f"JSON Value of {name}: {error}") from None


def _string(value) -> bytes:
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not of expected type string")
    return value.encode()


def _jsonable(name: str, array: np.ndarray):
    return array.tolist() if array.dtype != object else _texts(array.tolist(), name.endswith("_bytes"))


def _texts(value, encoded: bool):
    if isinstance(value, list):
        return [_texts(part, encoded) for part in value]
    return {"b64": base64.b64encode(value).decode()} if encoded else value.decode("utf-8", errors="replace")


def _matched(pattern: re.Pattern, method: str, path: str) -> re.Match:
    match = pattern.fullmatch(path)
    if match is None:
        raise Failure("INVALID_ARGUMENT", f"Malformed request: {method} {path}")
    return match


def _fill(specification, match: re.Match) -> None:
    specification.name = urllib.parse.unquote(match["name"])
    if match["version"] is not None:
        specification.version.value = int(match["version"])
    elif match["label"] is not None:
        specification.version_label = urllib.parse.unquote(match["label"])

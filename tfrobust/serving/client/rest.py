"""TensorFlow Serving's REST interface, with only the standard library and NumPy."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable

import numpy as np

from tfrobust.errors import InputError, cut
from tfrobust.serving.client.transport import LARGEST_RESPONSE, ServerUnavailable, TensorSpecification, plain, refused


class Rest:
    """One model of a server, over HTTP; one connection per request, so that threads can share it.

    Args:
        address: `http(s)://host:port[/prefix]`, as urllib splits it, with a port.
        model: its name.
        choice: ("version", 3), ("label", "stable"), or None for the server's newest.
        timeout: seconds for one response, from the name lookup to the last byte.
        authority: file of certificates, one of which must have signed an https server's; None for the system's.
    """

    def __init__(self, address: urllib.parse.SplitResult, model: str, choice, timeout: float, authority: str | None):
        self.address, self.model, self.timeout = address, model, timeout
        which = "" if choice is None else f"/{choice[0]}s/{_quoted(choice[1])}"
        self.path = f"{address.path.rstrip('/')}/v1/models/{_quoted(model)}{which}"
        self.context = ssl.create_default_context(cafile=authority) if address.scheme == "https" else None

    def status(self) -> list[dict]:
        """Return the versions on the server: {"version", "state", "status"} each."""
        try:
            return list(self._request("GET", self.path)["model_version_status"])
        except (KeyError, TypeError):
            raise self._foreign("its status has no model_version_status") from None

    def metadata(self) -> dict:
        """Return the server's metadata response unchanged."""
        return self._request("GET", f"{self.path}/metadata")

    def predict(self, signature: str, inputs: dict, outputs: dict[str, TensorSpecification]) -> dict[str, np.ndarray]:
        """Run one signature: arrays, or lists of bytes, by name -> arrays by name (column format)."""
        values = {name: _jsonable(value) for name, value in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": values}).encode()
        tensors = self._request("POST", f"{self.path}:predict", body).get("outputs")
        if tensors is None:
            raise self._foreign("its response has no outputs")
        if len(outputs) == 1:  # the server omits the name of a single output
            tensors = {next(iter(outputs)): tensors}
        if not isinstance(tensors, dict) or set(tensors) != set(outputs):
            raise self._foreign(f"its response does not hold {sorted(outputs)}")
        return {name: outputs[name].array(value) for name, value in tensors.items()}

    def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict:
        status, text = self._exchange(method, path, body)
        try:
            response = json.loads(text)  # accepts the bare NaN and Infinity that the server writes
        except (ValueError, RecursionError):
            response = None
        if status == 200 and isinstance(response, dict):
            return response
        if status == 413:  # of the server, or of a proxy before it, whose page is no JSON
            size = f"{len(body or b'') / 2**20:.1f} MiB"
            raise InputError(f"The request is too large for {self._name()} ({size}): send fewer examples at a time.")
        reason = response.get("error") if isinstance(response, dict) else None
        if status >= 500 or status == 429:
            raise ServerUnavailable(f"{self._name()} fails with status {status}: {plain(reason or cut(text))}")
        if reason is not None:
            raise refused(self.model, reason)
        raise self._foreign(f"status {status} without JSON")

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        host, port = self.address.hostname or "", self.address.port
        connection: http.client.HTTPConnection
        if self.context is None:
            connection = http.client.HTTPConnection(host, port, timeout=self.timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=self.timeout, context=self.context)
        try:
            status, content = _within(self.timeout, lambda held: _exchanged(connection, held, method, path, body))
        except TimeoutError:
            raise ServerUnavailable(f"{self._name()} does not respond within {self.timeout:g} s.") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnavailable(
                f"{self._name()} cannot be reached: {plain(error) or type(error).__name__}"
            ) from None
        if len(content) > LARGEST_RESPONSE:
            raise ServerUnavailable(f"{self._name()} sends more than {LARGEST_RESPONSE >> 20} MiB.")
        return status, content.decode("utf-8", errors="replace")

    def _name(self) -> str:
        return f"{self.address.scheme}://{self.address.netloc}"

    def _foreign(self, problem: str) -> InputError:
        return InputError(f"{self._name()} is no TensorFlow Serving over REST: {problem}; its usual port is 8501.")


def _exchanged(connection, held: list, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    """Send one request and read its response.

    `held` receives the socket, because a connection drops its reference once the response has begun.
    """
    try:
        connection.connect()
        held.append(connection.sock)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(LARGEST_RESPONSE + 1)
    finally:
        connection.close()


def _within(seconds: float, call: Callable[[list], tuple]) -> tuple:
    """Return or raise the result of a call within `seconds` in total.

    A socket's own timeout does not suffice: it starts again with every byte.

    Args:
        seconds: > 0.
        call: function of a list, to which it appends the sockets whose shutdown ends it.

    Raises:
        TimeoutError: the call took longer.
    """
    held: list = []
    outcome: list[tuple] = []
    errors: list[BaseException] = []

    def work():
        try:
            outcome.append(call(held))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(min(seconds, threading.TIMEOUT_MAX))
    if worker.is_alive():
        for connection in held:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        raise TimeoutError
    if errors:
        raise errors[0]
    return outcome[0]


def _quoted(text) -> str:
    return urllib.parse.quote(str(text), safe="")


def _jsonable(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [{"b64": base64.b64encode(item).decode()} for item in value]

"""A TensorFlow Serving client for models exported by tfrobust: predictions, metadata, and the model's own report."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Callable

import numpy as np

from tfrobust.errors import InputError
from tfrobust.serving.client.transport import (
    ServerUnavailable,
    Signature,
    TensorSpecification,
    integers_fit,
    plain,
    read_signatures,
    read_version,
)

PORTS = {"http": 8501, "https": 443, "grpc": 8500, "grpcs": 8500}
PREDICT, PREDICT_BYTES, REPORT = "serving_default", "serving_bytes", "robustness_report"
SMOOTHED = "serving_smoothed"
# Equal to `data.spec.PIXEL_SCALE`, whose import would load TensorFlow.
_PIXEL_SCALE = np.float32(1 / 255)
_LONGEST_TIMEOUT = 86_400
# Of the JSON of one request by default: nginx.conf of `serve` passes 16 MiB, and the development server 2^20 numbers.
_LARGEST_BODY = 14 * 2**20
_LONGEST_NUMBER = 28  # bytes of a float32 and its brackets in JSON


class Client:
    """A client of one model on a running TensorFlow Serving, over REST or gRPC.

        with Client("http://127.0.0.1:8501", "ascl_leaked") as client:
            client.predict(images)["probabilities"]
            client.report()["threat"]

    REST needs no TensorFlow; gRPC uses the stubs of tensorflow-serving-api, which import it.

    Args:
        url: `http://host:8501`, `https://...`, `grpc://host:8500` or `grpcs://...`. The default scheme is http, the
            default port that of TensorFlow Serving (443 for https). REST may have a path before `/v1`.
        model: the name under which the model is served.
        version: number of a version; None for the newest, or for `label`.
        label: label of a version, such as "stable".
        timeout: seconds for one response, from the name lookup to the last byte.
        authority: file of certificates (PEM), one of which must have signed the server's; None for those of the system.

    Raises:
        InputError: the arguments do not name a server, a model and at most one version or label.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 60.0,
        authority: str | None = None,
    ):
        address = _split(url)
        if not model or (version is not None and label is not None):
            raise InputError("A client needs the name of a model, and at most one of version and label.")
        if not 0 < timeout <= _LONGEST_TIMEOUT:  # excludes NaN as well; system clocks overflow after 292 years
            raise InputError(f"timeout is {timeout}; it lies above 0 and at most at {_LONGEST_TIMEOUT} s.")
        if authority is not None and address.scheme not in ("https", "grpcs"):
            raise InputError(f"{address.scheme}:// takes no certificates; use https:// or grpcs://.")
        if authority is not None and not os.path.isfile(authority):
            raise InputError(f"there is no file {authority}")
        choice = ("version", int(version)) if version is not None else ("label", label) if label else None
        try:
            if address.scheme.startswith("http"):
                from tfrobust.serving.client.rest import Rest

                transport: Callable = Rest
            else:
                from tfrobust.serving.client.rpc import Rpc

                transport = Rpc
            self._transport = transport(address, model, choice, timeout, authority)
        except OSError as error:  # ssl.SSLError is an OSError
            raise InputError(f"{authority} holds no certificates: {plain(error)}") from None
        self.model = model
        self._metadata: dict | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def status(self) -> list[dict]:
        """Return the versions on the server: {"version": text, "state": "AVAILABLE", "status": {...}} each."""
        return self._transport.status()

    def metadata(self) -> dict:
        """Return the served version and its endpoints; the server is called only once.

        Returns:
            {"name", "version", "signatures": {name: `Signature`}}; version is None if the server does not report it.
        """
        if self._metadata is None:
            response = self._transport.metadata()
            signatures = read_signatures(response)
            version = read_version(response.get("model_spec", {}))
            self._metadata = {"name": self.model, "version": version, "signatures": signatures}
        return self._metadata

    def predict(self, images, *, batch_size: int | None = None) -> dict[str, np.ndarray]:
        """Return the model's outputs for images, clips or text.

        Args:
            images: float [b, h, w, c] in [0, 1], or [h, w, c] for one image; uint8, which is divided by 255; a sequence
                of bytes, each an encoded file (PNG, JPEG), which the model decodes, resizes and scales; float or uint8
                clips [b, t, h, w, c] or [t, h, w, c]; or integers [b, length] or [length], the tokens for a text model.
            batch_size: examples per request, at least 1; None for 32, or as many as 14 MiB of JSON hold.

        Returns:
            Output name -> array; for an export `probabilities` and `logits` [b, k], and `embedding` [b, d].

        Raises:
            InputError: the examples do not fit the model, or the server refuses them.
            ServerUnavailable: there is no valid response.
        """
        encoded = not isinstance(images, np.ndarray) and len(images) > 0 and isinstance(images[0], bytes)
        return self._answers(PREDICT_BYTES if encoded else PREDICT, images, batch_size, usual=32)

    def smoothed(self, images, *, batch_size: int | None = None) -> dict[str, np.ndarray]:
        """Return the outputs of the smoothed classifier, with noise from the server's entropy.

        The server certifies an answer for the image sent with a probability that the model's export states. Asking
        again until an answer suits is no certificate.

        Args:
            images: images or clips, as in `predict`; no encoded files.
            batch_size: examples per request, at least 1, of which each costs thousands of passes; None for 4, or as
                many as 14 MiB of JSON hold.

        Returns:
            `class` [b] (-1 where it abstains), `radius` [b] in pixel units, `abstain` [b], and `seed` [b, 2].

        Raises:
            InputError: the model has no smoothed classifier, or the examples do not fit it.
            ServerUnavailable: there is no valid response.
        """
        answers = self._answers(SMOOTHED, images, batch_size, usual=4)
        if not {"class", "radius", "abstain", "seed"} <= answers.keys():
            raise ServerUnavailable(f"'{SMOOTHED}' of {self.model} returns {plain(sorted(answers), 120)}.")
        return answers

    def _answers(self, name: str, images, batch_size: int | None, usual: int) -> dict[str, np.ndarray]:
        """Return the outputs of an endpoint for examples, in batches of at most `usual` if `batch_size` is None."""
        encoded = name == PREDICT_BYTES
        signature = self._signature(name)
        ((key, specification),) = self._inputs(name, signature)
        values = list(images) if encoded else _fitted(np.asarray(images), key, specification)
        if batch_size is None:
            batch_size = min(usual, _most_examples(values))
        if not len(values) or batch_size < 1:
            raise InputError(f"There is nothing to predict: {len(values)} images in batches of {batch_size}.")
        responses = [
            self._transport.predict(name, {key: values[start : start + batch_size]}, signature.outputs)
            for start in range(0, len(values), batch_size)
        ]
        try:
            joined = {output: np.concatenate([response[output] for response in responses]) for output in responses[0]}
        except ValueError as error:
            raise ServerUnavailable(f"The responses of {self.model} do not fit together: {plain(error)}") from None
        if any(len(array) != len(values) for array in joined.values()):
            raise ServerUnavailable(f"{self.model} does not return one output for each of {len(values)} inputs.")
        return joined

    def report_text(self) -> str:
        """Return the report inside the served model, exactly the text of `robustness_report.json`.

        Raises:
            InputError: the model has no report.
        """
        signature = self._signature(REPORT)
        ((key, _),) = self._inputs(REPORT, signature)
        outputs = self._transport.predict(REPORT, {key: [b""]}, signature.outputs)
        texts = [text for array in outputs.values() for text in array.reshape(-1)[:1]]
        if not texts or not isinstance(texts[0], bytes):
            raise ServerUnavailable(f"The robustness report of {self.model} is no text.")
        text = texts[0].decode("utf-8", errors="replace")
        if not text:
            raise InputError(f"{self.model} was exported without a robustness report.")
        return text

    def report(self) -> dict:
        """Return the report inside the served model as a dictionary; `tfrobust.report.Report` documents its fields."""
        text = self.report_text()
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ServerUnavailable(f"The robustness report of {self.model} is not JSON.") from None

    def _signature(self, name: str) -> Signature:
        signatures = self.metadata()["signatures"]
        if name not in signatures:
            endpoints = plain(", ".join(signatures), 120)
            raise InputError(f"{self.model} has no endpoint '{name}'; it has: {endpoints}.")
        return signatures[name]

    def _inputs(self, name: str, signature: Signature):
        if len(signature.inputs) != 1:
            names = plain(", ".join(signature.inputs), 120)
            raise InputError(f"'{name}' of {self.model} takes {names}; this client supports models with one input.")
        return signature.inputs.items()


def _split(url: str) -> urllib.parse.SplitResult:
    """Split a URL, with its port, or raise InputError that names the fault in one sentence."""
    shown = plain(url, 80)
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or PORTS.get(parts.scheme)
        (parts.hostname or "").encode("idna")
        if not url.isprintable() or " " in url:
            raise ValueError
    except ValueError:
        raise InputError(f"{shown} is no URL, such as http://127.0.0.1:8501 or grpc://127.0.0.1:8500.") from None
    if port is None or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise InputError(f"{shown} is no URL of a server; one is http(s)://host:8501 or grpc(s)://host:8500.")
    if parts.scheme.startswith("grpc") and parts.path.strip("/"):
        raise InputError(f"{shown} has a path; gRPC has none, as in grpc://127.0.0.1:8500.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parts._replace(netloc=f"{host}:{port}")


def _most_examples(values) -> int:
    """Return how many of the examples, arrays or encoded files, one request takes by default; at least 1."""
    if isinstance(values, np.ndarray):
        largest = _LONGEST_NUMBER * int(np.prod(values.shape[1:]))
    else:
        largest = 2 * max(map(len, values), default=0)  # more than base64 takes
    return max(1, _LARGEST_BODY // max(1, largest))


def _fitted(array: np.ndarray, name: str, specification: TensorSpecification) -> np.ndarray:
    """Convert the array to the model's input dtype and shape, or raise InputError that names the mismatch."""
    requirement = f"the model takes {name} {specification}"
    kinds = "fiub" if specification.dtype.startswith("float") else "iu" if "int" in specification.dtype else ""
    if array.dtype.kind not in kinds or not specification.supported:
        raise InputError(f"The array holds {array.dtype}; {requirement}.")
    shape = specification.shape
    if shape is not None and array.ndim == len(shape) - 1:
        array = array[None]
    fits = shape is None or len(shape) == array.ndim
    if not fits or any(size not in (None, length) for size, length in zip(shape or (), array.shape, strict=False)):
        raise InputError(f"The array is {list(array.shape)}; {requirement}.")
    if name in ("images", "clips"):
        if array.dtype == np.uint8:
            return array.astype(specification.dtype) * _PIXEL_SCALE
        if array.size and not (array.min() >= 0 and array.max() <= 1):
            raise InputError(
                f"The array reaches from {array.min():.4g} to {array.max():.4g}; {requirement}, in [0, 1]."
            )
    if not integers_fit(array, specification.dtype):
        raise InputError(f"The array reaches from {array.min()} to {array.max()}; {requirement}.")
    return array.astype(specification.dtype)

"""Shared parts of REST and gRPC: the error of an unavailable server, and the specification of served signatures."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.errors import Failure, InputError

# Maximum size of a response in bytes. A report with pictures is far larger than gRPC's own limit of 4 MiB.
LARGEST_RESPONSE = 64 * 2**20

_DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_INT8": "int8",
    "DT_UINT8": "uint8",
    "DT_INT16": "int16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
    "DT_BOOL": "bool",
    "DT_STRING": "string",
}


class ServerUnavailable(Failure, ConnectionError):
    """The server cannot be reached, does not respond in time, or fails; nothing was wrong with the request."""


@dataclasses.dataclass(frozen=True)
class TensorSpecification:
    """One input or output: NumPy's name of the dtype ("string" for bytes), and the shape with None for any size."""

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def supported(self) -> bool:
        """True if this client supports the dtype."""
        return self.dtype in _DTYPES.values()

    def array(self, values) -> np.ndarray:
        """Convert JSON values to an array of this dtype.

        Raises:
            ServerUnavailable: the values do not fit the dtype, so the server violates its own signature.
        """
        if not self.supported:
            raise ServerUnavailable(f"The server's response is a {self} tensor, which this client does not read.")
        try:
            if self.dtype == "string":
                return np.array([_as_bytes(value) for value in values], dtype=object)
            return np.asarray(values, dtype=self.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise ServerUnavailable(f"The server's response is no {self} tensor: {plain(error)}") from None

    def __str__(self) -> str:
        sizes = (
            "any shape" if self.shape is None else f"[{', '.join('b' if s is None else str(s) for s in self.shape)}]"
        )
        return f"{self.dtype} {sizes}"


@dataclasses.dataclass(frozen=True)
class Signature:
    """One endpoint: the specifications of its inputs and outputs, by name."""

    inputs: dict[str, TensorSpecification]
    outputs: dict[str, TensorSpecification]


def read_signatures(metadata: dict) -> dict[str, Signature]:
    """Read the signatures from a metadata response in the form of REST.

    Raises:
        ServerUnavailable: it is no metadata response.
    """
    try:
        listed = metadata["metadata"]["signature_def"]["signature_def"]
        return {
            name: Signature(_tensors(entry.get("inputs", {})), _tensors(entry.get("outputs", {})))
            for name, entry in sorted(listed.items())
            if not name.startswith("__")
        }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        raise ServerUnavailable("The server's metadata are not those of TensorFlow Serving.") from None


def read_version(entry) -> int | None:
    """Read the version, a number or text, from a part of a response; None if it has none.

    Raises:
        ServerUnavailable: the version is no number.
    """
    try:
        version = entry.get("version")
        return None if version is None else int(version)
    except (TypeError, AttributeError, ValueError, OverflowError):
        raise ServerUnavailable(f"The server's response has no version: {plain(entry, 80)}") from None


def _tensors(entries: dict) -> dict[str, TensorSpecification]:
    specifications = {}
    for name, entry in sorted(entries.items()):
        shape = entry.get("tensor_shape", {})
        sizes = [int(axis.get("size", 0)) for axis in shape.get("dim", [])]
        dimensions = None if shape.get("unknown_rank") else tuple(None if size < 0 else size for size in sizes)
        specifications[name] = TensorSpecification(
            _DTYPES.get(entry.get("dtype")) or plain(entry.get("dtype"), 40), dimensions
        )
    return specifications


def plain(text, length: int = 200) -> str:
    """Return a server's text on one line for a terminal: no control characters, at most `length` characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:length]


def refused(model: str, message: str) -> InputError:
    """Return the error for a request that the server understood and refused."""
    return InputError(f"The server refuses the request for model '{plain(model, 60)}': {plain(message)}")


def integers_fit(array: np.ndarray, dtype) -> bool:
    """Return False if a cast to an integer dtype would change a number of an array of integers."""
    if np.dtype(dtype).kind not in "iu" or not array.size:
        return True
    bounds = np.iinfo(dtype)
    return bounds.min <= int(array.min()) and int(array.max()) <= bounds.max


def _as_bytes(value) -> bytes:
    if isinstance(value, dict) and set(value) == {"b64"}:
        import base64

        return base64.b64decode(value["b64"])
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{type(value).__name__} is no text")

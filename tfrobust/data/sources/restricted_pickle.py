"""A reader of pickles that builds numbers, words, containers and arrays of bytes, and calls nothing else."""

import io
import math
import pickle
import pickletools

import numpy as np

from tfrobust.errors import InputError


class ForbiddenPickleError(InputError):
    """The pickle is damaged, or asks for something other than plain data."""


def load_plain(content: bytes):
    """Reads a pickle of plain data; words of Python 2 come back as bytes, NumPy uint8 arrays as arrays.

    A pickle is a program that may call whatever it can name. Here the four names that an array's pickle needs
    lead to stand-ins of ours, and any other name is refused before it is looked up: no code of the pickle's
    choosing runs, NumPy's own reconstruction included.

    Args:
        content: the pickle.

    Raises:
        ForbiddenPickleError: damaged, cut short, or anything but plain data.
    """
    try:
        _refuse_far_places(content)
        return _finished(_Reader(io.BytesIO(content), encoding="bytes").load())
    except ForbiddenPickleError:
        raise
    except Exception as error:  # a damaged pickle fails in any way: every opcode has its own
        raise ForbiddenPickleError(f"the pickle is damaged or cut short ({type(error).__name__}).") from error


def _refuse_far_places(content: bytes) -> None:
    """A pickle numbers what it will need again; the reader makes room for the highest number it meets at once."""
    room = 0
    for opcode, argument, _ in pickletools.genops(content):
        room += 1
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument > room:
            raise ForbiddenPickleError("the pickle asks for memory that it cannot need.")


class _PickledType:
    """Stands in for `numpy.dtype`: remembers the code, and lets only bytes through."""

    def __init__(self, code=None, *_):
        code = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if code not in ("u1", "|u1"):
            raise ForbiddenPickleError(f"the pickle holds an array of type {str(code)[:20]!r}, not of bytes.")

    def __setstate__(self, state):
        """Byte order and alignment mean nothing to single bytes."""


class _PickledArray:
    """Stands in for `numpy.ndarray`: builds the array from the raw bytes itself."""

    array = None

    def __setstate__(self, state):
        _, shape, kind, fortran, content = state
        plain = isinstance(kind, _PickledType) and isinstance(content, bytes) and not fortran
        if not plain or math.prod(shape) != len(content):
            raise ForbiddenPickleError("the pickle holds an array that is not plain bytes of its shape.")
        self.array = np.frombuffer(content, np.uint8).reshape(shape)


def _new_array(*_):
    return _PickledArray()


def _encoded(text: str, codec: str) -> bytes:
    # Python 3 writes bytes into old protocols this way; no other codec is ever needed.
    if codec != "latin1":
        raise ForbiddenPickleError("the pickle names a codec other than latin1.")
    return text.encode("latin1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
    ("_codecs", "encode"): _encoded,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in _KNOWN:
            raise ForbiddenPickleError(f"the pickle asks for {f'{module}.{name}'[:60]!r}, which is never run.")
        known = _KNOWN[module, name]
        return lambda *arguments: known(*arguments)  # a pickle may set attributes of what it is given


def _finished(value):
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    return value.array if isinstance(value, _PickledArray) else value

"""A pickle reader that creates only numbers, strings, containers and byte arrays, and calls nothing else."""

import io
import math
import pickle
import pickletools

import numpy as np

from tfrobust.errors import InputError

# A batch of CIFAR has 300,000 operations. Each may take 60 times as much memory as it has bytes.
MOST_OPERATIONS = 2_000_000


class ForbiddenPickleError(InputError):
    """Pickle that is damaged, or contains something other than plain data."""


def load_plain(content: bytes):
    """Read a pickle of plain data; strings of Python 2 are returned as bytes, NumPy uint8 arrays as arrays.

    A pickle is a program that may call anything it can name. Here the four names in the pickle of an array refer to
    substitutes, and any other name is refused before it is looked up. No code of the pickle's choosing runs, NumPy's
    own reconstruction included.

    Args:
        content: the pickle.

    Raises:
        ForbiddenPickleError: damaged, cut short, or anything but plain data.
    """
    try:
        _refuse_costly(content)
        return _plain_value(_Reader(io.BytesIO(content), encoding="bytes").load())
    except ForbiddenPickleError:
        raise
    except Exception as error:  # each opcode of a damaged pickle fails with an exception of its own
        raise ForbiddenPickleError(f"the pickle is damaged or cut short ({type(error).__name__}).") from error


def _refuse_costly(content: bytes) -> None:
    """Refuse too many operations, memo indices larger than their number, and integers of more than 32 bits.

    A pickle numbers the objects that it uses again, and the reader allocates memory up to the largest number at once.
    Large integers can be chosen such that a table of them takes quadratic time; no file of CIFAR holds any.
    """
    room = 0
    for opcode, argument, _ in pickletools.genops(content):
        room += 1
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument > room:
            raise ForbiddenPickleError("the pickle requests more memory than it can use.")
        if room > MOST_OPERATIONS:
            raise ForbiddenPickleError(f"the pickle has more than {MOST_OPERATIONS} operations.")
        if opcode.name in ("INT", "LONG", "LONG1", "LONG4") and abs(argument) >= 2**32:
            raise ForbiddenPickleError("the pickle has an integer of more than 32 bits.")


class _PickledType:
    """Substitute for `numpy.dtype` that accepts only bytes."""

    def __init__(self, code=None, *_):
        code = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if code not in ("u1", "|u1"):
            raise ForbiddenPickleError(f"the pickle has an array of type {str(code)[:20]!r}, not of bytes.")

    def __setstate__(self, state):
        """Ignore byte order and alignment, which do not matter for single bytes."""


class _PickledArray:
    """Substitute for `numpy.ndarray` that builds the array from the raw bytes."""

    array = None

    def __setstate__(self, state):
        _, shape, kind, fortran, content = state
        plain = isinstance(kind, _PickledType) and isinstance(content, bytes) and not fortran
        if not plain or math.prod(shape) != len(content):
            raise ForbiddenPickleError("the pickle has an array that is not plain bytes of its shape.")
        self.array = np.frombuffer(content, np.uint8).reshape(shape)


def _new_array(*_):
    return _PickledArray()


def _encode_latin1(text: str, codec: str) -> bytes:
    # Python 3 writes bytes into old protocols this way. No other codec occurs.
    if codec != "latin1":
        raise ForbiddenPickleError("the pickle names a codec other than latin1.")
    return text.encode("latin1")


_CONSTRUCTORS = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
    ("_codecs", "encode"): _encode_latin1,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in _CONSTRUCTORS:
            raise ForbiddenPickleError(f"the pickle refers to {f'{module}.{name}'[:60]!r}, which is never called.")
        function = _CONSTRUCTORS[module, name]
        return lambda *arguments: function(*arguments)  # a pickle may set attributes of the object it gets


def _plain_value(value):
    if isinstance(value, dict):
        return {key: _plain_value(item) for key, item in value.items()}
    return value.array if isinstance(value, _PickledArray) else value

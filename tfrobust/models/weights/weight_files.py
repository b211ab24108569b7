"""Reading of weights by name from files that hold only arrays: `.safetensors` and `.npz`, never pickles."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from tfrobust.common import files
from tfrobust.errors import LONGEST, InputError
from tfrobust.security import archives

LARGEST_LIST = 2**22  # bytes of the header of a .safetensors file; 20,000 tensors have half of that
SUFFIXES = (".safetensors", ".npz")
PICKLES = (".pt", ".pth", ".tar", ".bin", ".ckpt", ".pkl", ".pickle")
CONVERSION = (
    """python -c "import torch,numpy as n;d=torch.load('in.pth','cpu',weights_only=True);"""
    """d=d.get('state_dict',d);n.savez('out.npz',**{k:v.float().numpy()for k,v in d.items()})\""""
)
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Array in a file that has not been read yet.

    Attributes:
        shape: shape in the file's header.
        floating: true if the numbers are floating point.
        read: () -> NumPy array; raises InputError if the file is damaged at this array.
    """

    shape: tuple[int, ...]
    floating: bool
    read: Callable[[], np.ndarray]


def is_weights(path) -> bool:
    """Return True if the suffix of a path is that of a weights file, refused pickles included."""
    path = pathlib.Path(path)
    return path.suffix.lower() in SUFFIXES + PICKLES and not path.is_dir()


@contextlib.contextmanager
def open_tensors(path) -> Iterator[dict[str, StoredTensor]]:
    """Open a weights file as a context manager; its tensors are read one by one inside the context.

    Args:
        path: a `.safetensors` or `.npz` file. `numpy.savez` writes `.npz`; objects in it are never unpickled.

    Yields:
        A dict from name to tensor.

    Raises:
        InputError (a ValueError): no such file, a pickle, a damaged file, or the package safetensors is missing.
    """
    path = require_readable(path)
    with contextlib.ExitStack() as stack:
        with _faults(path):
            tensors = (_safetensors if path.suffix.lower() == ".safetensors" else _npz)(path, stack)
        yield tensors


def require_readable(path) -> pathlib.Path:
    """Return the path of an existing `.safetensors` or `.npz` file.

    Raises:
        InputError (a ValueError): a pickle, another suffix, or no such file.
    """
    path = files.expanded(path)
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        reason = f"{display_name(path)} is a pickle, which can run code; convert it in your own torch: "
        line = CONVERSION.replace("in.pth", path.name).replace("out.npz", f"{path.stem}.npz")
        plain = path.name.isprintable() and not set("'\"$`\\!").intersection(path.name)
        raise InputError(reason + (line if plain and len(reason + line) <= LONGEST else CONVERSION))
    if suffix not in SUFFIXES:
        raise InputError(f"{display_name(path)} is not a weights file: use {' or '.join(SUFFIXES)}.")
    if not path.is_file():
        raise InputError(f"There is no weights file {display_name(path)}.")
    return path


def display_name(path) -> str:
    """Return a file's name, shortened for a message."""
    name = pathlib.Path(path).name
    return name if len(name) <= 60 else f"{name[:40]}...{name[-16:]}"


@contextlib.contextmanager
def _faults(path: pathlib.Path) -> Iterator[None]:
    """Convert any exception of a reader of a damaged or hostile file to a one-line InputError."""
    try:
        yield
    except InputError:
        raise
    except archives.RefusedArchiveError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"{display_name(path)} holds more than fits into memory.") from error
    except Exception as error:  # zipfile, zlib, NumPy and safetensors raise nine types of exceptions
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{display_name(path)} is damaged, cut short, or no {path.suffix} file: {reason}") from error


def _safetensors(path: pathlib.Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    import ml_dtypes  # noqa: F401 - a dependency of TensorFlow that adds bfloat16 to NumPy

    try:
        from safetensors import safe_open
    except ImportError:
        raise InputError(
            f"{display_name(path)} is read by the package safetensors, which is missing: pip install "
            "'tfrobust[checkpoints]', or save the arrays with numpy.savez as .npz."
        ) from None
    with files.regular(path) as start:
        size = int.from_bytes(start.read(8), "little")
    if size > LARGEST_LIST and size < path.stat().st_size:
        raise InputError(f"{display_name(path)} is not read: its list of tensors has {size} bytes.")
    file = stack.enter_context(safe_open(str(path), framework="numpy"))
    tensors = {}
    for name in file.keys():  # noqa: SIM118 - not a mapping
        part = file.get_slice(name)
        read = functools.partial(_read, path, functools.partial(file.get_tensor, name))
        tensors[name] = StoredTensor(tuple(part.get_shape()), part.get_dtype() in _FLOATS, read)
    return tensors


def _npz(path: pathlib.Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    archives.check_zip(path, test_contents=False)
    archive = stack.enter_context(zipfile.ZipFile(path))
    tensors = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            raise InputError(f"{display_name(path)} holds {name[:60]!r}, which is no array; write it with numpy.savez.")
        with archive.open(member) as stream:
            shape, dtype = _header(stream)
        if dtype.hasobject:
            raise InputError(f"{display_name(path)}: {name[:60]!r} is a pickled object, which is never read.")
        read = functools.partial(_read, path, functools.partial(_array, archive, member))
        tensors[name] = StoredTensor(shape, dtype.kind == "f", read)
    return tensors


def _header(stream) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"an array is of version {version[0]}.{version[1]} of NumPy's format; 1.0 and 2.0 are read.")
    shape, _, dtype = readers[version](stream)
    return shape, dtype


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
        # zipfile verifies the checksum at the end of a member only. A damaged header may end the array earlier.
        if stream.read(1):
            raise ValueError(f"{member.filename[:60]} is longer than its array")
        return array


def _read(path: pathlib.Path, read: Callable[[], np.ndarray]) -> np.ndarray:
    with _faults(path):
        return read()

"""Input files for queries to a served model: encoded images, or arrays of images or tokens. Imports no TensorFlow."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np

from tfrobust.errors import InputError
from tfrobust.security import archives

ARRAYS = ("images", "clips", "tokens")
LARGEST_FILE = 256 * 2**20
_ENCODED = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff"}


def read(paths: Sequence[str]) -> tuple[list[str], list[bytes] | np.ndarray]:
    """Read files into examples for `Client.predict`.

    Args:
        paths: image files (PNG, JPEG), or array files: `.npy`, or `.npz` with `images`, `clips` or `tokens` (or with a
            single array). A batch of images has four axes, a batch of clips five, a batch of tokens two; an array with
            one axis less is one example. Four axes are one clip only under the name `clips`.

    Returns:
        A name for each example, and the examples: bytes of each image file, or one array.

    Raises:
        InputError: a file has none of these forms or is too large, or the files do not form one batch.
    """
    contents = [
        (path, _array(path) if pathlib.Path(path).suffix in (".npy", ".npz") else _encoded(path)) for path in paths
    ]
    encoded = [content for _, content in contents if isinstance(content, bytes)]
    if len(encoded) == len(contents):
        return [path for path, _ in contents], encoded
    if encoded:
        raise InputError("Image files and arrays go to two endpoints; send them in two calls.")
    names, arrays = [], []
    for path, (array, is_clips) in ((path, content) for path, content in contents if not isinstance(content, bytes)):
        batch = array if array.ndim in ((5,) if is_clips else (2, 4, 5)) else array[None]
        names += [f"{path}[{number}]" for number in range(len(batch))] if batch is array else [path]
        arrays.append(batch)
    if len({(array.shape[1:], array.dtype) for array in arrays}) > 1:
        raise InputError("The arrays differ in shape or dtype, so that they make no batch; send them one by one.")
    return names, np.concatenate(arrays)


def _encoded(path: str) -> bytes:
    content = _checked(path).read_bytes()
    if not content.startswith(tuple(_ENCODED.values())):
        raise InputError(f"{path} is no {' or '.join(_ENCODED)} image; arrays are .npy or .npz files.")
    return content


def _array(path: str) -> tuple[np.ndarray, bool]:
    """Return an array, and whether the file calls it clips."""
    keys: list[str] = []
    try:
        if zipfile.is_zipfile(_checked(path)):
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > LARGEST_FILE:
                    raise InputError(f"{path} unpacks to more than {LARGEST_FILE >> 20} MiB.")
        with open(path, "rb") as file:  # NumPy leaves a file open that it cannot read
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                array = loaded
            else:
                keys = [key for key in ARRAYS if key in loaded.files] or loaded.files
                if len(keys) != 1:
                    raise InputError(f"{path} holds {loaded.files}; one of {list(ARRAYS)} is needed.")
                array = loaded[keys[0]]
    except archives.ARRAY_ERRORS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no NumPy file of numbers: {' '.join(str(error).split())}") from None
    if not np.size(array):  # an empty array may have an axis of any length
        raise InputError(f"{path} holds an empty array of shape {list(array.shape)}.")
    is_clips = keys == ["clips"]
    if np.ndim(array) not in ((4, 5) if is_clips else (1, 2, 3, 4, 5)):
        raise InputError(
            f"{path} holds an array of {np.ndim(array)} axes; images have 3, clips 4, tokens 1; a batch one more."
        )
    return array, is_clips


def _checked(path: str) -> pathlib.Path:
    file = pathlib.Path(path)
    if not file.is_file():
        raise InputError(f"there is no file {path}")
    if file.stat().st_size > LARGEST_FILE:
        raise InputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB.")
    return file

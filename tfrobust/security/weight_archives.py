"""Check weight files in HDF5 and preset folders of KerasHub before Keras reads them."""

from __future__ import annotations

import json
import math
import pathlib

from tfrobust.common import files
from tfrobust.errors import InputError
from tfrobust.security import keras_config

PRESET_CONFIG, PRESET_CONVERTER = "config.json", "image_converter.json"
PRESET_WEIGHTS = "model.weights.h5"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LARGEST_CONFIG = 2**20
_MOST_PARTS = 100_000
# Above the first size, an array may not be more than this many times as large as what the file stores of it.
_LARGEST_UNASKED = 2**28
_MOST_GROWTH = 100


def check_hdf5(path) -> None:
    """Raise ValueError for a weight file that is no HDF5, refers to other files, or expands excessively.

    Args:
        path: a `.h5` file of weights. Such a file holds arrays only; whole models in HDF5 are not read at all.
    """
    path = pathlib.Path(path)
    name = path.name[-60:]
    if not path.is_file():
        raise InputError(f"{str(path)[-200:]} is no file; weights are read from a local .h5 file.")
    with files.regular(path) as file:
        if file.read(len(_SIGNATURE)) != _SIGNATURE:
            raise InputError(f"{name} is no HDF5 file; weights are read from .h5 files.")
    measure_hdf5(path, name)


def measure_hdf5(source, name: str) -> int:
    """Return the bytes of all arrays of a weight file; raise ValueError as `check_hdf5` does."""
    import h5py  # Keras depends on it; only this check needs it

    sizes: list[int] = []
    try:
        with h5py.File(source, "r") as archive:
            fault = _fault(archive, h5py, sizes)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(f"{name} cannot be read: {' '.join(str(error).split())[:120]}.") from error
    if fault:
        raise InputError(f"{name} is not read: {fault}.")
    return sum(sizes)


def check_preset(folder) -> None:
    """Raise ValueError for a folder that is no preset of a KerasHub backbone, or whose files are not safe to read.

    Args:
        folder: as `save_to_preset` writes it, with `config.json` and `model.weights.h5`.
    """
    folder = pathlib.Path(folder)
    for name in (PRESET_CONFIG, PRESET_CONVERTER):
        if not (folder / name).is_file():
            if name == PRESET_CONFIG:
                raise InputError(f"{str(folder)[-200:]} is no preset of KerasHub: it holds no {name}.")
            continue
        try:
            config = json.loads(files.read_bounded(folder / name, _LARGEST_CONFIG))
            registered = config["registered_name"]
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise InputError(f"{name} of {str(folder)[-160:]} is no configuration of KerasHub.") from error
        if not str(registered).startswith("keras_hub>"):
            raise InputError(f"{name} of {str(folder)[-160:]} names {str(registered)[:60]!r}, no class of KerasHub.")
        if name == PRESET_CONFIG:
            try:
                keras_config.check(config)
            except InputError as error:
                raise InputError(f"{name} of {str(folder)[-60:]} is not read: {error}") from None
    check_hdf5(folder / PRESET_WEIGHTS)


def _fault(archive, h5py, sizes: list[int]) -> str:
    """Return what is wrong with an open HDF5 file, or an empty string; append the bytes of each array to `sizes`."""
    groups, count = [archive], 0
    while groups:
        group = groups.pop()
        for key in group:
            count += 1
            if count > _MOST_PARTS:
                return f"it has more than {_MOST_PARTS} parts"
            # Hard links alone make no circle in files that Keras writes, and no link leads to another file.
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                return f"its part {key[:60]!r} is a link"
            part = group[key]
            if isinstance(part, h5py.Group):
                groups.append(part)
            elif not isinstance(part, h5py.Dataset):
                return f"its part {key[:60]!r} is no array"
            elif part.external or part.is_virtual:
                return f"its array {key[:60]!r} is stored in another file"
            elif part.dtype.kind == "c":
                return f"its array {key[:60]!r} holds complex numbers"
            elif _expands(part):
                return f"its array {key[:60]!r} is much larger than what is stored of it"
            else:
                sizes.append(math.prod(part.shape or ()) * part.dtype.itemsize)
    return ""


def _expands(part) -> bool:
    size = math.prod(part.shape or ()) * part.dtype.itemsize
    return size > _LARGEST_UNASKED and size > _MOST_GROWTH * part.id.get_storage_size()

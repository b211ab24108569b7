"""Safe loading of `.keras` files: they are read as data and compared with lists before Keras builds anything."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
import threading
import zipfile

import keras
import tensorflow as tf

from tfrobust.common import files
from tfrobust.errors import InputError
from tfrobust.security import archives, keras_config, rehearsal, weight_archives

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
_MEMBERS = frozenset({CONFIG, WEIGHTS, "metadata.json"})
# A weight takes at least four bits.
_WEIGHTS_PER_BYTE = 2
# Bytes of variables that layers keep without saving them, such as those of random numbers.
_UNSAVED = 2**20
_replacing = threading.RLock()


def load(path, *, compiled: bool = True, use: rehearsal.Use = rehearsal.A_FEW) -> keras.Model:
    """Load a `.keras` file whose description and weights pass `check`, after its rehearsal in another process.

    Args:
        path: of the file.
        compiled: False leaves out its optimizer, loss and metrics.
        use: how it will be called.

    Raises:
        InputError (a ValueError): see `check` and `rehearsal.rehearse`; or Keras cannot load it, in one line.
    """
    contents, stored = check(path, compiled=compiled)
    rehearsal.rehearse(path, dataclasses.replace(use, modules=contents.modules))
    name = _file_name(path)
    try:
        with weights_within(stored + _UNSAVED):
            return keras.saving.load_model(os.path.abspath(path), compile=compiled, safe_mode=True)
    except Exception as error:  # Keras raises whatever the layer at fault raises
        raise InputError(f"{name} cannot be loaded: {_first_sentence(error)}") from error


def check(path, *, compiled: bool = True) -> tuple[keras_config.Contents, int]:
    """Raise InputError for a `.keras` file that may not be given to Keras; nothing is built, and no file is written.

    Import what defines its registered classes before.

    Returns:
        What its description asks for, and the bytes of its weights.

    Raises:
        InputError (a ValueError): a damaged or excessive archive; weights that are stored elsewhere; or a description
            that is refused by `keras_config.check`.
    """
    archives.check_zip(path)
    name = _file_name(path)
    with files.regular(path) as file, zipfile.ZipFile(file) as archive:
        missing = {CONFIG, WEIGHTS} - {*archive.namelist()}
        if missing:
            raise InputError(f"{name} cannot be loaded: it has no {min(missing)}.")
        try:
            stored = _measure_weights(archive, name)
            description = json.loads(archive.read(CONFIG))
        except archives.ZIP_ERRORS as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{name} cannot be loaded: {_first_sentence(error)}") from error
        except RecursionError:
            raise InputError(f"{name} cannot be loaded: its {CONFIG} is nested too deep.") from None
        extra_members = {*archive.namelist()} - _MEMBERS
    try:
        contents = keras_config.check(description, largest_size=_WEIGHTS_PER_BYTE * stored, compiled=compiled)
    except InputError as error:
        raise InputError(f"{name} cannot be loaded: {error}.") from None
    if extra_members and not contents.has_user_code:
        # Keras would unpack them to the disk.
        raise InputError(f"{name} cannot be loaded: its part {min(extra_members)[:60]!r} belongs to no layer.")
    return contents, stored


def _measure_weights(archive: zipfile.ZipFile, name: str) -> int:
    with archive.open(WEIGHTS) as weights:
        packed = archive.getinfo(WEIGHTS).compress_type != zipfile.ZIP_STORED
        try:
            # A packed part has no fast way back; Keras reads it whole, too.
            return weight_archives.measure_hdf5(io.BytesIO(weights.read()) if packed else weights, WEIGHTS)
        except InputError as error:
            raise InputError(f"{name} cannot be loaded: {error}") from None


@contextlib.contextmanager
def weights_within(size: int):
    """Stop the layers that this thread builds once their weights take more than `size` bytes, before allocation.

    The adapters of `enable_lora` are counted apart, up to the same size: a file holds them merged into the weights.

    Raises:
        InputError (a ValueError): they do, also if Keras has caught the error that stops a layer.
    """
    thread, sizes = threading.get_ident(), {"weights": 0, "adapters": 0}

    def add_counted_weight(layer, *arguments, **keywords):
        if threading.get_ident() == thread:
            shape = arguments[0] if arguments else keywords.get("shape") or ()
            dtype = keras.backend.standardize_dtype(keywords.get("dtype") or layer.variable_dtype)
            kind = "adapters" if str(keywords.get("name")).startswith("lora_") else "weights"
            sides = (shape,) if isinstance(shape, int) else tuple(shape)  # Keras passes tf.TensorShape, too
            sizes[kind] += math.prod(sides) * tf.as_dtype(dtype).size
            if sizes[kind] > size:
                raise MemoryError("too many weights")
        return before(layer, *arguments, **keywords)

    with _replacing:
        before = keras.layers.Layer.add_weight
        keras.layers.Layer.add_weight = add_counted_weight
        try:
            yield
        finally:
            keras.layers.Layer.add_weight = before
            if max(sizes.values()) > size:
                raise InputError(f"its layers ask for more weights than the {size - _UNSAVED} bytes that it holds")


def _file_name(path) -> str:
    return pathlib.Path(path).name[-60:]


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split()).split(". ")[0][:200] or type(error).__name__

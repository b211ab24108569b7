"""Model files: all classes of the library are registered before a file is read, and no file is left half written."""

from __future__ import annotations

import functools
import importlib
import pathlib
import pkgutil

import keras
import tensorflow as tf

import tfrobust
from tfrobust.common.files import replacing
from tfrobust.errors import InputError
from tfrobust.security import keras_files, own_models
from tfrobust.training.strategy import use_xla

SUFFIX = ".keras"


@functools.cache
def import_all() -> tuple[str, ...]:
    """Import every module of tfrobust, so that every class is registered with Keras; return their names.

    Being importable is not enough for Keras to find a class in a file: its module must have run.
    """
    modules = pkgutil.walk_packages(tfrobust.__path__, "tfrobust.")
    names = tuple(sorted(module.name for module in modules if not module.name.endswith("__main__")))
    for name in names:
        importlib.import_module(name)
    return names


def save(model: keras.Model, path) -> None:
    """Save a model as a `.keras` file that is complete or absent.

    Example:
        >>> import keras, tempfile
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((64,)), robust.layers.LinearHead(10)])
        >>> robust.save_model(model, f"{tempfile.mkdtemp()}/model.keras")

    Args:
        model: any Keras model.
        path: ends in `.keras`; its folder must exist. A file of that name is replaced.

    Raises:
        ValueError: the path has another suffix.
        FileNotFoundError: the folder is missing.
    """
    path = pathlib.Path(path)
    if path.suffix != SUFFIX:
        raise InputError(f"{path} does not end in {SUFFIX}; models are saved as {SUFFIX} files only.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is no folder, so {path.name} cannot be saved there.")
    with replacing(path) as temporary:
        keras.saving.save_model(model, temporary)
    own_models.remember(path)


def rehearsed(path) -> tuple:
    """Open a `.keras` file for its rehearsal: the function of its outputs, the shape of its input, and the dtype."""
    model = load(path)
    shape = getattr(model, "input_shape", None) or (model.get_build_config() or {})["input_shape"]
    dtype = model.inputs[0].dtype if getattr(model, "inputs", None) else "float32"
    return lambda examples: model(examples, training=False), list(shape), dtype


def load(path) -> keras.Model:
    """Load a `.keras` file, of this library or of any Keras model, without running code from it.

    Whether training is compiled by XLA is decided again, because the file holds what suited the machine that wrote it.

    Example:
        >>> import keras, tempfile
        >>> from tfrobust import keras as robust
        >>> path = f"{tempfile.mkdtemp()}/model.keras"
        >>> robust.save_model(keras.Sequential([keras.Input((64,)), robust.layers.LinearHead(10)]), path)
        >>> robust.load_model(path).layers[0].class_count
        10

    Args:
        path: a `.keras` file.

    Returns:
        The model.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has another format, is damaged, or names what is not in `security.keras_names` and was not
            registered by imported code.
    """
    path = pathlib.Path(path)
    if path.suffix != SUFFIX:
        raise InputError(f"{path} is not read: only {SUFFIX} files are, because .h5 files and pickles can run code.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file; give the path of a {SUFFIX} file.")
    import_all()
    model = keras_files.load(path)
    if isinstance(model, keras.Model) and model.compiled:
        model.jit_compile = use_xla("auto", tf.distribute.get_strategy())
    return model

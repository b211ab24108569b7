"""`.keras` files that mean harm or are broken, and files of other formats under that name or their own."""

import base64
import copy
import io
import json
import marshal
import os
import pathlib
import pickle
import zipfile

import h5py
import numpy as np
import stored


def _touch():
    """Make the canary: the code that the files try to run."""
    import os

    open(os.environ["TFROBUST_CANARY"], "w").close()


def _weights(change=lambda file: None) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        change(file)
    return content.getvalue()


def _archive(path, layers=(), weights=None, config=None, parts=None) -> None:
    """A `.keras` file of one Sequential model."""
    inputs = {"class_name": "InputLayer", "module": "keras.layers", "config": {"batch_shape": [None, 8, 8, 1]}}
    model = {
        "module": "keras",
        "class_name": "Sequential",
        "registered_name": None,
        "config": {"name": "model", "layers": [inputs, *layers]},
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.0"}))
        archive.writestr("config.json", json.dumps(model) if config is None else config)
        archive.writestr("model.weights.h5", weights or _weights())
        for name, content in (parts or {}).items():
            archive.writestr(name, content)


def _layer(class_name, module="keras.layers", **config):
    return {"class_name": class_name, "module": module, "registered_name": None, "config": config}


_CODE = base64.b64encode(marshal.dumps(_touch.__code__)).decode()


def _lambda() -> dict:
    function = {"class_name": "__lambda__", "config": {"code": _CODE, "defaults": None, "closure": None}}
    return _layer("Lambda", function=function, name="code")


def _of(*layers, **more):
    return lambda path: _archive(path, layers, **more)


def _run_by(module: str, name: str, *arguments):
    """A "layer" that is any function of any module."""
    return _layer(name, module, **{"command": "touch $TFROBUST_CANARY", "args": list(arguments)})


def _spoiled(change):
    """Bytes of a whole file, changed."""

    def build(path: pathlib.Path) -> None:
        _archive(path)
        path.write_bytes(change(path.read_bytes()))

    return build


def replaced_field(signature: bytes, offset: int, value: bytes):
    """A field of the first zip header of a kind overwritten."""

    def change(content: bytes) -> bytes:
        at = content.index(signature) + offset
        return content[:at] + value + content[at + len(value) :]

    return change


_LINK = zipfile.ZipInfo("assets/link")
_LINK.external_attr = 0o120777 << 16


def _dense_weights(change):
    layer = _layer("Dense", units=2, name="dense")
    flat = _layer("Flatten", name="flatten")

    def build(path: pathlib.Path) -> None:
        (path.parent / "secret.bin").write_bytes(b"\1" * 512)
        secret = str(path.parent / "secret.bin")

        def fill(file):
            variables = file.create_group("layers/dense/vars")
            variables["1"] = np.zeros(2, np.float32)
            change(variables, secret)

        _archive(path, (flat, layer), weights=_weights(fill))

    return build


def _external(variables, secret):
    variables.create_dataset("0", (64, 2), "float32", external=[(secret, 0, 512)])


def _shape_bomb(variables, secret):
    variables.create_dataset("0", (2**40, 2), "float32", chunks=(1024, 2), fillvalue=1)


def _external_link(variables, secret):
    variables["0"] = h5py.ExternalLink(secret, "/weights")


class _Reduced:
    def __reduce__(self):
        return os.system, ("touch $TFROBUST_CANARY",)


def _legacy_h5(path: pathlib.Path) -> None:
    config = {"class_name": "Lambda", "config": {"function": [_CODE, None, None], "function_type": "lambda"}}
    model = {"class_name": "Sequential", "config": {"name": "m", "layers": [config]}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)


def _torch(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(_Reduced()))
        archive.writestr("archive/version", "3")


def _overlapping(path: pathlib.Path) -> None:
    """A hundred entries of the list name the one part that the file holds."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", os.urandom(4000))
        (part,) = archive.infolist()
        for number in range(100):
            other = copy.copy(part)
            other.filename = f"assets/{number}"
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other


_NESTED = "[" * 100_000 + "]" * 100_000
_PART = b"PK\x01\x02"  # begins an entry in a zip file's list of parts

_LONG = {f"assets/{number}{'x' * 60_000}": b"" for number in range(80)}

# File name -> (what makes it, a part of the line it is refused with).
CASES = stored.cases(__file__, "keras_files", globals())

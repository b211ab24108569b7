"""`.keras` files that mean harm or are broken, and files of other formats under that name or their own."""

import base64
import copy
import io
import json
import marshal
import os
import pathlib
import pickle
import socket
import struct
import zipfile

import h5py
import numpy as np


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


def _replace_field(signature: bytes, offset: int, value: bytes):
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
CASES = {
    "lambda.keras": (_of(_lambda()), "cannot be loaded"),
    "system.keras": (_of(_run_by("os", "system")), "cannot be loaded"),
    "popen.keras": (_of(_run_by("subprocess", "Popen", "touch")), "cannot be loaded"),
    "eval.keras": (_of(_run_by("builtins", "eval")), "cannot be loaded"),
    "get_file.keras": (
        _of(_layer("get_file", "keras.utils", origin="http://127.0.0.1:9/x", fname="x")),
        "cannot be loaded",
    ),
    "importer.keras": (_of(_layer("import_module", "importlib", name="antigravity")), "cannot be loaded"),
    "own_module.keras": (_of(_layer("Layer", "hostile_module_that_is_not_there")), "cannot be loaded"),
    "class_of_ours.keras": (_of(_layer("write_atomically", "tfrobust.common.files", path="x", data="y")), "cannot be"),
    "saved_model_inside.keras": (_of(_layer("TFSMLayer", filepath="/tmp/other")), "cannot be loaded"),
    "vocabulary_of_a_file.keras": (_of(_layer("StringLookup", vocabulary="/etc/passwd")), "cannot be loaded"),
    "text_of_a_file.keras": (_of(_layer("TextVectorization", vocabulary="/etc/passwd")), "cannot be loaded"),
    "external_weights.keras": (_dense_weights(_external), "cannot be loaded"),
    "linked_weights.keras": (_dense_weights(_external_link), "cannot be loaded"),
    "endless_weights.keras": (_dense_weights(_shape_bomb), "cannot be loaded"),
    "other_weights.keras": (_of(_layer("Flatten"), _layer("Dense", units=3)), "cannot be loaded"),
    "negative.keras": (_of(_layer("Flatten"), _layer("Dense", units=-3)), "cannot be loaded"),
    "no_json.keras": (_of(config="import os"), "cannot be loaded"),
    "nested.keras": (_of(config=_NESTED), "cannot be loaded"),
    "list.keras": (_of(config="[]"), "cannot be loaded"),
    "empty_config.keras": (_of(config="{}"), "cannot be loaded"),
    "no_config.keras": (lambda path: zipfile.ZipFile(path, "w").close(), "cannot be loaded"),
    "weights_of_text.keras": (_of(weights=b"no hdf5 at all"), "cannot be loaded"),
    "empty.keras": (lambda path: path.write_bytes(b""), "truncated, or not a zip"),
    "random.keras": (lambda path: path.write_bytes(bytes(range(256)) * 9), "truncated, or not a zip"),
    "half.keras": (_spoiled(lambda content: content[: len(content) // 2]), "truncated, or not a zip"),
    "flipped.keras": (_spoiled(_replace_field(b"keras_version", 0, b"Keras")), "is damaged"),
    "encrypted.keras": (_spoiled(_replace_field(_PART, 8, b"\1")), "truncated, or not a zip"),
    "unknown_packing.keras": (_spoiled(_replace_field(_PART, 10, b"\x63")), "truncated, or not a zip"),
    "above.keras": (_of(parts={"../../outside": "x"}), "leads out of the archive"),
    "absolute.keras": (_of(parts={"/etc/outside": "x"}), "leads out of the archive"),
    "backslash.keras": (_of(parts={"..\\outside": "x"}), "leads out of the archive"),
    "link.keras": (_of(parts={_LINK: "/etc/passwd"}), "leads out of the archive"),
    "twice.keras": (_of(parts={"config.json": "{}"}), "a name occurs twice"),
    "pipe.keras": (os.mkfifo, "not a regular file"),
    "device.keras": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "folder_inside.keras": (lambda path: path.mkdir(), "neither saved_model.pb"),
    "socket.keras": (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "No such device"),
    "large_config.keras": (_of(config=" " * (2**24 + 1)), "more than 16777216"),
    "large_metadata.keras": (_of(parts={"assets/layer.json": " " * (2**24 + 1)}), "more than 16777216"),
    "claims_a_gigabyte.keras": (_spoiled(_replace_field(_PART, 24, struct.pack("<I", 2**30))), "more than 16777216"),
    "overlapping.keras": (_overlapping, "its members overlap"),
    "long_names.keras": (_of(parts=_LONG), "its list of members has"),
    "pickle.keras": (lambda path: path.write_bytes(pickle.dumps(_Reduced())), "truncated, or not a zip"),
    "torch.keras": (_torch, "cannot be loaded"),
    "legacy.h5": (_legacy_h5, "save it again as .keras"),
    "legacy.hdf5": (_legacy_h5, "save it again as .keras"),
    "model.pkl": (lambda path: path.write_bytes(pickle.dumps(_Reduced())), "pickle, which can run code"),
    "model.pt": (_torch, "pickle, which can run code"),
    "hdf5.keras": (_legacy_h5, "truncated, or not a zip"),
}

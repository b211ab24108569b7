"""Data that mean harm or are broken: arrays, pictures, archives, pickles, vocabularies."""

import gzip
import io
import os
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import stored
import tensorflow as tf
from hostile.keras_files import replaced_field  # noqa: F401 - in refusals.toml

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1)).astype(np.uint8)
LABELS = np.arange(6) % 3


class Runs:
    """Unpickled, it makes the canary."""

    def __reduce__(self):
        return os.system, ('touch "$TFROBUST_CANARY"',)


# --------------------------------------------------------------------------------------------- arrays


def _saved(**arrays):
    return lambda path: np.savez(path, **{"images": IMAGES, "labels": LABELS, **arrays})


def _header(shape: str, kind: str = "|u1", version: bytes = b"\1\0") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text


def _zipped(images: bytes, packing=zipfile.ZIP_STORED, **more: bytes):
    def build(path: pathlib.Path) -> None:
        labels = io.BytesIO()
        np.save(labels, LABELS)
        with zipfile.ZipFile(path, "w", packing) as archive:
            archive.writestr("images.npy", images)
            archive.writestr("labels.npy", labels.getvalue())
            for name, content in more.items():
                archive.writestr(f"{name}.npy", content)

    return build


def _also(**parts: bytes):
    """An archive of whole images with parts of any bytes."""
    labels = io.BytesIO()
    np.save(labels, LABELS)
    parts = {"images": _header("(6, 8, 8, 1)") + IMAGES.tobytes(), "labels": labels.getvalue(), **parts}

    def build(path: pathlib.Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in parts.items():
                archive.writestr(f"{name}.npy", content)

    return build


def _spoiled(change):
    def build(path: pathlib.Path) -> None:
        np.savez_compressed(path, images=IMAGES, labels=LABELS)
        path.write_bytes(change(path.read_bytes()))

    return build


def _flipped_middle(content: bytes) -> bytes:
    return content[:60] + bytes(255 - byte for byte in content[60:120]) + content[120:]


ARRAYS = stored.cases(__file__, "arrays", globals())

# --------------------------------------------------------------------------------------------- pictures


def png(width: int, height: int, rows: bytes = b"", kind: int = 2) -> bytes:
    """A PNG file whose header claims a size, whatever its pixels are."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """A whole JPEG file of 8 x 8 pixels that claims another size."""
    encoded = tf.io.encode_jpeg(IMAGES[0]).numpy()
    at = encoded.index(b"\xff\xc0") + 5
    return encoded[:at] + struct.pack(">HH", height, width) + encoded[at + 4 :]


def _gif(width: int, height: int) -> bytes:
    head = b"GIF89a" + struct.pack("<HH", 1, 1) + b"\x80\0\0\0\0\0\xff\xff\xff"
    return head + b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\0\2\2L\1\0;"


def _bmp(width: int, height: int) -> bytes:
    return (
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 70, 0, 0, 54, 40, width, height, 1, 24, 0, 16, 1, 1, 0, 0) + b"\0" * 16
    )


# Content of a file called picture.png.
PICTURES = stored.cases(__file__, "pictures", globals())

# --------------------------------------------------------------------------------------------- archives


def _member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, target
    return member


CIFAR = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]


def _tar(*members, of_all: bytes | None = None):
    """A gzipped tar file; `of_all` is the content of each file of CIFAR-10."""

    def build(path: pathlib.Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            for member in members:
                archive.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
            for name in CIFAR if of_all is not None else ():
                archive.addfile(_member(f"cifar/{name}", len(of_all)), io.BytesIO(of_all))

    return build


def _cifar_tar(kind: bytes, target: str = ""):
    return _tar(*(_member(f"cifar/{name}", 0, kind, target) for name in CIFAR))


def _lying_tar(path: pathlib.Path) -> None:
    """A header of 100 GB, and nothing behind it."""
    path.write_bytes(gzip.compress(_member("cifar/test_batch", 100 * 2**30).tobuf() + bytes(1024)))


def _endless_header(path: pathlib.Path) -> None:
    """A header in front of a file that says that it is itself 4 GB long."""
    path.write_bytes(gzip.compress(_member("x", 2**32, tarfile.XHDTYPE).tobuf() + bytes(10_000)))


def _raw_tar(*headers: bytes):
    """Return a gzipped file of these headers."""
    return lambda path: path.write_bytes(gzip.compress(b"".join(headers)))


def _tar_header(size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    return _member("a", size, kind).tobuf(tarfile.GNU_FORMAT)


def _many_members(path: pathlib.Path) -> None:
    member = _member("a").tobuf()
    path.write_bytes(gzip.compress(b"".join(member.replace(b"a\0", f"{i}\0".encode(), 1)[:512] for i in range(12_000))))


def _half_a_tar(path: pathlib.Path) -> None:
    _tar(of_all=os.urandom(999))(path)
    path.write_bytes(path.read_bytes()[:900])


def _plain(value) -> bytes:
    return pickle.dumps(value, protocol=2)


def _global(module: str, name: str, arguments: bytes) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + arguments + b"R."


_SHELL = b'(U\x20touch "$TFROBUST_CANARY"' + b" " * 7 + b"t"

ARCHIVES = stored.cases(__file__, "archives", globals())

# ------------------------------------------------------------------------------------------------ IDX files


def _idx(shape, data: bytes, magic: bytes = b"\0\0\x08") -> bytes:
    return magic + bytes([len(shape)]) + b"".join(struct.pack(">I", length) for length in shape) + data


# Content of the test images, and the message.
IDX = stored.cases(__file__, "idx", globals())


# --------------------------------------------------------------------------------------------- prepared folders

_FACTS = {"name": "tiny", "version": "1.0.0", "fileFormat": "tfrecord"}
_TFDS = "tensorflow_datasets.core.features."


def _feature(kind: str, **more) -> dict:
    return {"pythonClassName": kind, **more}


def _classes(**content) -> dict:
    return {"type": f"{_TFDS}class_label_feature.ClassLabel", "content": content}


# Name -> (the content of features.json, that of dataset_info.json, a part of the line). `stranger` is a module that
# makes the canary; it can be imported.
PREPARED = stored.cases(__file__, "prepared", globals())

# --------------------------------------------------------------------------------------------- vocabularies

VOCABULARIES = stored.cases(__file__, "vocabularies", globals())

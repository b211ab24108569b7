"""Data that mean harm or are broken: arrays, pictures, archives, pickles, vocabularies."""

import gzip
import io
import lzma
import os
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import tensorflow as tf

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


def _field(signature: bytes, offset: int, value: bytes):
    def change(content: bytes) -> bytes:
        at = content.index(signature) + offset
        return content[:at] + value + content[at + len(value) :]

    return change


def _flipped_middle(content: bytes) -> bytes:
    return content[:60] + bytes(255 - byte for byte in content[60:120]) + content[120:]


ARRAYS = {
    "claims a terabyte": (_zipped(_header("(1099511627776, 8, 8, 1)") + b"x"), "damaged or cut short"),
    "claims more than a number holds": (_zipped(_header(f"({2**62}, {2**62}, 8, 1)") + b"x"), "damaged or cut short"),
    "claims less than nothing": (_zipped(_header("(-6, 8, 8, 1)") + IMAGES.tobytes()), "damaged or cut short"),
    "claims a little more": (_zipped(_header("(7, 8, 8, 1)") + IMAGES.tobytes()), "damaged or cut short"),
    "claims a little less": (_zipped(_header("(5, 8, 8, 1)") + IMAGES.tobytes()), "damaged or cut short"),
    "claims truth for a length": (_zipped(_header("(True, 8, 8, 1)") + b"x" * 64), "damaged or cut short"),
    "claims truth for a width": (_zipped(_header("(6, 8, 8, True)") + IMAGES.tobytes()), "damaged or cut short"),
    "words of a gigabyte": (_zipped(_header("(1,)", "<U1000000000") + b"x"), "damaged or cut short"),
    "a header that is code": (_zipped(_header("__import__('os').system('true')")), "damaged or cut short"),
    "a header that does not end": (_zipped(_header("(6L, 8, 8, 1))")), "damaged or cut short"),
    "a header that is not indented": (_zipped(_header("\n   6L,\n 8")), "damaged or cut short"),
    "a header that nests": (_zipped(_header("(" * 5000 + ")" * 5000)), "damaged or cut short"),
    "a header of megabytes": (_zipped(_header(" " * 2_000_000 + "(1,)", version=b"\2\0")), "damaged or cut short"),
    "a version of tomorrow": (_zipped(b"\x93NUMPY\x09\x09" + b"x" * 90), "damaged or cut short"),
    "no header": (_zipped(b"not an array at all"), "damaged or cut short"),
    "empty array file": (_zipped(b""), "damaged or cut short"),
    "half a header": (_zipped(_header("(6, 8, 8, 1)")[:20]), "damaged or cut short"),
    "objects": (_saved(images=np.array([Runs()] * 6, object)), "pickled object, which is never read"),
    "objects for labels": (_saved(labels=np.array([Runs()] * 6, object)), "pickled object, which is never read"),
    "objects for names": (_saved(class_names=np.array([Runs()] * 3, object)), "pickled object, which is never read"),
    "a record": (_saved(images=np.zeros(6, [("a", "u1", (8, 8, 1))])), "not [n, height, width, channels]"),
    "complex numbers": (_saved(images=IMAGES.astype(complex)), "not floating point in [0, 1]; divide bytes by 255"),
    "text for pixels": (_saved(images=IMAGES.astype("U3")), "not floating point in [0, 1]; divide bytes by 255"),
    "dates for pixels": (_saved(images=IMAGES.astype("M8[s]")), "not floating point in [0, 1]; divide bytes by 255"),
    "not a number": (_saved(images=np.full(IMAGES.shape, np.nan)), "must be finite"),
    "endless numbers": (_saved(images=np.full(IMAGES.shape, np.inf)), "must be finite"),
    "negative labels": (_saved(labels=LABELS - 5), "is not a class id"),
    "labels of 64 bits": (_saved(labels=LABELS + 2**40), "is not a class id"),
    "a label of two billion": (_saved(labels=LABELS + 2**31 - 3), "ids are 0 to 1048575"),
    "labels without bytes": (_also(labels=_header("(1000000000000, 0)")), "damaged or cut short"),
    "names without letters": (_also(class_names=_header("(1000000000000,)", "<U0")), "damaged or cut short"),
    "names without bytes": (_also(class_names=_header("(1000000000000, 0)", "<U1")), "damaged or cut short"),
    "a name twice among many": (_saved(class_names=[*map(str, range(60_000)), "59999"]), "'59999' occurs twice"),
    "more names than classes are read": (_saved(class_names=np.zeros(2**20 + 1, "U1")), "more than 1048576"),
    "fractions for labels": (_saved(labels=LABELS / 2), "labels are float64; class ids are integers"),
    "too few labels": (_saved(labels=LABELS[:3]), "3 labels for 6 examples"),
    "no pixels": (_saved(images=np.zeros((6, 0, 8, 1), np.uint8)), "have no pixels"),
    "no images": (_saved(images=IMAGES[:0], labels=LABELS[:0]), "holds no images"),
    "one number": (_saved(images=np.uint8(3)), "not [n, height, width, channels]"),
    "many axes": (_saved(images=np.zeros((1,) * 32, np.uint8)), "not [n, height, width, channels]"),
    "images of another size": (_saved(images=np.zeros((6, 9, 9, 1), np.uint8)), ""),
    "other names": (lambda path: np.savez(path, pictures=IMAGES), "has no array 'images'"),
    "encrypted": (_spoiled(_field(b"PK\x01\x02", 8, b"\1")), "damaged or cut short"),
    "unknown packing": (_spoiled(_field(b"PK\x01\x02", 10, b"\x63")), "damaged or cut short"),
    "spoiled packing": (_spoiled(_flipped_middle), ""),
    "half a file": (_spoiled(lambda content: content[: len(content) // 2]), "cut short"),
    "its end alone": (_spoiled(lambda content: content[-60:]), ""),
    "a name stands twice": (_zipped(_header("(6, 8, 8, 1)") + IMAGES.tobytes(), labels=b"x"), "occurs twice"),
    "parts above": (_zipped(b"x", **{"../../outside": b"x"}), "leads out of the archive"),
    "a pipe": (os.mkfifo, "there is no file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "there is no file"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(Runs())), "not an .npz archive"),
    "a text": (lambda path: path.write_bytes(b"images,labels\n"), "not an .npz archive"),
    "nothing": (lambda path: path.write_bytes(b""), "not an .npz archive"),
}

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
PICTURES = {
    "a picture of 3.6 gigapixels": png(60_000, 60_000, b"\0" * 1000),
    "a picture of 67 megapixels and one row": png(8192, 8193, b"\0" * 1000),
    "a row of 4 gigapixels": png(2**32 - 1, 1),
    "a column of 2 gigapixels": png(1, 2**31),
    "a whole bomb": png(30_000, 3_000, b"\0" * (3 * 30_000 + 1) * 3_000),
    "sides whose product wraps round": png(2**31, 2**31),
    "sides of nothing": png(0, 0),
    "a JPEG of 4 gigapixels": jpeg(65_500, 65_500),
    "a JPEG without a frame": b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xd9",
    "a JPEG of no pixels": jpeg(0, 0),
    "half a JPEG header": b"\xff\xd8\xff",
    "a PNG without rows": png(8, 8),
    "a PNG of an odd kind": png(8, 8, b"\0" * 200, kind=5),
    "a PNG cut short": png(64, 64, bytes(range(256)) * 48)[:90],
    "a PNG header alone": b"\x89PNG\r\n\x1a\n",
    "a PNG of noise": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4,
    "a GIF": _gif(8, 8),
    "a GIF of 4 gigapixels": _gif(65_535, 65_535),
    "a BMP": _bmp(2, 2),
    "a BMP of 4 exapixels": _bmp(2**31 - 1, 2**31 - 1),
    "a TIFF": b"II*\0" + bytes(60),
    "a WebP": b"RIFF\x1a\0\0\0WEBPVP8L" + bytes(20),
    "a drawing": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "a script": b"push graphic-context\nfill 'url(https://example.com/|touch x)'\n",
    "a PostScript": b"%!PS\n(/etc/passwd) (r) file\n",
    "a text": b"no picture",
    "nothing": b"",
    "zeros": bytes(1000),
    "a pickle": pickle.dumps(Runs()),
}

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

ARCHIVES = {
    "a header that lies": (_lying_tar, ""),
    "an endless header": (_endless_header, "not a tar archive"),
    "twelve thousand files": (_many_members, ""),
    "files above": (_tar(_member("../../../outside", 5)), "no complete CIFAR archive"),
    "absolute files": (_tar(_member("/tmp/outside", 5)), "no complete CIFAR archive"),
    "a link for each file": (_cifar_tar(tarfile.SYMTYPE, "/etc/passwd"), "no complete CIFAR archive"),
    "a hard link for each file": (_cifar_tar(tarfile.LNKTYPE, "/etc/passwd"), "no complete CIFAR archive"),
    "a device for each file": (_cifar_tar(tarfile.CHRTYPE), "no complete CIFAR archive"),
    "empty archive": (_tar(), "no complete CIFAR archive"),
    "noise in gzip": (lambda path: path.write_bytes(gzip.compress(bytes(range(256)) * 20)), "not a tar archive"),
    "half an archive": (_half_a_tar, "not a tar archive"),
    "another packing": (lambda path: path.write_bytes(lzma.compress(b"x" * 999)), "not a tar archive"),
    "no archive": (lambda path: path.write_bytes(b"no archive"), "not a tar archive"),
    "nothing": (lambda path: path.write_bytes(b""), "not a tar archive"),
    "pickles that run": (_tar(of_all=_plain(Runs())), "which is never called"),
    "pickles that name the system": (_tar(of_all=_global("os", "system", _SHELL)), "which is never called"),
    "pickles that evaluate": (_tar(of_all=_global("builtins", "eval", b"(U\x011t")), "which is never called"),
    "pickles that import": (_tar(of_all=_global("importlib", "import_module", b"(U\x02ost")), "which is never called"),
    "pickles by way of numpy": (_tar(of_all=_global("numpy.testing", "rundocs", b"(t")), "which is never called"),
    "pickles by way of codecs": (_tar(of_all=_global("_codecs", "encode", b"(U\x01aU\x04rot1t")), ""),
    "pickles by an extension": (_tar(of_all=b"\x80\x02\x82\x01."), "damaged or cut short"),
    "pickles that ask who they are": (_tar(of_all=b"\x80\x02U\x01aQ."), "damaged or cut short"),
    "pickles that number far": (_tar(of_all=b"\x80\x02}r\xff\xff\xff\x7f."), "more memory than it can use"),
    "pickles that number far in words": (_tar(of_all=b"}p2147483647\n."), "more memory than it can use"),
    "pickles of endless bytes": (_tar(of_all=b"\x80\x05\x96" + struct.pack("<Q", 2**60) + b"."), "damaged or"),
    "pickles of endless numbers": (_tar(of_all=_plain({2**61 - 1: 0})), "more than 32 bits"),
    "pickles without end": (_tar(of_all=b"\x80\x02]" + b"]" * 5000), "damaged or cut short"),
    "pickles of lists in lists": (_tar(of_all=b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."), "has no table"),
    "pickles of a number": (_tar(of_all=_plain(3)), "has no table"),
    "pickles of other tables": (_tar(of_all=_plain({b"x": 1})), ""),
    "pickles of text": (_tar(of_all=b"(dp0\nS'data'\np1\nNs."), ""),
}

# ------------------------------------------------------------------------------------------------ IDX files


def _idx(shape, data: bytes, magic: bytes = b"\0\0\x08") -> bytes:
    return magic + bytes([len(shape)]) + b"".join(struct.pack(">I", length) for length in shape) + data


# Content of the test images, and the message.
IDX = {
    "another format": (b"\x89PNG\r\n\x1a\n", "is no IDX file: it begins with 89504e47"),
    "nothing": (b"", "is no IDX file: it begins with nothing"),
    "floats": (_idx((6, 8, 8), bytes(6 * 64 * 4), b"\0\0\x0d"), "numbers of type float32"),
    "labels for images": (_idx((6,), bytes(6)), "has 1 dimensions, not 3 or 4"),
    "many dimensions": (_idx((1,) * 255, b"\0"), "has 255 dimensions"),
    "half a header": (_idx((6, 8, 8), b"")[:9], "cut short within its header"),
    "no images": (_idx((0, 8, 8), b""), "is empty"),
    "cut short": (_idx((6, 8, 8), bytes(6 * 64 - 1)), "announces 384 bytes, and the file has 383 bytes of data"),
    "too long": (_idx((6, 8, 8), bytes(6 * 64 + 1)), "announces 384 bytes, and the file has 385 bytes of data"),
    "a petabyte": (_idx((2**32 - 1, 2**20, 1), bytes(384)), "is not read: its header announces"),
    "a gigabyte, gzipped": (gzip.compress(_idx((2**20, 32, 32), bytes(384))), "is not read: its header announces"),
    "less, gzipped": (gzip.compress(_idx((6, 8, 8), bytes(383))), "data are not the 384 bytes"),
    "more, gzipped": (gzip.compress(_idx((6, 8, 8), bytes(10**6))), "data are not the 384 bytes"),
    "cut gzip": (gzip.compress(_idx((6, 8, 8), os.urandom(384)))[:-100], "damaged or cut short"),
    "spoiled gzip": (gzip.compress(_idx((6, 8, 8), os.urandom(384)))[:-8] + bytes(8), "damaged or cut short"),
}


# --------------------------------------------------------------------------------------------- prepared folders

_FACTS = {"name": "tiny", "version": "1.0.0", "fileFormat": "tfrecord"}
_TFDS = "tensorflow_datasets.core.features."


def _feature(kind: str, **more) -> dict:
    return {"pythonClassName": kind, **more}


def _classes(**content) -> dict:
    return {"type": f"{_TFDS}class_label_feature.ClassLabel", "content": content}


# Name -> (the content of features.json, that of dataset_info.json, a part of the line). `stranger` is a module that
# makes the canary; it can be imported.
PREPARED = {
    "a class of its own": ({"type": "stranger.Feature", "content": {}}, _FACTS, "is not read"),
    "a class of its own inside": ({"a": [_feature("stranger.Feature")]}, _FACTS, "is not read"),
    "by the name of the field": ({"python_class_name": "stranger.Feature"}, _FACTS, "is not read"),
    "in JSON inside JSON": (
        _feature(f"{_TFDS}features_dict.FeaturesDict", jsonFeature={"json": '{"x": {"type": "stranger.X"}}'}),
        _FACTS,
        "is not read",
    ),
    "labels of another file": (_classes(names_file="/dev/zero"), _FACTS, "is not read"),
    "labels by way of segments": (_feature(f"{_TFDS}labeled_image.LabeledImage"), _FACTS, "is not read"),
    "a billion classes": (_classes(num_classes=10**9), _FACTS, "is not read"),
    "a billion classes in words": (_feature("x", classLabel={"numClasses": "1" * 30}), _FACTS, "is not read"),
    "examples of another folder": ({}, {**_FACTS, "splits": [{"filepathTemplate": "../x"}]}, "is not read"),
    "nothing": ({}, _FACTS, "cannot be read by TFDS"),
    "a list": ([], _FACTS, "cannot be read by TFDS"),
    "half a file": (b"{", _FACTS, "no JSON"),
    "brackets": (b"[" * 100_000 + b"]" * 100_000, _FACTS, "no JSON"),
    "facts of nothing": ({}, b"", "no JSON"),
    "facts without a version": ({}, {"name": "tiny"}, "cannot be read by TFDS"),
    "megabytes": (b" " * (2**24 + 1), _FACTS, "at most 16777216"),
    "a pipe": (os.mkfifo, _FACTS, "not a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), _FACTS, "not a regular file"),
}

# --------------------------------------------------------------------------------------------- vocabularies

VOCABULARIES = {
    "no UTF-8": b"[PAD]\n[UNK]\n\xff\xfe\n",
    "UTF-16": "[PAD]\n[UNK]\nword\n".encode("utf-16"),
    "without unknown": b"a\nb\n",
    "a word twice": b"[PAD]\n[UNK]\nword\nword\n",
    "a word twice among many": "\n".join(["[PAD]", "[UNK]", *map(str, range(90_000)), "89999"]).encode(),
    "an empty line": b"[PAD]\n[UNK]\n\nword\n",
    "no words": b"[PAD]\n[UNK]\n",
    "nothing": b"",
    "zeros": bytes(100),
    "a pickle": pickle.dumps(Runs()),
    "a line end in a word": "[PAD]\n[UNK]\nwo\u2028rd\n".encode(),
}

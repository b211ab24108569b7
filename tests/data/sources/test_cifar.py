"""Archives in the official formats, tiny; the pickles are those of Python 2, opcode by opcode, and of Python 3."""

import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
import stored

from tfrobust.data.sources import cifar
from tfrobust.data.sources.cifar import Cifar
from tfrobust.security import pickles as restricted_pickle
from tfrobust.security.pickles import ForbiddenPickleError, load_plain

GENERATOR = np.random.default_rng(0)
NAMES = [f"class{i}" for i in range(10)]


def _rows(count, classes=10):
    pixels = GENERATOR.integers(0, 256, (count, 3072), np.uint8)
    return pixels, [int(label) for label in np.arange(count) % classes]


def _word(text):
    return b"U" + bytes([len(text)]) + text.encode()  # SHORT_BINSTRING: a Python 2 str


def _python2_array(array):
    """Return what Python 2's cPickle wrote for a C-ordered uint8 array (protocol 2)."""
    number = lambda value: b"J" + struct.pack("<i", value)  # noqa: E731
    shape = b"".join(number(size) for size in array.shape)
    dtype = b"cnumpy\ndtype\n" + _word("u1") + b"K\x00K\x01\x87R" + b"(K\x03" + _word("|") + b"NNN"
    dtype += number(-1) * 2 + b"K\x00tb"
    content = array.tobytes()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _word("b") + b"\x87R"
        + b"(K\x01(" + shape + b"t" + dtype + b"\x89T" + struct.pack("<i", len(content)) + content + b"tb"
    )  # fmt: skip


def _python2_batch(pixels, labels, key="labels"):
    ids = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    body = _word("batch_label") + _word("training batch") + _word(key) + ids
    return b"\x80\x02}(" + body + _word("data") + _python2_array(pixels) + b"u."


def _python3_batch(pixels, labels, key="labels"):
    return pickle.dumps({b"data": pixels, key.encode(): labels}, protocol=2)


def _cifar10(write=_python2_batch, suffix=""):
    """File name -> content, and the training rows."""
    files, pixels, labels = {}, [], []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows = _rows(20)
        files[name + suffix] = write(*rows)
        pixels.append(rows[0])
        labels += rows[1]
    return files, np.concatenate(pixels), np.array(labels)


def _python_files():
    files, pixels, labels = _cifar10()
    files["batches.meta"] = pickle.dumps({b"label_names": [name.encode() for name in NAMES]}, protocol=2)
    return files, pixels, labels


def _binary(pixels, labels):
    return np.concatenate([np.array(labels, np.uint8)[:, None], pixels], 1).tobytes()


def _write_folder(folder, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _write_archive(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _check(data, pixels, labels):
    assert data.sizes == {"train": 100, "validation": 0, "test": 20}
    # the published layout: 1024 red, then 1024 green, then 1024 blue, row by row
    assert data.train.images[3, 5, 7].tolist() == [pixels[3, plane * 1024 + 5 * 32 + 7] for plane in range(3)]
    expected = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    assert np.array_equal(np.concatenate([data.train.images, data.test.images]), expected)
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), labels)
    assert data.name == "cifar10" and data.class_names == tuple(NAMES)


def test_python_version_as_archive_folder_and_parent(tmp_path):
    files, pixels, labels = _python_files()
    archive = _write_archive(tmp_path / "cifar-10-python.tar.gz", files)
    folder = _write_folder(tmp_path / "cifar-10-batches-py", files)
    for path in (archive, folder, tmp_path):
        _check(Cifar(path=str(path)).load(), pixels, labels)
    data = Cifar(path=str(folder), validation_size=10).load()
    assert data.sizes["validation"] == 10
    assert data.note == "not the published files: 100 and 20 images in place of 50,000 and 10,000"
    assert cifar._note(50_000, 10_000) == ""


def test_python3_pickles_and_the_binary_version(tmp_path):
    files, pixels, labels = _cifar10(_python3_batch)
    files["batches.meta"] = _python_files()[0]["batches.meta"]
    _check(Cifar(path=str(_write_folder(tmp_path / "c", files))).load(), pixels, labels)
    files, pixels, labels = _cifar10(_binary, ".bin")
    files["batches.meta.txt"] = ("\n".join(NAMES) + "\n\n").encode()
    _check(Cifar(path=str(_write_folder(tmp_path / "binary", files))).load(), pixels, labels)


def test_cifar100_has_fine_labels(tmp_path):
    names = [f"fine{i}" for i in range(100)]
    train, test = _rows(100, 100), _rows(10, 100)
    meta = {b"fine_label_names": [name.encode() for name in names], b"coarse_label_names": [b"c"]}
    python = {
        "train": _python2_batch(*train, key="fine_labels"),
        "test": _python2_batch(*test, key="fine_labels"),
        "meta": pickle.dumps(meta, protocol=2),
    }
    record = lambda rows: np.concatenate(  # noqa: E731
        [np.full((len(rows[1]), 1), 19, np.uint8), np.array(rows[1], np.uint8)[:, None], rows[0]], 1
    ).tobytes()
    binary = {"train.bin": record(train), "test.bin": record(test), "fine_label_names.txt": "\n".join(names).encode()}
    datasets = [
        Cifar(path=str(_write_folder(tmp_path / kind, files))).load()
        for kind, files in (("python", python), ("binary", binary))
    ]
    assert datasets[0].fingerprint == datasets[1].fingerprint and datasets[0].name == "cifar100"
    assert datasets[0].test.labels.tolist() == list(range(10)) and datasets[0].class_names == tuple(names)


@pytest.mark.parametrize("content, words", stored.cases(__file__, "pickles", globals())["rows"])
def test_only_plain_data_is_read(content, words):
    with pytest.raises(ForbiddenPickleError, match=words) as caught:
        load_plain(content)
    assert len(str(caught.value)) < 150


def test_plain_data_comes_through_and_a_pickle_leaves_no_trace():
    """BUILD sets attributes on whatever a name led to; that must not be an object of the module."""
    load_plain(b"c_codecs\nencode\n}(U\x05traceK\x01ub.")
    assert not vars(restricted_pickle._encode_latin1)
    array = GENERATOR.integers(0, 256, (3, 5), np.uint8)
    value = load_plain(pickle.dumps({"a": array, "b": [1, 2.5, None]}, 2))
    assert np.array_equal(value["a"], array) and value["b"] == [1, 2.5, None]
    assert np.array_equal(load_plain(_python2_array(array) + b"."), array)


def test_bad_archives_and_records(tmp_path):
    files, _, _ = _python_files()
    del files["data_batch_3"]
    partial = _write_archive(tmp_path / "partial.tar.gz", files)
    with pytest.raises(ValueError, match="no complete CIFAR archive"):
        Cifar(path=str(partial)).load()
    with pytest.raises(FileNotFoundError, match="https://www.cs.toronto.edu"):
        Cifar(path=str(tmp_path / "nope")).load()
    with pytest.raises(FileNotFoundError, match="no complete CIFAR archive"):
        Cifar(path=str(_write_folder(tmp_path / "empty", {}))).load()
    files, _, _ = _cifar10(_binary, ".bin")
    files["batches.meta.txt"] = "\n".join(NAMES).encode()
    files["data_batch_4.bin"] = files["data_batch_4.bin"][:-1]
    with pytest.raises(ValueError, match="data_batch_4.bin: 61459 bytes are no whole number of records of 3073"):
        Cifar(path=str(_write_folder(tmp_path / "c", files))).load()


@pytest.mark.parametrize("name, content, words", stored.cases(__file__, "cifar_batches", globals())["rows"])
def test_bad_batches(tmp_path, name, content, words):
    files, _, _ = _python_files()
    folder = _write_folder(tmp_path / "c", {**files, name: content})
    with pytest.raises(ValueError, match=words) as caught:
        Cifar(path=str(folder)).load()
    assert len(str(caught.value)) <= 300

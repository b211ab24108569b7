"""Data of others are read as numbers, within bounds, or refused with one line."""

import contextlib
import functools
import json
import os
import struct

import numpy as np
import pytest
import tensorflow as tf
from hostile import data_files

from tfrobust.commands import compare, evaluate
from tfrobust.data.wordpiece import WordPiece
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.keras.data import ImageFolder, TensorFlowDatasets
from tfrobust.models.weights import weight_files
from tfrobust.security import archives, idx_files, picture_files, saved_models
from tfrobust.security import pickles as restricted_pickle
from tfrobust.serving.client import inputs
from tfrobust.serving.export import saved_model as export

_cached = functools.cache(loading.load)


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    """The whole model is the same for all data."""
    monkeypatch.setattr(loading, "load", lambda path, logits_output=None, use=None: _cached(path, logits_output))


@contextlib.contextmanager
def _refusal_allowed():
    try:
        yield
    except InputError as error:
        assert len(str(error)) <= 300


@pytest.mark.filterwarnings("ignore:Duplicate name")  # the array is in it twice
@pytest.mark.parametrize("name", data_files.ARRAYS)
def test_arrays(tmp_path, not_judged, name):
    """The other readers of array files need not refuse them, but what they read are plain arrays."""
    build, part = data_files.ARRAYS[name]
    build(tmp_path / "data.npz")
    not_judged(data=tmp_path / "data.npz", part=part)
    with _refusal_allowed():
        _, array = inputs.read([str(tmp_path / "data.npz")])
        assert not array.dtype.hasobject
    with _refusal_allowed(), weight_files.open_tensors(tmp_path / "data.npz") as tensors:
        assert not any(tensor.read().dtype.hasobject for tensor in tensors.values())


@pytest.mark.parametrize("name", data_files.ARCHIVES)
def test_archives(tmp_path, not_judged, name):
    build, part = data_files.ARCHIVES[name]
    build(tmp_path / "cifar.tar.gz")
    not_judged(data=tmp_path / "cifar.tar.gz", part=part)


@pytest.mark.parametrize("name", data_files.IDX)
def test_idx_files(tmp_path, not_judged, name):
    content, part = data_files.IDX[name]
    contents = {"images": data_files._idx((6, 8, 8), bytes(384)), "labels": data_files._idx((6,), bytes([0, 1, 2] * 2))}
    for split in ("train", "t10k"):
        for kind, rank in (("images", "idx3"), ("labels", "idx1")):
            (tmp_path / f"{split}-{kind}-{rank}-ubyte").write_bytes(contents[kind])
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    not_judged(data=tmp_path, part=part)


def test_idx_files_that_never_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        idx_files.read_idx(tmp_path / "pipe", (1,))


def test_pickles_of_many_operations(tmp_path, not_judged, monkeypatch):
    monkeypatch.setattr(restricted_pickle, "MOST_OPERATIONS", 1000)
    data_files._tar(of_all=b"\x80\x02" + b"]" * 1001 + b".")(tmp_path / "cifar.tar.gz")
    not_judged(data=tmp_path / "cifar.tar.gz", part="more than 1000 operations")


def _prepare(folder, name) -> None:
    *contents, _ = data_files.PREPARED[name]
    folder.mkdir(parents=True)
    for file, content in zip(("features.json", "dataset_info.json"), contents, strict=True):
        if callable(content):
            content(folder / file)
        else:
            (folder / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.mark.parametrize("name", data_files.PREPARED)
def test_prepared_folders(tmp_path, not_judged, monkeypatch, name):
    (tmp_path / "stranger.py").write_text("import os\nopen(os.environ['TFROBUST_CANARY'], 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    _prepare(tmp_path / "tiny" / "1.0.0", name)
    not_judged(data=tmp_path / "tiny", part=data_files.PREPARED[name][-1])


def test_a_prepared_folder_behind_the_name_of_a_known_set(tmp_path, canary, monkeypatch):
    """TFDS has no code for that version, so it takes the set from its files."""
    (tmp_path / "stranger.py").write_text("import os\nopen(os.environ['TFROBUST_CANARY'], 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    _prepare(tmp_path / "mnist" / "9.9.9", "a class of its own")
    for data_dir in (str(tmp_path), "~"):
        with pytest.raises(InputError, match="is not read"):
            TensorFlowDatasets(dataset="mnist:9.9.9", data_dir=data_dir).load()


def test_folders_inside_folders(tmp_path):
    """No search follows them down: each level would be a call inside a call."""
    deepest = tmp_path.joinpath("a", *"b" * 60)
    deepest.mkdir(parents=True)
    (deepest / "dataset_info.json").write_text("{}")
    (tmp_path / "saved_model.pb").write_text("")
    (finding,) = saved_models.scan(tmp_path)
    assert "more than 50 deep" in finding.evidence
    assert evaluate._source(str(tmp_path)).func is ImageFolder


@pytest.mark.parametrize("shape", [(10**12, 0), (0, 8), (10**12, 0, 8, 1)])
def test_empty_arrays_are_not_asked_about(tmp_path, shape):
    (tmp_path / "array.npy").write_bytes(data_files._header(str(shape)))
    with pytest.raises(InputError, match="holds an empty array"):
        inputs.read([str(tmp_path / "array.npy")])


def test_a_long_list_of_tensors_is_not_read(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", 2**22 + 2) + b"{}".ljust(2**22 + 2))
    with pytest.raises(InputError, match="list of tensors has 4194306 bytes"), weight_files.open_tensors(path):
        pass


def test_what_would_grow(tmp_path, not_judged, monkeypatch):
    monkeypatch.setattr(archives, "_LARGEST_UNASKED", 2**20)
    np.savez_compressed(tmp_path / "data.npz", images=np.zeros((2**14, 8, 8, 2), np.uint8), labels=data_files.LABELS)
    not_judged(data=tmp_path / "data.npz", part="would unpack to")
    data_files.ARCHIVES["pickles of a number"][0](tmp_path / "cifar.tar.gz")
    monkeypatch.setattr(archives, "_LARGEST_TAR", 10)
    with pytest.raises(archives.RefusedArchiveError, match="unpacks to more than 10 bytes"):
        archives.read_tar(tmp_path / "cifar.tar.gz", lambda names: names)


# -------------------------------------------------------------------------------------------------- pictures


@pytest.fixture
def pictures(tmp_path):
    """A folder of three classes with a whole picture each."""
    for label in "abc":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        (tmp_path / "pictures" / label / "good.png").write_bytes(tf.io.encode_png(data_files.IMAGES[0]).numpy())
    return tmp_path / "pictures"


@pytest.fixture(scope="module")
def served(valid):
    loaded = tf.saved_model.load(str(valid / "export"))
    # The signature alone does not keep its variables alive.
    return lambda owner=loaded, **inputs: owner.signatures[export.PREDICT_BYTES](**inputs)


@pytest.mark.parametrize("name", data_files.PICTURES)
def test_pictures_on_the_disk_and_sent_to_a_server(pictures, not_judged, served, name):
    """The exported program itself refuses them, in the words of its own endpoint."""
    (pictures / "b" / "picture.png").write_bytes(data_files.PICTURES[name])
    assert "PNG or JPEG" in not_judged(data=pictures, part="picture.png")
    with pytest.raises(tf.errors.InvalidArgumentError):
        served(image_bytes=tf.constant([data_files.PICTURES[name]]))


def test_the_size_of_a_picture_is_read_from_its_header(monkeypatch):
    for large in (data_files.png(8192, 8193), data_files.jpeg(9000, 9000)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="more pixels"):
            picture_files.decoded(tf.constant(large), 3)
    monkeypatch.setattr(picture_files, "LARGEST", 64)
    pixels = data_files.IMAGES[0]
    for encoded in (tf.io.encode_png(pixels), tf.io.encode_jpeg(pixels)):
        assert picture_files.decoded(encoded, 1).shape == (8, 8, 1)  # as many as are allowed
    with pytest.raises(tf.errors.InvalidArgumentError, match="more pixels"):
        picture_files.decoded(tf.io.encode_png(np.zeros((5, 13, 1), np.uint8)), 1)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_whole_pictures_are_decoded_as_before(channels):
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, channels)).astype(np.uint8)
    encoded = tf.io.encode_png(pixels)
    traced = tf.function(lambda text: picture_files.decoded(text, channels))
    for picture in (picture_files.decoded(encoded, channels), traced(encoded)):
        np.testing.assert_array_equal(picture, pixels)
    if channels < 4:
        encoded = tf.io.encode_jpeg(pixels)
        np.testing.assert_array_equal(picture_files.decoded(encoded, channels), tf.io.decode_image(encoded, channels))


# -------------------------------------------------------------------------------------------------- all files


def test_files_of_gigabytes_are_not_read(tmp_path, pictures, not_judged, refused):
    def sparse(path):
        path.touch()
        os.truncate(path, 2**40)  # zeros that take no room on the disk
        return path

    sparse(pictures / "b" / "large.png")
    not_judged(data=pictures, part="PNG or JPEG images of at most 256 MiB: b/large.png")
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in data_files.CIFAR:
        sparse(tmp_path / "cifar-10-batches-py" / name)
    not_judged(data=tmp_path / "cifar-10-batches-py", part="are read")
    refused(compare.main, sparse(tmp_path / "robustness_report.json"), part="at most 67108864 are read")
    with pytest.raises(InputError, match="at most 67108864 are read"):
        WordPiece(vocabulary=str(sparse(tmp_path / "vocabulary.txt"))).fitted([])


@pytest.mark.parametrize("name", [b"c/\xff\xfe.png", b"\xff\xfec/good.png"])
def test_names_that_are_no_utf8(pictures, not_judged, name):
    path = os.fsencode(pictures) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write((pictures / "a" / "good.png").read_bytes())
    not_judged(data=pictures, part="is not UTF-8; rename it")


@pytest.mark.parametrize("flag", ["--model", "--data", "--output"])
def test_arguments_that_are_no_utf8(tmp_path, not_judged, flag):
    path = os.fsdecode(os.fsencode(tmp_path) + bytes([255]))
    not_judged(more=[f"{flag}={path}"], part="is not UTF-8")


@pytest.mark.parametrize("name", data_files.VOCABULARIES)
def test_vocabularies_alone_and_inside_an_export(export_copy, canary, not_judged, name):
    (export_copy / "assets.extra").mkdir(exist_ok=True)
    path = export_copy / "assets.extra" / "vocabulary.txt"
    path.write_bytes(data_files.VOCABULARIES[name])
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        WordPiece(vocabulary=str(path)).fitted([])
    assert len(str(error.value)) <= 300 and "Traceback" not in str(error.value)
    if name in ("no UTF-8", "UTF-16", "a pickle"):
        not_judged(model=export_copy)

"""Data of others are read as numbers, within bounds, or refused with one line."""

import os

import numpy as np
import pytest
import tensorflow as tf
from hostile import data_files

from tfrobust import compare, evaluate
from tfrobust.data.wordpiece import WordPiece
from tfrobust.errors import InputError
from tfrobust.models import weight_files
from tfrobust.ops import archives, picture_files
from tfrobust.serving import export, inputs

QUICK = "--gin_file=gin/eval/quick.gin"


def _flags(whole, data, tmp_path):
    return [f"--model={whole / 'export'}", f"--data={data}", QUICK, f"--output={tmp_path / 'report'}"]


@pytest.mark.parametrize("name", data_files.ARRAYS)
def test_arrays(whole, tmp_path, refused, name):
    build, part = data_files.ARRAYS[name]
    build(tmp_path / "data.npz")
    refused(evaluate.main, *_flags(whole, tmp_path / "data.npz", tmp_path), part=part)


@pytest.mark.parametrize("name", data_files.ARRAYS)
def test_arrays_for_a_server_and_as_weights(tmp_path, canary, name):
    """The other readers of array files: what they do not refuse are plain arrays."""
    data_files.ARRAYS[name][0](tmp_path / "data.npz")
    try:
        _, found = inputs.read([str(tmp_path / "data.npz")])
        assert not found.dtype.hasobject
    except InputError as error:
        assert len(str(error)) <= 300
    try:
        with weight_files.opened(tmp_path / "data.npz") as tensors:
            assert not any(tensor.read().dtype.hasobject for tensor in tensors.values())
    except InputError as error:
        assert len(str(error)) <= 300


def test_arrays_that_would_grow(whole, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("tfrobust.ops.archives._LARGEST_UNASKED", 2**20)
    np.savez_compressed(tmp_path / "data.npz", images=np.zeros((2**14, 8, 8, 2), np.uint8), labels=data_files.LABELS)
    refused(evaluate.main, *_flags(whole, tmp_path / "data.npz", tmp_path), part="would grow to")


@pytest.mark.parametrize("name", data_files.PICTURES)
def test_pictures(whole, tmp_path, refused, name):
    for label in "abc":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        (tmp_path / "pictures" / label / "good.png").write_bytes(tf.io.encode_png(data_files.IMAGES[0]).numpy())
    (tmp_path / "pictures" / "b" / "picture.png").write_bytes(data_files.PICTURES[name])
    line = refused(evaluate.main, *_flags(whole, tmp_path / "pictures", tmp_path), part="picture.png")
    assert "PNG or JPEG" in line


def _sparse(path, size: int) -> None:
    """A file of so many zeros that takes no room on the disk."""
    path.touch()
    os.truncate(path, size)


def test_a_picture_of_gigabytes_is_not_read(whole, tmp_path, refused):
    for label in "abc":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        (tmp_path / "pictures" / label / "good.png").write_bytes(tf.io.encode_png(data_files.IMAGES[0]).numpy())
    _sparse(tmp_path / "pictures" / "b" / "large.png", 2**40)
    refused(evaluate.main, *_flags(whole, tmp_path / "pictures", tmp_path), part="larger than 256 MiB")


def test_files_of_gigabytes_in_other_places_are_not_read(whole, tmp_path, refused):
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in data_files.CIFAR:
        _sparse(tmp_path / "cifar-10-batches-py" / name, 2**40)
    refused(evaluate.main, *_flags(whole, tmp_path / "cifar-10-batches-py", tmp_path), part="are read")
    _sparse(tmp_path / "robustness_report.json", 2**40)
    refused(compare.main, tmp_path / "robustness_report.json", part="at most 67108864 are read")
    _sparse(tmp_path / "vocabulary.txt", 2**40)
    with pytest.raises(InputError, match="at most 67108864 are read"):
        WordPiece(vocabulary=str(tmp_path / "vocabulary.txt")).fitted([])


@pytest.mark.parametrize("place", ["picture", "class"])
def test_names_that_are_no_utf8(whole, tmp_path, refused, place):
    picture = tf.io.encode_png(data_files.IMAGES[0]).numpy()
    for label in (b"a", b"b", b"\xff\xfec" if place == "class" else b"c"):
        folder = os.fsencode(tmp_path / "pictures") + b"/" + label
        os.makedirs(folder)
        for name in (b"good.png", b"\xff\xfe.png" if place == "picture" else b"other.png"):
            with open(folder + b"/" + name, "wb") as file:
                file.write(picture)
    refused(evaluate.main, *_flags(whole, tmp_path / "pictures", tmp_path), part="is not UTF-8; rename it")


@pytest.mark.parametrize("flag", ["--model", "--data", "--output"])
def test_arguments_that_are_no_utf8(whole, tmp_path, refused, flag):
    flags = [text for text in _flags(whole, whole / "data.npz", tmp_path) if not text.startswith(flag)]
    refused(evaluate.main, *flags, f"{flag}={os.fsdecode(os.fsencode(tmp_path) + bytes([255]))}", part="is not UTF-8")


@pytest.mark.parametrize("name", data_files.PICTURES)
def test_pictures_sent_to_a_server(served, name):
    """The exported program itself refuses them, in the words of its own endpoint."""
    with pytest.raises(tf.errors.InvalidArgumentError):
        served(image_bytes=tf.constant([data_files.PICTURES[name]]))


@pytest.fixture(scope="module")
def served(whole):
    loaded = tf.saved_model.load(str(whole / "export"))
    # The signature alone does not keep its variables alive.
    return lambda owner=loaded, **inputs: owner.signatures[export.PREDICT_BYTES](**inputs)


def test_the_size_of_a_picture_is_read_from_its_header(monkeypatch):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more pixels"):
        picture_files.decoded(tf.constant(data_files.png(8192, 8193)), 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more pixels"):
        picture_files.decoded(tf.constant(data_files.jpeg(9000, 9000)), 3)
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
    for found in (picture_files.decoded(encoded, channels), traced(encoded)):
        np.testing.assert_array_equal(found, pixels)
    if channels < 4:
        encoded = tf.io.encode_jpeg(pixels)
        np.testing.assert_array_equal(picture_files.decoded(encoded, channels), tf.io.decode_image(encoded, channels))


@pytest.mark.parametrize("name", data_files.ARCHIVES)
def test_archives(whole, tmp_path, refused, name):
    build, part = data_files.ARCHIVES[name]
    build(tmp_path / "cifar.tar.gz")
    refused(evaluate.main, *_flags(whole, tmp_path / "cifar.tar.gz", tmp_path), part=part)


def test_an_archive_that_would_grow(tmp_path, monkeypatch):
    data_files.ARCHIVES["pickles of a number"][0](tmp_path / "cifar.tar.gz")
    monkeypatch.setattr("tfrobust.ops.archives._LARGEST_TAR", 10)
    with pytest.raises(archives.RefusedArchiveError, match="grows to more than 10 bytes"):
        archives.read_tar(tmp_path / "cifar.tar.gz", lambda names: names)


@pytest.mark.parametrize("name", data_files.VOCABULARIES)
def test_vocabularies(tmp_path, canary, name):
    (tmp_path / "vocabulary.txt").write_bytes(data_files.VOCABULARIES[name])
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        WordPiece(vocabulary=str(tmp_path / "vocabulary.txt")).fitted([])
    assert len(str(error.value)) <= 300 and "Traceback" not in str(error.value)


@pytest.mark.parametrize("name", ["no UTF-8", "UTF-16", "a pickle"])
def test_the_vocabulary_inside_an_export(whole, export_copy, refused, name):
    (export_copy / "assets.extra").mkdir(exist_ok=True)
    (export_copy / "assets.extra" / "vocabulary.txt").write_bytes(data_files.VOCABULARIES[name])
    refused(evaluate.main, f"--model={export_copy}", f"--data={whole / 'data.npz'}", QUICK)

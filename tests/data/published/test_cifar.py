"""CIFAR-C and CIFAR-P folders in the published form, tiny; whatever is wrong with one is said in one clear message."""

import hashlib
import os
import tracemalloc

import numpy as np
import pytest
import stored

from oracles import published
from tfrobust.data.published import cifar
from tfrobust.data.published.cifar import CifarC, CifarP
from tfrobust.data.published.published_set import Target

COUNT = 12
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 32, 3), np.uint8)
LABELS = np.arange(COUNT) % 10
NAMES = ("fog", "glass_blur")
BLOCKS = published.corrupted(IMAGES, NAMES)
TARGET = Target((32, 32, 3), 10)


@pytest.fixture
def folder(tmp_path):
    return published.cifar_c(tmp_path / "CIFAR-10-C", BLOCKS, LABELS)


def few(folder):
    return CifarC(folder=str(folder), as_published=False)


def test_rows_of_a_severity_in_batches(folder):
    opened = few(folder).open(NAMES, (1, 4), TARGET)
    assert np.array_equal(opened.labels, LABELS) and opened.labels.dtype == np.int32
    assert opened.notes == {"source": "published: CIFAR-10-C, an excerpt or a variant", "md5": "not compared"}
    positions = np.array([0, 2, 3, 7, 11])
    batches = list(opened.read(("glass_blur", 4), positions, 2))
    assert [batch.shape for batch in batches] == [(2, 32, 32, 3), (2, 32, 32, 3), (1, 32, 32, 3)]
    images = np.concatenate(batches)
    assert images.dtype == np.float32
    assert np.array_equal(np.round(images * 255), BLOCKS["glass_blur"][3 * COUNT + positions])


def test_the_published_files_are_known_by_number_and_md5(folder, monkeypatch):
    published_set = CifarC(folder=str(folder))
    with pytest.raises(ValueError, match="has 12 images at each severity, the published set 10000"):
        published_set.open(NAMES, (1,), TARGET)
    sums = {path.stem: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setattr(cifar, "_IMAGES", COUNT)
    with pytest.raises(
        ValueError, match=f"labels.npy has the md5 {sums['labels']}, the published file c439b113295ed52"
    ):
        published_set.open(NAMES, (1,), TARGET)
    monkeypatch.setattr(cifar, "CIFAR10_C", sums)
    assert published_set.open(NAMES, (1,), TARGET).notes == {"source": "published: CIFAR-10-C", "md5": "as published"}
    changed = BLOCKS["glass_blur"].copy()
    changed[-1, -1, -1, -1] ^= 1
    np.save(folder / "glass_blur.npy", changed)
    with pytest.raises(ValueError, match="glass_blur.npy has the md5"):
        published_set.open(NAMES, (1,), TARGET)
    assert published_set.open(("fog",), (1,), TARGET)  # what is not asked for is not compared


def test_100_classes(tmp_path, monkeypatch):
    folder = published.cifar_c(tmp_path / "c", BLOCKS, LABELS * 8)
    target = Target((32, 32, 3), 100)
    assert few(folder).open(NAMES, (1,), target).notes["source"].startswith("published: CIFAR-100-C")
    monkeypatch.setattr(cifar, "_IMAGES", COUNT)
    with pytest.raises(ValueError, match="the published file bb4026e9ce52996b95f439544568cdb2"):
        CifarC(folder=str(folder)).open(NAMES, (1,), target)


def test_the_table_of_sums_is_whole():
    from tfrobust import corruptions

    for table in (cifar.CIFAR10_C, cifar.CIFAR100_C):
        assert set(table) == {"labels", *corruptions.NAMES, *corruptions.EXTRA_NAMES}
        assert all(len(digest) == 32 for digest in table.values())
    assert len({*cifar.CIFAR10_C.values(), *cifar.CIFAR100_C.values()}) == 40


class _Hostile:
    def __reduce__(self):
        return os.mkdir, ("attacked",)


def _hostile(folder):
    array = np.empty(1, object)
    array[0] = _Hostile()
    np.save(folder / "fog.npy", array, allow_pickle=True)


def _labels(labels):
    return lambda folder: np.save(folder / "labels.npy", labels)


def _fog(array):
    return lambda folder: np.save(folder / "fog.npy", array)


def _unlike():
    labels = np.tile(LABELS, 5)
    labels[2 * COUNT + 7] = 3
    return labels


@pytest.mark.parametrize(("spoil", "message"), stored.cases(__file__, "cifar", globals())["rows"])
def test_what_is_wrong_is_said_once(folder, tmp_path, monkeypatch, spoil, message):
    monkeypatch.chdir(tmp_path)
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        few(folder).open(NAMES, (1, 2), TARGET)
    assert message in str(caught.value) and len(str(caught.value)) <= 300
    assert not (tmp_path / "attacked").exists()


def test_many_missing_files_are_counted(folder):
    names = ("fog", "snow", "frost", "contrast", "pixelate", "zoom_blur", "saturate")
    with pytest.raises(FileNotFoundError, match=r"snow.npy, frost.npy, contrast.npy, pixelate.npy and 2 more\."):
        few(folder).open(names, (1,), TARGET)


def test_the_state_follows_the_files(folder):
    before = few(folder).state()
    assert few(folder).state() == before
    os.utime(folder / "fog.npy", ns=(1, 1))
    assert few(folder).state() != before
    assert few(folder / "none").state() == few(folder / "neither").state()


def test_only_a_batch_is_in_memory(tmp_path):
    """At most a few batches of 0.4 MB, as float32, are in memory at any time, of 77 MB."""
    folder = published.cifar_c(tmp_path / "c", {}, np.arange(5000) % 10)
    np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (25_000, 32, 32, 3)).flush()
    opened = few(folder).open(("fog",), (5,), TARGET)
    tracemalloc.start()
    read = sum(len(batch) for batch in opened.read(("fog", 5), np.arange(5000), 32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == 5000 and peak < 3e6


# ------------------------------------------------------------------------------------------- perturbations


def test_sequences(tmp_path, monkeypatch):
    films = np.random.default_rng(1).integers(0, 256, (4, 5, 32, 32, 3), np.uint8)
    np.save(tmp_path / "rotate.npy", films)
    np.save(tmp_path / "tilt.npy", films[:, :3])
    source = CifarP(folder=str(tmp_path), as_published=False)
    opened = source.open(("rotate", "tilt"), TARGET)
    batches = list(opened.read(("rotate",), np.array([0, 1, 3]), 2))
    assert [batch.shape for batch in batches] == [(2, 5, 32, 32, 3), (1, 5, 32, 32, 3)]
    assert np.array_equal(np.round(batches[1] * 255), films[3:])
    assert len(opened.labels) == 4 and opened.notes["source"] == "published: CIFAR-P, an excerpt or a variant"
    with pytest.raises(ValueError, match="has 4 sequences of rotate, the published set 10000"):
        CifarP(folder=str(tmp_path)).open(("rotate",), TARGET)
    monkeypatch.setattr(cifar, "_IMAGES", 4)
    assert CifarP(folder=str(tmp_path)).open(("rotate",), TARGET).notes == {"source": "published: CIFAR-P"}


@pytest.mark.parametrize(("array", "message"), stored.cases(__file__, "cifar_sequences", globals())["rows"])
def test_bad_sequences(tmp_path, array, message):
    np.save(tmp_path / "rotate.npy", np.zeros((4, 4, 32, 32, 3), np.uint8))
    np.save(tmp_path / "shear.npy", array)
    with pytest.raises(ValueError, match=message):
        CifarP(folder=str(tmp_path), as_published=False).open(("rotate", "shear"), TARGET)

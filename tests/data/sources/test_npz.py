import pathlib

import numpy as np
import pytest

from tfrobust.data.sources.npz import Npz, read_npz

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.random((30, 4, 5, 3)).astype(np.float32)
LABELS = np.arange(30) % 3


def _save(tmp_path, **arrays):
    np.savez_compressed(tmp_path / "mine.npz", **arrays)
    return str(tmp_path / "mine.npz")


def test_held_out_test_split(tmp_path):
    data = Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS), test_size=0.3, validation_size=3).load()
    assert data.sizes == {"train": 18, "validation": 3, "test": 9} and data.name == "mine"
    assert data.class_names == ("0", "1", "2") and np.bincount(data.test.labels).tolist() == [3, 3, 3]
    images, _ = data.test.arrays()
    assert all(any(np.array_equal(image, original) for original in IMAGES) for image in images)


def test_given_test_split_and_names(tmp_path):
    pixels = (IMAGES * 255).astype(np.uint8)
    path = _save(
        tmp_path, images=pixels, labels=LABELS, test_images=pixels[:4], test_labels=LABELS[:4],
        class_names=np.array(["ant", "bee", "cat"]),
    )  # fmt: skip
    data = Npz(path=path).load()
    assert data.sizes == {"train": 30, "validation": 0, "test": 4}
    assert data.class_names == ("ant", "bee", "cat")
    assert np.array_equal(data.test.images, pixels[:4])
    assert Npz(path=path, class_names=("x", "y", "z")).load().class_names == ("x", "y", "z")


def test_one_hot_labels(tmp_path):
    ids = Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS), test_size=0.3).load()
    rows = Npz(path=_save(tmp_path, images=IMAGES, labels=np.eye(3)[LABELS]), test_size=0.3).load()
    assert rows.fingerprint == ids.fingerprint and rows.class_names == ids.class_names
    wider = Npz(path=_save(tmp_path, images=IMAGES, labels=np.eye(5)[LABELS]), test_size=0.3).load()
    assert wider.class_names == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("kind", ["U", "S"])
def test_texts_are_class_names(tmp_path, kind):
    texts = np.array(["cat", "ant", "b\u00ea"])[LABELS]
    texts = np.char.encode(texts, "utf-8") if kind == "S" else texts
    path = _save(tmp_path, images=IMAGES, labels=texts, test_images=IMAGES[:2], test_labels=texts[:2])
    data = Npz(path=path).load()
    assert data.class_names == ("ant", "b\u00ea", "cat") and data.test.labels.tolist() == [2, 0]
    np.testing.assert_array_equal(data.train.labels, np.array([2, 0, 1])[LABELS])
    assert Npz(path=path, class_names=("cat", "b\u00ea", "ant")).load().test.labels.tolist() == [0, 2]


def test_texts_of_another_encoding_are_refused_and_not_merged(tmp_path):
    texts = np.char.encode(np.array(["p\u00e2te", "p\u00eate", "riz"])[LABELS], "latin-1")
    for keys in ({"labels": texts}, {"labels": LABELS, "class_names": np.unique(texts)}):
        with pytest.raises(ValueError, match=f"{[*keys][-1]}' has texts that are not UTF-8, such as b'p"):
            Npz(path=_save(tmp_path, images=IMAGES, **keys)).load()
    names = np.char.encode(np.array(["cat", "ant", "b\u00ea"]), "utf-8")
    data = Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS, class_names=names)).load()
    assert data.class_names == ("cat", "ant", "b\u00ea")


def test_other_files(tmp_path):
    content = bytearray((pathlib.Path(_save(tmp_path, images=IMAGES, labels=LABELS))).read_bytes())
    np.save(tmp_path / "one.npy", IMAGES)
    content[600:2000] = bytes(1400)
    (tmp_path / "rotten.npz").write_bytes(content)
    for name, error in (("one.npy", ValueError), ("rotten.npz", ValueError), ("no.npz", FileNotFoundError)):
        with pytest.raises(error, match=name):
            read_npz(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        read_npz(str(tmp_path))


def test_clips_are_read_as_images_are(tmp_path):
    clips = np.random.default_rng(0).integers(0, 256, (10, 3, 6, 5, 1), np.uint8)
    np.savez(tmp_path / "clips.npz", images=clips, labels=np.arange(10) % 2)
    data = Npz(path=str(tmp_path / "clips.npz"), test_size=4).load()
    assert data.image_shape == (3, 6, 5, 1) and data.sizes == {"train": 6, "validation": 0, "test": 4}
    contents = {clip.tobytes() for clip in clips}
    assert all((np.rint(clip * 255).astype(np.uint8)).tobytes() in contents for clip in data.test.arrays()[0])


def test_groups_follow_their_images(tmp_path):
    groups = np.array(["day", "night", "dusk"])[np.arange(30) // 10]
    data = Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS, groups=groups), test_size=0.5).load()
    rows = [int(np.flatnonzero((IMAGES == image).all(axis=(1, 2, 3)))[0]) for image in data.test.images]
    assert data.test.groups.tolist() == groups[rows].tolist() and len(set(data.test.groups)) == 3
    both = {"test_images": IMAGES[:4], "test_labels": LABELS[:4], "test_groups": [7, 7, 8, 8]}
    data = Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS, **both)).load()
    assert data.train.groups is None and data.test.groups.tolist() == ["7", "7", "8", "8"]


def test_arrays_that_are_left_out_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    arrays = {
        "images": IMAGES,
        "labels": LABELS,
        "validation_images": IMAGES,
        "test_image": IMAGES,
        "test_labels": LABELS,
    }
    _save(tmp_path, **arrays)
    assert Npz(path="~/mine.npz").load().note == "mine.npz: left out: validation_images, test_image, test_labels"
    assert Npz(path=_save(tmp_path, images=IMAGES, labels=LABELS, groups=LABELS)).load().note == ""

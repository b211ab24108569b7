import numpy as np
import pytest

from tfrobust.errors import InputError
from tfrobust.serving.client import inputs

PNG, JPEG = b"\x89PNG\r\n\x1a\nrest", b"\xff\xd8\xff rest"


def put(folder, name, content):
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    return str(path)


def test_image_files_are_handed_on_as_they_are(tmp_path):
    paths = [put(tmp_path, "a.png", PNG), put(tmp_path, "b", JPEG)]
    assert inputs.read(paths) == (paths, [PNG, JPEG])


@pytest.mark.parametrize(
    ("files", "shape", "count"),
    [
        ([np.zeros((4, 4, 3))], (1, 4, 4, 3), 1),
        ([np.zeros((2, 4, 4, 3)), np.ones((4, 4, 3))], (3, 4, 4, 3), 3),
        ([np.zeros((2, 6), np.int32)], (2, 6), 2),
        ([np.zeros(6, np.int64)], (1, 6), 1),
        ([np.zeros((2, 5, 4, 4, 3))], (2, 5, 4, 4, 3), 2),
        ([{"clips": np.zeros((5, 4, 4, 3))}, {"clips": np.zeros((2, 5, 4, 4, 3))}], (3, 5, 4, 4, 3), 3),
    ],
)
def test_arrays_of_images_clips_and_tokens_become_one_batch(tmp_path, files, shape, count):
    endings = [".npz" if isinstance(content, dict) else ".npy" for content in files]
    paths = [put(tmp_path, f"{number}{endings[number]}", content) for number, content in enumerate(files)]
    names, array = inputs.read(paths)
    assert array.shape == shape and len(names) == count == len(set(names))


def test_an_npz_gives_its_images_or_its_only_array(tmp_path):
    images = np.arange(48.0).reshape(1, 4, 4, 3)
    for content in ({"images": images, "labels": np.zeros(1)}, {"anything": images}):
        names, array = inputs.read([put(tmp_path, "x.npz", content)])
        np.testing.assert_array_equal(array, images)
        assert names == [f"{tmp_path}/x.npz[0]"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no file"),
        ({"a.txt": b"text"}, "a.txt is no PNG or JPEG image"),
        ({"a.npy": b"text"}, "is no NumPy file of numbers"),
        ({"a.npy": np.array([{}], dtype=object)}, "is no NumPy file of numbers"),
        ({"a.npz": {"a": np.zeros(3), "b": np.zeros(3)}}, "one of .'images', 'clips', 'tokens'. is needed"),
        ({"a.npy": np.zeros((1, 1, 1, 1, 1, 1))}, "an array of 6 axes"),
        ({"a.npz": {"clips": np.zeros((4, 4, 3))}}, "an array of 3 axes"),
        ({"a.npy": np.float32(3)}, "an array of 0 axes"),
        ({"a.npy": np.zeros((4, 4, 3)), "b.npy": np.zeros((5, 4, 3))}, "differ in shape or dtype"),
        ({"a.npy": np.zeros((4, 4, 3)), "b.png": PNG}, "go to two endpoints"),
    ],
)  # fmt: skip
def test_anything_else_is_one_line(tmp_path, files, message):
    paths = [put(tmp_path, name, content) for name, content in files.items()] or [str(tmp_path / "none.png")]
    with pytest.raises(InputError, match=message) as caught:
        inputs.read(paths)
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


def test_large_files_and_archives_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "LARGEST_FILE", 2000)
    with pytest.raises(InputError, match="is larger than"):
        inputs.read([put(tmp_path, "a.png", PNG + bytes(3000))])
    np.savez_compressed(tmp_path / "bomb.npz", images=np.zeros((1, 100, 100, 3)))
    assert (tmp_path / "bomb.npz").stat().st_size < 2000
    with pytest.raises(InputError, match="unpacks to more than"):
        inputs.read([str(tmp_path / "bomb.npz")])

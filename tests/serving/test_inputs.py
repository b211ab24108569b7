import numpy as np
import pytest
import stored

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


@pytest.mark.parametrize("files, shape, count", stored.rows(globals(), "arrays_of_images_clips_and_tokens_become_one"))
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


@pytest.mark.parametrize("files, message", stored.rows(globals(), "anything_else_is_one_line"))
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

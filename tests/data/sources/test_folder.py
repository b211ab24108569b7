import numpy as np
import pytest
import tensorflow as tf

from tfrobust.data.pipeline import training_batches
from tfrobust.data.sources.folder import ImageFolder

SHAPE = (4, 4, 3)


def _fill(folder, classes=("bee", "ant"), count=5, suffix="png", level=0):
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for image in range(count):
            pixels = np.full(SHAPE, 40 * number + 5 * image + level, np.uint8)
            encode = tf.io.encode_png if suffix == "png" else tf.io.encode_jpeg
            tf.io.write_file(str(folder / name / f"{image}.{suffix}"), encode(pixels))
    return folder


def _folder(root, **arguments):
    return ImageFolder(path=str(root), image_shape=SHAPE, **arguments).load()


def test_class_folders_alone(tmp_path):
    root = _fill(tmp_path / "insects")
    (root / "ant" / "notes.txt").write_text("passed over")
    (root / ".cache").mkdir()
    data = _folder(root, test_size=4, validation_size=2)
    assert data.name == "insects" and data.class_names == ("ant", "bee")
    assert data.sizes == {"train": 4, "validation": 2, "test": 4}
    for path, label in zip(data.train.paths, data.train.labels, strict=True):
        assert data.class_names[label] in path.split("/")


def test_prepared_splits(tmp_path):
    _fill(tmp_path / "train")
    _fill(tmp_path / "test", count=2, suffix="jpeg", level=1)
    data = _folder(tmp_path, validation_size=2)
    assert data.sizes == {"train": 8, "validation": 2, "test": 4}
    images, labels = data.test.arrays()
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(images[:, 0, 0, 0] * 255, [41, 46, 1, 6], atol=1.5)  # ant was written second
    _fill(tmp_path / "validation", classes=("ant",), count=3)
    assert _folder(tmp_path).sizes == {"train": 10, "validation": 3, "test": 4}
    with pytest.raises(ValueError, match="leave validation_size at 0"):
        _folder(tmp_path, validation_size=2)


def test_files_stream_lazily(tmp_path):
    train = _folder(_fill(tmp_path / "data")).train
    batch = next(iter(training_batches(train, batch_size=4, seed=0)))
    assert batch.images.shape == (4, *SHAPE)
    np.testing.assert_allclose(batch.images, train.fetch(batch.index))


@pytest.mark.parametrize("verify", [True, False])
def test_bad_file_is_named(tmp_path, verify):
    root = _fill(tmp_path / "data")
    (root / "bee" / "3.png").write_bytes(b"not an image")
    if verify:
        with pytest.raises(ValueError, match=r"bee/3\.png is not a readable"):
            _folder(root)
    else:
        assert sum(_folder(root, verify=False).sizes.values()) == 10


def test_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="nope"):
        _folder(tmp_path / "nope")
    with pytest.raises(ValueError, match="at least 2 classes, found 0"):
        _folder(tmp_path)
    _fill(tmp_path / "train")
    _fill(tmp_path / "test", classes=("ant", "wasp"))
    with pytest.raises(ValueError, match="class 'wasp' is not among"):
        _folder(tmp_path)
    (tmp_path / "train" / "cat").mkdir()
    with pytest.raises(ValueError, match="cat holds no image files"):
        _folder(tmp_path)

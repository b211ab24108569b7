"""IDX files: tiny ones, written byte by byte, and the real Fashion-MNIST where this machine has it."""

import gzip
import pathlib
import struct

import keras
import numpy as np
import pytest
import stored

from tfrobust.commands import evaluate
from tfrobust.data.checks import DataNotFoundError
from tfrobust.data.sources.idx import FashionMnist, Idx, Mnist
from tfrobust.errors import InputError

DEBIAN = pathlib.Path(FashionMnist.folders[0])


def content(array) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder, name="{split}-{kind}-{rank}-ubyte.gz", test="t10k", shape=(5, 4)):
    """Write a set of 20 and 10 images of two classes; return the images of training."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    pixels = {"train": generator.integers(0, 256, (20, *shape), np.uint8), test: np.zeros((10, *shape), np.uint8)}
    for split, images in pixels.items():
        labels = np.arange(len(images), dtype=np.uint8) % 2
        for kind, rank, array in (("images", "idx3", images), ("labels", "idx1", labels)):
            path = folder / name.format(split=split, kind=kind, rank=rank)
            path.write_bytes(gzip.compress(content(array)) if path.suffix == ".gz" else content(array))
    return pixels["train"]


@pytest.mark.parametrize("naming, arguments", stored.rows(globals(), "a_folder_of_four_files"))
def test_a_folder_of_four_files(tmp_path, naming, arguments):
    images = write(tmp_path / "things", **naming)
    data = Idx(path=str(tmp_path / "things"), **arguments).load()
    assert data.name == "things" and data.sizes == {"train": 20, "validation": 0, "test": 10}
    assert data.image_shape == (*naming.get("shape", (5, 4)), 1)[:3]
    assert data.class_names == arguments.get("class_names", ("0", "1"))
    assert np.array_equal(data.train.images.reshape(images.shape), images)
    assert data.train.labels.tolist() == [0, 1] * 10


def test_what_does_not_fit_together(tmp_path):
    write(tmp_path)
    with pytest.raises(InputError, match="at least 2 classes, found 1"):
        Idx(path=str(tmp_path), class_names=("a",)).load()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(content(np.zeros(9, np.uint8)))
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte.gz has 10 images, and t10k-labels-.* 9 labels"):
        Idx(path=str(tmp_path)).load()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataNotFoundError, match="has no test labels in IDX format"):
        Idx(path=str(tmp_path)).load()


def test_where_published_sets_are_looked_for(tmp_path, monkeypatch):
    """`path`, also in torchvision's layout, then Keras's cache, then the folders of packages, then Keras itself."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(FashionMnist, "folders", (str(tmp_path / "debian"),))
    with pytest.raises(DataNotFoundError, match="apt-get install dataset-fashion-mnist .*FashionMnist.download = True"):
        FashionMnist().load()
    with pytest.raises(DataNotFoundError, match="^MNIST is not on this machine: set Mnist.download"):
        Mnist().load()
    arrays = (np.zeros((20, 28, 3), np.uint8), np.arange(20, dtype=np.uint8) % 10)
    for name, kind in (("fashion_mnist", FashionMnist), ("mnist", Mnist)):
        monkeypatch.setattr(getattr(keras.datasets, name), "load_data", lambda: (arrays, arrays))
        data = kind(download=True).load()
        assert (data.name, data.image_shape[1], len(data.class_names)) == (name, 3, 10)
    for width, folder in ((4, "debian"), (5, "keras/datasets/fashion-mnist")):
        write(tmp_path / folder, shape=(28, width))
        assert FashionMnist(download=True).load().image_shape[1] == width
    write(tmp_path / "torchvision/FashionMNIST/raw", name="{split}-{kind}-{rank}-ubyte", shape=(28, 6))
    assert FashionMnist(path=str(tmp_path / "torchvision")).load().image_shape[1] == 6


def test_a_fetch_that_fails_is_one_line(monkeypatch, tmp_path):
    def load_data():
        raise Exception("URL fetch failure on https://there/mnist.npz: None --\n unknown")

    monkeypatch.setattr(keras.datasets.mnist, "load_data", load_data)
    with pytest.raises(DataNotFoundError, match="Keras could not fetch MNIST: URL fetch failure") as caught:
        Mnist(download=True).load()
    assert "\n" not in str(caught.value)


def test_the_command_knows_them(tmp_path):
    write(tmp_path)
    assert evaluate._source(str(tmp_path)) == Idx(path=str(tmp_path))
    assert evaluate._source("fashion_mnist") == FashionMnist()


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Fashion-MNIST is not installed: apt-get install dataset-fashion-mnist")
def test_the_real_fashion_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    data = FashionMnist().load()
    assert data.sizes == {"train": 60_000, "validation": 0, "test": 10_000} and data.image_shape == (28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [6000] * 10
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    assert data.train.labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    # The constants by which users of torchvision normalize it.
    assert np.mean(data.train.images) / 255 == pytest.approx(0.2860, abs=5e-5)
    assert np.std(data.train.images) / 255 == pytest.approx(0.3530, abs=5e-5)

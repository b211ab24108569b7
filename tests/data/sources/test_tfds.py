import json
import shutil
import socket

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tfrobust.data.sources import tfds as source
from tfrobust.data.sources.tfds import TensorFlowDatasets

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (26, 6, 6, 3), np.uint8)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    calls = []

    def refuse(*arguments, **_):
        calls.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(source.urllib.request, "getproxies", dict)
    return calls


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A real prepared data set of 20 + 6 images, as TFDS writes it."""
    directory = tmp_path_factory.mktemp("tfds")
    labels = np.arange(26) % 2

    def part(rows):
        values = {"image": PIXELS[rows], "label": labels[rows], "id": labels[rows]}
        return tf.data.Dataset.from_tensor_slices(values)

    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny",
        version="1.0.0",
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(6, 6, 3)),
                "label": tfds.features.ClassLabel(names=["ant", "bee"]),
                "id": tfds.features.Scalar(np.int64),
            }
        ),
        split_datasets={"train": part(slice(20)), "test": part(slice(20, 26))},
        data_dir=directory,
        disable_shuffling=True,
    )
    return directory


def _by_bytes(images):
    return sorted(image.tobytes() for image in images)


@pytest.mark.parametrize("below", ["", "tiny", "tiny/1.0.0"])
def test_prepared_folder(prepared, below, no_network):
    data = TensorFlowDatasets(dataset=str(prepared / below), validation_size=4).load()
    assert data.sizes == {"train": 16, "validation": 4, "test": 6}
    assert data.name == "tiny" and data.class_names == ("ant", "bee")
    images = np.concatenate([data.train.images, data.validation.images])
    assert images.dtype == np.uint8 and _by_bytes(images) == _by_bytes(PIXELS[:20])
    assert _by_bytes(data.test.images) == _by_bytes(PIXELS[20:]) and no_network == []


def test_splits_and_shape(prepared):
    folder = str(prepared)
    held_out = TensorFlowDatasets(dataset=folder, test_split=None, test_size=5).load()
    assert held_out.sizes == {"train": 15, "validation": 0, "test": 5}
    sliced = TensorFlowDatasets(dataset=folder, train_split="train[:50%]", image_shape=(4, 4, 1)).load()
    assert sliced.sizes["train"] == 10 and sliced.image_shape == (4, 4, 1)
    with pytest.raises(ValueError, match="no split 'validation'; it has train, test"):
        TensorFlowDatasets(dataset=folder, test_split="validation").load()


def _message(error, **arguments):
    with pytest.raises(error) as caught:
        TensorFlowDatasets(**arguments).load()
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_data_say_what_to_do(tmp_path, no_network):
    text = _message(FileNotFoundError, dataset="cifar10", data_dir=str(tmp_path))
    for part in ("'cifar10'", str(tmp_path)[-15:], "download = True", "copy the prepared folder", "Npz"):
        assert part in text
    assert no_network == []


def test_download_without_network_ends_at_once(tmp_path, no_network):
    text = _message(FileNotFoundError, dataset="cifar10", data_dir=str(tmp_path), download=True)
    assert "cannot be reached" in text and len(no_network) == 1


def test_names(tmp_path, no_network):
    assert "nearest: cifar10" in _message(ValueError, dataset="cifr10")
    assert "no data set 'huggingface'" in _message(ValueError, dataset="huggingface:mnist")
    assert "no folder my/phots" in _message(ValueError, dataset="my/phots")  # what was meant may be a path
    assert "9.9.9" in _message(ValueError, dataset="cifar10:9.9.9", data_dir=str(tmp_path))
    assert "no folder" in _message(FileNotFoundError, dataset="./nope")
    assert "dataset_info.json" in _message(FileNotFoundError, dataset=str(tmp_path))
    assert no_network == []


def test_not_image_classification(tmp_path):
    dataset = tf.data.Dataset.from_tensors({"image": PIXELS[0]})
    tfds.dataset_builders.store_as_tfds_dataset(
        name="unlabelled",
        version="1.0.0",
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(6, 6, 3))}),
        split_datasets={"train": dataset},
        data_dir=tmp_path,
    )
    assert "0 class labels" in _message(ValueError, dataset=str(tmp_path))


def test_damaged_records(prepared, tmp_path):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(prepared, folder)
    record = next(folder.glob("**/*train*tfrecord*"))
    record.write_bytes(record.read_bytes()[:-7])
    assert "damaged" in _message(ValueError, dataset=str(folder))


def test_a_split_that_is_listed_and_cannot_be_read_is_called_damaged(prepared, tmp_path):
    folder = shutil.copytree(prepared, tmp_path / "copy")
    (path,) = folder.glob("**/dataset_info.json")
    facts = json.loads(path.read_text())
    for split in facts["splits"]:
        split["shardLengths"] = []
    path.write_text(json.dumps(facts))
    text = _message(ValueError, dataset=str(folder))
    assert "split 'train': damaged" in text

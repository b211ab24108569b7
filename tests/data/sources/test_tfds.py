import json
import shutil
import socket

import numpy as np
import PIL.Image
import pytest
import stored
import tensorflow as tf
import tensorflow_datasets as tfds

from tfrobust.data import checks
from tfrobust.data.sources import tfds as source
from tfrobust.data.sources.tfds import TensorFlowDatasets
from tfrobust.errors import InputError

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
    for shape in (None, (4, 4, 3)):
        for split in ("validation", "test[:5", "validation[:50%]"):
            with pytest.raises(InputError, match=f"no split {split!r}; it has train, test".replace("[", r"\[")):
                TensorFlowDatasets(dataset=folder, test_split=split, image_shape=shape).load()


def _message(error, **arguments):
    with pytest.raises(error) as caught:
        TensorFlowDatasets(**arguments).load()
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_data_say_what_to_do_and_a_download_without_network_ends_at_once(tmp_path, no_network):
    text = _message(FileNotFoundError, dataset="cifar10", data_dir=str(tmp_path))
    for part in ("'cifar10'", str(tmp_path)[-15:], "download = True", "copy the prepared folder", "Npz"):
        assert part in text
    assert no_network == []
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


def _stored(directory, shape, dtype, images):
    """Store images with labels 0 and 1 in turn as TFDS does, and return the folder."""
    features = {"image": tfds.features.Image(shape=shape, dtype=dtype), "label": tfds.features.ClassLabel(names="ab")}
    rows = [{"image": image, "label": number % 2} for number, image in enumerate(images)]
    encoded = isinstance(images[0], bytes)
    image = tf.TensorSpec((), tf.string) if encoded else tf.TensorSpec(images[0].shape, dtype)
    signature = {"image": image, "label": tf.TensorSpec((), tf.int64)}
    splits = {
        name: tf.data.Dataset.from_generator(lambda: rows, output_signature=signature) for name in ("train", "test")
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="kinds",
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets=splits,
        data_dir=directory,
        disable_shuffling=True,
    )
    return str(directory / "kinds")


@pytest.mark.parametrize("dtype, channels, largest, shape", stored.rows(globals(), "every_type_of_pixels_is_scaled_or"))
def test_every_type_of_pixels_is_scaled_or_refused(tmp_path, dtype, channels, largest, shape):
    images = (largest * np.random.default_rng(0).uniform(0, 0.9, (4, 6, 6, channels))).astype(dtype)
    load = TensorFlowDatasets(dataset=_stored(tmp_path, (6, 6, channels), dtype, images), image_shape=shape).load
    if (dtype, largest) == (np.float32, 255) or (channels, (shape or (0,))[-1]) == (3, 4):
        with pytest.raises(InputError, match="has a pixel of|images of 3 channels"):
            load()
        return
    data = load()
    seen = images[..., :3] if channels == 4 else images
    assert data.train.arrays()[0].mean() == pytest.approx(seen.mean() / largest, abs=0.02)
    assert ("65535" in data.note, "transparency left out" in data.note) == (dtype == np.uint16, channels == 4)


def test_the_size_of_the_images_is_bounded_before_they_are_read(tmp_path, monkeypatch):
    folder = _stored(tmp_path, (6, 6, 3), np.uint8, PIXELS[:4])
    with pytest.raises(InputError, match="1000000 x 1000000; an example has at most"):
        TensorFlowDatasets(dataset=folder, image_shape=(10**6, 10**6, 3)).load()
    monkeypatch.setattr(checks.memory, "available", lambda: 2**20)
    with pytest.raises(InputError, match="4 examples of 512 x 512 x 3 take 12582912 bytes"):
        TensorFlowDatasets(dataset=folder, image_shape=(512, 512, 3)).load()


def test_photographs_of_tfds_are_turned_upright(tmp_path):
    upright = np.kron(GENERATOR.integers(0, 256, (2, 3, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    tags = PIL.Image.Exif()
    tags[0x0112] = 6
    PIL.Image.fromarray(np.rot90(upright)).save(tmp_path / "lying.jpg", exif=tags, quality=95, subsampling=0)
    encoded = [(tmp_path / "lying.jpg").read_bytes()] * 2
    data = TensorFlowDatasets(
        dataset=_stored(tmp_path, (None, None, 3), np.uint8, encoded), image_shape=(16, 24, 3)
    ).load()
    assert np.abs(255 * data.train.arrays()[0][0] - upright).max() < 12

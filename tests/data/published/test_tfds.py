"""Prepared TFDS configurations, one per corruption and severity, as `cifar10_corrupted` names them."""

import numpy as np
import pytest
import stored

from oracles import published
from tfrobust.data.published import tfds
from tfrobust.data.published.published_set import Target
from tfrobust.data.published.tfds import CorruptedTensorFlowDatasets

COUNT = 7
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)
LABELS = np.arange(COUNT) % 4
BLOCKS = published.corrupted(IMAGES, ("fog", "frosted_glass_blur"))
TARGET = Target((8, 8, 3), 10)


def part(name, severity):
    return BLOCKS[name][(severity - 1) * COUNT : severity * COUNT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parts = {f"{name}_{severity}": part(name, severity) for name in BLOCKS for severity in (1, 2)}
    return published.tfds_corrupted(tmp_path_factory.mktemp("data"), "cifar10_corrupted", parts, LABELS)


def few(folder):
    return CorruptedTensorFlowDatasets(folder=str(folder), as_published=False)


def test_the_same_images_in_the_same_order_in_each(folder):
    opened = few(folder).open(("fog", "glass_blur"), (1, 2), TARGET)
    assert opened.notes["source"] == "published: TFDS cifar10_corrupted 1.0.0, an excerpt or a variant"
    everything = np.arange(COUNT)
    first = np.round(np.concatenate(list(opened.read(("fog", 1), everything, 3))) * 255)
    # TFDS shuffles as it writes: which row came to which place, the pixels tell.
    order = [int(np.argmin(np.abs(part("fog", 1) - image).sum(axis=(1, 2, 3)))) for image in first]
    assert sorted(order) == list(range(COUNT)) and opened.labels.tolist() == LABELS[order].tolist()
    for name, kind in (("fog", "fog"), ("glass_blur", "frosted_glass_blur")):
        for severity in (1, 2):
            batches = list(opened.read((name, severity), np.array([0, 2, 3, 6]), 3))
            assert [len(batch) for batch in batches] == [3, 1] and batches[0].dtype == np.float32
            expected = part(kind, severity)[[order[position] for position in (0, 2, 3, 6)]]
            assert np.array_equal(np.round(np.concatenate(batches) * 255), expected)


def test_the_published_number(folder, monkeypatch):
    published_set = CorruptedTensorFlowDatasets(folder=str(folder))
    with pytest.raises(ValueError, match="has 7 images at each severity, the published set 10000"):
        published_set.open(("fog",), (1,), TARGET)
    monkeypatch.setitem(tfds._COUNTS, "cifar10_corrupted", COUNT)
    assert published_set.open(("fog",), (1,), TARGET).notes == {"source": "published: TFDS cifar10_corrupted 1.0.0"}


def test_missing_configurations_are_named_at_once(folder):
    with pytest.raises(FileNotFoundError) as caught:
        few(folder).open(("fog", "glass_blur"), (1, 3), TARGET)
    text = str(caught.value)
    assert "lacks fog_3, frosted_glass_blur_3. Prepare it elsewhere: tfds build cifar10_corrupted" in text
    assert len(text) <= 300
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        few(folder / "none").open(("fog",), (1,), TARGET)


@pytest.mark.parametrize("images, labels, split, message", stored.rows(globals(), "configurations_that_do_not_fit"))
def test_configurations_that_do_not_fit_together(tmp_path, images, labels, split, message):
    published.tfds_corrupted(tmp_path, "other_corrupted", {"fog_1": IMAGES}, LABELS)
    folder = published.tfds_corrupted(tmp_path, "other_corrupted", {"fog_2": images}, labels, split)
    with pytest.raises(ValueError, match=message) as caught:
        opened = few(folder).open(("fog",), (1, 2), TARGET)
        list(opened.read(("fog", 2), np.arange(COUNT), 4))
    assert len(str(caught.value)) <= 300


def test_damaged_and_unfit(folder, tmp_path):
    import shutil

    with pytest.raises(ValueError, match="label 3 of example"):
        few(folder).open(("fog",), (1,), Target((8, 8, 3), 3))
    copy = tmp_path / "cifar10_corrupted"
    shutil.copytree(folder, copy)
    record = next(copy.glob("fog_2/**/*tfrecord*"))
    record.write_bytes(record.read_bytes()[:-7])
    opened = few(copy).open(("fog",), (1, 2), TARGET)
    with pytest.raises(ValueError, match="fog_2/1.0.0: damaged or cut short"):
        list(opened.read(("fog", 2), np.arange(COUNT), 4))

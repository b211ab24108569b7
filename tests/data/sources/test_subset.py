import numpy as np

from tfrobust.data.spec import Dataset, FileExamples
from tfrobust.keras.data import ClassSubset, Digits

DIGITS = Digits(validation_size=100)


def test_the_chosen_examples_in_the_splits_of_the_source():
    dataset, chosen = DIGITS.load(), ClassSubset(source=DIGITS, classes=(7, 2)).load()
    assert chosen.class_names == ("7", "2") and chosen.class_count == 2 and chosen.name == "digits of 2 classes"
    for split in ("train", "validation", "test"):
        (images, labels), (chosen_images, numbers) = (getattr(part, split).arrays() for part in (dataset, chosen))
        is_chosen = np.isin(labels, (7, 2))
        np.testing.assert_array_equal(chosen_images, images[is_chosen])
        np.testing.assert_array_equal(numbers, np.where(labels[is_chosen] == 7, 0, 1))
    assert chosen.fingerprint != dataset.fingerprint
    assert chosen.fingerprint == ClassSubset(source=DIGITS, classes=(7, 2)).load().fingerprint
    assert chosen.fingerprint != ClassSubset(source=DIGITS, classes=(2, 7)).load().fingerprint


def test_files_are_chosen_without_reading_them(monkeypatch):
    files = FileExamples(["a.png", "b.png", "c.png"], [0, 1, 2], (4, 4, 1))
    monkeypatch.setattr(Digits, "load", lambda self: Dataset("files", ("a", "b", "c"), files, files.take([]), files))
    chosen = ClassSubset(source=Digits(), classes=(2, 0)).load()
    assert chosen.train.paths == ("a.png", "c.png") and chosen.train.labels.tolist() == [1, 0]
    assert files.labels.tolist() == [0, 1, 2]

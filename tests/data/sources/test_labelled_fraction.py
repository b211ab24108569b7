import numpy as np
import pytest

from tfrobust.keras.data import Digits, LabelledFraction

DIGITS = Digits(validation_size=100)


def class_counts(examples):
    return np.bincount(examples.labels, minlength=10)


@pytest.mark.parametrize(("fraction", "expected"), [(1.0, 1337), (0.1, 134), (0.01, 13)])
def test_each_class_has_its_share_and_the_other_splits_stay(fraction, expected):
    dataset, part = DIGITS.load(), LabelledFraction(source=DIGITS, fraction=fraction).load()
    assert len(part.train) == expected
    counts, share = class_counts(part.train), class_counts(dataset.train) * expected / 1337
    assert np.all(np.abs(counts - share) < 1) and counts.min() >= 1
    for split in ("validation", "test"):
        assert getattr(part, split).fingerprint == getattr(dataset, split).fingerprint
    assert part.class_names == dataset.class_names and part.name != dataset.name
    if fraction == 1.0:
        assert part.train.fingerprint == dataset.train.fingerprint


def test_images_keep_their_labels():
    examples, part = DIGITS.load().train, LabelledFraction(source=DIGITS, fraction=0.1, seed=3).load().train
    labels = {image.tobytes(): label for image, label in zip(*examples.arrays(), strict=True)}
    assert all(labels[image.tobytes()] == label for image, label in zip(*part.arrays(), strict=True))


def test_ten_seeds_are_ten_draws_and_each_is_always_the_same():
    draws = [LabelledFraction(source=DIGITS, fraction=0.01, seed=seed).load().train for seed in range(10)]
    assert len({draw.fingerprint for draw in draws}) == 10
    assert all(class_counts(draw).max() <= 2 for draw in draws)
    again = LabelledFraction(source=DIGITS, fraction=0.01, seed=4).load().train
    assert again.fingerprint == draws[4].fingerprint


def test_a_class_that_would_have_none_has_one():
    part = LabelledFraction(source=DIGITS, fraction=0.003).load()  # 4 examples
    assert class_counts(part.train).tolist() == [1] * 10

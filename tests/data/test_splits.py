import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tfrobust.data.splits import grouped, permutation, resolve_size, stratified, stratified_folds


@settings(max_examples=60, deadline=None)
@given(some.lists(some.integers(0, 4), min_size=2, max_size=80), some.floats(0, 0.99), some.integers(0, 99))
def test_stratified_takes_each_class_in_its_share(labels, fraction, seed):
    labels = np.array(labels)
    size = int(fraction * len(labels))
    rest, taken = stratified(labels, size, seed, "test")
    assert len(taken) == size
    assert np.array_equal(np.sort(np.concatenate([rest, taken])), np.arange(len(labels)))
    for label in np.unique(labels):
        share = np.sum(labels == label) * size / len(labels)
        assert abs(np.sum(labels[taken] == label) - share) < 1


def test_largest_remainders_get_the_rest():
    labels = np.repeat([0, 1, 2], [5, 3, 2])  # shares of 3: 1.5, 0.9, 0.6
    assert np.bincount(labels[stratified(labels, 3, 0, "test")[1]]).tolist() == [1, 1, 1]


def test_every_member_is_equally_likely():
    labels = np.repeat([0, 1], [6, 4])
    hits = sum(np.isin(np.arange(10), stratified(labels, 5, seed, "test")[1]) for seed in range(1200))
    assert np.all(np.abs(hits - 600) < 5 * np.sqrt(300))  # 5 standard deviations of a fair coin


def test_seed_and_purpose_decide():
    labels = np.arange(100) % 5
    taken = [stratified(labels, 20, *how)[1].tolist() for how in ((0, "test"), (0, "test"), (1, "test"))]
    assert taken[0] == taken[1] != taken[2]
    assert taken[0] != stratified(labels, 20, 0, "validation")[1].tolist()


def test_permutation_is_pinned():
    """The test split, and with it every published number, hangs on these."""
    assert permutation(8, 0, "test").tolist() == [5, 7, 1, 0, 4, 2, 3, 6]


def test_folds_partition_evenly():
    labels = np.random.default_rng(0).integers(0, 10, 97)
    folds = stratified_folds(labels, 5, 3)
    assert np.ptp(np.bincount(folds, minlength=5)) <= 1
    for label in range(10):
        assert np.ptp(np.bincount(folds[labels == label], minlength=5)) <= 1
    assert not np.array_equal(folds, stratified_folds(labels, 5, 4))


@pytest.mark.parametrize("size, count", [(0, 0), (7, 7), (0.25, 5), (0.0, 0), (np.int64(3), 3)])
def test_resolve_size(size, count):
    assert resolve_size(size, 20) == count


def test_groups_stay_together_and_classes_in_proportion():
    labels = np.repeat([0, 1], [20, 40])
    groups = np.concatenate([np.repeat(np.arange(5), 4), 10 + np.repeat(np.arange(10), 4)])
    for seed in range(5):
        rest, taken = grouped(labels, groups, 24, seed, "validation")
        assert not set(groups[rest]) & set(groups[taken]) and len(rest) + len(taken) == 60
        assert np.bincount(labels[taken]).tolist() == [8, 16]
    again = grouped(labels, [str(group) for group in groups], 24, 4, "validation")
    assert len(again[1]) == 24 and not np.array_equal(taken, grouped(labels, groups, 24, 3, "validation")[1])


def test_a_group_of_several_classes_is_not_divided():
    labels, groups = np.array([0, 1, 0, 1, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1, 2, 3])
    for seed in range(8):
        _, taken = grouped(labels, groups, 3, seed, "test")
        assert len(taken) <= 3 and 0 not in groups[taken] and len(taken) > 0
    assert len(grouped(labels, groups, 0, 0, "test")[1]) == 0

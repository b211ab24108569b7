import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import contrastive as oracle
from tfrobust.pairs import masks, selection

RULES = stored.table(globals(), "rules")


def drawn(seed, count=11, classes=3):
    generator = np.random.default_rng(seed)
    labels, predictions = generator.integers(0, classes, count), generator.integers(0, classes, (2, count))
    rows = np.arange(count)
    views = [masks.tag(rows, view=v, label=labels, prediction=predictions[v]) for v in (0, 1)]
    return labels, predictions, masks.join(*views)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", ["global", "hard", "soft", "leaked"])
def test_sets_are_those_of_table_1(strategy, seed):
    labels, predictions, tags = drawn(seed)
    count = len(labels)
    positive, negative = (mask.numpy() for mask in RULES[strategy](tags, tags))
    for anchor in range(2 * count):
        view, i = divmod(anchor, count)
        attracted, repelled = oracle.table_1(strategy, labels, predictions, i, view)
        attracted.append((i, 1 - view))  # the counterpart, always
        assert set(np.flatnonzero(positive[anchor])) == {other * count + j for j, other in attracted}
        assert set(np.flatnonzero(negative[anchor])) == {other * count + j for j, other in repelled}


def test_released_leaked_drops_counterparts_that_disagree():
    _, predictions, tags = drawn(4)
    paper, code = (RULES[name](tags, tags) for name in ("leaked", "leaked_code"))
    dropped = paper.positive.numpy() & ~code.positive.numpy()
    disagree = predictions[0] != predictions[1]
    assert disagree.any() and not disagree.all()
    cross = np.diag(disagree)
    empty = np.zeros_like(cross)
    np.testing.assert_array_equal(dropped, np.block([[empty, cross], [cross, empty]]))
    np.testing.assert_array_equal(paper.negative, code.negative)
    assert not (code.positive.numpy() & ~paper.positive.numpy()).any()


@pytest.mark.parametrize("name", RULES)
def test_masks_are_disjoint_and_never_select_the_anchor(name):
    _, _, tags = drawn(7)
    positive, negative = (mask.numpy() for mask in RULES[name](tags, tags))
    assert not (positive & negative).any()
    assert not np.diag(positive).any() and not np.diag(negative).any()
    superset = RULES["global"](tags, tags)
    assert not (positive & ~superset.positive.numpy()).any() and not (negative & ~superset.negative.numpy()).any()


@pytest.mark.parametrize("name", RULES)
def test_masks_follow_a_permutation(name):
    _, _, tags = drawn(8)
    order = np.random.default_rng(0).permutation(22)
    moved = RULES[name](masks.take(tags, order), masks.take(tags, order))
    for mask, other in zip(RULES[name](tags, tags), moved, strict=True):
        np.testing.assert_array_equal(mask.numpy()[np.ix_(order, order)], other)


def test_local_anchors_take_rows_of_the_gathered_batch():
    """A replica's anchors against all keys: the rows of the whole, for the sample ids are global."""
    _, _, tags = drawn(9)
    mine = np.array([4, 5, 6, 15, 16, 17])
    for name, rule in RULES.items():
        for part, mask in zip(rule(masks.take(tags, mine), tags), rule(tags, tags), strict=True):
            np.testing.assert_array_equal(part, mask.numpy()[mine], err_msg=name)


def test_sample_ids_are_simclr():
    _, _, tags = drawn(1, count=2)
    positive, negative = selection.sample_ids(tags, tags)
    assert positive.numpy().astype(int).tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert negative.numpy().astype(int).tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]


def test_counts_split_by_clean_and_adversarial_keys():
    labels, predictions, tags = drawn(3)
    rule = RULES["leaked"]
    counts = selection.count_pairs(rule(tags, tags), tags.view)
    for anchor in range(22):
        view, i = divmod(anchor, 11)
        positives, negatives = oracle.table_1("leaked", labels, predictions, i, view)
        positives.append((i, 1 - view))
        for name, pairs in (("positives", positives), ("negatives", negatives)):
            for kind, other in (("clean", 0), ("adversarial", 1)):
                assert counts[f"{name}_{kind}"][anchor] == sum(o == other for _, o in pairs)


def test_counts_of_the_paper_for_a_balanced_batch():
    """Ten classes of 13 images, two views: 25 positives and 234 negatives per anchor, half of each clean."""
    rows, labels = np.arange(130), np.arange(130) % 10
    tags = masks.join(*(masks.tag(rows, view=view, label=labels, prediction=labels) for view in (0, 1)))
    counts = selection.count_pairs(selection.GlobalSelection()(tags, tags), tags.view)
    sums = {name: float(tf.reduce_mean(values)) for name, values in counts.items()}
    assert sums["positives_clean"] + sums["positives_adversarial"] == 25
    assert sums["negatives_clean"] == sums["negatives_adversarial"] == 117


@pytest.mark.parametrize("graph", [False, True])
def test_counting_in_blocks_is_counting(graph, monkeypatch):
    _, _, tags = drawn(5)
    rule = RULES["soft"]
    counts = selection.count_pairs(rule(tags, tags), tags.view)
    monkeypatch.setattr(masks, "BLOCK_ELEMENTS", 22 * 5)
    count = lambda: selection.count_pairs(masks.ByRows(rule, tags, tags), tags.view)  # noqa: E731
    for name, values in (tf.function(count) if graph else count)().items():
        np.testing.assert_array_equal(values, counts[name])


def test_clean_views_says_which_views_are_clean():
    _, _, tags = drawn(5)
    everything = selection.count_pairs(RULES["global"](tags, tags), tags.view, clean_views=2)
    assert not everything["positives_adversarial"].numpy().any()

import numpy as np
import tensorflow as tf

from tfrobust.pairs import masks

ROWS, LABELS = np.array([4, 5, 9], np.int64), np.array([1, 0, 1])
CLEAN = masks.tag(ROWS, view=0, label=LABELS, prediction=[1, 1, 0])
ADVERSARIAL = masks.tag(ROWS, view=1, label=LABELS, prediction=[0, 0, 1])
BOTH = masks.join(CLEAN, ADVERSARIAL)


def as_ints(mask):
    return np.asarray(mask).astype(int).tolist()


def test_tags_are_int32_rows():
    assert all(column.dtype == tf.int32 for column in BOTH)
    assert BOTH.sample.numpy().tolist() == [4, 5, 9, 4, 5, 9]
    assert BOTH.view.numpy().tolist() == [0, 0, 0, 1, 1, 1]
    assert masks.tag(ROWS, view=0).label.numpy().tolist() == [-1, -1, -1]


def test_facts_of_pairs():
    """Anchors: the three clean images. Keys: the first two adversaries, and the last clean image."""
    keys = masks.join(masks.take(ADVERSARIAL, [0, 1]), masks.take(CLEAN, [2]))
    assert as_ints(masks.same_sample(CLEAN, keys)) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert as_ints(masks.same_embedding(CLEAN, keys)) == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert as_ints(masks.counterparts(CLEAN, keys)) == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert as_ints(masks.same_label(CLEAN, keys)) == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert as_ints(masks.same_prediction(CLEAN, keys)) == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert as_ints(masks.predicted_as_anchor(CLEAN, keys)) == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_by_rows_gives_the_rows_of_the_whole():
    def rule(anchors, keys):
        return masks.PairMasks(masks.same_label(anchors, keys), masks.same_prediction(anchors, keys))

    rows = tf.constant([5, 0, 0, 3])
    for part, mask in zip(masks.ByRows(rule, BOTH, BOTH)(rows), rule(BOTH, BOTH), strict=True):
        np.testing.assert_array_equal(part, tf.gather(mask, rows))

"""Sentences as data: what is refused, and that they go through the pipeline of the images as whole numbers."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from oracles.bag_of_words import BagOfWords
from tfrobust.data import checks, pipeline, spec, text
from tfrobust.data.sources.digits import Digits
from tfrobust.data.text import TokenExamples
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.linear import LinearHead

TOKENS = np.array([[2, 3, 4, 0], [4, 0, 0, 0], [3, 1, 2, 2], [2, 2, 0, 0], [4, 4, 3, 0]])
LABELS = np.array([0, 1, 1, 0, 1])
NAN = float("nan")
STRENGTHS = np.where(TOKENS > 2, 0.25, np.where(TOKENS == 2, 0.0, NAN))
WORDS = ("[PAD]", "[UNK]", "the", "fine", "film")


def _dataset(vocabulary=WORDS):
    examples = TokenExamples(TOKENS, LABELS, STRENGTHS)
    return spec.Dataset("mine", ("no", "yes"), examples, examples.take([]), examples.take([4, 0]), vocabulary)


def test_tokens_without_a_vocabulary_are_refused_and_images_need_none():
    assert checks.check_vocabulary(list(WORDS)) == WORDS and not Digits().load().is_text


def test_examples_keep_tokens_and_strengths_together():
    dataset = _dataset()
    assert dataset.is_text and dataset.image_shape == (4,)
    tokens, labels = dataset.test.arrays()
    assert tokens.dtype == np.int32 and tokens.tolist() == TOKENS[[4, 0]].tolist() and labels.tolist() == [1, 0]
    np.testing.assert_array_equal(dataset.test.strengths, STRENGTHS[[4, 0]].astype(np.float32))
    assert TokenExamples(TOKENS, LABELS).take([1]).strengths is None
    assert len(dataset.validation.arrays()[0]) == 0


def test_the_fingerprint_covers_tokens_strengths_and_vocabulary():
    plain = TokenExamples(TOKENS, LABELS)
    digest = hashlib.sha256(b"labels 5\n" + LABELS.astype("<i4").tobytes())
    digest.update(b"int32 [5, 4]\n" + TOKENS.astype("<i4").tobytes())
    assert plain.fingerprint == digest.hexdigest() != TokenExamples(TOKENS, LABELS, STRENGTHS).fingerprint
    assert _dataset().fingerprint != _dataset((*WORDS[:3], "film", "fine")).fingerprint


def test_training_batches_hold_whole_numbers():
    batches = list(pipeline.training_batches(TokenExamples(TOKENS, LABELS), batch_size=2, seed=3, steps=4))
    for batch in batches:
        assert batch.images.dtype == tf.int32 and batch.images.shape == (2, 4)
        np.testing.assert_array_equal(batch.images, TOKENS[batch.index])
        np.testing.assert_array_equal(batch.labels, LABELS[batch.index])
    assert len(set(np.concatenate([batch.index for batch in batches[:2]]).tolist())) == 4


def test_a_method_fits_tokens_and_keeps_pixels_floats():
    method = Supervised(BagOfWords(5), LinearHead(2))
    method.compile("adam", jit_compile=False)
    history = method.fit(TOKENS, LABELS, batch_size=5, epochs=2, verbose=0).history
    assert history["ce"][1] < history["ce"][0]
    for kind in (np.int32, np.int64, np.uint8):
        assert method.as_batch((tf.constant(TOKENS, kind), LABELS)).images.dtype == tf.int32
        with pytest.raises(ValueError, match=f"got {np.dtype(kind).name}; divide bytes by 255"):
            method.as_batch((np.zeros([2, 8, 8, 1], kind), LABELS[:2]))
    assert method.as_batch((TOKENS.astype("float64"), LABELS)).images.dtype == tf.float32


def test_words_become_ids_cut_off_and_padded():
    vocabulary = text.vocabulary_of(["the", "fine", "the", "film"])
    assert vocabulary == WORDS
    ids = {word: number for number, word in enumerate(vocabulary)}
    rows = text.encode([["fine", "ending"], "the fine film the film".split()], ids, 4)
    assert rows.dtype == np.int32 and rows.tolist() == [[3, 1, 0, 0], [2, 3, 4, 2]]

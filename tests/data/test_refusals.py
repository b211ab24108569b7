"""Data and sources that are refused with the name of what is wrong, and that a configured source comes back."""

import functools
import json
import types

import numpy as np
import pytest
import refusals
import stored

from oracles.bag_of_words import BagOfWords
from tfrobust.common import configured
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.data.text import TokenExamples
from tfrobust.data.wordpiece import WordPiece  # noqa: F401
from tfrobust.keras import data as robust_data  # noqa: F401
from tfrobust.keras.data import Digits, Npz
from tfrobust.keras.methods import Supervised
from tfrobust.keras.models import LinearHead

DIGITS = Digits(validation_size=100)
GOOD = np.zeros((2, 3, 3, 1), np.float32)
IMAGES, LABELS = np.random.default_rng(0).random((30, 4, 5, 3)).astype(np.float32), np.arange(30) % 3
SOME = ArrayExamples(np.zeros((22, 4, 4, 1), np.uint8), np.arange(22) % 3)
TOKENS = np.array([[2, 3, 4, 0], [4, 0, 0, 0], [3, 1, 2, 2], [2, 2, 0, 0], [4, 4, 3, 0]])
STRENGTHS = np.where(TOKENS > 2, 0.25, np.where(TOKENS == 2, 0.0, np.nan))
WORDS = ("[PAD]", "[UNK]", "the", "fine", "film")


def changed(value):
    """Images with one pixel of another value."""
    images = GOOD.copy()
    images[1, 0, 2, 0] = value
    return images


def dataset(examples, vocabulary=()):
    return Dataset("mine", ("no", "yes"), examples, examples.take([]), examples.take([4, 0]), vocabulary)


def sentences(vocabulary):
    return dataset(TokenExamples(TOKENS, [0, 1, 1, 0, 1], STRENGTHS), vocabulary)


def data(kind):
    return sentences(WORDS) if kind == "text" else dataset(ArrayExamples(np.zeros((5, 3, 8, 8, 1)), [0, 1, 1, 0, 1]))


def supervised(**keywords):
    return Supervised(BagOfWords(5), LinearHead(2), **keywords)


def read_npz(folder, **arrays):
    np.savez(folder / "mine.npz", **arrays)
    return Npz(path=str(folder / "mine.npz")).load()


NAMES = {"types": types, "DIGITS": DIGITS, "GOOD": GOOD, "IMAGES": IMAGES, "LABELS": LABELS, "SOME": SOME}
NAMES |= {"TOKENS": TOKENS, "STRENGTHS": STRENGTHS, "WORDS": WORDS, "BagOfWords": BagOfWords, "changed": changed}
NAMES |= {"sentences": sentences, "data": data, "supervised": supervised}


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_is_wrong_is_said_in_one_line(tmp_path, call, message):
    refusals.check(__file__, call, message, npz=functools.partial(read_npz, tmp_path), **NAMES)


@pytest.mark.parametrize("source", stored.rows(globals(), "a_source_comes"), ids=lambda source: type(source).__name__)
def test_a_source_comes_back_from_its_configuration(source):
    assert configured.deserialize(json.loads(json.dumps(configured.serialize(source)))) == source

"""Kinds of data: which parts accept text and clips, and what is refused in one line before a training starts."""

import numpy as np
import pytest

from oracles.bag_of_words import BagOfWords
from tfrobust.common.kinds import CLIPS, IMAGES, TEXT, kind_of, takes
from tfrobust.data import kinds, spec, text
from tfrobust.keras.augment import AddGaussian, RandomFlip
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.linear import LinearHead

SHAPES = {"text": (5, 4), "images": (5, 8, 8, 1), "clips": (5, 3, 8, 8, 1)}
WORDS = ("[PAD]", "[UNK]", "the", "fine", "film")


def _dataset(kind: str) -> spec.Dataset:
    values = np.full(SHAPES[kind], 2 if kind == "text" else 0.5)
    examples = (text.TokenExamples if kind == "text" else spec.ArrayExamples)(
        values.astype(int if kind == "text" else float), [0, 1, 1, 0, 1]
    )
    vocabulary = WORDS if kind == "text" else ()
    return spec.Dataset("mine", ("no", "yes"), examples, examples.take([]), examples.take([4, 0]), vocabulary)


def _supervised(**keywords) -> Supervised:
    return Supervised(BagOfWords(5), LinearHead(2), **keywords)


def test_the_rank_of_an_example_is_its_kind():
    assert [kind_of(shape[1:]) for shape in SHAPES.values()] == [TEXT, IMAGES, CLIPS]
    assert kind_of((None, None, None, 3)) is CLIPS and kind_of((8, 8)) is IMAGES
    assert CLIPS.layout == "clips [n, t, h, w, c]"
    for name in SHAPES:
        dataset = _dataset(name)
        assert dataset.kind.name == name and dataset.is_text == (name == "text")
        assert takes(object(), dataset.kind) == (name != "text")


@pytest.mark.parametrize("kind", SHAPES)
def test_parts_that_fit_are_accepted(kind):
    kinds.refuse_other_parts(_dataset(kind), _supervised(), augmentation=None)
    if kind != "text":
        kinds.refuse_other_parts(_dataset(kind), _supervised(noise=AddGaussian()), augmentation=AddGaussian())
    if kind == "images":
        kinds.refuse_other_parts(_dataset(kind), _supervised(), augmentation=RandomFlip(), validation=len)

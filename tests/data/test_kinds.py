"""Kinds of data: which parts accept text and clips, and what is refused in one line before a training starts."""

import types

import numpy as np
import pytest

from oracles.bag_of_words import BagOfWords
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.standard import RandomFlip
from tfrobust.common.kinds import CLIPS, IMAGES, TEXT, kind_of, takes
from tfrobust.data.kinds import refuse_other_parts
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.data.text import TokenExamples
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.linear import LinearHead

SHAPES = {"text": (5, 4), "images": (5, 8, 8, 1), "clips": (5, 3, 8, 8, 1)}
WORDS = ("[PAD]", "[UNK]", "the", "fine", "film")


def _dataset(kind: str) -> Dataset:
    values = np.full(SHAPES[kind], 2 if kind == "text" else 0.5)
    examples = (TokenExamples if kind == "text" else ArrayExamples)(
        values.astype(int if kind == "text" else float), [0, 1, 1, 0, 1]
    )
    vocabulary = WORDS if kind == "text" else ()
    return Dataset("mine", ("no", "yes"), examples, examples.take([]), examples.take([4, 0]), vocabulary)


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
    refuse_other_parts(_dataset(kind), _supervised(), augmentation=None)
    if kind != "text":
        refuse_other_parts(_dataset(kind), _supervised(noise=AddGaussian()), augmentation=AddGaussian())
    if kind == "images":
        refuse_other_parts(_dataset(kind), _supervised(), augmentation=RandomFlip(), validation=len)


@pytest.mark.parametrize(
    ("kind", "method", "parts", "message"),
    [
        ("text", _supervised(), {"augmentation": "any"}, "augmentation is for images, but mine is text: set augment"),
        ("text", types.SimpleNamespace(kinds=("images", "clips")), {}, "trains on images or clips, but mine is text"),
        ("text", _supervised(noise=AddGaussian()), {}, "noise is for images, but mine is text: set noise = None"),
        ("text", Supervised(BagOfWords(4), LinearHead(2)), {}, "BagOfWords.vocabulary_size is 4, but mine has 5 words"),
        ("clips", _supervised(), {"augmentation": RandomFlip()}, "augmentation is for images, but mine is clips: wrap"),
        (
            "clips",
            AugMixTraining(BagOfWords(5), LinearHead(2), augmentation=RandomFlip()),
            {},
            "augmentation is for images",
        ),
        ("clips", types.SimpleNamespace(kinds=("images",)), {}, "trains on images, but mine is clips: set METHOD to a"),
    ],
)
def test_a_part_for_another_kind_is_refused(kind, method, parts, message):
    with pytest.raises(ValueError, match=message):
        refuse_other_parts(_dataset(kind), method, **parts)


def test_an_image_augmentation_refuses_clips_when_it_is_called():
    with pytest.raises(ValueError, match=r"RandomFlip changes images, not clips \(5, 3, 8, 8, 1\)"):
        RandomFlip()(np.zeros(SHAPES["clips"], np.float32), np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 3, 4, 8, 8), r"clips have shape \[5, 3, 4, 8, 8\]; the channels come first, so move them to the end.$"),
        ((5, 3, 16, 8, 8), r"to the end: np.moveaxis\(images, 1, -1\)"),
        ((5, 16, 3, 8, 8), r"to the end: np.moveaxis\(images, 2, -1\)"),
        ((5, 0, 8, 8, 3), "clips of shape .0, 8, 8, 3. have no pixels"),
        ((5, 2, 3, 8, 8, 3), "or for clips .n, frames, height"),
    ],
)
def test_bad_clips(shape, message):
    with pytest.raises(ValueError, match=message):
        ArrayExamples(np.zeros(shape, np.uint8), np.zeros(5, int))

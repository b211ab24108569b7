"""Arguments of sources that are refused with the name of what is wrong, and that a configured source comes back."""

import pytest

from tfrobust.common import configured
from tfrobust.data.sources.corner_digits import CornerDigits
from tfrobust.data.sources.digits import Digits
from tfrobust.data.sources.labelled_fraction import LabelledFraction
from tfrobust.data.sources.moving_digits import MovingDigits
from tfrobust.data.sources.npz import Npz
from tfrobust.data.sources.sentiment_grammar import SentimentGrammar
from tfrobust.data.sources.stanford_sentiment import StanfordSentimentTreebank
from tfrobust.data.sources.subset import ClassSubset

DIGITS = Digits(validation_size=100)
NEEDED = {
    LabelledFraction: {"source": DIGITS, "fraction": 0.1},
    ClassSubset: {"source": DIGITS, "classes": (1, 2)},
    StanfordSentimentTreebank: {"path": "there"},
}


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (Digits, {"test_size": 1797}, "test_size 1797 leaves nothing of 1797"),
        (Digits, {"validation_size": 1437}, "validation_size 1437 leaves nothing of 1437"),
        (Digits, {"validation_size": -3}, "validation_size is -3"),
        (Digits, {"fold": 5}, r"fold is 5; it must be in 0\.\.4"),
        (Digits, {"test_size": 0}, "no test examples"),
        (Digits, {"test_size": 1790}, "has no training example"),
        (Digits, {"split_seed": -1}, "Digits.split_seed must be an integer >= 0, got -1"),
        (LabelledFraction, {"fraction": 0.0}, "fraction is 0.0"),
        (LabelledFraction, {"fraction": 1.5}, "fraction is 1.5"),
        (LabelledFraction, {"split_seed": 1}, "does not split data"),
        (LabelledFraction, {"seed": -1}, "LabelledFraction.seed is -1"),
        (ClassSubset, {"classes": (3,)}, "from 0 to 9"),
        (ClassSubset, {"classes": (3, 3)}, "from 0 to 9"),
        (ClassSubset, {"classes": (3, 10)}, "from 0 to 9"),
        (ClassSubset, {"classes": (-1, 3)}, "from 0 to 9"),
        (ClassSubset, {"validation_size": 10}, "of its source"),
        (CornerDigits, {"composition": "mean"}, "composition is 'mean'"),
        (CornerDigits, {"centre": 29}, "centre is 29"),
        (CornerDigits, {"corner": 26, "margin": 3}, "corner is 26"),
        (CornerDigits, {"rare_share": 0.0}, "rare_share 0.0"),
        (CornerDigits, {"balanced": 0}, "balanced 0"),
        (CornerDigits, {"validation_size": 10}, "validation_size of its source"),
        (CornerDigits, {"source": ClassSubset(source=DIGITS, classes=(0, 1, 2))}, "needs ten digits .* has 3 classes"),
        (MovingDigits, {"frames": 1}, "MovingDigits.frames is 1"),
        (MovingDigits, {"motions": 9}, r"motions is 9; it must be in 2\.\.8"),
        (MovingDigits, {"clips_per_digit": 5}, r"clips_per_digit is 5; it must be in 1\.\.4"),
        (MovingDigits, {"label": "digit"}, "label is 'digit'"),
        (MovingDigits, {"side": 7}, "side is 7, but the examples of digits have shape .8, 8, 1."),
        (MovingDigits, {"validation_size": 10}, "validation_size of its source"),
        (MovingDigits, {"source": Digits(validation_size=3)}, "motions is 4, but a split has only 3 images"),
        (SentimentGrammar, {"phrases": (2, 1)}, "phrases"),
        (SentimentGrammar, {"phrases": (4, 4)}, "length of 16"),
        (SentimentGrammar, {"held_out": 6, "rare": 6}, "none of the 12 adjectives"),
        (SentimentGrammar, {"margin": 0.2}, "margin 0.2"),
        (SentimentGrammar, {"train_size": 0}, "train_size 0"),
        (StanfordSentimentTreebank, {"train_on": "words"}, "train_on is 'words'"),
        (StanfordSentimentTreebank, {"validation_size": 0.1}, "leave validation_size at 0"),
    ],
)
def test_wrong_arguments(source, arguments, message):
    with pytest.raises(ValueError, match=message):
        source(**{**NEEDED.get(source, {}), **arguments}).load()


@pytest.mark.parametrize(
    "source",
    [
        Digits(fold=2, validation_size=0.1),
        LabelledFraction(source=DIGITS, fraction=0.3),
        ClassSubset(source=DIGITS, classes=(5, 6)),
        CornerDigits(per_class=30, margin=1),
        MovingDigits(frames=4, label="digit and motion"),
        Npz(path="mine.npz", class_names=("a", "b")),
    ],
    ids=lambda source: type(source).__name__,
)
def test_a_source_comes_back_from_its_configuration(source):
    assert configured.deserialize(configured.serialize(source)) == source

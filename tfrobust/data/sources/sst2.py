"""SST-2 of the GLUE benchmark from TensorFlow Datasets, tokenized into word pieces."""

import dataclasses
from typing import ClassVar

import keras
import numpy as np

from tfrobust.common.arrays import check_labels
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import check_class_names, shorten
from tfrobust.data.sources.stanford_sentiment import Treebank
from tfrobust.data.sources.tfds import PreparedSource
from tfrobust.data.spec import Dataset
from tfrobust.data.text import TokenExamples
from tfrobust.data.wordpiece import Pieces, WordPiece
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sst2(PreparedSource):
    """GLUE's SST-2, 67,349 training phrases and 872 test sentences, or another TFDS set with the same features.

    The features are one `Text`, with words separated by spaces, and one `ClassLabel`. GLUE does not publish the labels
    of its test split. As usual, the split called "validation" is used for testing, and a validation split is held out
    of training.

    Args:
        dataset, data_dir, download, train_split: see `PreparedSource`.
        test_split: TFDS split.
        tokenizer: how words become tokens.
        length: tokens of a row; the longest sentence has 56 words.
        treebank: the folder of the Stanford Sentiment Treebank, whose scores of single words are then used to evaluate
            token sensitivity (see `StanfordSentimentTreebank`); None: the strengths of words are unknown.

    Source:
        Wang et al. 2018 (GLUE); Socher et al. 2013.
    """

    dataset: LocalPath = "glue/sst2"
    test_split: str = "validation"
    tokenizer: WordPiece = dataclasses.field(default_factory=WordPiece)
    length: int = 64
    treebank: LocalPath | None = None

    otherwise: ClassVar[str] = "read the treebank's own folder with StanfordSentimentTreebank"

    def load(self) -> Dataset:
        """Read both splits, tokenize them, and hold out validation."""
        builder = self.prepared()
        text_key, label_key = self._keys(builder)
        names = check_class_names(builder.info.features[label_key].names, shorten(self.dataset))
        splits = [self._read(builder, split, text_key, label_key) for split in (self.train_split, self.test_split)]
        pieces = self.tokenizer.fitted(splits[0][0])
        strengths = {} if self.treebank is None else word_strengths(Treebank(self.treebank))
        train, test = (self._examples(pieces, *split, strengths) for split in splits)
        return self.assemble(builder.name, names, train, test, pieces.vocabulary)

    def _examples(self, pieces: Pieces, sentences: list, labels: np.ndarray, strengths: dict) -> TokenExamples:
        of_words = [[strengths.get(word, np.nan) for word in words] for words in sentences] if strengths else None
        return pieces.examples(sentences, labels, self.length, of_words)

    def _read(self, builder, split: str, text_key: str, label_key: str) -> tuple[list[list[str]], np.ndarray]:
        batches = self.batches(builder, split, lambda example: (example[text_key], example[label_key]))
        where = shorten(f"{self.dataset}, {split}")
        sentences = [line.decode("utf-8").split() for batch in batches for line in batch[0]]
        empty = next((number for number, words in enumerate(sentences) if not words), None)
        if empty is not None:
            raise InputError(f"{where}: sentence {empty} has no word.")
        labels = np.concatenate([batch[1] for batch in batches])
        return sentences, check_labels(labels, len(sentences), where=where)

    def _keys(self, builder) -> tuple[str, str]:
        import tensorflow_datasets as tfds

        features = builder.info.features
        texts = [key for key, feature in features.items() if isinstance(feature, tfds.features.Text)]
        labels = [key for key, feature in features.items() if isinstance(feature, tfds.features.ClassLabel)]
        if len(texts) != 1 or len(labels) != 1:
            raise InputError(
                f"{shorten(self.dataset, 60)!r} has {len(texts)} texts and {len(labels)} class labels per example; "
                "Sst2 needs one of each."
            )
        return texts[0], labels[0]


def word_strengths(treebank: Treebank) -> dict[str, float]:
    """Return the strength of each word in lowercase, as GLUE writes words.

    A word that the treebank has in lowercase has the strength of that form, another word that of its first form.
    """
    words = [phrase for phrase in treebank.scores if " " not in phrase]
    strengths = {word: treebank.strength(word) for word in words if word == word.lower()}
    for word in words:
        strengths.setdefault(word.lower(), treebank.strength(word))
    return strengths

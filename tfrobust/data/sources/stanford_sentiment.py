"""The Stanford Sentiment Treebank from its official folder: labels of sentences, scores of all phrases and words."""

import dataclasses
import functools

import keras
import numpy as np

from tfrobust.common import files
from tfrobust.common.outside import LocalPath
from tfrobust.common.settings import require_choice
from tfrobust.data.checks import DataNotFoundError, shorten
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.data.wordpiece import WordPiece
from tfrobust.errors import InputError

LARGEST_FILE = 2**28
TRAIN_ON = ("sentences", "phrases")
CLASS_NAMES = ("negative", "positive")
_SPLITS = {"1": "train", "2": "test", "3": "validation"}
# Brackets as the parser wrote them, and as a vocabulary has them.
_WRITTEN = {"-LRB-": "(", "-RRB-": ")", "-lrb-": "(", "-rrb-": ")"}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class StanfordSentimentTreebank(Source):
    """Sentences of film reviews, positive or negative, with sentiment scores of single words.

    A score lies between 0 (very negative) and 1. A sentence is negative up to 0.4 and positive above 0.6. Those in
    between are neutral and left out, as is usual. Test and validation are the official splits of whole sentences. The
    strength of a word is |score - 0.5| of the phrase that consists of this word; no method trains on it.

    Args:
        path: the unpacked folder `stanfordSentimentTreebank`.
        train_on: "sentences". Or "phrases": every phrase of the training sentences' trees, once and with its own score,
            single words included, as GLUE's SST-2 trains.
        tokenizer: how words become tokens.
        length: tokens of a row; the longest sentence has 56 words.

    Raises:
        ValueError: an unknown `train_on`, or a `validation_size`.

    Source:
        Socher et al. 2013, Recursive deep models for semantic compositionality over a sentiment treebank. Kim et al.
        2021, section 4.1, trains on labels of sentences only, and describes SST-2 in this way.
    """

    path: LocalPath
    train_on: str = "sentences"
    tokenizer: WordPiece = dataclasses.field(default_factory=WordPiece)
    length: int = 64

    def __post_init__(self):
        super().__post_init__()
        require_choice(self.train_on, "StanfordSentimentTreebank.train_on", TRAIN_ON)
        if self.validation_size:
            raise InputError("StanfordSentimentTreebank has a validation split; leave validation_size at 0.")

    def load(self) -> Dataset:
        """Read the treebank and tokenize its splits."""
        treebank = Treebank(self.path)
        splits = {name: treebank.sentences(name) for name in _SPLITS.values()}
        if self.train_on == "phrases":
            splits["train"] = treebank.phrases("train")
        labelled = {name: _labelled(phrases, treebank) for name, phrases in splits.items()}
        empty = [name for name, (words, _) in labelled.items() if not words and name != "validation"]
        if empty:
            raise InputError(f"{shorten(self.path)}: the {empty[0]} split has no positive or negative sentence.")
        pieces = self.tokenizer.fitted([_plain(words) for words in labelled["train"][0]])
        examples = {
            name: pieces.examples(
                [_plain(words) for words in sentences],
                labels,
                self.length,
                [[treebank.strength(word) for word in words] for words in sentences],
            )
            for name, (sentences, labels) in labelled.items()
        }
        return Dataset("Stanford Sentiment Treebank", CLASS_NAMES, **examples, vocabulary=pieces.vocabulary)


class Treebank:
    """Files of the treebank, read on demand.

    Args:
        path: the unpacked folder.
    """

    def __init__(self, path: str):
        self._folder = files.expanded(path)

    @functools.cached_property
    def scores(self) -> dict[str, float]:
        """Score by phrase, a string of words separated by spaces."""
        values = {}
        for line in self._lines("sentiment_labels.txt")[1:]:
            identity, _, value = line.partition("|")
            values[identity] = value
        try:
            pairs = [line.rpartition("|") for line in self._lines("dictionary.txt")]
            phrase_scores = {phrase: float(values[identity]) for phrase, _, identity in pairs}
        except (KeyError, ValueError) as error:
            raise InputError(
                f"{shorten(self._folder)}: dictionary.txt and sentiment_labels.txt are inconsistent at {error}."
            ) from error
        outside = next((phrase for phrase, score in phrase_scores.items() if not 0 <= score <= 1), None)
        if outside is not None:
            fault = f"{shorten(outside, 60)!r} {phrase_scores[outside]}; a score must be in [0, 1]."
            raise InputError(f"{shorten(self._folder)}: sentiment_labels.txt scores {fault}")
        return phrase_scores

    def score(self, phrase: str) -> float:
        """Return the score of a phrase.

        Raises:
            ValueError: a phrase that is not in the dictionary.
        """
        if phrase not in self.scores:
            raise InputError(f"{shorten(self._folder)}: dictionary.txt has no entry for {shorten(phrase, 80)!r}.")
        return self.scores[phrase]

    def strength(self, word: str) -> float:
        """Return |score - 0.5| of a single word, NaN if it has no score."""
        return abs(self.scores.get(word, np.nan) - 0.5)

    def sentences(self, split: str) -> list[list[str]]:
        """Return the words of the sentences of "train", "validation" or "test"."""
        return [words for words, of in zip(self._words, self._split_names, strict=True) if of == split]

    def phrases(self, split: str) -> list[list[str]]:
        """Return the words of every different phrase in the trees of a split, whole sentences included."""
        trees = self._lines("STree.txt")
        self._require(len(trees) == len(self._words), "STree.txt has not a line for every sentence of SOStr.txt")
        word_lists = {}
        for words, tree, of in zip(self._words, trees, self._split_names, strict=True):
            if of == split:
                for start, end in self._spans(tree, len(words)):
                    word_lists.setdefault(" ".join(words[start:end]), words[start:end])
        return list(word_lists.values())

    def _spans(self, tree: str, count: int) -> list[tuple[int, int]]:
        """Return the span (start, end) of each node of a tree.

        Args:
            tree: parent pointers separated by "|": the parent of node i, counted from 1; 0 for none.
            count: number of words.
        """
        try:
            parents = [int(parent) for parent in tree.split("|")]
        except ValueError:
            parents = []
        self._require(len(parents) >= count, f"STree.txt has the line {shorten(tree, 40)!r} for {count} words")
        leaves: dict[int, list[int]] = {}
        for leaf in range(count):
            node = leaf + 1
            for _ in parents:  # a longer path would be a cycle
                leaves.setdefault(node, []).append(leaf)
                node = parents[node - 1] if node <= len(parents) else 0
                if node == 0:
                    break
        return [(below[0], below[-1] + 1) for below in leaves.values()]

    @functools.cached_property
    def _words(self) -> list[list[str]]:
        return [line.split("|") for line in self._lines("SOStr.txt")]

    @functools.cached_property
    def _split_names(self) -> list[str]:
        assigned = dict(line.strip().partition(",")[::2] for line in self._lines("datasetSplit.txt")[1:])
        fault = f"datasetSplit.txt has {len(assigned)} sentences, SOStr.txt {len(self._words)}"
        self._require(len(assigned) == len(self._words), fault)
        codes = [assigned.get(str(number)) for number in range(1, len(assigned) + 1)]
        wrong = next((number for number, code in enumerate(codes, start=1) if code not in _SPLITS), None)
        self._require(wrong is None, f"datasetSplit.txt assigns sentence {wrong} to none of the splits 1, 2 and 3")
        return [_SPLITS[code] for code in codes]

    def _require(self, holds: bool, fault: str) -> None:
        if not holds:
            raise InputError(f"{shorten(self._folder)}: {fault}.")

    def _lines(self, name: str) -> list[str]:
        file = self._folder / name
        if not file.is_file():
            raise DataNotFoundError(
                f"there is no {shorten(file)}: unpack stanfordSentimentTreebank.zip of "
                "https://nlp.stanford.edu/sentiment/ and name its folder stanfordSentimentTreebank as path."
            )
        # splitlines() would split at characters that occur inside words.
        return [line for line in files.read_text(file, LARGEST_FILE).split("\n") if line]


def _labelled(phrases: list[list[str]], treebank: Treebank) -> tuple[list[list[str]], list[int]]:
    """Return the phrases that are not neutral, and their labels."""
    scores = [treebank.score(" ".join(words)) for words in phrases]
    clear = [position for position, score in enumerate(scores) if not 0.4 < score <= 0.6]
    return [phrases[position] for position in clear], [int(scores[position] > 0.6) for position in clear]


def _plain(words: list[str]) -> list[str]:
    """Convert words to the form of a vocabulary: brackets for their names, no backslash before a slash or a star."""
    return [_WRITTEN.get(word, word).replace("\\/", "/").replace("\\*", "*") for word in words]

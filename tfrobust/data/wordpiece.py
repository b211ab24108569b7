"""Word pieces as in BERT, by the library `tokenizers` (the extra `text`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from tfrobust.common import files
from tfrobust.common.configured import Configured
from tfrobust.common.outside import LocalPath
from tfrobust.common.settings import require_choice
from tfrobust.data.checks import PADDING_WORD, UNKNOWN_WORD, DataNotFoundError, check_vocabulary, shorten
from tfrobust.data.text import PADDING, TokenExamples, padded, vocabulary_of
from tfrobust.errors import InputError

STRENGTH_OF = ("every", "first")
_CONTINUED = "##"


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordPiece(Configured):
    """Tokenizer into word pieces: each word is split, from left to right, into the longest pieces of a vocabulary.

    Punctuation is separated. "##" begins every piece that is not the first of a word. A word that cannot be composed of
    pieces is unknown. Pieces inherit the strength of their word as `strength_of` says; papers do not specify this.

    Args:
        vocabulary: a file with one piece per line, such as BERT's `vocab.txt` or the `vocabulary.txt` of an export.
            None: a vocabulary of `size` pieces is trained on the training sentences, the same in every run. Padding and
            unknown become the ids 0 and 1, wherever the file has them; the others keep their order.
        size: largest size of a trained vocabulary.
        minimum_count: how often a pair of pieces must occur in training to become one piece.
        lowercase: remove case and accents, as in BERT's uncased vocabularies.
        strength_of: "every": each piece has its word's strength. "first": only the first piece has it; the following
            pieces have none (NaN).

    Raises:
        ValueError: an unknown `strength_of`, a `size` below 3 or a `minimum_count` below 1.

    Source:
        Wu et al. 2016 (arXiv 1609.08144), section 4.1, as BERT uses it. Kim et al. 2021, section 4.1: "BERT-tokenizer".
    """

    vocabulary: LocalPath | None = None
    size: int = 8000
    minimum_count: int = 2
    lowercase: bool = True
    strength_of: str = "every"

    def __post_init__(self):
        require_choice(self.strength_of, "WordPiece.strength_of", STRENGTH_OF)
        if self.size < 3 or self.minimum_count < 1:
            raise InputError(
                f"WordPiece.size is {self.size} and WordPiece.minimum_count {self.minimum_count}; they must be "
                "at least 3 and 1."
            )

    def fitted(self, sentences: Iterable[Sequence[str]]) -> Pieces:
        """Read or train the vocabulary, and return the tokenizer.

        Args:
            sentences: words of the training sentences; only used to train a vocabulary.

        Raises:
            FileNotFoundError: no such file, or the library `tokenizers` is not installed.
            ValueError: a file that is no vocabulary, or a size too small for the single letters.
        """
        pieces = self._train_vocabulary(sentences) if self.vocabulary is None else _read(self.vocabulary)
        return Pieces(check_vocabulary(pieces, "WordPiece"), self)

    def splitter(self, pieces: Sequence[str] | None = None):
        """Create a tokenizer of the library `tokenizers`, untrained or with a vocabulary."""
        library = _library()
        vocabulary = {} if pieces is None else {"vocab": {piece: number for number, piece in enumerate(pieces)}}
        tokenizer = library.Tokenizer(library.models.WordPiece(unk_token=UNKNOWN_WORD, **vocabulary))
        tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=self.lowercase)
        tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        return tokenizer

    def _train_vocabulary(self, sentences: Iterable[Sequence[str]]) -> tuple[str, ...]:
        tokenizer, lines = self.splitter(), [" ".join(words) for words in sentences]
        words = {word for line in lines for word in tokenizer.normalizer.normalize_str(line).split()}
        parts = {part for word in words for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(word)}
        inner = sorted({_CONTINUED + letter for part in parts for letter in part[1:]})
        special = [PADDING_WORD, UNKNOWN_WORD, *inner]
        least = len(special) + len({part[0] for part in parts})
        if self.size < least:
            raise InputError(f"WordPiece.size is {self.size}; the single letters of these data need {least} pieces.")
        # The library would number these pieces in the order of a hash table, which breaks ties: two runs would give
        # different vocabularies (its issue 1794). Listing them as special tokens fixes the order.
        trainer = _library().trainers.WordPieceTrainer(
            vocab_size=self.size, min_frequency=self.minimum_count, special_tokens=special, show_progress=False
        )
        tokenizer.train_from_iterator(lines, trainer)
        identities = tokenizer.get_vocab()
        return tuple(sorted(identities, key=identities.get))


class Pieces:
    """Tokenizer with a vocabulary of word pieces.

    Args:
        vocabulary: the piece of each id, padding and unknown first.
        settings: how words are split.
    """

    def __init__(self, vocabulary: tuple[str, ...], settings: WordPiece):
        self.vocabulary = vocabulary
        self._settings = settings
        self._tokenizer = settings.splitter(vocabulary)

    def examples(self, sentences: Sequence[Sequence[str]], labels, length: int, strengths=None) -> TokenExamples:
        """Tokenize sentences to rows of ids, truncated to `length` pieces.

        Args:
            sentences: words, at least one per sentence.
            labels: integer [n].
            length: length of the rows.
            strengths: one number per word, NaN if unknown; None if none is known.
        """
        encodings = self._tokenizer.encode_batch([list(words) for words in sentences], is_pretokenized=True)
        tokens = padded([cut.ids for cut in encodings], length, PADDING, np.int32)
        if strengths is not None:
            rows = [
                self._piece_strengths(cut.word_ids, of_words)
                for cut, of_words in zip(encodings, strengths, strict=True)
            ]
            strengths = padded(rows, length, np.nan, np.float32)
        return TokenExamples(tokens, labels, strengths)

    def _piece_strengths(self, words: Sequence[int], strengths: Sequence[float]) -> list[float]:
        if self._settings.strength_of == "every":
            return [strengths[word] for word in words]
        before = [None, *words[:-1]]
        return [strengths[word] if word != last else np.nan for word, last in zip(words, before, strict=True)]


def _library():
    try:
        import tokenizers
    except ImportError as error:
        raise DataNotFoundError("WordPiece needs the library tokenizers: pip install 'tfrobust[text]'.") from error
    return tokenizers


def _read(path: str) -> tuple[str, ...]:
    file = files.expanded(path)
    if not file.is_file():
        raise DataNotFoundError(
            f"WordPiece.vocabulary: there is no file {shorten(file)}; it must have one piece per line, as BERT's "
            "vocab.txt."
        )
    pieces = files.read_text(file).removesuffix("\n").split("\n")
    if UNKNOWN_WORD not in pieces:
        raise InputError(f"{shorten(file)} has no line {UNKNOWN_WORD}, which a vocabulary of word pieces needs.")
    twice = len(pieces) - len(set(pieces))
    if twice:
        raise InputError(f"{shorten(file)}: {twice} duplicate lines; each piece must occur once.")
    return vocabulary_of(piece for piece in pieces if piece not in (PADDING_WORD, UNKNOWN_WORD))

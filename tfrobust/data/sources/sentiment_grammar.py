"""A generated sentiment task that runs without network access and in which the strength of every word is known."""

import dataclasses
import zlib

import keras
import numpy as np

from tfrobust.data.checks import check_generated
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.data.text import TokenExamples, encode, padded, vocabulary_of
from tfrobust.errors import InputError

# Sentiment words by polarity and grade: |sentiment - 0.5| is 0.1 in the first line and 0.5 in the last.
POSITIVE = (
    "okay decent fair passable acceptable tolerable adequate fine agreeable watchable harmless neat",
    "nice pleasant likeable amiable tidy sweet handy cheerful warm breezy snappy clever",
    "good enjoyable engaging charming funny smart lovely touching fresh thoughtful lively graceful",
    "great delightful moving impressive memorable gripping inspired splendid captivating hilarious heartfelt vivid",
    "superb brilliant masterful dazzling magnificent flawless wonderful exquisite stunning phenomenal perfect sublime",
)
NEGATIVE = (
    "plain uneven ordinary thin slight middling unremarkable routine lukewarm mediocre predictable longish",
    "slow bland flat stale clumsy shallow forgettable tepid messy awkward muddled wooden",
    "bad dull weak boring tedious lifeless confused annoying sloppy tiresome hollow dreary",
    "ugly stupid painful irritating incoherent lazy pointless ludicrous wretched joyless unwatchable offensive",
    "terrible awful horrible dreadful atrocious abysmal disastrous appalling repulsive horrendous unbearable worthless",
)
GRADE = 0.1
NEGATIONS = ("not", "never", "hardly")
INTENSIFIERS = {"very": 1.5, "truly": 1.5, "extremely": 2.0, "slightly": 0.5, "somewhat": 0.5}
NOUNS = tuple(
    "film movie story plot scene script cast actor director camera music ending dialogue character studio picture "
    "role hour week city evening voice screen sequel".split()
)
DETERMINERS = ("the", "a", "this", "that", "its", "one")
CONNECTORS = ("and", "with", "of", "in", "but", "for", "or", "from", "while", "about")
LEXICON = {
    word: round(0.5 + sign * GRADE * grade, 6)
    for sign, lines in ((1, POSITIVE), (-1, NEGATIVE))
    for grade, line in enumerate(lines, start=1)
    for word in line.split()
}

_NEGATED, _INTENSIFIED = 8, 4  # one in 8 phrases is negated, one in 4 intensified
_NEUTRAL_PHRASES = 3  # 0, 1 or 2 of them in a sentence
_TRIES = 5000
_MOST_PHRASES = 1000
_MOST_WORDS = 5_000_000  # of all sentences sampled for a split, kept or not: this takes half a minute
_MOST_RARE = 10_000


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentimentGrammar(Source):
    """Sentences such as "not very good story with the film and dreadful ending", labeled by one exact rule.

    A sentence has `phrases` phrases of opinion and up to two neutral ones ("the film"), in random order, with a neutral
    word between any two. A phrase of opinion is [negation] [intensifier] adjective noun. One in eight is negated, one
    in four intensified. Its value is

        value = (sentiment(adjective) - 0.5) * factor(intensifier) * (-1 if negated)

    The sentence is "positive" if the sum of its values is above 0, else "negative": no label is noisy. A sentence is
    sampled again if its sum is closer to 0 than `margin`, if it is longer than `length`, or if it is a duplicate, so
    that no sentence occurs twice in any of the splits.

    The sentiment of the 120 adjectives runs from 0 to 1 in steps of 0.1, without 0.5 (`LEXICON`). Every other word is
    neutral. The strength |sentiment - 0.5| of every token is thus known; no method trains on it.

    Of the twelve adjectives of each grade and polarity, `held_out` never occur in training (and validation, which is
    part of it) and `rare` seldom do. The seed selects them. For the test split all adjectives are drawn equally often.
    Sentences with weak ones are sampled again more often, since their sums are often near 0. Weak adjectives are
    therefore rarer there.

    Args:
        train_size: sentences for training, validation included.
        test_size: sentences for testing.
        length: tokens of a row, and of the longest sentence.
        phrases: smallest and largest number of phrases of opinion in a sentence.
        held_out: adjectives of a grade and polarity that occur in the test split only.
        rare: of the others, those that are rare in training.
        rare_every: in training, other adjectives are this many times as frequent as a rare one.
        margin: smallest distance of a sentence's sum from 0. Rounding may reject a sum that is exactly at the margin.
        split_seed: seed of all random numbers.

    Raises:
        ValueError: a number out of its range, or no common adjectives left; in `load`, too few different sentences.
    """

    train_size: int = 4000
    test_size: int = 1000
    length: int = 16
    phrases: tuple[int, int] = (1, 3)
    held_out: int = 1
    rare: int = 1
    rare_every: int = 5
    margin: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        low, high = self.phrases
        if not 1 <= low <= high <= _MOST_PHRASES or self.length < 5 * low:
            raise InputError(
                f"SentimentGrammar.phrases is {self.phrases} for a length of {self.length}; it is (smallest, largest), "
                f"from 1 to {_MOST_PHRASES}, and a phrase takes 5 tokens."
            )
        if min(self.held_out, self.rare) < 0 or self.held_out + self.rare >= len(POSITIVE[0].split()):
            raise InputError(
                f"SentimentGrammar.held_out {self.held_out} and .rare {self.rare} leave none of the "
                f"{len(POSITIVE[0].split())} adjectives of a grade to be common."
            )
        if not 1 <= self.rare_every <= _MOST_RARE:
            raise InputError(f"SentimentGrammar.rare_every is {self.rare_every}; it must be in 1..{_MOST_RARE}.")
        if min(self.train_size, self.test_size) < 1 or not 0 <= self.margin <= GRADE:
            raise InputError(
                f"SentimentGrammar has train_size {self.train_size}, test_size {self.test_size} (both >= 1) and margin "
                f"{self.margin} (in [0, {GRADE}])."
            )

    def load(self) -> Dataset:
        """Generate the sentences and split them."""
        vocabulary = vocabulary_of([*DETERMINERS, *NOUNS, *CONNECTORS, *NEGATIONS, *INTENSIFIERS, *LEXICON])
        held_out, rare = self.uncommon_words()
        common = [word for word in LEXICON if word not in held_out and word not in rare]
        check_generated(self.train_size + self.test_size, (2, self.length), "SentimentGrammar")  # tokens, strengths
        pools = {"train": common * self.rare_every + rare, "test": list(LEXICON)}
        seen: set[tuple[str, ...]] = set()
        ids = {word: number for number, word in enumerate(vocabulary)}
        splits = [self._split(name, pool, getattr(self, f"{name}_size"), seen, ids) for name, pool in pools.items()]
        return self.assemble("sentiment grammar", ("negative", "positive"), *splits, vocabulary)

    def uncommon_words(self) -> tuple[list[str], list[str]]:
        """Return the adjectives that never occur in training, and those that are rare in it."""
        held_out, rare = [], []
        draws = _Draws(self.split_seed, "uncommon words")
        for line in (*POSITIVE, *NEGATIVE):
            words = draws.shuffled(line.split())
            held_out += words[: self.held_out]
            rare += words[self.held_out : self.held_out + self.rare]
        return held_out, rare

    def _split(self, name: str, pool: list[str], count: int, seen: set, ids: dict[str, int]) -> TokenExamples:
        draws = _Draws(self.split_seed, name)
        sentences, labels, in_vain, words = [], [], 0, 0
        while len(sentences) < count:
            sentence, total = self._sentence(draws, pool)
            words += len(sentence)
            if abs(total) >= self.margin and len(sentence) <= self.length and sentence not in seen:
                seen.add(sentence)
                sentences.append(sentence)
                labels.append(int(total > 0))
                in_vain = -1
            in_vain += 1
            if in_vain > _TRIES or words > _MOST_WORDS:
                raise InputError(
                    f"SentimentGrammar finds only {len(sentences)} of {count} sentences of at most {self.length} "
                    "tokens; ask for fewer, or for longer ones."
                )
        strengths = [[abs(LEXICON.get(word, 0.5) - 0.5) for word in sentence] for sentence in sentences]
        return TokenExamples(
            encode(sentences, ids, self.length), labels, padded(strengths, self.length, np.nan, np.float32)
        )

    def _sentence(self, draws: "_Draws", pool: list[str]) -> tuple[tuple[str, ...], float]:
        low, high = self.phrases
        phrases, total = [], 0.0
        for _ in range(low + draws.below(high - low + 1)):
            phrase, value = _opinion(draws, pool)
            phrases.append(phrase)
            total += value
        phrases += [(draws.pick(DETERMINERS), draws.pick(NOUNS)) for _ in range(draws.below(_NEUTRAL_PHRASES))]
        first, *rest = draws.shuffled(phrases)
        words = list(first)
        for phrase in rest:
            words += (draws.pick(CONNECTORS), *phrase)
        return tuple(words), total


def _opinion(draws: "_Draws", pool: list[str]) -> tuple[tuple[str, ...], float]:
    word = draws.pick(pool)
    words, value = [word, draws.pick(NOUNS)], LEXICON[word] - 0.5
    if not draws.below(_INTENSIFIED):
        intensifier = draws.pick(tuple(INTENSIFIERS))
        words, value = [intensifier, *words], value * INTENSIFIERS[intensifier]
    if not draws.below(_NEGATED):
        words, value = [draws.pick(NEGATIONS), *words], -value
    return tuple(words), value


class _Draws:
    """Random numbers from raw PCG64 words: NumPy guarantees the bit stream, but not the output of its Generator."""

    def __init__(self, seed: int, purpose: str):
        self._bits = np.random.PCG64([seed, zlib.crc32(f"sentiment grammar, {purpose}".encode())])

    def below(self, count: int) -> int:
        return int(self._bits.random_raw() % count)

    def pick(self, items):
        return items[self.below(len(items))]

    def shuffled(self, items) -> list:
        keys = self._bits.random_raw(len(items))
        return [items[position] for position in np.argsort(keys, kind="stable")]

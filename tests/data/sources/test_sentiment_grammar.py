"""The generated sentences follow the documented rule, word for word."""

import numpy as np
import pytest

from tfrobust.data.sources.sentiment_grammar import CONNECTORS, DETERMINERS, INTENSIFIERS, LEXICON, NEGATIONS, NOUNS
from tfrobust.keras.data import SentimentGrammar

SMALL = {"train_size": 600, "test_size": 300}


@pytest.fixture(scope="module")
def dataset():
    return SentimentGrammar(validation_size=100, **SMALL).load()


def _sentences(dataset, split):
    examples = getattr(dataset, split)
    rows = [[dataset.vocabulary[token] for token in row if token] for row in examples.tokens]
    return rows, examples.labels, examples.strengths


def value(words):
    """The sum of a sentence, read from the words alone: what stands in front of an adjective changes it."""
    total = 0.0
    for position, word in enumerate(words):
        if word not in LEXICON:
            continue
        before = words[max(0, position - 2) : position]
        factor = INTENSIFIERS.get(before[-1], 1.0) if before else 1.0
        opening = before[:-1] if before and before[-1] in INTENSIFIERS else before
        sign = -1.0 if opening and opening[-1] in NEGATIONS else 1.0
        total += sign * factor * (LEXICON[word] - 0.5)
    return total


def test_labels_follow_from_the_words(dataset):
    for split in ("train", "validation", "test"):
        sentences, labels, _ = _sentences(dataset, split)
        totals = np.array([value(words) for words in sentences])
        assert np.all(np.abs(totals) > 0.1 - 1e-9)
        np.testing.assert_array_equal(totals > 0, labels)
        assert 0.4 < np.mean(labels) < 0.6


def test_strengths_alone_do_not_solve_it(dataset):
    """The sum of the words' sentiments, without negations and intensifiers, is right for most sentences only."""
    sentences, labels, _ = _sentences(dataset, "test")
    sums = np.array([sum(LEXICON.get(word, 0.5) - 0.5 for word in words) for words in sentences])
    assert 0.75 < np.mean((sums > 0) == labels) < 0.92


def test_sentences_are_phrases_parted_by_neutral_words(dataset):
    sentences, _, _ = _sentences(dataset, "train")
    seen = [word for words in sentences for word in words]
    assert {*NEGATIONS, *INTENSIFIERS, *CONNECTORS, *DETERMINERS, *NOUNS} <= set(seen)
    for words in sentences:
        nouns = [position for position, word in enumerate(words) if word in NOUNS]
        assert nouns[-1] == len(words) - 1  # every phrase ends with its noun
        assert all(words[position + 1] in CONNECTORS for position in nouns[:-1])
        assert 1 <= sum(word in LEXICON for word in words) <= 3
    opinions = sum(word in LEXICON for word in seen)
    assert 0.09 < sum(word in NEGATIONS for word in seen) / opinions < 0.16
    assert 0.2 < sum(word in INTENSIFIERS for word in seen) / opinions < 0.3


def test_strengths_are_those_of_the_lexicon(dataset):
    assert len(LEXICON) == 120 and sorted({round(score, 1) for score in LEXICON.values()}) == [
        0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0
    ]  # fmt: skip
    assert LEXICON["superb"] == 1.0 and LEXICON["dull"] == 0.2
    sentences, _, strengths = _sentences(dataset, "test")
    for words, row in zip(sentences, strengths, strict=True):
        expected = [abs(LEXICON.get(word, 0.5) - 0.5) for word in words]
        np.testing.assert_allclose(row[: len(words)], expected, atol=1e-6)
        assert np.all(np.isnan(row[len(words) :]))


def test_held_out_words_and_sentences(dataset):
    held_out, rare = SentimentGrammar(**SMALL).uncommon_words()
    assert len(held_out) == len(rare) == len({*held_out, *rare}) / 2 == 10
    assert sorted(round(LEXICON[word], 1) for word in held_out) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0]
    rows = {split: _sentences(dataset, split)[0] for split in ("train", "validation", "test")}
    trained, tested = ([word for words in rows[split] for word in words] for split in ("train", "test"))
    assert not set(held_out) & {*trained, *(word for words in rows["validation"] for word in words)}
    assert set(held_out) <= set(tested)
    share = sum(word in rare for word in trained) / sum(word in LEXICON for word in trained)
    assert 0.005 < share < 10 / (100 * 5 + 10) * 2  # one in five as often
    sentences = [tuple(words) for split in rows.values() for words in split]
    assert len(sentences) == len(set(sentences)) == 900


def test_draws_follow_from_the_seed_alone(dataset):
    again, other = (SentimentGrammar(validation_size=100, split_seed=seed, **SMALL).load() for seed in (0, 1))
    assert again.fingerprint == dataset.fingerprint != other.fingerprint
    assert again.vocabulary == other.vocabulary and len(again.vocabulary) == 170  # as gin/base/text.gin says
    sentence = "the actor in extremely phenomenal week but that screen"  # what no later version of NumPy may change
    assert " ".join(_sentences(dataset, "test")[0][0]) == sentence


def test_more_sentences_than_there_are(monkeypatch):
    from tfrobust.data.sources import sentiment_grammar

    for name in ("NOUNS", "DETERMINERS", "CONNECTORS"):
        monkeypatch.setattr(sentiment_grammar, name, ("film",))
    monkeypatch.setattr(sentiment_grammar, "_TRIES", 100)
    with pytest.raises(ValueError, match=r"finds only \d{3,4} of 5000 sentences of at most 5 tokens"):
        SentimentGrammar(phrases=(1, 1), length=5, train_size=5000, test_size=1).load()

"""The treebank in its own format: a tiny folder with the quirks of the real one."""

import numpy as np
import pytest
import stored

from tfrobust.data.sources.stanford_sentiment import StanfordSentimentTreebank, Treebank
from tfrobust.data.wordpiece import WordPiece

pytest.importorskip("tokenizers")

# Words as SOStr.txt parts them, parent pointers, split, score of the whole.
SENTENCES = stored.table(globals(), "sentences")
PHRASES = {
    "A": 0.5, "well-made": 0.80556, "film": 0.5, "well-made film": 0.86, "co-writer\\/director": 0.5, "-LRB-": 0.5,
    "clichés": 0.2, ")": 0.5, "co-writer\\/director -LRB-": 0.45, "clichés )": 0.55,
    "co-writer\\/director -LRB- clichés": 0.5, "2\xa01\\/2": 0.5, "stars": 0.65,
}  # fmt: skip
NAN = float("nan")


@pytest.fixture
def folder(tmp_path):
    scores = {**PHRASES, **{" ".join(words): score for words, _, _, score in SENTENCES}}
    lines = {
        "datasetSentences.txt": ["sentence_index\tsentence"] + [f"{i}\tunused" for i in range(1, 7)],
        "datasetSplit.txt": ["sentence_index,splitset_label"]
        + [f"{i},{split}" for i, (*_, split, _) in enumerate(SENTENCES, start=1)],
        "SOStr.txt": ["|".join(words) for words, *_ in SENTENCES],
        "STree.txt": [tree for _, tree, *_ in SENTENCES],
        # Phrases in no order of their ids, as there.
        "dictionary.txt": [f"{phrase}|{number}" for number, phrase in reversed(list(enumerate(scores)))],
        "sentiment_labels.txt": ["phrase ids|sentiment values", *(f"{i}|{s}" for i, s in enumerate(scores.values()))],
    }
    for name, content in lines.items():
        (tmp_path / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    pieces = "[PAD] [UNK] a well - made film dull co writer / director ( cliches ) 2 1 stars lovely so".split()
    path.write_text("\n".join(pieces), encoding="utf-8")
    return WordPiece(vocabulary=str(path))


def _words(dataset, split):
    return [" ".join(dataset.vocabulary[token] for token in row if token) for row in getattr(dataset, split).tokens]


def test_sentences_labels_and_strengths(folder, vocabulary):
    dataset = StanfordSentimentTreebank(path=str(folder), tokenizer=vocabulary, length=9).load()
    assert dataset.class_names == ("negative", "positive") and dataset.image_shape == (9,)
    assert _words(dataset, "train") == ["a well - made film", "dull"] and dataset.train.labels.tolist() == [1, 0]
    assert _words(dataset, "test") == ["co - writer / director ( cliches )", "2 1 / 2 stars"]
    assert dataset.test.labels.tolist() == [0, 1]
    assert _words(dataset, "validation") == ["lovely"] and dataset.validation.labels.tolist() == [1]
    expected = [[0, 0.30556, 0.30556, 0.30556, 0] + [NAN] * 4, [0.1] + [NAN] * 8]
    np.testing.assert_allclose(dataset.train.strengths, expected, atol=1e-6)
    expected = [[0, 0, 0, 0, 0, 0, 0.3, 0, NAN], [0, 0, 0, 0, 0.15, NAN, NAN, NAN, NAN]]
    np.testing.assert_allclose(dataset.test.strengths, expected, atol=1e-6)


def test_files_of_windows_are_the_same_data(folder, vocabulary):
    read = StanfordSentimentTreebank(path=str(folder), tokenizer=vocabulary, length=9).load
    fingerprint = read().fingerprint
    for path in [*folder.glob("*.txt")]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read().fingerprint == fingerprint


def test_phrases_are_the_spans_of_the_trees(folder, vocabulary):
    treebank = Treebank(str(folder))
    spans = {" ".join(words) for words in treebank.phrases("test")}
    assert spans == {
        "co-writer\\/director", "-LRB-", "clichés", ")", "co-writer\\/director -LRB-",
        "co-writer\\/director -LRB- clichés", "co-writer\\/director -LRB- clichés )",
        "2\xa01\\/2", "stars", "2\xa01\\/2 stars",
    }  # fmt: skip
    dataset = StanfordSentimentTreebank(path=str(folder), tokenizer=vocabulary, train_on="phrases", length=9).load()
    assert sorted(_words(dataset, "train")) == ["a well - made film", "dull", "well - made", "well - made film"]
    assert dict(zip(_words(dataset, "train"), dataset.train.labels.tolist(), strict=True))["well - made"] == 1
    assert _words(dataset, "test") == ["co - writer / director ( cliches )", "2 1 / 2 stars"]


def test_a_trained_vocabulary_knows_the_training_words(folder):
    tokenizer = WordPiece(size=60, minimum_count=1)
    dataset = StanfordSentimentTreebank(path=str(folder), tokenizer=tokenizer, length=30).load()
    assert not np.any(dataset.train.tokens == 1) and dataset.image_shape == (30,)


def _rewrite(name, old, new):
    def change(folder):
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return change


@pytest.mark.parametrize(("change", "error", "message"), stored.cases(__file__, "stanford", globals())["rows"])
def test_bad_folders(folder, vocabulary, change, error, message):
    change(folder)
    source = StanfordSentimentTreebank(path=str(folder), tokenizer=vocabulary, train_on="phrases")
    with pytest.raises(error, match=message.replace("|", r"\|")) as caught:
        source.load()
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)

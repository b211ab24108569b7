"""Word pieces: cut as by hand, trained the same in every process, strengths carried by their rule."""

import sys

import numpy as np
import pytest

from tfrobust.data.wordpiece import WordPiece

pytest.importorskip("tokenizers")

PIECES = "[unused0] [UNK] [CLS] the un ##watch ##able film - made [PAD] cliche s (".split()
CORPUS = ["the films of filmmakers", "the maker of films makes making films", "a film ( made )"]
NAN = float("nan")


SENTENCES = [line.split() for line in CORPUS]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return str(path)


def greedy(word, vocabulary):
    """The definition: the longest piece from the front, again and again; None where one is missing."""
    pieces, start = [], 0
    while start < len(word):
        candidates = [("##" if start else "") + word[start:end] for end in range(len(word), start, -1)]
        piece = next((candidate for candidate in candidates if candidate in vocabulary), None)
        if piece is None:
            return None
        pieces.append(piece)
        start += len(piece) - 2 * piece.startswith("##")
    return pieces


def test_a_file_is_read_with_padding_and_unknown_first(file):
    pieces = WordPiece(vocabulary=file).fitted(())
    assert pieces.vocabulary == ("[PAD]", "[UNK]", "[unused0]", "[CLS]", *PIECES[3:10], "cliche", "s", "(")
    examples = pieces.examples([["The", "UNWATCHABLE", "Clichés", "film-made", "films"], ["("]], [0, 1], 10)
    words = [[pieces.vocabulary[identity] for identity in row if identity] for row in examples.tokens]
    assert words == [["the", "un", "##watch", "##able", "[UNK]", "film", "-", "made", "[UNK]"], ["("]]
    cased = WordPiece(vocabulary=file, lowercase=False).fitted(()).examples([["The", "the"]], [0], 2)
    assert cased.tokens.tolist() == [[1, 4]]


@pytest.mark.parametrize(("rule", "carried"), [("every", [0.5, 0.5]), ("first", [NAN, NAN])])
def test_strengths_go_to_pieces(file, rule, carried):
    pieces = WordPiece(vocabulary=file, strength_of=rule).fitted(())
    sentences = [["the", "unwatchable", "film", "the"], ["film", "film-made"]]
    examples = pieces.examples(sentences, [0, 1], 5, [[0.0, 0.5, 0.1, NAN], [NAN, 0.25]])
    split = 0.25 if rule == "every" else NAN
    expected = [[0.0, 0.5, *carried, 0.1], [NAN, 0.25, split, split, NAN]]
    np.testing.assert_array_equal(examples.strengths, np.array(expected, np.float32))
    assert examples.tokens[1, 4] == 0 and examples.image_shape == (5,)  # padded, and the first cut off


def test_a_trained_vocabulary_knows_every_letter_and_cuts_greedily():
    pieces = WordPiece(size=45, minimum_count=2).fitted(SENTENCES)
    assert len(pieces.vocabulary) <= 45 and {"film", "the", "##m", "(", "a"} <= set(pieces.vocabulary)
    examples = pieces.examples(SENTENCES, [0, 0, 0], 40)
    assert not np.any(examples.tokens == 1)
    for sentence, row in zip(SENTENCES, examples.tokens, strict=True):
        cut = [piece for word in sentence for piece in greedy(word, pieces.vocabulary)]
        assert [pieces.vocabulary[identity] for identity in row if identity] == cut


def test_training_is_the_same_every_time():
    """The library breaks ties by the order of a hash table, another one each time."""
    trained = {WordPiece(size=60, minimum_count=1).fitted(SENTENCES).vocabulary for _ in range(20)}
    assert len(trained) == 1


def test_an_exported_vocabulary_cuts_as_the_trained_one(tmp_path):
    trained = WordPiece(size=45).fitted(SENTENCES)
    path = tmp_path / "vocabulary.txt"
    path.write_text("".join(f"{piece}\n" for piece in trained.vocabulary), encoding="utf-8")
    read = WordPiece(vocabulary=str(path)).fitted(())
    assert read.vocabulary == trained.vocabulary
    tokens = [tokenizer.examples(SENTENCES, [0, 0, 0], 20).tokens for tokenizer in (trained, read)]
    np.testing.assert_array_equal(*tokens)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_vocabularies_of_windows(tmp_path, codec, end):
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{piece}{end}" for piece in ("[UNK]", "the", "film", "##s")).encode(codec))
    assert WordPiece(vocabulary=str(path)).fitted(()).vocabulary == ("[PAD]", "[UNK]", "the", "film", "##s")


def test_bad_files_and_sizes(file, tmp_path):
    other = tmp_path / "other.txt"
    for content, message in (
        (b"the\nfilm\n", "no line \\[UNK\\]"),
        (b"\xff", "UTF-8"),
        (b"[UNK]\na\na\nb\na", "2 duplicate lines"),
    ):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            WordPiece(vocabulary=str(other)).fitted(())


def test_without_the_library_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'tfrobust\[text\]'"):
        WordPiece().fitted([["a"]])

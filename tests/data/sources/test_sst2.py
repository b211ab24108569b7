"""GLUE's SST-2: a prepared set of its features, and the words' strengths from the treebank's own files."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tfrobust.data.sources.sst2 import Sst2, word_strengths
from tfrobust.data.wordpiece import WordPiece

pytest.importorskip("tokenizers")

TRAIN = ["a well-made film", "dull and dreary", "lovely film", "a dull film"]
TEST = ["a lovely , dreary clichés film "]


def _store(folder, train=TRAIN, **features):
    """A real prepared data set, as TFDS writes GLUE's."""

    def part(sentences, labels):
        values = {"sentence": sentences, "label": labels, "idx": np.arange(len(labels), dtype=np.int32)}
        return tf.data.Dataset.from_tensor_slices({name: values[name] for name in specification})

    specification = {
        "sentence": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["negative", "positive"]),
        "idx": np.int32,
        **features,
    }
    specification = {name: feature for name, feature in specification.items() if feature is not None}
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_text",
        version="1.0.0",
        features=tfds.features.FeaturesDict(specification),
        split_datasets={"train": part(train, [1, 0, 1, 0]), "validation": part(TEST, [1]), "test": part(TEST, [-1])},
        data_dir=folder,
        disable_shuffling=True,
    )
    return str(folder)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return _store(tmp_path_factory.mktemp("tfds"))


@pytest.fixture
def treebank(tmp_path):
    scores = {"Lovely": 0.9, "lovely": 0.75, "LOVELY": 1.0, "Dull": 0.1, "lovely film": 0.8, "film": 0.5}
    lines = [f"{phrase}|{number}" for number, phrase in enumerate(scores)]
    (tmp_path / "dictionary.txt").write_text("\n".join(lines), encoding="utf-8")
    values = ["phrase ids|sentiment values", *(f"{number}|{score}" for number, score in enumerate(scores.values()))]
    (tmp_path / "sentiment_labels.txt").write_text("\n".join(values), encoding="utf-8")
    return str(tmp_path)


def test_a_prepared_folder_without_network(prepared):
    source = Sst2(dataset=prepared, tokenizer=WordPiece(size=40, minimum_count=1), length=20, validation_size=2)
    data = source.load()
    assert data.sizes == {"train": 2, "validation": 2, "test": 1} and data.class_names == ("negative", "positive")
    assert data.is_text and data.image_shape == (20,) and data.train.strengths is None
    assert data.test.labels.tolist() == [1] and sorted(data.train.labels) == sorted(data.validation.labels) == [0, 1]
    words = "".join(data.vocabulary[token] for token in data.test.tokens[0] if token).replace("##", "")
    assert words == "alovely[UNK]dreary[UNK]film"  # no comma and no c in training
    assert source.load().fingerprint == data.fingerprint


@pytest.mark.first
def test_words_have_the_strengths_of_the_treebank(prepared, treebank, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join("[PAD] [UNK] a lovely film dull well - made and dreary".split()), encoding="utf-8")
    tokenizer = WordPiece(vocabulary=str(path))
    data = Sst2(dataset=prepared, tokenizer=tokenizer, length=7, treebank=treebank).load()
    assert data.test.tokens[0].tolist() == [2, 3, 1, 10, 1, 4, 0]
    nan = float("nan")
    np.testing.assert_allclose(data.test.strengths[0], [nan, 0.25, nan, nan, nan, 0.0, nan])
    assert np.nanmax(data.train.strengths) == np.float32(0.4)  # "dull" by its only form, "Dull"


def test_the_word_in_small_letters_comes_first():
    import types

    scores = {"Fine": 0.9, "fine": 0.7, "BAD": 0.1, "Bad": 0.2, "a b": 0.0}
    treebank = types.SimpleNamespace(scores=scores, strength=lambda word: abs(scores[word] - 0.5))
    assert word_strengths(treebank) == pytest.approx({"fine": 0.2, "bad": 0.4})


def test_faults_are_named(prepared, tmp_path):
    with pytest.raises(FileNotFoundError, match="Sst2.download = True .* StanfordSentimentTreebank"):
        Sst2(data_dir=str(tmp_path)).load()
    with pytest.raises(ValueError, match="label -1 of example 0 is not a class id"):
        Sst2(dataset=prepared, test_split="test").load()
    with pytest.raises(ValueError, match="has 0 texts and 1 class labels"):
        Sst2(dataset=_store(tmp_path / "labels", sentence=None)).load()
    with pytest.raises(ValueError, match="sentence 2 has no word"):
        Sst2(dataset=_store(tmp_path / "empty", train=[*TRAIN[:2], " ", "a"])).load()

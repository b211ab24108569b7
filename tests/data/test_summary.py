import numpy as np
import pytest
import tensorflow as tf

from tfrobust.data import mixture, spec, summary, text

BYTES = np.arange(4 * 6, dtype=np.uint8).reshape(4, 3, 2, 1)


def test_a_line_for_each_split_and_the_note():
    train, empty = spec.ArrayExamples(BYTES, [0, 0, 2, 3]), spec.ArrayExamples(BYTES[:0], np.zeros(0, int))
    test = spec.ArrayExamples(BYTES[:2] / np.float32(50), [0, 0])
    data = spec.Dataset("mine", ("ant", "bee", "cow", "dog", "elk"), train, empty, test, note="left out: much")
    assert summary.lines(data) == [
        "train       4 images of 5 classes, 2 of them without examples: bee, elk; 3x2x1 uint8, 0 to 23",
        "validation  no examples",
        "test        2 images of 5 classes, 4 of them without examples: bee, cow, dog and 1 more; 3x2x1 float32, "
        "0 to 0.22",
        "left out: much",
    ]


def test_files_tokens_and_mixtures(tmp_path, monkeypatch):
    for number, pixels in enumerate(BYTES):
        tf.io.write_file(str(tmp_path / f"{number}.png"), tf.io.encode_png(pixels))
    files = spec.FileExamples([str(tmp_path / f"{number}.png") for number in range(4)], [0, 1, 0, 1], (3, 2, 1))
    assert summary.described(files, "ab") == "4 images of 2 classes; 3x2x1 float32, 0 to 0.0902"
    monkeypatch.setattr(summary, "_FILES", 2)
    assert summary.described(files, "ab").endswith("float32, 0 to 0.0667 (2 seen)")
    mixed = mixture.MixedExamples(files, spec.ArrayExamples(BYTES, [0] * 4), 0.5)
    assert summary.described(mixed, "ab") == "8 images of 2 classes; 3x2x1 float32, 0 to 0.0667 (2 seen)"
    (tmp_path / "0.png").write_bytes(b"no picture")
    assert summary.described(files, "ab").endswith("not readable")
    tokens = text.TokenExamples([[2, 1, 0], [1169, 0, 0]], [0, 1])
    assert summary.described(tokens, "ab") == "2 sentences of 2 classes; 3 int32, ids 0 to 1,169"


@pytest.mark.parametrize(("counts", "sentence"), [([1, 2], ""), ([0, 1], "1 of them without examples: a")])
def test_classes_without_examples(counts, sentence):
    assert summary.without_examples(counts, "ab") == sentence

"""An export of text: tokens in place of images, its vocabulary beside it, checked by a clean process."""

import numpy as np
import pytest
import tensorflow as tf
from serving.helpers import serving

from oracles.bag_of_words import BagOfWords
from tfrobust.data import checks
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.models.heads.linear import LinearHead
from tfrobust.serving.client import Client
from tfrobust.serving.export import assets, golden, probe, verify
from tfrobust.serving.export import saved_model as export

LENGTH, WORDS = 6, ("[PAD]", "[UNK]", "the", "clichés", "##s", "film")


@pytest.fixture(scope="module")
def parts():
    encoder, head = BagOfWords(len(WORDS)), LinearHead(2)
    encoder.build((None, LENGTH))
    head.build((None, encoder.width))
    return {"encoder": encoder, "head": head, "image_shape": (LENGTH,), "vocabulary": WORDS}


@pytest.fixture(scope="module")
def published(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    assets.assemble(folder / "staged", **parts)
    assets.assemble(folder / "final", **parts, report_json="{}", evaluated=folder / "staged", name="words")
    return folder / "final"


def test_golden_tokens_are_sentences_of_every_length():
    tokens = golden.golden_tokens(8, 6)
    assert tokens.dtype == np.int32 and (tokens > 0).sum(1).tolist() == [8, 4, 2, 1]
    assert tokens.min() == 0 and 1 <= tokens[0].min() and tokens.max() == 5
    word = 5 * 2654435769 % 2**32
    assert tokens[0, 5] == 1 + word % 5
    assert (golden.golden_tokens(1, 3) > 0).sum(1).tolist() == [1, 1, 1, 1]


def test_the_endpoints_take_tokens_and_give_what_the_parts_give(published, parts):
    loaded = tf.saved_model.load(str(published))
    assert set(loaded.signatures) == {"serving_default", "robustness_report"}
    ((name, specification),) = loaded.signatures["serving_default"].structured_input_signature[1].items()
    assert name == "tokens" and specification.dtype == tf.int32 and specification.shape.as_list() == [None, LENGTH]
    tokens = tf.constant(golden.golden_tokens(LENGTH, len(WORDS), 5))
    outputs = loaded.signatures["serving_default"](tokens=tokens)
    embedding = parts["encoder"](tokens)
    np.testing.assert_allclose(outputs["embedding"], embedding, rtol=1e-6)
    np.testing.assert_allclose(outputs["logits"], parts["head"](embedding), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.signatures["serving_default"](tokens=tokens[:, :-1])
    assert export.saved_model_sha256(loaded) == export.deployable_sha256(parts["encoder"], parts["head"])


def test_the_vocabulary_lies_beside_it(published):
    lines = (published / "assets.extra" / "vocabulary.txt").read_text(encoding="utf-8")
    assert lines == "[PAD]\n[UNK]\nthe\nclichés\n##s\nfilm\n"
    assert export.read_vocabulary(published) == WORDS and export.read_vocabulary(published.parent) == ()


def test_words_with_other_ends_of_lines_are_read_back(tmp_path):
    """Take words that are such ends alone, as vocabularies of word pieces have them."""
    words = checks.check_vocabulary((*WORDS, "\u2028", "a\x85b", "a\x1c"))
    export.write_texts(tmp_path, {export.VOCABULARY_FILE: "".join(f"{word}\n" for word in words)})
    assert export.read_vocabulary(tmp_path) == words
    assert loading._vocabulary_size(str(tmp_path)) == len(words)


def test_tokens_are_served_over_both_wires(published, tmp_path):
    answer = golden.read(published)
    with serving("words", published, 1, tmp_path) as server:
        for url in (server.rest_url, server.grpc_url):
            with Client(url, "words") as client:
                assert probe.differences(answer, client.predict(answer["tokens"].astype(np.int64))) == []
                with pytest.raises(InputError, match=r"holds float32; the model takes tokens int32 \[b, 6\]"):
                    client.predict(answer["tokens"].astype(np.float32))
                with pytest.raises(InputError, match="words has no endpoint 'serving_bytes'"):
                    client.predict([b"file"])


def test_a_clean_process_verifies_it(published):
    result = verify.verify(published)
    assert result.passed, result.problems
    answers = probe.replay_records(published, tf.saved_model.load(str(published)).signatures)
    assert [name for name, _ in answers] == ["serving_default", "robustness_report"]
    (published / "assets.extra" / "vocabulary.txt").write_text("[PAD]\n[UNK]\nfilm\n", encoding="utf-8")
    assert "vocabulary.txt has been changed" in probe.check(published)["checksums"][0]


def test_other_signatures_are_named(published):
    signatures = tf.saved_model.load(str(published)).signatures
    assert probe.check_signatures(signatures, (LENGTH,)) == []
    assert "'serving_default' takes" in probe.check_signatures(signatures, (LENGTH + 1,))[0]
    assert "expected ['robustness_report', 'serving_bytes'" in probe.check_signatures(signatures, (8, 8, 1))[0]

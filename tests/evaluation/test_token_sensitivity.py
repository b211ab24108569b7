"""The evaluator against SciPy on sensitivities known beforehand; short sentences; what it does without an embedding."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.token_sensitivity import TokenSensitivity, correlation

LENGTH, WORDS, FEATURES = 8, 40, 3
TABLE = np.random.default_rng(0).normal(size=(WORDS, FEATURES)).astype(np.float32)
VOCABULARY = ("[PAD]", "[UNK]", *(f"word{number}" for number in range(2, WORDS)))


def embed(tokens):
    """The sum of the words' vectors: a token's sensitivity is the length of its own."""
    vectors = tf.gather(tf.constant(TABLE), tokens)
    return tf.reduce_sum(tf.where(tokens[..., None] != 0, vectors, 0.0), axis=1)


def logits(tokens):
    return embed(tokens)[:, :2]


def setting_of(strengths=..., count=30, seed=1, **keywords):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, LENGTH + 1, count)
    lengths[:2] = LENGTH
    tokens = np.where(np.arange(LENGTH) < lengths[:, None], generator.integers(2, WORDS, (count, LENGTH)), 0)
    if strengths is ...:
        strengths = generator.choice([0.0, 0.05, 0.06, 0.2, 0.35, 0.5, np.nan], tokens.shape).astype(np.float32)
        strengths[tokens == 0] = np.nan
        strengths[1] = 0.2
    keywords = {"predictor": from_function(logits, image_shape=(LENGTH,), embedding=embed), "batch_size": 4, **keywords}
    labels = generator.integers(0, 2, count)
    return Setting(images=tokens, labels=labels, strengths=strengths, vocabulary=VOCABULARY, **keywords)


def scored(setting):
    """Per sentence the (sensitivities, strengths) that count, by hand."""
    pairs = []
    for tokens, strengths in zip(setting.images, setting.strengths, strict=True):
        places = [p for p, s in enumerate(strengths) if tokens[p] and not np.isnan(s) and s > 0.055]
        pairs.append((np.linalg.norm(TABLE[tokens[places]], axis=1).astype(np.float64), strengths[places]))
    return pairs


def test_the_numbers_are_those_of_scipy():
    setting = setting_of()
    outcome = TokenSensitivity().run(setting)
    averaged, pooled = outcome.measurements
    assert [m.id for m in outcome.measurements] == list(TokenSensitivity().ids()[:2]) and not outcome.findings
    pairs = scored(setting)
    long = [pair for pair in pairs if len(pair[0]) >= 3]
    correlations = [scipy.stats.pearsonr(*pair).statistic for pair in long if len(set(pair[1])) > 1]
    assert averaged.n == len(correlations) < len(long) < len(pairs)
    assert averaged.value == pytest.approx(np.mean(correlations), abs=1e-6)
    assert (averaged.low, averaged.high) == pytest.approx(statistics.mean_interval(correlations), abs=1e-6)
    assert averaged.settings["sentences_too_short"] == len(pairs) - len(long)
    assert averaged.settings["sentences_of_equal_tokens"] == len(long) - len(correlations) >= 1
    together = [np.concatenate(part) for part in zip(*pairs, strict=True)]
    assert pooled.value == pytest.approx(scipy.stats.pearsonr(*together).statistic, abs=1e-6)
    assert pooled.n == sum(len(pair[0]) > 0 for pair in pairs)
    assert pooled.settings["tokens"] == averaged.settings["tokens"] == len(together[0])


@pytest.mark.first  # the only test of the interval
def test_the_bootstrap_draws_whole_sentences():
    setting = setting_of(count=60)
    pooled = TokenSensitivity(resamples=2000).run(setting).measurements[1]
    pairs, generator = [np.stack(pair) for pair in scored(setting) if len(pair[0])], np.random.default_rng(5)
    values = []
    for _ in range(2000):
        drawn = [pairs[position] for position in generator.integers(0, len(pairs), len(pairs))]
        values.append(np.corrcoef(np.concatenate(drawn, axis=1))[0, 1])
    width = np.subtract(*np.quantile(values, [0.975, 0.025]))
    assert (pooled.low, pooled.high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.1 * width)
    assert TokenSensitivity(resamples=2000).run(setting).measurements[1] == pooled


def test_the_series_shows_whole_sentences():
    setting = setting_of()
    (series,) = TokenSensitivity(sentences=3).run(setting).series
    columns = {name: np.array(values, object) for name, values in series.columns.items()}
    assert series.id == TokenSensitivity().ids()[-1] and set(columns["sentence"]) == {0, 1, 2}
    for number in range(3):
        sentence = {name: values[columns["sentence"] == number] for name, values in columns.items()}
        ids = [VOCABULARY.index(word) for word in sentence["token"]]
        (which,) = [p for p, tokens in enumerate(setting.images) if tokens[tokens > 0].tolist() == ids]
        assert set(sentence["label"]) == {setting.labels[which]}
        np.testing.assert_allclose(sentence["sensitivity"].astype(float), np.linalg.norm(TABLE[ids], axis=1), rtol=6e-3)
        expected = [None if np.isnan(s) else pytest.approx(s, rel=6e-3) for s in setting.strengths[which][: len(ids)]]
        assert sentence["strength"].tolist() == expected
        assert sum(s is not None and s > 0.055 for s in sentence["strength"]) >= 3
    assert TokenSensitivity(sentences=0).run(setting).series == []


def test_limit_and_batches_make_no_difference_to_a_sentence():
    setting = setting_of()
    progress = []
    for changes in ({"batch_size": 30}, {"progress": lambda *seen: progress.append(seen)}):
        other = TokenSensitivity().run(dataclasses.replace(setting, **changes))
        for measurement, other_measurement in zip(
            TokenSensitivity().run(setting).measurements, other.measurements, strict=True
        ):
            assert measurement.value == pytest.approx(other_measurement.value, abs=1e-6)
    assert progress[-1] == ("token sensitivities", 30, 30) and len(progress) == 8
    assert TokenSensitivity(limit=9).run(setting).measurements[1].n <= 9


def test_without_an_embedding_or_strengths_it_says_so():
    bare = from_function(logits, image_shape=(LENGTH,))
    outcome = TokenSensitivity().run(setting_of(predictor=bare))
    assert not outcome.measurements and outcome.findings[0].check == "embedding"
    for strengths in (None, np.full((30, LENGTH), np.nan, np.float32)):
        outcome = TokenSensitivity().run(setting_of(strengths))
        assert not outcome.measurements and outcome.findings[0].check == "token_strengths"
    neutral = setting_of()
    neutral = dataclasses.replace(neutral, strengths=np.minimum(neutral.strengths, 0.05))
    outcome = TokenSensitivity().run(neutral)
    assert [(m.value, m.n) for m in outcome.measurements] == [(None, 0), (None, 0)] and not outcome.series


@pytest.mark.parametrize("broken", [5, 0])
def test_sentences_without_finite_sensitivities_are_left_out_and_counted(broken):
    def embedded(tokens):
        is_broken = tf.reduce_any(tokens == broken if broken else tokens >= 0, axis=1)
        return tf.where(is_broken[:, None], np.nan, embed(tokens))

    setting = setting_of(predictor=from_function(logits, image_shape=(LENGTH,), embedding=embedded))
    finite = (setting.images != broken).all(axis=1) if broken else np.zeros(30, bool)
    outcome = TokenSensitivity(sentences=30).run(setting)
    assert finite.sum() < 30
    if broken:
        parts = {name: getattr(setting, name)[finite] for name in ("images", "labels", "strengths")}
        expected = TokenSensitivity().run(dataclasses.replace(setting_of(), **parts)).measurements
        assert [m.value for m in outcome.measurements] == pytest.approx([m.value for m in expected])
    for measured in outcome.measurements:
        assert measured.settings["sentences_not_finite"] == 30 - finite.sum()
        assert broken or measured.settings["reason"] == "no sentence has finite sensitivities"
    json.dumps([dataclasses.asdict(part) for part in outcome.measurements + outcome.series], allow_nan=False)


def test_equal_numbers_have_no_correlation():
    assert correlation(np.full(4, 0.3), np.arange(4.0)) is correlation(np.arange(4.0), np.full(4, 0.3)) is None
    assert correlation(np.arange(4.0), 3 - 2 * np.arange(4.0)) == pytest.approx(-1)

"""Correlation of token sensitivity with sentiment strength."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.common.kinds import TEXT
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators.geometry import no_embedding
from tfrobust.ops import randomness, removal
from tfrobust.report.catalog.features import TOKENS
from tfrobust.structs import Finding, Measurement, Series

# Two points always lie on a line.
_LEAST_TOKENS = 3
# Strengths are float32; the tolerance makes one of exactly 0.05 neutral.
_ROUNDING = 1e-6
# Removals in one graph call, in batches; it keeps calls short for sentences of any length.
_BATCHES = 8
_NO_STRENGTHS = Finding(
    "token_strengths",
    "warn",
    "The data have no sentiment strengths of tokens; token sensitivities cannot be compared.",
    "Evaluate on data with scores of tokens, such as the sentiment grammar or the Stanford Sentiment Treebank.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSensitivity(Evaluator):
    """Token sensitivity against sentiment strength: `sensitivity.tokens.correlation` and `.pooled_correlation`.

    A token's sensitivity is |phi(x) - phi(x without it)|, phi the embedding; its strength is |sentiment - 0.5|. Neutral
    tokens, and tokens of unknown strength, are left out. `correlation` is Pearson's within each sentence, averaged. It
    does not exist for a sentence with fewer than three remaining tokens, nor if its strengths or sensitivities are all
    equal. Sentences with a sensitivity that is not finite are left out. The settings count all these sentences.
    `pooled_correlation` is Pearson's over the tokens of all sentences together; its interval is a bootstrap over
    sentences. The series `sensitivity.tokens` holds a few sentences with all their tokens.

    Attributes:
        limit: maximum number of sentences, drawn by the seed; None: all.
        neutral: tokens of at most this strength are left out, in [0, 0.5).
        sentences: number of sentences in the series; 0: no series.
        resamples: of the bootstrap, >= 100.

    Source:
        Kim et al. 2021, section 4.1 (neutral: sentiment in [0.45, 0.55]). It averages over "the whole dataset" and does
        not mention short sentences.
    """

    limit: int | None = None
    neutral: float = 0.05
    sentences: int = 5
    resamples: int = 1000

    uses_embedding: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = (TEXT.name,)

    def __post_init__(self):
        for name, least in (("limit", 1), ("sentences", 0), ("resamples", 100)):
            if getattr(self, name) is not None:
                require_least(getattr(self, name), f"TokenSensitivity.{name}", least)
        if not 0 <= self.neutral < 0.5:
            raise InputError(f"TokenSensitivity.neutral is {self.neutral}; it lies in [0, 0.5).")

    def run(self, setting: Setting) -> Outcome:
        """Measure the correlations."""
        if setting.predictor.embedding is None:
            return no_embedding(setting, "token sensitivities are not measured")
        positions = setting.subset(self.limit)
        if setting.strengths is None or not np.isfinite(setting.strengths[positions]).any():
            return Outcome(findings=[_NO_STRENGTHS])
        sensitivities = _sensitivities(setting, positions)
        finite = np.isfinite(sensitivities).all(axis=1)
        positions, sensitivities = positions[finite], sensitivities[finite]
        strengths = setting.strengths[positions]
        scored = strengths > self.neutral + _ROUNDING  # false for NaN
        measurements = [
            self._averaged(sensitivities, strengths, scored),
            self._pooled(setting, sensitivities, strengths, scored),
        ]
        if not finite.all():
            for measured in measurements:
                measured.settings["sentences_not_finite"] = int((~finite).sum())
                if not finite.any():
                    measured.settings["reason"] = "no sentence has finite sensitivities"
        return Outcome(measurements, self._series(setting, positions, sensitivities, scored))

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements and the series."""
        return (TOKENS.id("correlation"), TOKENS.id("pooled_correlation"), TOKENS.id())

    def _averaged(self, sensitivities: np.ndarray, strengths: np.ndarray, scored: np.ndarray) -> Measurement:
        correlations = [
            correlation(*pair) for pair in _tokens(sensitivities, strengths, scored) if len(pair[0]) >= _LEAST_TOKENS
        ]
        numbers = np.array([value for value in correlations if value is not None])
        settings = self._settings(scored) | {
            "sentences_too_short": len(sensitivities) - len(correlations),
            "sentences_of_equal_tokens": len(correlations) - len(numbers),
            "interval": "95 % over sentences, normal",
        }
        if not len(numbers):
            settings["reason"] = f"no sentence has {_LEAST_TOKENS} scored tokens of different sensitivity and strength"
            return Measurement(TOKENS.id("correlation"), None, "ratio", 0, settings=settings)
        low, high = statistics.mean_interval(numbers)
        bounds = (max(-1.0, low), min(1.0, high))
        return Measurement(TOKENS.id("correlation"), float(numbers.mean()), "ratio", len(numbers), *bounds, settings)

    def _pooled(
        self, setting: Setting, sensitivities: np.ndarray, strengths: np.ndarray, scored: np.ndarray
    ) -> Measurement:
        pairs = [np.stack(pair) for pair in _tokens(sensitivities, strengths, scored) if len(pair[0])]
        value = correlation(*np.concatenate(pairs, axis=1)) if pairs else None
        settings = self._settings(scored) | {"interval": f"95 % over sentences, bootstrap of {self.resamples}"}
        words = randomness.make_key(setting.seed, "evaluation", "token sensitivity").numpy().astype(np.uint32)
        bounds = (None, None)
        if value is None:
            settings["reason"] = "the scored tokens have one sensitivity or one strength"
        if value is not None and len(pairs) > 1:
            bounds = _bootstrap(pairs, self.resamples, np.random.default_rng(words))
        identity = TOKENS.id("pooled_correlation")
        return Measurement(identity, value, "ratio", len(pairs), *bounds, settings)

    def _settings(self, scored: np.ndarray) -> dict:
        return {"measure": "Pearson's correlation", "neutral": self.neutral, "tokens": int(scored.sum())}

    def _series(
        self, setting: Setting, positions: np.ndarray, sensitivities: np.ndarray, scored: np.ndarray
    ) -> list[Series]:
        """Return a few of the sentences that have a correlation, a row per token."""
        fit = [row for row in setting.order("tokens", len(sensitivities)) if scored[row].sum() >= _LEAST_TOKENS]
        columns: dict = {name: [] for name in ("sentence", "label", "token", "strength", "sensitivity")}
        for number, row in enumerate(fit[: self.sentences]):
            position = positions[row]
            for column, token in enumerate(setting.images[position]):
                if token:
                    strength = float(setting.strengths[position, column])
                    columns["sentence"].append(number)
                    columns["label"].append(int(setting.labels[position]))
                    columns["token"].append(_word(setting.vocabulary, int(token)))
                    columns["strength"].append(_short(strength) if np.isfinite(strength) else None)
                    columns["sensitivity"].append(_short(sensitivities[row, column]))
        title = "Sensitivity and true strength of each token"
        return [Series(TOKENS.id(), title, columns)] if columns["token"] else []


def correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Compute Pearson's correlation of two float [n]; None if one of them is constant."""
    if np.all(first == first[0]) or np.all(second == second[0]):
        return None
    first, second = (np.asarray(values, np.float64) - np.mean(values, dtype=np.float64) for values in (first, second))
    return float(np.clip(first @ second / np.sqrt((first @ first) * (second @ second)), -1.0, 1.0))


def _bootstrap(pairs: list[np.ndarray], resamples: int, generator: np.random.Generator) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of the pooled correlation, resampling sentences [2, n] with replacement."""
    center = np.concatenate(pairs, axis=1).mean(axis=1, keepdims=True)
    centered = [pair - center for pair in pairs]
    # Components of a correlation: counts, sums, squares, products; a resample adds those of its sentences.
    sums = np.array(
        [[pair.shape[1], *pair.sum(axis=1), *(pair**2).sum(axis=1), pair[0] @ pair[1]] for pair in centered]
    )
    shares = np.full(len(pairs), 1 / len(pairs))
    drawn = np.array([generator.multinomial(len(pairs), shares) @ sums for _ in range(resamples)])
    count, first, second, first_squares, second_squares, products = drawn.T
    spread = (first_squares - first**2 / count) * (second_squares - second**2 / count)
    values = (products - first * second / count) / np.sqrt(np.maximum(spread, np.finfo(float).tiny))
    low, high = np.quantile(np.clip(values, -1.0, 1.0), [0.025, 0.975])
    return float(low), float(high)


def _sensitivities(setting: Setting, positions: np.ndarray) -> np.ndarray:
    """Compute float32 [m, length] of the sentences at `positions`, 0 at padding; in batches of one static size."""
    length = setting.images.shape[1]
    size = min(len(positions), max(1, _BATCHES * setting.batch_size // length))
    embedding, report = setting.predictor.embedding, setting.reporter("token sensitivities")
    compiled = tf.function(
        lambda tokens: removal.sensitivity(embedding, tokens),
        input_signature=[tf.TensorSpec([size, length], tf.int32)],
        autograph=False,
    )
    batches = []
    for start in range(0, len(positions), size):
        rows = positions[np.minimum(np.arange(start, start + size), len(positions) - 1)]
        batches.append(compiled(tf.constant(setting.images[rows], tf.int32)).numpy()[: len(positions) - start])
        if report is not None:
            report(min(start + size, len(positions)), len(positions))
    return np.concatenate(batches)


def _tokens(sensitivities: np.ndarray, strengths: np.ndarray, scored: np.ndarray):
    """Yield the scored tokens of each sentence: (sensitivities [n], strengths [n])."""
    for values, strength, counts in zip(sensitivities, strengths, scored, strict=True):
        yield values[counts].astype(np.float64), strength[counts].astype(np.float64)


def _word(vocabulary: tuple[str, ...], token: int) -> str:
    return vocabulary[token] if token < len(vocabulary) else str(token)


def _short(value: float) -> float:
    """Round to three digits: enough for a picture, and a report stays small."""
    return float(f"{value:.3g}")

"""Intervals against published and hand-made numbers."""

import numpy as np
import pytest
import stored
from scipy.stats import binom

from tfrobust.evaluation.engine import statistics


@pytest.mark.parametrize("successes, count, low, high", stored.rows(globals(), "wilson_published"))
def test_wilson_published(successes, count, low, high):
    interval = statistics.wilson_interval(successes, count)
    np.testing.assert_allclose(interval, (low, high), atol=5e-5)


def test_wilson_ends_solve_the_score_equation():
    # Definition: the ends are the p at which |share - p| = z sqrt(p (1-p) / n).
    for end in statistics.wilson_interval(37, 90):
        assert abs(37 / 90 - end) == pytest.approx(statistics.Z * np.sqrt(end * (1 - end) / 90), rel=1e-12)


def test_paired_difference_by_hand_and_narrower_than_separate_intervals():
    # Differences 1, 0, 0, 1: mean 1/2, sample deviation sqrt(1/3), error sqrt(1/12).
    interval = statistics.paired_difference(np.array([1, 1, 0, 1]), np.array([0, 1, 0, 0]))
    half = 1.959963984540054 / np.sqrt(12)
    np.testing.assert_allclose(interval, (0.5, 0.5 - half, 0.5 + half), rtol=1e-12)
    base = np.arange(100) % 2
    shifted = base.copy()
    shifted[:2] = 1
    _, low, high = statistics.paired_difference(shifted, base)
    assert high - low < 0.1 < np.diff(statistics.wilson_interval(50, 100))[0]


def test_a_mean_of_shares_has_an_interval_also_where_all_agree():
    assert statistics.share_interval(np.zeros(10)) == statistics.wilson_interval(0, 10)
    assert statistics.share_interval(np.ones(10)) == statistics.wilson_interval(10, 10)
    low, high = statistics.share_interval(np.array([1.0, 1.0, 0.9, 1.0]))
    assert low == pytest.approx(0.975 - 1.959964 * 0.05 / 2) and high == 1.0


def test_student_by_hand():
    # sd 0.04; t(0.975, 2) = 4.302653 (any table); half width 4.302653 x 0.04 / sqrt(3).
    low, high = statistics.student_interval(np.array([0.50, 0.54, 0.58]))
    assert (low + high) / 2 == pytest.approx(0.54) and (high - low) / 2 == pytest.approx(0.099366, abs=1e-6)


def test_relative_drop_under_an_attack_and_at_its_corners():
    clean, robust = np.arange(10) < 8, np.arange(10) < 2
    drop, low, high = statistics.relative_drop(clean, robust)
    assert drop == pytest.approx(0.75)
    assert (low, high) == statistics.wilson_interval(6, 8)
    assert statistics.relative_drop(np.zeros(3, bool), np.ones(3, bool)) == (None, None, None)
    drop, low, high = statistics.relative_drop(np.ones(5, bool), np.zeros(5, bool))
    assert drop == high == 1.0 and 0.4 < low < 1


def test_relative_drop_covers_its_true_value():
    # Not nested: a change can also help. The interval must hold the truth in about 95 % of draws.
    generator, covered = np.random.default_rng(0), 0
    for _ in range(400):
        clean = generator.random(300) < 0.8
        changed = np.where(clean, generator.random(300) < 0.7, generator.random(300) < 0.3)
        drop, low, high = statistics.relative_drop(clean, changed)
        assert low < drop < high
        covered += low <= 1 - (0.8 * 0.7 + 0.2 * 0.3) / 0.8 <= high
    assert 0.92 < covered / 400 < 0.98


def test_paired_drops_cover_their_true_difference():
    # Two models that mostly fail on the same images: the pairs show more than two separate intervals.
    generator, covered, widths = np.random.default_rng(1), 0, []
    for _ in range(400):
        hard = generator.random(300)
        clean, other_clean = hard < 0.8, hard + generator.normal(0, 0.05, 300) < 0.8
        attacked, other_attacked = clean & (hard < 0.4), other_clean & (hard < 0.5)
        scores = statistics.drop_scores(clean, attacked), statistics.drop_scores(other_clean, other_attacked)
        drops = [statistics.relative_drop(*pair) for pair in ((clean, attacked), (other_clean, other_attacked))]
        np.testing.assert_allclose([side.mean() for side in scores], [drop for drop, _, _ in drops])
        _, low, high = statistics.paired_difference(*scores)
        # 0.4 / 0.8 and 0.5 / 0.8, as the noise of the second model's clean accuracy is symmetric.
        covered += low <= 0.5 - 0.375 <= high
        widths.append((high - low) / np.hypot(drops[0][2] - drops[0][1], drops[1][2] - drops[1][1]))
    assert 0.92 < covered / 400 < 0.98 and max(widths) < 0.8


@pytest.mark.parametrize("count", [5, 6, 40, 1001])
def test_median_covers_as_it_says(count):
    values = np.random.default_rng(count).permutation(np.arange(count, dtype=float))
    middle, low, high = statistics.median(values)
    assert middle == (count - 1) / 2
    if count == 5:  # 2 x 1/32 is more than 5 %
        assert low is high is None
        return
    outside = 2 * binom.cdf(low, count, 0.5)  # low is the rank less one
    assert outside <= 0.05 < 2 * binom.cdf(low + 1, count, 0.5) and high == count - 1 - low


def test_median_of_distances_not_found():
    assert statistics.median(np.array([1.0] * 30 + [np.inf] * 10))[:2] == (1.0, 1.0)
    assert statistics.median(np.array([1.0] * 10 + [np.inf] * 30)) == (None, None, None)


def test_the_drop_between_other_images_by_its_definition():
    """The ends are the ratios R at which A - R C lies as far from 0 as the intervals of A and C together reach."""
    clean, changed = np.arange(200) < 170, np.arange(90) < 48
    drop, low, high = statistics.independent_drop(clean, changed)
    top, bottom = 48 / 90, 170 / 200
    assert drop == pytest.approx(1 - top / bottom) and low < drop < high
    (low_top, high_top), (low_bottom, high_bottom) = (statistics.wilson_interval(*n) for n in ((48, 90), (170, 200)))
    for ratio, numerator, denominator in ((1 - high, low_top, high_bottom), (1 - low, high_top, low_bottom)):
        reach = (top - numerator) ** 2 + ratio**2 * (denominator - bottom) ** 2
        assert (top - ratio * bottom) ** 2 == pytest.approx(reach, rel=1e-9)


def test_the_drop_between_other_images_covers_the_truth():
    generator = np.random.default_rng(0)
    for top, bottom in ((0.5, 0.8), (0.03, 0.9), (0.85, 0.88)):
        inside = 0
        for _ in range(600):
            interval = statistics.independent_drop(generator.random(300) < bottom, generator.random(120) < top)
            inside += interval[1] <= 1 - top / bottom <= interval[2]
        assert 0.92 < inside / 600 < 0.99


def test_the_drop_between_other_images_at_its_ends():
    ones, zeros = np.ones(50, bool), np.zeros(40, bool)
    drop, low, high = statistics.independent_drop(ones, zeros)
    assert (drop, high) == (1, 1) and 0.85 < low < 1
    assert statistics.independent_drop(zeros, ones) == (None, None, None)
    assert statistics.independent_drop(np.arange(9) < 1, ones)[1:] == (None, None)  # one of nine says too little

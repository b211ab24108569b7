"""Intervals of differences: published worked examples, and how often they hold the truth, exactly."""

import itertools
import math

import pytest

from tfrobust.evaluation.engine.statistics import wilson_interval
from tfrobust.report.difference import independent_interval, paired_shares


def table(both, first, second, neither):
    """Outcomes of two from how many both, one alone, the other alone, and neither have right."""
    rows = "11" * both, "10" * first, "01" * second, "00" * neither
    return "".join(rows)[0::2], "".join(rows)[1::2]


def test_worked_examples_of_bonett_price_and_newcombe():
    # The example of ci.prop.ps(.05, 12, 4, 26, 6) in the R package statpsych 1.7, by Bonett.
    value, low, high = paired_shares(*table(6, 26, 4, 12))
    assert (value, low, high) == pytest.approx((22 / 48, 0.2548067, 0.6251933), abs=5e-8)
    value, high, low = (-end for end in paired_shares(*table(6, 4, 26, 12)))
    assert (low, high) == pytest.approx((0.2548067, 0.6251933), abs=5e-8)
    # Newcombe 1998, table II, method 10.
    for (a, m), (b, n), expected in (((56, 70), (48, 80), (0.0524, 0.3339)), ((9, 10), (3, 10), (0.1705, 0.8090))):
        ends = (a / m, *wilson_interval(a, m)), (b / n, *wilson_interval(b, n))
        assert independent_interval(*ends) == pytest.approx(expected, abs=5e-5)


def test_corners_have_a_width_and_stay_inside():
    value, low, high = paired_shares("1" * 360, "1" * 360)
    assert value == 0 and low == -high and 0.005 < high < 0.015
    value, low, high = paired_shares("1" * 5, "0" * 5)
    assert value == high == 1 and 0 < low < 1


@pytest.mark.parametrize("shares", [(0.6, 0.2, 0.1, 0.1), (0.9, 0.06, 0.02, 0.02), (0.25, 0.25, 0.25, 0.25)])
def test_paired_intervals_hold_the_truth(shares):
    """The exact probability over all tables of 40 images, by the multinomial."""
    count, (_, first, second, _), covered = 40, shares, 0.0
    for alone, other in itertools.product(range(count + 1), repeat=2):
        if alone + other > count:
            continue
        alike = count - alone - other
        ways = math.comb(count, alone) * math.comb(count - alone, other)
        probability = ways * first**alone * second**other * (1 - first - second) ** alike
        _, low, high = paired_shares(*table(alike, alone, other, 0))
        covered += probability * (low <= first - second <= high)
    assert 0.935 < covered < 0.996  # wider than need be where few images tell the two apart


@pytest.mark.parametrize(("first", "second"), [(0.6, 0.5), (0.95, 0.9), (0.1, 0.4)])
def test_independent_intervals_hold_the_truth(first, second):
    """The exact probability over all pairs of counts, by two binomials of 40."""
    count, covered = 40, 0.0
    pmf = [[math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)] for p in (first, second)]
    ends = [(k / count, *wilson_interval(k, count)) for k in range(count + 1)]
    for a, b in itertools.product(range(count + 1), repeat=2):
        low, high = independent_interval(ends[a], ends[b])
        covered += pmf[0][a] * pmf[1][b] * (low <= first - second <= high)
    assert 0.935 < covered < 0.985

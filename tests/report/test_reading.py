"""How numbers are written: never rounded to none or all where they are neither."""

from tfrobust.report import formats
from tfrobust.report.comparison import views as compare_views
from tfrobust.report.difference import Difference
from tfrobust.structs import Measurement


def test_none_and_all_are_what_they_are():
    for value, shown in (
        (0.631, "63.1"),
        (0.0, "0.0"),
        (1.0, "100.0"),
        (0.9994, "99.9"),
        (0.9996, "99.96"),
        (0.0004, "0.04"),
        (1 / 30_000, "0.003"),
        (1 - 1e-6, "99.9999"),
        (1e-6, "0.0001"),
        (-0.0003, "-0.03"),
        (1.0004, "100.04"),  # of the baseline's error
        (1.25, "125.0"),
        # The rounding of a float, where an interval ends at all or none.
        (1 - 1e-16, "100.0"),
        (1e-17, "0.0"),
    ):
        assert formats.per_cent(value) == shown and formats.quantity(value, "fraction of clean") == f"{shown} %"
    assert formats.per_cent(None) == "-"


def test_both_ends_have_the_same_digits():
    for low, high, shown in (
        (0.579, 0.68, "57.9 to 68.0"),
        (0.9993, 0.9999, "99.93 to 99.99"),
        (0.0, 0.0004, "0.00 to 0.04"),
        (0.99, 1.0, "99.0 to 100.0"),
    ):
        assert formats.interval(Measurement("accuracy.clean", low, "fraction", 10_000, low, high)) == shown


def test_a_difference_that_counts_is_not_shown_as_none():
    for ends, unit, shown in (
        ((0.0004, 0.0001, 0.0007), "fraction", "+0.04 [+0.01 to +0.07] p*"),
        ((-0.0004, -0.0007, -0.0001), "fraction", "-0.04 [-0.07 to -0.01] p*"),
        ((0.031, 0.012, 0.05), "fraction", "+3.1 [+1.2 to +5.0] p*"),
        ((0.0, -0.0003, 0.0003), "fraction", "+0.00 [-0.03 to +0.03] p"),
        ((0.0004, 0.0001, 0.0007), "ratio", "+0.0004 [+0.0001 to +0.0007] p*"),
    ):
        text = compare_views._signed(Difference(*ends, "paired"), Measurement("a.b", 0.5, unit))
        assert text == shown
    alone = Difference(0.0004, None, None, "")
    assert compare_views._signed(alone, Measurement("a.b", 0.5, "fraction")) == "+0.04"

"""How numbers are written: never rounded to none or all where they are neither."""

import stored

from tfrobust.report import difference, formats
from tfrobust.report.comparison import views as compare_views
from tfrobust.structs import Measurement


def test_none_and_all_are_what_they_are():
    for value, shown in stored.table(globals(), "none_and_all_are_what_they_are"):
        assert formats.per_cent(value) == shown and formats.quantity(value, "fraction of clean") == f"{shown} %"
    assert formats.per_cent(None) == "-"


def test_both_ends_have_the_same_digits():
    for low, high, shown in stored.table(globals(), "both_ends_have_the_same_digits"):
        assert formats.interval(Measurement("accuracy.clean", low, "fraction", 10_000, low, high)) == shown


def test_a_difference_that_counts_is_not_shown_as_none():
    for ends, unit, shown in stored.table(globals(), "a_difference_that_counts_is_not_shown_as_none"):
        text = compare_views._signed(difference.Difference(*ends, "paired"), Measurement("a.b", 0.5, unit))
        assert text == shown
    alone = difference.Difference(0.0004, None, None, "")
    assert compare_views._signed(alone, Measurement("a.b", 0.5, "fraction")) == "+0.04"

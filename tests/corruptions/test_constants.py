"""Every constant of the corruptions against the published tables; no single number may change unseen."""

import pytest

from oracles import corruption_constants as published
from tfrobust import corruptions
from tfrobust.corruptions import severities

ALL = (*corruptions.NAMES, *corruptions.EXTRA_NAMES)
LIBRARY = {32: severities._SMALL, 224: severities._LARGE}


def differing(side: int) -> list:
    """Return (name, severity) of all constants that differ from the published ones for square images."""
    return [
        (name, severity)
        for name in ALL
        for severity in corruptions.SEVERITIES
        if severities.constants(name, severity, side, side) != pytest.approx(published.at(name, severity, side))
    ]


def test_the_published_tables_hold_five_severities_of_all_19():
    for table in (published.CIFAR, published.IMAGENET):
        assert set(table) == set(ALL) and len(ALL) == 19
        assert all(len(values) == 5 for values in table.values())


@pytest.mark.parametrize("side", [32, 224])
def test_the_constants_are_the_published_ones(side):
    assert differing(side) == []


@pytest.mark.parametrize("side", [8, 31, 33, 64, 84, 85, 96, 448])
def test_other_sizes_follow_the_rule(side):
    assert differing(side) == []


def test_the_shorter_side_decides():
    for name in ALL:
        assert severities.constants(name, 3, 64, 300) == severities.constants(name, 3, 300, 64)
        assert severities.constants(name, 3, 64, 300) == severities.constants(name, 3, 64, 64)


@pytest.mark.parametrize("side", [32, 224])
def test_a_change_of_any_single_number_is_seen(side, monkeypatch):
    table, seen = LIBRARY[side], 0
    for name, rows in table.items():
        for severity, row in enumerate(rows, 1):
            numbers = row if isinstance(row, tuple) else (row,)
            for place, number in enumerate(numbers):
                changed = list(numbers)
                changed[place] = number + (1 if isinstance(number, int) else 0.01)
                value = tuple(changed) if isinstance(row, tuple) else changed[0]
                with monkeypatch.context() as patch:
                    patch.setitem(table, name, (*rows[: severity - 1], value, *rows[severity:]))
                    found = severities.constants(name, severity, side, side)
                assert found != pytest.approx(published.at(name, severity, side)), (name, severity, place)
                seen += 1
    assert seen == 205

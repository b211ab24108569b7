"""Check the facts that make two numbers with the same name differ, beyond their other settings."""

import stored
from report.synthetic import fraction

from tfrobust.report import protocol


def test_facts_that_must_agree():
    """None: an older report, which does not say it."""
    for identity, name, values in stored.table(globals(), "facts_that_must_agree"):
        first, second, older = (fraction(identity, 0.5, **({name: value} if value else {})) for value in values)
        assert protocol.differences(first, second) == protocol.differences(first, older) == [name]
        assert protocol.differences(first, first) == protocol.differences(older, older) == []

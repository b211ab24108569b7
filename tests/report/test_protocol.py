"""Check the facts that make two numbers with the same name differ, beyond their other settings."""

import stored
from report.synthetic import fraction, make_report

from tfrobust.report import protocol


def test_facts_that_must_agree():
    """None: an older report, which does not say it."""
    for identity, name, values in stored.table(globals(), "facts_that_must_agree"):
        first, second, older = (fraction(identity, 0.5, **({name: value} if value else {})) for value in values)
        assert protocol.differences(first, second) == protocol.differences(first, older) == [name]
        assert protocol.differences(first, first) == protocol.differences(older, older) == []


def test_all_videos_were_not_drawn_though_they_are_fewer_than_the_clips():
    clean = fraction("video.accuracy", 0.9, 36)
    for count, seed in ((36, None), (20, 7)):
        attacked = fraction("video.attack.pgd_linf_0.1.accuracy", 0.5, count, seed=7)
        assert protocol.drawn_by(attacked.id, make_report(measurements=[clean, attacked])) == seed

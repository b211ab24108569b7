"""The section on words: each coloured by its share of the largest of its line, with its number; escaped; once."""

import dataclasses
import html as markup
import re

import pytest
from report.synthetic import extended, make_report, written

from tfrobust.report.sections.tokens import Tokens
from tfrobust.structs import Measurement, Series

SENTENCES = (
    (("a", 0.2, 0.0), ("<b>superb</b>", 4.0, 0.5), ("film", 1.0, None)),
    (("dull", 0.0, 0.3), ("story", 0.0, 0.0)),
)


def series():
    rows = [
        (number, label, *row)
        for number, (label, sentence) in enumerate(zip((1, 0), SENTENCES, strict=True))
        for row in sentence
    ]
    names = ("sentence", "label", "token", "sensitivity", "strength")
    return Series("sensitivity.tokens", "Tokens", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def report(*shown, **changes):
    numbers = [
        Measurement("sensitivity.tokens.correlation", 0.761, "ratio", 640, 0.75, 0.772),
        Measurement("sensitivity.tokens.pooled_correlation", 0.66, "ratio", 900, 0.64, 0.68),
    ]
    data = {**make_report().data, "class_names": ["negative", "positive"]}
    return extended(numbers, shown, data=data, **changes)


def words(body):
    """Per line of a sentence: the word, its title and the per cent of its colour."""
    pattern = r'style="background:color-mix\(in srgb,var\(--series-2\) (\d+)%,transparent\)" title="([^"]*)">([^<]*)<'
    lines = re.findall(r'<p class="tokens">(.*?)</p>', body)
    return [
        [(int(depth), markup.unescape(t), markup.unescape(w)) for depth, t, w in re.findall(pattern, line)]
        for line in lines
    ]


def test_words_are_coloured_by_their_share_of_the_largest_of_the_line():
    _, body = written(Tokens, report(series()))
    sensitivity, strength, dull, dull_strength = words(body)
    assert [(depth, word) for depth, _, word in sensitivity] == [(3, "a"), (60, "<b>superb</b>"), (15, "film")]
    assert [depth for depth, *_ in strength] == [0, 60, 0]
    assert [depth for depth, *_ in dull] == [0, 0] and [depth for depth, *_ in dull_strength] == [60, 0]
    assert sensitivity[0][1] == "a: the model's sensitivity 0.2"
    assert [title for _, title, _ in strength][2] == "film: true strength unknown"
    assert body.index("Class: positive") < body.index("Class: negative")
    assert "<b>superb" not in body and "unknown</td>" in body  # the table, too


def test_numbers_alone_are_a_section_too():
    lead, body = written(Tokens, report())
    assert 'class="tokens' not in body and "0.66" in re.sub("<[^>]*>", "", body) and lead


@pytest.mark.parametrize("part", ["tokens", "strength"])
def test_a_foreign_series_is_left_out(part):
    shown = series()
    columns = {name: values for name, values in shown.columns.items() if name != part.removesuffix("s")}
    assert 'class="tokens"' not in written(Tokens, report(dataclasses.replace(shown, columns=columns)))[1]

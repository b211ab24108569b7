"""Each measurement is shown, with its number, in the console, in Markdown and in HTML."""

import dataclasses

import pytest
import stored
from report.synthetic import make_report

from tfrobust.report import reading
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views as compare_views
from tfrobust.report.renderers import console, html, markdown
from tfrobust.structs import Measurement

# One of each kind that an evaluator gives, and a kind that no one knows yet.
IDS = stored.text(globals(), "ids").split()
NUMBERS = [Measurement(identity, 0.1234 + 0.0201 * number, n=9) for number, identity in enumerate(IDS)]


def only(measurements):
    return make_report(measurements=list(measurements), series=())


@pytest.mark.parametrize("rendering", [console.console_table, markdown.render, html.render])
def test_every_number_is_seen(rendering):
    text = rendering(only(NUMBERS))
    unseen = [m.id for m in NUMBERS if f"{100 * m.value:.1f}" not in text]
    assert not unseen


def test_headlines_lead_their_kind_and_are_what_is_compared():
    report = only(reversed(NUMBERS))
    ordered = [m.id for m in reading.in_order(report)]
    assert sorted(ordered) == sorted(IDS) and ordered[0] == "accuracy.clean" and ordered[-1] == "novel.kind"
    kinds = [identity.split(".")[0] for identity in ordered]
    assert len(set(kinds)) == 1 + sum(first != second for first, second in zip(kinds, kinds[1:], strict=False))
    headlines = [m.id for m in reading.main_measurements(report)]
    assert "noise.uniform.accuracy" in headlines and "attack.autoattack_l2_0.5.apgd_ce.accuracy" not in headlines
    assert not [identity for identity in headlines if identity.endswith(".drop")]
    for kind in dict.fromkeys(kinds):
        is_headline = [identity in headlines for identity in ordered if identity.startswith(f"{kind}.")]
        assert is_headline == sorted(is_headline, reverse=True)
    assert "Uniform noise (UN), accuracy" in compare_views.table(compare.arrange([("a", report)]))


def test_a_drop_without_its_accuracy_has_a_row_of_its_own():
    drop = Measurement("attack.pgd_linf_0.2.drop", 0.4321, n=9)
    assert "43.2 %" in console.console_table(only([drop]))
    both = console.console_table(only([drop, dataclasses.replace(drop, id="attack.pgd_linf_0.2.accuracy", value=0.25)]))
    (line,) = [line for line in both.splitlines() if line.startswith("PGD")]
    assert line.split()[-5:] == ["25.0", "%", "43.2", "%", "9"]

"""What all sections of an evaluation beyond the attacks have in common: whole, once, self-contained, absent without."""

import re

import pytest
from report import (
    test_corruption_section,
    test_noise_section,
    test_sensitivity_section,
    test_stability_section,
    test_tokens_section,
)
from report.synthetic import make_report

from tfrobust.report import Report
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views as compare_views
from tfrobust.report.renderers.console import console_table, html, markdown
from tfrobust.report.sections import (
    corruptions as section_corruption,
)
from tfrobust.report.sections import (
    noise as section_noise,
)
from tfrobust.report.sections import (
    sensitivity as section_sensitivity,
)
from tfrobust.report.sections import (
    stability as section_stability,
)
from tfrobust.report.sections import (
    tokens as section_tokens,
)

# Anchor: the section, a report that has it, and a number that stands in it alone: identity, name, value.
CASES = {
    "corruptions": (
        section_corruption.corruptions,
        test_corruption_section.report(),
        ("corruption.mean.accuracy", "Corruptions, mean accuracy", "61.6"),
    ),
    "noise": (
        section_noise.noise,
        test_noise_section.report(test_noise_section.examples()[0], test_noise_section.replacement()),
        ("noise.uniform.accuracy", "Uniform noise (UN), accuracy", "70.0"),
    ),
    "sensitivity": (
        section_sensitivity.sensitivity,
        test_sensitivity_section.report(test_sensitivity_section.series()),
        ("sensitivity.agreement", "Utility-sensitivity agreement", "0.43 to 0.47"),
    ),
    "stability": (
        section_stability.stability,
        test_stability_section.report(),
        ("stability.mfr", "Mean flip rate (mFR)", "58.0"),
    ),
    "tokens": (
        section_tokens.tokens,
        test_tokens_section.report(test_tokens_section.series()),
        (
            "sensitivity.tokens.correlation",
            "Token sensitivity and strength, correlation in a sentence",
            "0.75 to 0.772",
        ),
    ),
}


@pytest.mark.parametrize("anchor", CASES)
def test_a_section_stands_once_in_a_page_that_needs_nothing_else(anchor):
    section, report, (identity, name, value) = CASES[anchor]
    whole, (_, body) = html(report), section(report)
    assert whole.count(body) == 1 and f'id="{anchor}"' in whole
    assert whole.count(f"<code>{identity}</code>") == 1 and value in whole
    for text in (markdown(report), console_table(report), compare_views.table(compare.arrange([("a", report)]))):
        assert name in text and value.split(" ")[0] in text
    again = Report.from_json(report.to_json())
    assert again == report and html(again) == whole
    outside = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", whole)
    assert not re.search(r"(https?:)?//[a-z]", outside) and "<img" not in whole
    identities = re.findall(r'\bid="([^"]+)"', whole)
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("anchor", CASES)
def test_what_was_not_measured_has_no_section(anchor):
    assert CASES[anchor][0](make_report()) is None

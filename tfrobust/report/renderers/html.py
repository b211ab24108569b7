"""The HTML report: headline tiles, then every section that has content."""

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks.html import text
from tfrobust.report.schema import Report
from tfrobust.report.sections import (
    classes as section_classes,
)
from tfrobust.report.sections import (
    corruptions as section_corruption,
)
from tfrobust.report.sections import (
    examples as section_examples,
)
from tfrobust.report.sections import (
    figures as section_plots,
)
from tfrobust.report.sections import (
    noise as section_noise,
)
from tfrobust.report.sections import (
    protocol as section_protocol,
)
from tfrobust.report.sections import (
    results as section_results,
)
from tfrobust.report.sections import (
    sensitivity as section_sensitivity,
)
from tfrobust.report.sections import (
    sentences,
)
from tfrobust.report.sections import (
    stability as section_stability,
)
from tfrobust.report.sections import (
    tokens as section_tokens,
)

# Anchor -> heading and builder, in page order. The Markdown card (`card`) has the same sections.
SECTIONS = {
    "threat": ("What this means", section_results.threat),
    "curve": ("Accuracy against epsilon", section_results.accuracy_curve),
    "attacks": ("Attacks", section_results.attacks),
    "examples": ("Examples", section_examples.examples),
    "classes": ("Class by class", section_classes.section),
    "corruptions": ("Corruptions", section_corruption.corruptions),
    "stability": ("Stability", section_stability.stability),
    "noise": ("Random pixels", section_noise.noise),
    "calibration": ("Calibration", section_plots.calibration),
    "divergence": ("Divergence", section_plots.divergence),
    "features": ("Feature map", section_plots.features),
    "sensitivity": ("Utility and sensitivity", section_sensitivity.sensitivity),
    "tokens": ("Words that count", section_tokens.tokens),
    "further": ("Further measurements", section_results.further),
    "doctor": ("Doctor", section_results.doctor),
    "missing": ("What was not measured", section_results.missing),
    "protocol": ("Protocol", section_protocol.protocol),
    "pairs": ("Selected pairs", section_plots.pairs),
    "history": ("Training", section_plots.history),
    "identity": ("Model and data", section_protocol.identity),
    "cost": ("Cost", section_protocol.cost),
    "configuration": ("Configuration", section_protocol.configuration),
}


def build(report: Report) -> list[tuple[str, str, str]]:
    """Build all sections that have content, in order: (anchor, short heading, HTML)."""
    found = []
    for anchor, (heading, builder) in SECTIONS.items():
        content = builder(report)
        if content:
            lead, body = content
            found.append((anchor, heading, page.section(anchor, heading, lead, body)))
    return found


def glance(report: Report, built: list[tuple[str, str, str]]) -> str:
    """Render one sentence and a link per section built."""
    lines = []
    for anchor, heading, _ in built:
        said = sentences.sentence(report, anchor)
        lines.append(f'<li><a href="#{anchor}">{text(heading)}</a>{f"<span>{text(said)}</span>" if said else ""}</li>')
    return f'<nav aria-label="Sections"><ul class="glance">{"".join(lines)}</ul></nav>'


def tiles(report: Report) -> str:
    """Render the headline numbers: clean, the strongest attack, corruptions, calibration, the doctor's verdict."""
    cells = []
    worst = reading.strongest(reading.attack_rows(report.measurements))
    clean = report.get("accuracy.clean")
    if clean is not None:
        cells.append(_tile("Clean accuracy", clean, ""))
    if worst is not None:
        cells.append(_tile("Robust accuracy", worst.accuracy, f"{worst.attack}, {worst.budget}"))
    for identity in ("corruption.mean.accuracy", "calibration.ece"):
        measurement = report.get(identity)
        if measurement is not None:
            cells.append(_tile(reading.label(measurement), measurement, ""))
    if report.doctor:
        counts = reading.doctor_counts(report)
        verdict = next(name for name in ("fail", "warn", "pass") if counts[name])
        number = f"{counts['pass']} of {len(report.doctor)}"
        badge = f'<em class="badge {verdict}">{_WORST[verdict]}</em>'
        cells.append(f'<div class="tile"><i>Honesty checks passed</i><b>{number}</b>{badge}</div>')
    return f'<div class="tiles">{"".join(cells)}</div>' if cells else ""


_WORST = {"fail": "at least one failed", "warn": "at least one warning", "pass": "nothing found"}


def _tile(heading: str, measurement, note: str) -> str:
    margin = reading.interval(measurement)
    unit = " %" if measurement.unit.startswith("fraction") else ""
    margin = f"95 % interval {margin}{unit}, {intervals.kind(measurement)}" if margin else "no interval"
    track = ""
    if measurement.unit.startswith("fraction"):
        track = page.bar(measurement.value, measurement.low, measurement.high)
    lines = "".join(f"<i>{text(line)}</i>" for line in (note, margin) if line)
    number = text(reading.number(measurement))
    return f'<div class="tile"><i>{text(heading)}</i><b>{number}</b>{track}{lines}</div>'

"""Sections of the HTML report on the protocol. Each is (lead sentence, HTML), or None without data."""

from tfrobust.report import reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks.html import text
from tfrobust.report.schema import Report


def protocol(report: Report) -> tuple[str, str] | None:
    """Render the settings of training and attacks."""
    body = ""
    if report.training:
        small, large = reading.by_size(report.training)
        body += f"<h3>Training</h3>{page.pairs_table(_named(reading.flat(small)))}"
        for name, value in large.items():
            body += page.details(f"Training {reading.nice(name)}", page.pairs_table(reading.flat(value)))
    settings = attack_settings(report)
    if settings:
        cells = [list(map(text, row)) for row in settings[1:]]
        body += f"<h3>Attacks</h3>{page.table(settings[0], cells, stack=True)}"
    return ("What was done, so that it can be done again.", body) if body else None


def attack_settings(report: Report) -> list[list[str]]:
    """Return header and rows: a setting, and its value for each attack; [] without attacks."""
    rows = reading.attack_rows(report.measurements)
    settings = {f"{row.attack}, {row.budget}": dict(reading.flat(row.accuracy.settings)) for row in rows}
    names = list(dict.fromkeys(name for values in settings.values() for name in values))
    cells = [[reading.nice(name), *(values.get(name, "-") for values in settings.values())] for name in names]
    return [["Setting", *settings], *cells] if settings else []


def identity(report: Report) -> tuple[str, str] | None:
    """Render names, sizes and hashes of model and data, and the environment."""
    model = {f"model {name}": report.model[name] for name in sorted(report.model, key=_identity_order)}
    data = {f"data {name}": report.data[name] for name in sorted(report.data, key=_identity_order)}
    data.pop("data class_names", None)
    data, large = reading.by_size(data)
    classes = report.data.get("class_names")
    if classes:
        data["classes"] = ", ".join(classes[:40]) + (f", ... ({len(classes)})" if len(classes) > 40 else "")
    rows = reading.flat({**model, **data, "run sha256": report.run_sha256})
    body = page.pairs_table(_named(rows))
    for name, value in large.items():
        body += page.details(name.capitalize(), page.pairs_table(reading.flat(value)))
    if report.environment:
        body += page.details("Environment", page.pairs_table(reading.flat(report.environment)), on_paper=True)
    return "Hashes tie these numbers to these weights and these images.", body


def _identity_order(name: str) -> tuple[int, str]:
    first = ("name", "version", "parameters", "weights_sha256", "train_size", "validation_size", "test_size")
    return (first.index(name) if name in first else len(first), name)


def cost(report: Report) -> tuple[str, str] | None:
    """Render the costs."""
    rows = reading.cost_rows(report)
    return ("", page.pairs_table(rows)) if rows else None


def configuration(report: Report) -> tuple[str, str] | None:
    """Render the operative configuration, collapsed."""
    if not report.configuration.strip():
        return None
    return "", page.details("Operative gin configuration", f"<pre>{text(report.configuration)}</pre>", on_paper=True)


def _named(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(reading.nice(name), value) for name, value in rows]

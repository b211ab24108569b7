"""Sections of the HTML report with plots. Each is (lead sentence, HTML), or None without data."""

from collections.abc import Callable

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.structs import Measurement, Series


def calibration(report: Report) -> tuple[str, str] | None:
    """Render reliability diagrams and the calibration measurements."""
    found = section_results.reliability_series(report)
    items = [_reliability(series) for series in found]
    if not items:
        return None
    rates = _response_rates(report)
    if rates is not None:
        items.append(page.figure("calibration-rates", "Answering only where confident (AURRA)", rates))
    body = page.figures(items)
    numbers = [m for m in report.measurements if m.id.startswith("calibration.")]
    if numbers:
        body += section_results.measurement_table(numbers)
    return calibration_lead(report, found), body


def calibration_lead(report: Report, found: list[Series]) -> str:
    """Return the lead: how to read the diagrams, and which of their numbers have an interval."""
    kinds = intervals.kinds(series for series in found if "low" in series.columns)
    lines = f" Lines are 95 % intervals ({kinds})." if kinds else ""
    attacked = {m.id.split(".", 1)[1].rpartition(".")[0]: m.settings for m in report.measurements if _last_points(m)}
    efforts = [f"{section_results.budget_caption(key)}: {reading.effort(own)}" for key, own in attacked.items()]
    if efforts:
        lines += f" Under attack these are the answers to the last point of each image judged ({'; '.join(efforts)}),"
        lines += " of which more can be right than of the points that accuracies under attack count."
    return (
        "Does a confidence of 80 % mean right in 80 % of cases? The closer to the diagonal, the better. Calibration"
        f" errors have no interval: in small samples they come out too large.{lines}"
    )


def _last_points(m: Measurement) -> bool:
    return m.id.startswith("calibration.") and m.settings.get("answers") == "to the last points of all images"


def _reliability(series: Series) -> str:
    columns = series.columns
    ends = columns.get("low"), columns.get("high")
    plot = plots.reliability(series.id, columns["confidence"], columns["accuracy"], columns["count"], *ends)
    numbers = {name: columns[name] for name in ("confidence", "accuracy", "low", "high", "count") if name in columns}
    return page.figure(series.id, reliability_caption(series), plot, numbers)


def reliability_caption(series: Series) -> str:
    """Return the caption, which names the images: "Reliability under pgd, Linf 0.2"."""
    suffix = series.id.removeprefix("calibration.reliability").strip(".")
    caption = f"Reliability under {section_results.budget_caption(suffix)}" if suffix else series.title
    return caption or "Reliability"


def _response_rates(report: Report) -> plots.Plot | None:
    """Plot the error rate among the most confident predictions, clean and under each attack."""
    lines = []
    for series in report.series:
        prefix = "calibration.response_rate"
        if series.id.startswith(prefix) and {"response_rate", "accuracy"} <= series.columns.keys():
            wrong = [None if value is None else 100 * (1 - value) for value in series.columns["accuracy"]]
            suffix = series.id.removeprefix(prefix).strip(".")
            name = f"under {section_results.budget_caption(suffix)}" if suffix else "clean"
            lines.append(Line(name, series.columns["response_rate"], wrong))
    if not lines:
        return None
    axes = {"x_label": "share answered, the surest first", "y_label": "wrong, per cent"}
    return plots.curves("calibration-rates", lines, **axes)


def divergence(report: Report) -> tuple[str, str] | None:
    """Render R-DIV and absolute divergences, against epsilon and during training."""
    items = []
    for identity, key, x_label, when in (
        ("geometry.divergence_curve", "epsilon", "epsilon (pixels in [0, 1])", "against epsilon"),
        ("training.history", "epoch", "epoch", "during training"),
    ):
        series = report.get_series(identity)
        columns = {} if series is None else series.columns
        if key not in columns:
            continue
        names = reading.history_groups(columns)["divergence"]
        relative = [name for name in names if "r_div" in name]
        absolute = [name for name in names if "r_div" not in name]
        if relative:
            items.append(_divergence_figure(identity, columns, key, relative, x_label, when))
        if absolute:
            lines = [Line(reading.nice(name), columns[key], columns[name]) for name in absolute]
            plot = plots.curves(f"{identity}-absolute", lines, x_label=x_label, y_label="cosine distance", height=3.9)
            items.append(page.figure(f"{identity}-absolute", f"Absolute divergences {when}", plot))
    if not items:
        return None
    lead = (
        "How far features of one class lie from each other, relative to those of other classes: the lower"
        " R-DIV, the more robust a model tends to be."
    )
    return lead, page.figures(items)


def _divergence_figure(identity, columns, key, relative, x_label, when) -> str:
    accuracy = reading.history_groups(columns)["accuracy"]
    panels = [
        ("accuracy", [Line(reading.nice(name), columns[key], columns[name]) for name in accuracy], True),
        (
            "R-DIV",
            [Line(reading.nice(name), columns[key], columns[name]) for name in relative],
            False,
        ),
    ]
    plot = plots.stacked_curves(f"{identity}-relative", [p for p in panels if p[1]], x_label=x_label)
    return page.figure(f"{identity}-relative", f"R-DIV and accuracy {when}", plot)


def features(report: Report) -> tuple[str, str] | None:
    """Render the feature map, colored by class and by entropy."""
    series = report.get_series("geometry.feature_map")
    known = section_results.has_numbers(series, "x", "y", "adversarial") and "label" in series.columns
    if not known or None in (*series.columns["x"], *series.columns["y"]):
        return None
    columns = series.columns
    names = report.data.get("class_names")
    plot = plots.feature_map("features-classes", columns, names)
    attacked = any(columns["adversarial"])
    title = "Natural and adversarial images" if attacked else "Images by class"
    items = [page.figure("features-classes", title, plot)]
    if "entropy" in columns:
        plot = plots.entropy_map("features-entropy", columns)
        items.append(page.figure("features-entropy", "Entropy of the prediction (nats)", plot))
    lead = "Penultimate features in two dimensions (t-SNE). Distances are only suggestive"
    lead += "; an adversarial image among another class hints at an error." if attacked else "."
    return lead, page.figures(items)


# Series -> (prefix of its figures' ids, suffix of their captions), for runs with two stages.
HISTORIES = {"pretraining.history": ("pretraining-", ", first stage"), "training.history": ("", "")}


def pairs(report: Report) -> tuple[str, str] | None:
    """Render positives and negatives per anchor, and the false negatives found, by epoch."""
    items = _of_each_history(report, _pairs)
    return (
        ("Which images attract and repel each anchor, by the selection rule.", page.figures(items)) if items else None
    )


def history(report: Report) -> tuple[str, str] | None:
    """Render loss terms and accuracies by epoch."""
    items = _of_each_history(report, _progress)
    lead = "What was logged after each epoch, on training and validation images."
    return (lead, page.figures(items)) if items else None


def _of_each_history(report: Report, figures: Callable) -> list:
    items = []
    for identity, (prefix, stage) in HISTORIES.items():
        series = report.get_series(identity)
        if series is not None and "epoch" in series.columns:
            items += figures(series.columns, prefix, stage)
    return items


def _pairs(columns: dict, prefix: str, stage: str) -> list:
    groups, items = reading.history_groups(columns), []
    for kind in ("positives", "negatives"):
        chosen = sorted((name for name in groups["pairs"] if kind in name), key=lambda name: "adversarial" in name)
        if not chosen:
            continue
        lines = [Line(reading.nice(name).replace(f"{kind} ", ""), columns["epoch"], columns[name]) for name in chosen]
        plot = plots.curves(f"{prefix}pairs-{kind}", lines, x_label="epoch", y_label=f"{kind} per anchor")
        numbers = {name: columns[name] for name in ("epoch", *chosen)}
        items.append(page.figure(f"{prefix}pairs-{kind}", f"{kind.capitalize()} per anchor{stage}", plot, numbers))
    if groups["shares"]:
        lines = [Line(reading.nice(name), columns["epoch"], columns[name]) for name in groups["shares"]]
        plot = plots.curves(f"{prefix}pairs-shares", lines, x_label="epoch", y_label="share", percent=True)
        numbers = {name: columns[name] for name in ("epoch", *groups["shares"])}
        title = f"False negatives found, true ones removed{stage}"
        items.append(page.figure(f"{prefix}pairs-shares", title, plot, numbers))
    return items


def _progress(columns: dict, prefix: str, stage: str) -> list:
    groups, items = reading.history_groups(columns), []
    if groups["losses"]:
        lines = [Line(reading.nice(name), columns["epoch"], columns[name]) for name in groups["losses"]]
        values = [value for line in lines for value in line.y if isinstance(value, (int, float))]
        wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
        name = f"{prefix}history-losses"
        plot = plots.curves(name, lines, x_label="epoch", y_label="mean per example", logarithmic=wide)
        numbers = {name: columns[name] for name in ("epoch", *groups["losses"])}
        items.append(page.figure(name, f"Loss and its terms{stage}", plot, numbers))
    if groups["accuracy"]:
        lines = [Line(reading.nice(name), columns["epoch"], columns[name]) for name in groups["accuracy"]]
        name = f"{prefix}history-accuracy"
        plot = plots.curves(name, lines, x_label="epoch", y_label="accuracy", percent=True)
        numbers = {name: columns[name] for name in ("epoch", *groups["accuracy"])}
        items.append(page.figure(name, f"Accuracy while training{stage}", plot, numbers))
    return items

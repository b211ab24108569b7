"""Sections of the HTML report: the plots. Each is (lead sentence, HTML), or None without data."""

from tfrobust.report import page, plots, reading, section_results
from tfrobust.report.plots import Line
from tfrobust.report.schema import Report


def calibration(report: Report) -> tuple[str, str] | None:
    """Reliability diagrams beside the calibration measurements."""
    items = []
    for series in section_results.reliability_series(report):
        columns = series.columns
        plot = plots.reliability(series.id, columns["confidence"], columns["accuracy"], columns["count"])
        numbers = {name: columns[name] for name in ("confidence", "accuracy", "count")}
        items.append(page.figure(series.id, series.title or "Reliability", plot, numbers))
    if not items:
        return None
    rates = report.get_series("calibration.response_rate")
    if rates is not None and {"response_rate", "accuracy"} <= rates.columns.keys():
        wrong = [None if value is None else 100 * (1 - value) for value in rates.columns["accuracy"]]
        line = Line("wrong answers among the most confident", rates.columns["response_rate"], wrong)
        plot = plots.curves(rates.id, [line], x_label="share of images answered", y_label="wrong, per cent")
        items.append(page.figure(rates.id, "Answering only where confident (AURRA)", plot))
    body = page.figures(items)
    numbers = [m for m in report.measurements if m.id.startswith("calibration.")]
    if numbers:
        body += section_results.measurement_table(numbers)
    lead = "Does a confidence of 80 % mean right in 80 % of cases? The closer to the diagonal, the better."
    return lead, body


def divergence(report: Report) -> tuple[str, str] | None:
    """R-DIV and absolute divergences against epsilon and during training."""
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
    """The feature map by class and by entropy."""
    series = report.get_series("geometry.feature_map")
    if series is None or not {"x", "y", "label", "adversarial"} <= series.columns.keys():
        return None
    columns = series.columns
    names = report.data.get("class_names")
    plot = plots.feature_map("features-classes", columns, names)
    items = [page.figure("features-classes", "Natural and adversarial images", plot)]
    if "entropy" in columns:
        plot = plots.entropy_map("features-entropy", columns)
        items.append(page.figure("features-entropy", "Entropy of the prediction (nats)", plot))
    lead = (
        "Penultimate features in two dimensions (t-SNE). Distances are only suggestive; an adversarial image"
        " among another class is a found error."
    )
    return lead, page.figures(items)


def sensitivity(report: Report) -> tuple[str, str] | None:
    """A few images beside their utility and sensitivity, and the numbers over all images."""
    numbers = [m for m in report.measurements if m.id.startswith("sensitivity.")]
    body = ""
    series = report.get_series("sensitivity.maps")
    if series is not None and {"picture", "label", "row", "column", "utility"} <= series.columns.keys():
        names = [name for name in ("utility", "sensitivity") if name in series.columns]
        rows = [_pictures(report, series.columns, names, number) for number in sorted(set(series.columns["picture"]))]
        plot = plots.pixel_maps("sensitivity-maps", ["image", *names], rows)
        body += page.figure("sensitivity-maps", "Which pixels count (bright: most, in each picture)", plot)
    if numbers:
        body += section_results.measurement_table(numbers)
    if not body:
        return None
    lead = (
        "Utility: how much a pixel changes the loss. Sensitivity: how much it changes the features. Concentration is 0"
        " where all pixels count alike and near 1 where few hold everything; agreement is 1 where the features react"
        " most to the pixels that decide the loss."
    )
    return lead, body


def _pictures(report: Report, columns: dict, names: list[str], number) -> tuple[str, list[list]]:
    """One row of the figure: the class, and the image and its maps as nested lists [h][w]."""
    places = [place for place, picture in enumerate(columns["picture"]) if picture == number]
    channels = [name for name in sorted(columns) if name.startswith("channel_")]
    shown = channels[:3] if len(channels) >= 3 else channels[:1]
    lines: dict = {}
    for place in places:
        lines.setdefault(columns["row"][place], []).append(place)
    colours = [[[columns[name][place] for name in shown] for place in line] for line in lines.values()]
    image = colours if len(shown) == 3 else [[colour[0] for colour in line] for line in colours]
    maps = [[[columns[name][place] or 0.0 for place in line] for line in lines.values()] for name in names]
    label, classes = int(columns["label"][places[0]]), report.data.get("class_names") or []
    return f"class {classes[label] if 0 <= label < len(classes) else label}"[:20], [image, *maps]


def pairs(report: Report) -> tuple[str, str] | None:
    """How many positives and negatives each anchor had, epoch by epoch."""
    series = report.get_series("training.history")
    columns = {} if series is None else series.columns
    names = reading.history_groups(columns)["pairs"]
    if not names or "epoch" not in columns:
        return None
    items = []
    for kind in ("positives", "negatives"):
        chosen = sorted((name for name in names if kind in name), key=lambda name: "adversarial" in name)
        if not chosen:
            continue
        lines = [Line(reading.nice(name).replace(f"{kind} ", ""), columns["epoch"], columns[name]) for name in chosen]
        plot = plots.curves(f"pairs-{kind}", lines, x_label="epoch", y_label=f"{kind} per anchor")
        numbers = {name: columns[name] for name in ("epoch", *chosen)}
        items.append(page.figure(f"pairs-{kind}", f"{kind.capitalize()} per anchor", plot, numbers))
    return "How many clean and adversarial images the selection rule pairs with each anchor.", page.figures(items)


def history(report: Report) -> tuple[str, str] | None:
    """Loss terms and accuracies, epoch by epoch."""
    series = report.get_series("training.history")
    columns = {} if series is None else series.columns
    if "epoch" not in columns:
        return None
    groups, items = reading.history_groups(columns), []
    if groups["losses"]:
        lines = [Line(reading.nice(name), columns["epoch"], columns[name]) for name in groups["losses"]]
        values = [value for line in lines for value in line.y if isinstance(value, (int, float))]
        wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
        plot = plots.curves("history-losses", lines, x_label="epoch", y_label="mean per example", logarithmic=wide)
        numbers = {name: columns[name] for name in ("epoch", *groups["losses"])}
        items.append(page.figure("history-losses", "Loss and its terms", plot, numbers))
    if groups["accuracy"]:
        lines = [Line(reading.nice(name), columns["epoch"], columns[name]) for name in groups["accuracy"]]
        plot = plots.curves("history-accuracy", lines, x_label="epoch", y_label="accuracy", percent=True)
        numbers = {name: columns[name] for name in ("epoch", *groups["accuracy"])}
        items.append(page.figure("history-accuracy", "Accuracy while training", plot, numbers))
    if not items:
        return None
    return "What was logged after each epoch, on training and validation images.", page.figures(items)

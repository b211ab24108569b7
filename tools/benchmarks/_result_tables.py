"""The results of tools/benchmarks/digits_table.py as Markdown."""

import statistics

import _recipes  # noqa: F401  (finds tfrobust)

from tfrobust.evaluation.engine.statistics import paired_difference, wilson_interval
from tfrobust.report.comparison import groups

CLEAN = "clean"


def tables(results: list[dict], reference: str) -> str:
    """Format the results as Markdown: accuracies and the seconds of a training, then differences from the reference.

    Args:
        results: contents of the runs' files, in the order of the rows.
        reference: the method that the others are compared with; without it there is one table.

    Returns:
        Text that ends with a note on what the intervals cover.
    """
    methods = list(dict.fromkeys(result["method"] for result in results))
    columns = list(dict.fromkeys(name for result in results for name in result["outcomes"]))
    by_run = {(result["method"], result["fold"]): result for result in results}
    fits = {method: [fold for name, fold in by_run if name == method] for method in methods}
    count = {method: sum(len(by_run[method, fold]["outcomes"][CLEAN]) for fold in fits[method]) for method in methods}
    lines = row("accuracy, %", "images", *columns, "training, s") + row("---", *["---:"] * (len(columns) + 2))
    for method in methods:
        cells = [share(pooled_outcomes(by_run, method, fits[method], name)) for name in columns]
        seconds = statistics.median(by_run[method, fold]["seconds"]["training"] for fold in fits[method])
        lines += row(method, str(count[method]), *cells, f"{seconds:.0f}")
    if reference in methods and len(methods) > 1:
        lines += (
            "\n" + row(f"minus {reference}, points", "images", *columns) + row("---", *["---:"] * (len(columns) + 1))
        )
        for method in methods:
            shared = [fold for fold in fits[method] if comparable(by_run, method, reference, fold)]
            if method != reference and shared:
                cells = [
                    difference(*(pooled_outcomes(by_run, m, shared, name) for m in (method, reference)))
                    for name in columns
                ]
                lines += row(method, str(sum(len(by_run[method, fold]["outcomes"][CLEAN]) for fold in shared)), *cells)
    if any(result.get("values") for result in results):
        lines += "\n" + value_table(by_run, fits, reference)
    return lines + "\n" + note(results)


def value_table(by_run: dict, fits: dict[str, list[int]], reference: str) -> str:
    """Format means over folds of the --values, and of their differences from the reference in the same folds."""
    columns = list(next(iter(by_run.values()))["values"])
    lines = row("100 x mean over folds", "folds", *columns) + row("---", *["---:"] * (len(columns) + 1))
    for other in (None, reference):
        for method in fits:
            shared = [fold for fold in fits[method] if other is None or comparable(by_run, method, other, fold)]
            if method == other or not shared:
                continue
            cells = []
            for name in columns:
                values, base = (
                    {fold: by_run[run_method, fold]["values"][name] for fold in shared if run_method}
                    for run_method in (method, other)
                )
                spread = groups.paired_spread(values, base) if other else groups.spread([*values.values()])
                cells.append(over_folds(spread, signed=bool(other)))
            lines += row(f"{method} - {other}" if other else method, str(len(shared)), *cells)
    return lines


def over_folds(spread: groups.Spread, signed: bool) -> str:
    """Format the mean in hundredths, with Student's interval for at least two values."""
    form = "{:+.1f}" if signed else "{:.1f}"
    if spread.low is None:
        return form.format(100 * spread.mean)
    text = f"{form} [{form}, {form}]".format(100 * spread.mean, 100 * spread.low, 100 * spread.high)
    return f"**{text}**" if signed and (spread.low > 0 or spread.high < 0) else text


def pooled_outcomes(by_run: dict, method: str, folds: list[int], name: str) -> list[int]:
    """Concatenate the outcomes of some folds, 0 or 1 per image."""
    return [int(digit) for fold in folds for digit in by_run[method, fold]["outcomes"].get(name, "")]


def comparable(by_run: dict, method: str, reference: str, fold: int) -> bool:
    """Return True if both were evaluated on the same images of a fold."""
    runs = [by_run.get((name, fold)) for name in (method, reference)]
    return all(runs) and runs[0]["data_fingerprint"] == runs[1]["data_fingerprint"]


def share(outcomes: list[int]) -> str:
    """Format an accuracy in per cent with Wilson's interval."""
    if not outcomes:
        return "-"
    low, high = wilson_interval(sum(outcomes), len(outcomes))
    return f"{100 * sum(outcomes) / len(outcomes):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def difference(first: list[int], second: list[int]) -> str:
    """Format a paired difference in points with its interval; bold if the interval excludes 0."""
    if not first or len(first) != len(second):
        return "-"
    middle, low, high = (100 * value for value in paired_difference(first, second))
    text = f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def row(*cells: str) -> str:
    """Format one line of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def note(results: list[dict]) -> str:
    """Describe the folds, epochs, seeds and intervals behind the numbers."""
    epochs = "/".join(map(str, sorted({result["epochs"] for result in results})))
    folds = sorted({result["fold"] for result in results})
    text = (
        f"Folds {', '.join(map(str, folds))} of {results[0]['folds']}, one training each, {epochs} epochs, seeds "
        f"{', '.join(str(seed) for seed in sorted({result['seed'] for result in results}))}. Intervals: 95 % over "
        "images (Wilson; differences paired by image), with these trainings as they are; bold: 0 is outside, "
        "not corrected for the number of comparisons. Seconds of training: the median over folds."
    )
    if any(result.get("values") for result in results):
        text += " Means over folds: Student's 95 % interval over the trainings."
    states = len({result["source_sha256"] for result in results})
    return text + (f" The results come from {states} states of the code." if states > 1 else "")

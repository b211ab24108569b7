"""The stored results of tools/benchmarks/results_table.py as Markdown: tables, differences and claims."""

import base64
import math
import os
import statistics
import textwrap

import numpy as np
from _results_plan import Claim, Plan, Row, Table

from tfrobust.evaluation.engine.statistics import (
    drop_scores,
    paired_difference,
    share_interval,
    student_interval,
    wilson_interval,
)
from tfrobust.report.difference import independent_interval, paired_shares


def page(plan: Plan, results: list[dict]) -> str:
    """Return the tables of a plan, then its claims, from the results that there are."""
    seeds = results_by_row(plan, results)
    parts = [table_text(table, seeds) for table in plan.tables if any(row.name in seeds for row in table.rows)]
    if plan.claims:
        parts.append(claim_table(plan.claims, seeds))
    return "\n".join(parts)


def results_by_row(plan: Plan, results: list[dict]) -> dict[str, dict[int, dict]]:
    """Return name of a row -> seed -> result, with what later evaluations of its export measured."""
    rows = plan.rows()
    seeds: dict[str, dict[int, dict]] = {}
    later = [result for result in results if rows[result["row"]][1].evaluates]
    for result in results:
        if result not in later:
            seeds.setdefault(result["row"], {})[result["seed"]] = result
    for result in later:
        runs, seed = seeds.get(rows[result["row"]][1].evaluates, {}), result["seed"]
        if seed in runs:
            joined = {part: {**result[part], **runs[seed][part]} for part in ("measurements", "outcomes")}
            runs[seed] = runs[seed] | joined
    return seeds


def table_text(table: Table, seeds: dict[str, dict[int, dict]]) -> str:
    """Return a table's accuracies beside published ones, then the differences from its reference.

    The last column is the processor time of training and evaluation, the median over seeds: machines may be shared.
    """
    headings = list(table.columns)
    lines = [f"### {table.title}\n", _line("accuracy, %", "seeds", *headings, "CPU, s"), _rule(len(headings) + 2)]
    for row in table.rows:
        if row.name in seeds:
            runs = seeds[row.name]
            cells = [accuracy_cell(runs, identity) for identity in table.columns.values()]
            seconds = statistics.median(run["seconds"]["processor_seconds"] for run in runs.values())
            lines.append(_line(row.title, str(len(runs)), *cells, f"{seconds:.0f}"))
            lines += _published(row, headings)
    reference_runs = seeds.get(table.reference, {})
    measured = [row for row in table.rows if row.name != table.reference and row.name in seeds]
    compared_rows = [
        row for row in measured if _shared(*_compared(row, seeds[row.name], table.reference, reference_runs))
    ]
    if compared_rows:
        (reference,) = (row.title for row in table.rows if row.name == table.reference)
        lines += ["\n", _line(f"minus {reference}, points", "seeds", *headings), _rule(len(headings) + 1)]
        for row in compared_rows:
            pair = _compared(row, seeds[row.name], table.reference, reference_runs)
            cells = [difference_cell(difference(*pair, identity)) for identity in table.columns.values()]
            lines.append(_line(row.title, str(len(_shared(*pair))), *cells))
    return "".join(lines)


def _compared(row: Row, runs: dict[int, dict], reference: str, reference_runs: dict[int, dict]) -> tuple[dict, dict]:
    """Return the runs of a row and of its reference; an ensemble of the reference's networks meets each of them."""
    if row.members == reference:
        (ensemble,) = runs.values()
        return dict.fromkeys(reference_runs, ensemble), reference_runs
    return runs, reference_runs


def sources(plan: Plan, results: list[dict], commands: dict[str, str]) -> str:
    """Return, for each row of each table with results, the links of its stored files and its command.

    Args:
        plan: of the results.
        results: contents of stored files.
        commands: name of a row -> command of its first seed.
    """
    lines, heading = [], ""
    for name, (table, row) in plan.rows().items():
        files = {result["seed"]: f"{name}-seed{result['seed']}.json" for result in results if result["row"] == name}
        if files:
            if heading != (heading := f"### Commands: {table.title}"):
                lines.append("\n" * bool(lines) + f"{heading}\n")
            folder = os.path.relpath(plan.output, plan.page.parent)
            links = ", ".join(f"[seed {seed}]({folder}/{file})" for seed, file in files.items())
            command = textwrap.indent(commands[name], "    ")
            lines.append(f"\n{row.title}: {links}\n\n{command}\n")
    return "".join(lines)


def _published(row: Row, headings: list[str]) -> list[str]:
    return [
        _line(f"*{other.source}: {other.setting}*", "", *(other.values.get(name, "") for name in headings), "")
        for other in row.published
    ]


def accuracy_cell(runs: dict[int, dict], identity: str) -> str:
    """Format a measurement in per cent: mean over seeds, 95 % interval over images, and Student's over seeds.

    A measurement without outcomes per image has no interval over images. Seeds with fewer images than the first are
    left out.
    """
    rows = outcomes(runs, identity)
    if rows:
        first, *_ = rows.values()
        if len(rows) == 1:
            low, high = wilson_interval(int(first.sum()), len(first))
        else:
            low, high = share_interval(np.mean(list(rows.values()), axis=0))
        means = [float(row.mean()) for row in rows.values()]
        text = f"{100 * np.mean(means):.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    else:
        values = [run["measurements"].get(identity, {}).get("value") for run in runs.values()]
        means = [value for value in values if value is not None]
        text = f"{100 * np.mean(means):.1f}" if means else "-"
    return text + (f" ±{_half(means):.1f}" if len(means) > 2 else "")


def _half(means: list[float]) -> float:
    low, high = student_interval(np.array(means))
    return 100 * (high - low) / 2


def difference(first: dict[int, dict], second: dict[int, dict], identity: str) -> tuple | None:
    """Compare two rows on the same images and seeds.

    Args:
        first: seed -> result.
        second: seed -> result.
        identity: id of a measurement.

    Returns:
        (difference, its ends over images, its ends over seeds), as fractions; None if no seed is in both, measured on
        the same test images. The ends over images are paired where both have scores, else those of two samples; None
        without any interval. Those over seeds are None for fewer than three.
    """
    pair = scores(first, identity), scores(second, identity)
    recorded = [seed for seed in _shared(first, second) if seed in pair[0] and seed in pair[1]]
    shared = [seed for seed in recorded if len(pair[0][seed]) == len(pair[1][seed])]
    if shared:
        means = [np.mean([rows[seed] for seed in shared], axis=0) for rows in pair]
        middle, *images = paired_difference(*means)
        if len(shared) == 1 and all(rows[shared[0]].dtype == bool for rows in pair):
            middle, *images = paired_shares(
                *("".join(str(int(correct)) for correct in rows[shared[0]]) for rows in pair)
            )
        differences = [float(pair[0][seed].mean() - pair[1][seed].mean()) for seed in shared]
    else:
        values = [{seed: _value(run, identity) for seed, run in runs.items()} for runs in (first, second)]
        differences = [
            values[0][seed] - values[1][seed] for seed in _shared(first, second) if None not in _both(values, seed)
        ]
        if not differences:
            return None
        middle, images = float(np.mean(differences)), _independent(first, second, identity)
    return middle, images, student_interval(np.array(differences)) if len(differences) > 2 else None


def _independent(first: dict[int, dict], second: dict[int, dict], identity: str) -> tuple[float, float] | None:
    """Return the interval of two samples, its ends averaged over the seeds: all seeds were measured on equal images."""
    ends = []
    for seed in _shared(first, second):
        sides = [runs[seed]["measurements"].get(identity, {}) for runs in (first, second)]
        if any(side.get("low") is None for side in sides):
            return None
        ends.append(independent_interval(*((side["value"], side["low"], side["high"]) for side in sides)))
    return tuple(float(end) for end in np.mean(ends, axis=0))


def _both(values: list[dict], seed: int) -> list:
    return [side[seed] for side in values]


def _value(run: dict, identity: str) -> float | None:
    return run["measurements"].get(identity, {}).get("value")


def _shared(first: dict[int, dict], second: dict[int, dict]) -> list[int]:
    """Return the seeds for which both rows were measured on the same test images."""
    return [seed for seed in first if seed in second and _test_images(first[seed]) == _test_images(second[seed])]


def _test_images(run: dict) -> str | None:
    return run.get("data", {}).get("test_fingerprint")


def difference_cell(compared: tuple | None) -> str:
    """Format a difference in points; bold if all its intervals exclude 0."""
    if compared is None:
        return "-"
    middle, images, seeds = compared
    text = f"{100 * middle:+.1f}"
    text += f" [{100 * images[0]:+.1f}, {100 * images[1]:+.1f}]" if images else ""
    text += f" ±{100 * (seeds[1] - seeds[0]) / 2:.1f}" if seeds else ""
    return f"**{text}**" if sign(compared) else text


def sign(compared: tuple) -> int:
    """Return 1 or -1 if every interval of a difference lies on that side of 0, else 0; 0 without an interval."""
    ends = [interval for interval in compared[1:] if interval]
    if ends and all(low > 0 for low, _ in ends):
        return 1
    return -1 if ends and all(high < 0 for _, high in ends) else 0


def claim_table(claims: tuple[Claim, ...], seeds: dict[str, dict[int, dict]]) -> str:
    """Return a line for each claim with its verdict and the difference, positive where it favours the claim."""
    lines = ["### Claims\n", _line("claim", "source", "verdict", "in favour, points", "seeds"), _rule(4)]
    for claim in claims:
        pair = seeds.get(claim.better, {}), seeds.get(claim.worse, {})
        compared = difference(*(pair if claim.larger else reversed(pair)), claim.measurement)
        cell, count = difference_cell(compared), str(len(_shared(*pair)))
        lines.append(_line(claim.text, claim.source, verdict(compared), cell, count))
    return "".join(lines)


def verdict(in_favour: tuple | None) -> str:
    """Return "holds" or "does not hold" where all intervals exclude 0, else "undecided"; "not run" without results."""
    if in_favour is None:
        return "not run"
    return {1: "holds", -1: "does not hold", 0: "undecided"}[sign(in_favour)]


def outcomes(runs: dict[int, dict], identity: str) -> dict[int, np.ndarray]:
    """Return seed -> bool [n], whether each image is correct; only seeds with as many images as the first."""
    rows = {seed: unpack(run["outcomes"][identity]) for seed, run in runs.items() if identity in run["outcomes"]}
    return {seed: row for seed, row in rows.items() if len(row) == len(next(iter(rows.values())))}


def scores(runs: dict[int, dict], identity: str) -> dict[int, np.ndarray]:
    """Return seed -> one value per image, whose mean is the measurement: the outcomes, or those of a relative drop.

    A drop that is not of the first images has no scores.
    """
    if not identity.endswith(".drop"):
        return outcomes(runs, identity)
    clean = outcomes(runs, "accuracy.clean")
    rows = {}
    for seed, attacked in outcomes(runs, identity.removesuffix(".drop") + ".accuracy").items():
        correct = clean.get(seed, np.zeros(0, bool))[: len(attacked)]
        if correct.any():
            values = drop_scores(correct, attacked)
            if math.isclose(values.mean(), _value(runs[seed], identity), abs_tol=1e-6):
                rows[seed] = values
    return rows


def unpack(packed: dict) -> np.ndarray:
    """Return the outcomes of `results_table.pack`, bool [n]."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(packed["bits"]), np.uint8))
    return bits[: packed["images"]].astype(bool)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _rule(count: int) -> str:
    return _line("---", *["---:"] * count)

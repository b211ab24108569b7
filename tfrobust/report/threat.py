"""The threat statement: which attacks the measured accuracies hold against, and what they do not cover."""

from tfrobust.report import catalog, intervals
from tfrobust.report.attack_table import (
    Bracket,
    attack_rows,
    brackets,
    compared_with,
    searches,
    strongest,
    unmeasured_norms,
)
from tfrobust.report.catalog.natural import CLIP_CORRUPTION, CORRUPTION, CORRUPTION_MEAN, SHIFT
from tfrobust.report.formats import number, quantity
from tfrobust.report.reading import frost_word
from tfrobust.report.smoothing_table import Smoothed, smoothed


def threat_statement(measurements, findings=(), examples: str = "images", series=()) -> str:
    """State which attacks the measured accuracies hold against, and what they do not cover.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, of the evaluation.
        examples: kind of the evaluated examples, "images", "clips" or "sentences".
        series: sequence of Series, of the evaluation.

    Returns:
        A few sentences; one per budget (norm and epsilon) on the accuracy under the strongest attack there.
    """
    rows = [row for row in attack_rows(measurements) if row.accuracy.value is not None]
    bounded = [bracket_sentence(bracket, examples) for bracket in brackets(measurements, series)]
    if not rows:
        seen = [f"unmodified test {examples}", *catalog.natural_families(measurements)]
        radii = catalog.other_radii([*measurements, *series])
        sentence = f"No attack was run. This report does not cover adversarial robustness, only {enumerated(seen)}."
        if radii:
            sentence = f"Attacks were run within {enumerated(radii)} alone; their accuracies are upper bounds."
        elif bounded:
            sentence = "No attack was run, so that nothing bounds the accuracy under attack from above."
        return " ".join([sentence, *bounded, *(smoothed_sentence(row, examples) for row in smoothed(measurements))])
    sentences = []
    for budget in dict.fromkeys(row.budget for row in rows):
        sentences.append(_holds([row for row in rows if row.budget == budget], examples))
    if is_black_box(findings):
        sentences.append("The model provides no input gradients, so no gradient-based attack was run.")
    sentences.append("Stronger attacks may find more errors, so these accuracies are upper bounds.")
    sentences += bounded
    sentences += [smoothed_sentence(classifier, examples) for classifier in smoothed(measurements)]
    mean = {m.id: m for m in measurements}.get(CORRUPTION_MEAN.id("mean.accuracy"))
    if mean is not None and mean.value is not None:
        frost = f" ({frost_word(mean)} frost)" if frost_word(mean) else ""
        sentences.append(f"The mean accuracy over the measured corruptions is {number(mean)}{frost}.")
    sentences.append(_not_covered([*measurements, *series], examples))
    return " ".join(sentences)


def is_black_box(findings) -> bool:
    """Return True if the model has no input gradients."""
    return any(finding.check == "white_box" for finding in findings)


def bracket_sentence(bracket: Bracket, examples: str = "images") -> str:
    """State what a certified accuracy proves; or, if it is 0, what the bound is worth."""
    certified = bracket.certified
    sample = certified.settings.get("sample")
    of_examples = f"the {sample} {examples}" if sample else f"the {examples}"
    bound = f"the bound ({bracket.method})" if bracket.method else "the bound"
    if not certified.value and bracket.undecided is not None:
        unknown = quantity(bracket.unknown, "fraction")
        return (
            f"From below, none of {of_examples} are certified within {bracket.budget}. For {unknown} neither is known."
        )
    if not certified.value:
        worth = certified.settings.get("certified_up_to")
        until = f"; it certifies some at ε = {worth:.2g}" if isinstance(worth, float) and worth else ""
        return (
            f"From below, nothing is known within {bracket.budget}: {bound} certifies none of {of_examples}{until}. "
            "Such bounds are loose on networks that were not trained for them."
        )
    share = f"{number(certified)} of {of_examples}" if sample else number(certified)
    claim = f"From below, {share} are certified within {bracket.budget}: no attack can change their class"
    if bracket.attacked is None and bracket.undecided is None:
        return f"{claim}."
    return f"{claim}. For {quantity(bracket.unknown, 'fraction')} neither is known."


def smoothed_sentence(classifier: Smoothed, examples: str = "images") -> str:
    """State what is certified of a smoothed classifier, and that it is another classifier than the served one."""
    certified = [(radius, m) for radius, m in classifier.accuracies.items() if radius > 0] or [
        *classifier.accuracies.items()
    ]
    radius, measured = certified[0]
    within = f"within {classifier.norm} radius {radius:g}" if radius else "at radius 0"
    return (
        f"{classifier.name}: {number(measured)} of the {examples} are certified {within}. "
        "That is the classifier that votes over noisy copies, not the one behind serving_default."
    )


def _holds(rows, examples: str) -> str:
    worst = strongest(rows)
    accuracy = worst.accuracy
    # Efforts of ensemble members contain parentheses themselves.
    effort = f" of {worst.effort}" if "member_efforts" in accuracy.settings else f" ({worst.effort})"
    effort = effort if worst.effort else ""
    compared = compared_with(worst, rows)
    tried = f"the strongest of {len(compared)} attacks" if len(compared) > 1 else "the only attack"
    tried += f" on these {examples}" if len(compared) < len(rows) else ""
    early = ", which its time budget ended early" if worst.is_upper_bound else ""
    correct = (
        f"{_share(worst)} of {_tested(accuracy, examples)}{intervals.in_brackets(accuracy)} are classified correctly"
    )
    return f"{correct} under {worst.name}{effort}, {tried} within {worst.budget}{early}."


def _share(row) -> str:
    bound = "at most " if row.is_upper_bound else ""
    return bound + quantity(row.accuracy.value, row.accuracy.unit)


def _tested(accuracy, examples: str) -> str:
    return f"{accuracy.n} test {examples}" if accuracy.n else f"the test {examples}"


def _not_covered(items, examples: str) -> str:
    subjects = ["larger perturbations"]
    norms, families = unmeasured_norms(searches(items)), catalog.families(items)
    if norms:
        subjects.append(f"perturbations measured in {enumerated(norms)}")
    subjects.append("attacks adapted to this defense")
    if not {CORRUPTION.family.name, CLIP_CORRUPTION.family.name} & families:
        subjects.append("natural corruptions")
    origins = " other than the measured shifted sets" if SHIFT.family.name in families else " from other sources"
    subjects.append(f"{examples}{origins}")
    return f"Not covered: {enumerated(subjects)}."


def enumerated(items: list[str]) -> str:
    """Join names to "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

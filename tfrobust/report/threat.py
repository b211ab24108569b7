"""The threat statement, the summary and the list of what a report does not measure."""

from tfrobust.report import intervals
from tfrobust.report.reading import (
    NORM_NAMES,
    attack_rows,
    examples_of,
    number,
    quantity,
    strongest,
)
from tfrobust.report.schema import Report

_MAIN_NORMS = ("linf", "l2", "l1")
# Evaluations without an attack, by prefix of the ids.
_NATURAL = {
    "corruption.": "under natural corruptions",
    "stability.": "along perturbation sequences",
    "noise.": "with random pixels",
    "shift.": "the shifted sets measured",
}


def threat_statement(measurements, findings=(), examples: str = "images") -> str:
    """State which attacks the measured accuracies hold against, and what they do not cover.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, of the evaluation.
        examples: kind of the evaluated examples, "images" or "sentences".

    Returns:
        A few sentences; one "Holds for ..." per budget (norm and epsilon), by the strongest attack there.
    """
    rows = [row for row in attack_rows(measurements) if row.accuracy.value is not None]
    if not rows:
        seen = [
            f"the test {examples} as they are",
            *(said for kind, said in _NATURAL.items() if _has(measurements, kind)),
        ]
        lead = "No attack was run: this report says nothing about adversarial robustness, only about"
        return f"{lead} {_enumerate(seen)}."
    sentences = []
    for budget in dict.fromkeys(row.budget for row in rows):
        sentences.append(_holds([row for row in rows if row.budget == budget]))
    if _is_black_box(findings):
        sentences.append("The model gives no input gradients: no attack that follows them was run.")
    sentences.append("A stronger attack may find more errors, so these are upper bounds.")
    mean = {m.id: m for m in measurements}.get("corruption.mean.accuracy")
    if mean is not None and mean.value is not None:
        sentences.append(f"Holds for {number(mean)} on average over the corruptions measured.")
    sentences.append(_says_nothing(rows, measurements))
    return " ".join(sentences)


def not_measured(measurements, findings=(), examples: str = "images") -> list[str]:
    """List what a reader might expect but was not measured, one sentence each, most important first.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, the doctor's.
        examples: kind of the evaluated examples, "images" or "sentences".
    """
    if examples == "sentences":
        return _not_measured_of_text(measurements, findings)
    rows = attack_rows(measurements, members=True)
    attacks = {row.attack for row in rows} | {row.member for row in rows if row.member}
    ids = [m.id for m in measurements]
    missing = []
    if _is_black_box(findings):
        missing.append("White-box attacks: the model gives no input gradients to follow.")
    if not any("autoattack" in name for name in attacks):
        missing.append("AutoAttack, the official ensemble: gradient attacks alone can overestimate robustness.")
    if not any("square" in name for name in attacks):  # also as a member of an ensemble: 'rand' has none
        missing.append("Black-box attacks, which need no gradients (Square, decision-based, transfer).")
    missing.append("Adaptive attacks written against this particular defence.")
    checked = {finding.check for finding in findings}
    missing += [sentence for check, sentence in _CHECKS.items() if check not in checked]
    norms = _unmeasured_norms(rows)
    if norms:
        missing.append(f"Perturbations measured in {_enumerate(norms)}.")
    for prefix, sentence in _FAMILIES.items():
        if not any(identity.startswith(prefix) for identity in ids):
            missing.append(sentence)
    missing.append("Patches, rotations, translations and other changes that no norm bounds.")
    others = " and the shifted sets measured" if any(identity.startswith("shift.") for identity in ids) else ""
    missing.append(f"Data from another source than the test set{others} (domain shift).")
    if not any("seed" in str(m.settings.get("interval", "")) for m in measurements):
        missing.append("Other training seeds: one trained model is judged, the intervals are over images.")
    return missing


def _not_measured_of_text(measurements, findings) -> list[str]:
    ids, checks = [m.id for m in measurements], {finding.check for finding in findings}
    missing = [
        "Changes to the words: synonyms, paraphrases, typing errors, inserted or adversarially exchanged tokens.",
        "Attacks and corruptions of pixels, which text has none of.",
    ]
    if not any(name.startswith("sensitivity.") for name in ids):
        missing.append("Whether the words that matter to a reader are those that matter to the model (sensitivity).")
    if not any(name.startswith("calibration.") for name in ids):
        missing.append(_FAMILIES["calibration."])
    if "duplicates" not in checks:
        missing.append(_CHECKS["duplicates"].replace("images", "sentences"))
    return [
        *missing,
        "Sentences from another source than the test set (domain shift).",
        "Other training seeds: one trained model is judged, the intervals are over sentences.",
    ]


def _is_black_box(findings) -> bool:
    return any(finding.check == "white_box" for finding in findings)


# Shown for checks that did not run: the doctor's expensive ones, and the one that needs the training images.
_CHECKS = {
    "large_epsilon": "Whether the attack reaches 0 at a very large epsilon (gin/eval/full.gin).",
    "more_effort": "Whether more steps or restarts would find much more (gin/eval/full.gin).",
    "black_box": "Whether a black-box attack beats the white-box ones (gin/eval/full.gin).",
    "transfer": "Whether attacks transferred from an undefended model beat them (gin/eval/full.gin).",
    "duplicates": "Whether test images were trained on: the training images are not known, or nobody looked.",
}
_FAMILIES = {
    "corruption.": "Natural corruptions (noise, blur, weather, digital).",
    "stability.": "Stability of predictions along small natural changes (perturbation sequences).",
    "calibration.": "Calibration: whether confidence means anything.",
}


def summary_sentence(report: Report) -> str:
    """Return the sentence at the head of a report: clean accuracy and accuracy under the strongest attack."""
    clean = report.get("accuracy.clean")
    worst = strongest(attack_rows(report.measurements))
    parts = []
    if clean is not None and clean.value is not None:
        examples = examples_of(report.data)
        count = f"Of {clean.n} test {examples}, " if clean.n else f"Of the test {examples}, "
        parts.append(f"{count}{number(clean)} are classified correctly as they are")
    if worst is None:
        return (parts[0] if parts else "No accuracy was measured") + "; no attack was run."
    many = worst.accuracy.n
    who = "" if parts and many == clean.n else (f" of {many} test images" if many else " of the test images")
    margin = intervals.in_brackets(worst.accuracy)
    share = quantity(worst.accuracy.value, worst.accuracy.unit)
    attacked = f"{'at most ' if worst.is_upper_bound else ''}{share}{who}{margin} when attacked by"
    parts.append(f"{attacked} {worst.attack} within {worst.budget}")
    return " and ".join(parts) + "; a stronger attack may find more errors."


def _holds(rows) -> str:
    worst = strongest(rows)
    accuracy = worst.accuracy
    count = f"{accuracy.n} test images" if accuracy.n else "the test images"
    margin = intervals.in_brackets(accuracy)
    # Efforts of ensemble members contain parentheses themselves.
    effort = f" of {worst.effort}" if "member_efforts" in accuracy.settings else f" ({worst.effort})"
    effort = effort if worst.effort else ""
    tried = f"the strongest of {len(rows)} attacks tried" if len(rows) > 1 else "the only attack tried"
    early = ", which its time budget ended early" if worst.is_upper_bound else ""
    share = f"{'at most ' if worst.is_upper_bound else ''}{quantity(accuracy.value, accuracy.unit)}"
    against = f"{worst.attack}{effort}, {tried} within {worst.budget}{early}"
    return f"Holds for {share} of {count}{margin} against {against}."


def _says_nothing(rows, measurements) -> str:
    subjects = ["larger perturbations"]
    norms = _unmeasured_norms(rows)
    if norms:
        subjects.append(f"perturbations measured in {_enumerate(norms)}")
    subjects.append("attacks adapted to this defence")
    if not _has(measurements, "corruption."):
        subjects.append("natural corruptions")
    others = " than the shifted sets measured" if _has(measurements, "shift.") else ""
    subjects.append(f"images from another source{others}")
    return f"Says nothing about {_enumerate(subjects)}."


def _has(measurements, family: str) -> bool:
    return any(m.id.startswith(family) for m in measurements)


def _unmeasured_norms(rows) -> list[str]:
    measured = {row.norm for row in rows}
    return [NORM_NAMES[norm] for norm in _MAIN_NORMS if norm not in measured]


def _enumerate(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

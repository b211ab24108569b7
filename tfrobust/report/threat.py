"""The threat statement, the summary and the list of what a report does not measure."""

from tfrobust.common.kinds import worded
from tfrobust.report import intervals
from tfrobust.report.reading import (
    NORM_NAMES,
    Bracket,
    Smoothed,
    attack_rows,
    brackets,
    compared_with,
    examples_of,
    frost_word,
    number,
    quantity,
    smoothed,
    strongest,
)
from tfrobust.report.schema import Report

_MAIN_NORMS = ("linf", "l2", "l1")
# Evaluations without an attack, by prefix of the ids.
_NATURAL = {
    "corruption.": "natural corruptions",
    "clip_corruption.": "clip corruptions",
    "stability.": "perturbation sequences",
    "noise.": "random pixels",
    "shift.": "the measured shifted sets",
}


def threat_statement(measurements, findings=(), examples: str = "images") -> str:
    """State which attacks the measured accuracies hold against, and what they do not cover.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, of the evaluation.
        examples: kind of the evaluated examples, "images", "clips" or "sentences".

    Returns:
        A few sentences; one per budget (norm and epsilon) on the accuracy under the strongest attack there.
    """
    rows = [row for row in attack_rows(measurements) if row.accuracy.value is not None]
    if not rows:
        seen = [f"unmodified test {examples}", *(said for kind, said in _NATURAL.items() if _has(measurements, kind))]
        said = f"No attack was run. This report does not cover adversarial robustness, only {_enumerate(seen)}."
        return " ".join([said, *map(smoothed_sentence, smoothed(measurements))]).replace("images", examples)
    sentences = []
    for budget in dict.fromkeys(row.budget for row in rows):
        sentences.append(_holds([row for row in rows if row.budget == budget]))
    if _is_black_box(findings):
        sentences.append("The model provides no input gradients, so no gradient-based attack was run.")
    sentences.append("Stronger attacks may find more errors, so these accuracies are upper bounds.")
    sentences += map(bracket_sentence, brackets(measurements))
    sentences += map(smoothed_sentence, smoothed(measurements))
    mean = {m.id: m for m in measurements}.get("corruption.mean.accuracy")
    if mean is not None and mean.value is not None:
        frost = f" ({frost_word(mean)} frost)" if frost_word(mean) else ""
        sentences.append(f"The mean accuracy over the measured corruptions is {number(mean)}{frost}.")
    sentences.append(_not_covered(rows, measurements))
    return worded(" ".join(sentences), examples)


def not_measured(measurements, findings=(), examples: str = "images") -> list[str]:
    """List what a reader might expect but was not measured, one sentence each, most important first.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, the doctor's.
        examples: kind of the evaluated examples, "images", "clips" or "sentences".
    """
    if examples == "sentences":
        return _not_measured_of_text(measurements, findings)
    rows = attack_rows(measurements, members=True)
    attacks = {row.attack for row in rows} | {row.member for row in rows if row.member}
    ids = [m.id for m in measurements]
    missing = []
    if _is_black_box(findings):
        missing.append("White-box attacks: the model provides no input gradients.")
    if not any("autoattack" in name for name in attacks):
        missing.append("AutoAttack, the official ensemble: gradient attacks alone can overestimate robustness.")
    if not any("square" in name for name in attacks):  # also as a member of an ensemble: 'rand' has none
        missing.append("Black-box attacks, which need no gradients (Square, decision-based, transfer).")
    missing.append(_not_certified(measurements))
    missing.append("Adaptive attacks designed against this particular defense.")
    checked = {finding.check for finding in findings}
    missing += [sentence for check, sentence in _CHECKS.items() if check not in checked]
    norms = _unmeasured_norms(rows)
    if norms:
        missing.append(f"Perturbations measured in {_enumerate(norms)}.")
    families = {**_FAMILIES, **(_FAMILIES_OF_CLIPS if examples == "clips" else {})}
    for prefix, sentence in families.items():
        if sentence and not any(identity.startswith(prefix) for identity in ids):
            missing.append(sentence)
    missing = [sentence for sentence in missing if sentence]
    missing.append("Patches, rotations, translations and other changes that are not bounded by a norm.")
    others = " and the measured shifted sets" if any(identity.startswith("shift.") for identity in ids) else ""
    missing.append(f"Data from sources other than the test set{others} (domain shift).")
    if not any("seed" in str(m.settings.get("interval", "")) for m in measurements):
        missing.append("Other training seeds: one trained model is evaluated, and the intervals are over images.")
    return [worded(sentence, examples) for sentence in missing]


def _not_certified(measurements) -> str:
    """Return the sentence on a certified accuracy that was not measured, with its reason; "" if one was."""
    found = [m for m in measurements if m.id.startswith("certified.")]
    if any(m.value is not None for m in found):
        return ""
    reasons = dict.fromkeys(m.settings["reason"] for m in found if isinstance(m.settings.get("reason"), str))
    said = f": {'; '.join(reasons)}" if reasons else ", a lower bound that holds against every attack"
    return f"Certified accuracy{said}."


def _not_measured_of_text(measurements, findings) -> list[str]:
    ids, checks = [m.id for m in measurements], {finding.check for finding in findings}
    missing = [
        "Changes to the words: synonyms, paraphrases, typing errors, inserted or adversarially exchanged tokens.",
        "Attacks and corruptions of pixels, which do not apply to text.",
    ]
    if not any(name.startswith("sensitivity.") for name in ids):
        missing.append(
            "Agreement between the words that matter to readers and those that matter to the model (sensitivity)."
        )
    if not any(name.startswith("calibration.") for name in ids):
        missing.append(_FAMILIES["calibration."])
    if "duplicates" not in checks:
        missing.append(worded(_CHECKS["duplicates"], "sentences"))
    return [
        *missing,
        "Sentences from sources other than the test set (domain shift).",
        "Other training seeds: one trained model is evaluated, and the intervals are over sentences.",
    ]


def _is_black_box(findings) -> bool:
    return any(finding.check == "white_box" for finding in findings)


# Shown for checks that did not run: the doctor's expensive ones, and the one that needs the training images.
_CHECKS = {
    "large_epsilon": "Accuracy at a very large epsilon, which should be 0 (gin/eval/full.gin).",
    "more_effort": "Errors found by more steps or restarts (gin/eval/full.gin).",
    "black_box": "Comparison of the white-box attacks with a black-box attack (gin/eval/full.gin).",
    "transfer": "Comparison with attacks transferred from an undefended model (gin/eval/full.gin).",
    "duplicates": "Overlap of test and training images: not checked, or the training images are unknown.",
}
_FAMILIES = {
    "corruption.": "Natural corruptions (noise, blur, weather, digital).",
    "stability.": "Stability of predictions along small natural changes (perturbation sequences).",
    "calibration.": "Calibration: the agreement of confidence and accuracy.",
}


# In place of those of images. Perturbation sequences are made of single images.
_FAMILIES_OF_CLIPS = {
    "corruption.": "",
    "clip_corruption.": "Corruptions of frames and of time (noise, blur, lost, frozen or reordered frames).",
    "stability.": "",
}


def bracket_sentence(bracket: Bracket) -> str:
    """State what a certified accuracy proves; or, if it is 0, what the bound is worth."""
    certified = bracket.certified
    if not certified.value:
        worth = certified.settings.get("certified_up_to")
        until = f"; it certifies some at ε = {worth:.2g}" if isinstance(worth, float) and worth else ""
        return (
            f"From below, nothing is known within {bracket.budget}: the bound certifies none of the images{until}. "
            "Such bounds are loose on networks that were not trained for them."
        )
    said = f"From below, {number(certified)} are certified within {bracket.budget}: no attack can change their class"
    if bracket.attacked is None:
        return f"{said}."
    gap = max(0.0, bracket.attacked.accuracy.value - certified.value)
    return f"{said}. For {quantity(gap, 'fraction')} neither is known."


def smoothed_sentence(found: Smoothed) -> str:
    """State what is certified of a smoothed classifier, and that it is another classifier than the served one."""
    known = [(radius, m) for radius, m in found.accuracies.items() if radius > 0] or [*found.accuracies.items()]
    radius, measured = known[0]
    within = f"within {found.norm} radius {radius:g}" if radius else "at radius 0"
    return (
        f"{found.name}: {number(measured)} of the images are certified {within}. "
        "That is the classifier that votes over noisy copies, not the one behind serving_default."
    )


def summary_sentence(report: Report) -> str:
    """Return the sentence at the head of a report: clean accuracy and accuracy under the strongest attack."""
    clean, examples = report.get("accuracy.clean"), examples_of(report.data)
    worst = strongest(attack_rows(report.measurements))
    parts = []
    if clean is not None and clean.value is not None:
        parts.append(f"{number(clean)} of {_tested(clean, examples)} are classified correctly")
    if worst is None:
        return (parts[0] if parts else "No accuracy was measured") + "; no attack was run."
    share = (
        _share(worst)
        if parts and worst.accuracy.n == clean.n
        else f"{_share(worst)} of {_tested(worst.accuracy, examples)}"
    )
    predicate = "" if parts else " are classified correctly"
    parts.append(f"{share}{intervals.in_brackets(worst.accuracy)}{predicate} under {worst.name} within {worst.budget}")
    return f"{'; '.join(parts)}. A stronger attack may find more errors."


def _holds(rows) -> str:
    worst = strongest(rows)
    accuracy = worst.accuracy
    # Efforts of ensemble members contain parentheses themselves.
    effort = f" of {worst.effort}" if "member_efforts" in accuracy.settings else f" ({worst.effort})"
    effort = effort if worst.effort else ""
    compared = compared_with(worst, rows)
    tried = f"the strongest of {len(compared)} attacks" if len(compared) > 1 else "the only attack"
    tried += " on these images" if len(compared) < len(rows) else ""
    early = ", which its time budget ended early" if worst.is_upper_bound else ""
    correct = f"{_share(worst)} of {_tested(accuracy)}{intervals.in_brackets(accuracy)} are classified correctly"
    return f"{correct} under {worst.name}{effort}, {tried} within {worst.budget}{early}."


def _share(row) -> str:
    bound = "at most " if row.is_upper_bound else ""
    return bound + quantity(row.accuracy.value, row.accuracy.unit)


def _tested(accuracy, examples: str = "images") -> str:
    return f"{accuracy.n} test {examples}" if accuracy.n else f"the test {examples}"


def _not_covered(rows, measurements) -> str:
    subjects = ["larger perturbations"]
    norms = _unmeasured_norms(rows)
    if norms:
        subjects.append(f"perturbations measured in {_enumerate(norms)}")
    subjects.append("attacks adapted to this defense")
    if not _has(measurements, "corruption.") and not _has(measurements, "clip_corruption."):
        subjects.append("natural corruptions")
    others = " other than the measured shifted sets" if _has(measurements, "shift.") else " from other sources"
    subjects.append(f"images{others}")
    return f"Not covered: {_enumerate(subjects)}."


def _has(measurements, family: str) -> bool:
    return any(m.id.startswith(family) for m in measurements)


def _unmeasured_norms(rows) -> list[str]:
    # A ball of the whole clip lies in the balls of its frames, but not in the set of few changed frames.
    measured = {row.norm for row in rows if "_max_frames_" not in row.frames}
    return [NORM_NAMES[norm] for norm in _MAIN_NORMS if norm not in measured]


def _enumerate(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

"""The threat statement, the summary and the list of what a report does not measure."""

from tfrobust.common.kinds import worded
from tfrobust.common.norm_table import DIRECTED
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
        seen = [f"unmodified test {examples}", *(words for kind, words in _NATURAL.items() if _has(measurements, kind))]
        sentence = f"No attack was run. This report does not cover adversarial robustness, only {_enumerate(seen)}."
        return " ".join([sentence, *map(smoothed_sentence, smoothed(measurements))]).replace("images", examples)
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
    return [worded(sentence, examples) for sentence, _ in _missing(measurements, findings, examples)]


def untried(report: Report) -> list[str]:
    """List in a few words each what `not_measured` lists in sentences, as far as it concerns changes of the images."""
    examples = examples_of(report.data)
    return [worded(words, examples) for _, words in _missing(report.measurements, report.doctor, examples) if words]


def _missing(measurements, findings, examples: str) -> list[tuple[str, str]]:
    """Return a sentence on each subject that was not measured, and the subject in a few words, "" for minor ones."""
    if examples == "sentences":
        return _missing_of_text(measurements, findings)
    rows = attack_rows(measurements, members=True)
    attacks = {row.attack for row in rows} | {row.member for row in rows if row.member}
    ids = [m.id for m in measurements]
    missing = []
    if _is_black_box(findings):
        missing.append(("White-box attacks: the model provides no input gradients.", "attacks by gradients"))
    if not any("autoattack" in name for name in attacks):
        sentence = "AutoAttack, the official ensemble: gradient attacks alone can overestimate robustness."
        missing.append((sentence, "AutoAttack"))
    if not any("square" in name for name in attacks):  # also as a member of an ensemble: 'rand' has none
        sentence = "Black-box attacks, which need no gradients (Square, decision-based, transfer)."
        missing.append((sentence, "attacks without gradients"))
    missing.append((_not_certified(measurements), ""))
    missing.append(("Adaptive attacks designed against this particular defense.", "attacks made for this defense"))
    checked = {finding.check for finding in findings}
    missing += [(sentence, "") for check, sentence in _CHECKS.items() if check not in checked]
    norms = _unmeasured_norms(rows)
    if norms:
        missing.append((f"Perturbations measured in {_enumerate(norms)}.", f"changes bounded in {_enumerate(norms)}"))
    families = {**_FAMILIES, **(_FAMILIES_OF_CLIPS if examples == "clips" else {})}
    for prefix, (sentence, words) in families.items():
        if sentence and not any(identity.startswith(prefix) for identity in ids):
            missing.append((sentence, words))
    missing = [(sentence, words) for sentence, words in missing if sentence]
    sentence = "Patches, rotations, translations and other changes that are not bounded by a norm."
    missing.append((sentence, "patches and rotations"))
    exception = " and the measured shifted sets" if any(identity.startswith("shift.") for identity in ids) else ""
    sentence = f"Data from sources other than the test set{exception} (domain shift)."
    missing.append((sentence, "images from elsewhere"))
    if not any("seed" in str(m.settings.get("interval", "")) for m in measurements):
        sentence = "Other training seeds: one trained model is evaluated, and the intervals are over images."
        missing.append((sentence, ""))
    return missing


def _not_certified(measurements) -> str:
    """Return the sentence on a certified accuracy that was not measured, with its reason; "" if one was."""
    certified = [m for m in measurements if m.id.startswith("certified.")]
    if any(m.value is not None for m in certified):
        return ""
    reasons = dict.fromkeys(m.settings["reason"] for m in certified if isinstance(m.settings.get("reason"), str))
    reason = f": {'; '.join(reasons)}" if reasons else ", a lower bound that holds against every attack"
    return f"Certified accuracy{reason}."


def _missing_of_text(measurements, findings) -> list[tuple[str, str]]:
    ids, checks = [m.id for m in measurements], {finding.check for finding in findings}
    words = "Changes to the words: synonyms, paraphrases, typing errors, inserted or adversarially exchanged tokens."
    missing = [
        (words, "exchanged, inserted or misspelled words"),
        ("Attacks and corruptions of pixels, which do not apply to text.", ""),
    ]
    if not any(name.startswith("sensitivity.") for name in ids):
        agreement = "Agreement between the words that matter to readers and those that matter to the model"
        missing.append((f"{agreement} (sensitivity).", ""))
    if not any(name.startswith("calibration.") for name in ids):
        missing.append(_FAMILIES["calibration."])
    if "duplicates" not in checks:
        missing.append((_CHECKS["duplicates"], ""))
    seeds = "Other training seeds: one trained model is evaluated, and the intervals are over sentences."
    shift = "Sentences from sources other than the test set (domain shift)."
    return [*missing, (shift, "sentences from elsewhere"), (seeds, "")]


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
# Prefix of ids -> sentence, and a few words.
_FAMILIES = {
    "corruption.": ("Natural corruptions (noise, blur, weather, digital).", "noise, blur and weather"),
    "stability.": ("Stability of predictions along small natural changes (perturbation sequences).", ""),
    "calibration.": ("Calibration: the agreement of confidence and accuracy.", ""),
}


# In place of those of images. Perturbation sequences are made of single images.
_FAMILIES_OF_CLIPS = {
    "corruption.": ("", ""),
    "clip_corruption.": (
        "Corruptions of frames and of time (noise, blur, lost, frozen or reordered frames).",
        "noisy, blurred or lost frames",
    ),
    "stability.": ("", ""),
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
    claim = f"From below, {number(certified)} are certified within {bracket.budget}: no attack can change their class"
    if bracket.attacked is None:
        return f"{claim}."
    gap = max(0.0, bracket.attacked.accuracy.value - certified.value)
    return f"{claim}. For {quantity(gap, 'fraction')} neither is known."


def smoothed_sentence(classifier: Smoothed) -> str:
    """State what is certified of a smoothed classifier, and that it is another classifier than the served one."""
    certified = [(radius, m) for radius, m in classifier.accuracies.items() if radius > 0] or [
        *classifier.accuracies.items()
    ]
    radius, measured = certified[0]
    within = f"within {classifier.norm} radius {radius:g}" if radius else "at radius 0"
    return (
        f"{classifier.name}: {number(measured)} of the images are certified {within}. "
        "That is the classifier that votes over noisy copies, not the one behind serving_default."
    )


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
    origins = " other than the measured shifted sets" if _has(measurements, "shift.") else " from other sources"
    subjects.append(f"images{origins}")
    return f"Not covered: {_enumerate(subjects)}."


def _has(measurements, family: str) -> bool:
    return any(m.id.startswith(family) for m in measurements)


def _unmeasured_norms(rows) -> list[str]:
    # A ball of the whole clip lies in the balls of its frames, but not in the set of few changed frames.
    measured = {row.norm for row in rows if "_max_frames_" not in row.frames}
    return [NORM_NAMES[norm] for norm in DIRECTED if norm not in measured]


def _enumerate(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

"""The list of what a report does not measure."""

from tfrobust.report import catalog
from tfrobust.report.attack_table import names_in, searches, unmeasured_norms
from tfrobust.report.catalog.natural import SHIFT
from tfrobust.report.catalog.under_attack import CERTIFIED
from tfrobust.report.reading import examples_of
from tfrobust.report.schema import Report
from tfrobust.report.threat import enumerated, is_black_box

# Shown for checks that did not run: the doctor's expensive ones, and the one that needs the training images.
_CHECKS = {
    "large_epsilon": "Accuracy at a very large epsilon, which should be 0 (gin/eval/full.gin).",
    "more_effort": "Errors found by more steps or restarts (gin/eval/full.gin).",
    "black_box": "Comparison of the white-box attacks with a black-box attack (gin/eval/full.gin).",
    "transfer": "Comparison with attacks transferred from an undefended model (gin/eval/full.gin).",
    "duplicates": "Overlap of test and training {examples}: not checked, or the training {examples} are unknown.",
}
# Parts of the names of the attacks that need no gradients of the model, apart from the baselines of random noise.
_BLACK_BOX = ("square", "hop_skip_jump", "transfer")


def not_measured(measurements, findings=(), examples: str = "images", series=()) -> list[str]:
    """List what a reader might expect but was not measured, one sentence each, most important first.

    Args:
        measurements: sequence of Measurement.
        findings: sequence of Finding, the doctor's.
        examples: kind of the evaluated examples, "images", "clips" or "sentences".
        series: sequence of Series, of which the curves over epsilon count as attacks.
    """
    return [sentence for sentence, _ in _missing(measurements, findings, examples, series)]


def untried(report: Report) -> list[str]:
    """List in a few words each what `not_measured` lists in sentences, as far as it concerns changes of the images."""
    examples = examples_of(report.data)
    return [words for _, words in _missing(report.measurements, report.doctor, examples, report.series) if words]


def _missing(measurements, findings, examples: str, series) -> list[tuple[str, str]]:
    """Return a sentence on each subject that was not measured, and the subject in a few words, "" for minor ones."""
    if examples == "sentences":
        return _missing_of_text(measurements, findings)
    tried = searches([*measurements, *series])
    attacks = {name for settings in tried for name in names_in(settings)}  # whatever their labels
    families, missing = catalog.families(measurements), []
    if is_black_box(findings):
        missing.append(("White-box attacks: the model provides no input gradients.", "attacks by gradients"))
    if not any("autoattack" in name for name in attacks):
        sentence = "AutoAttack, the official ensemble: gradient attacks alone can overestimate robustness."
        missing.append((sentence, "AutoAttack"))
    if not any(part in name for name in attacks for part in _BLACK_BOX):  # also as a member: 'rand' has none
        sentence = "Black-box attacks, which need no gradients (Square, decision-based, transfer)."
        missing.append((sentence, "attacks without gradients"))
    missing.append((_not_certified(measurements), ""))
    missing.append(("Adaptive attacks designed against this particular defense.", "attacks made for this defense"))
    checked = {finding.check for finding in findings}
    missing += [(text.format(examples=examples), "") for check, text in _CHECKS.items() if check not in checked]
    norms = unmeasured_norms(tried)
    if norms:
        missing.append((f"Perturbations measured in {enumerated(norms)}.", f"changes bounded in {enumerated(norms)}"))
    missing += [(absence.sentence, absence.words) for absence in catalog.absences(examples, families)]
    missing = [(sentence, words) for sentence, words in missing if sentence]
    sentence = "Patches, rotations, translations and other changes that are not bounded by a norm."
    missing.append((sentence, "patches and rotations"))
    exception = " and the measured shifted sets" if SHIFT.family.name in families else ""
    sentence = f"Data from sources other than the test set{exception} (domain shift)."
    missing.append((sentence, f"{examples} from elsewhere"))
    if not any("seed" in str(m.settings.get("interval", "")) for m in measurements):
        sentence = f"Other training seeds: one trained model is evaluated, and the intervals are over {examples}."
        missing.append((sentence, ""))
    return missing


def _not_certified(measurements) -> str:
    """Return the sentence on a certified accuracy that was not measured, with its reason; "" if one was."""
    certified = [m for m in measurements if catalog.read(m).record is CERTIFIED]
    if any(m.value is not None for m in certified):
        return ""
    reasons = dict.fromkeys(m.settings["reason"] for m in certified if isinstance(m.settings.get("reason"), str))
    reason = f": {'; '.join(reasons)}" if reasons else ", a lower bound that holds against every attack"
    return f"Certified accuracy{reason}."


def _missing_of_text(measurements, findings) -> list[tuple[str, str]]:
    families, checks = catalog.families(measurements), {finding.check for finding in findings}
    words = "Changes to the words: synonyms, paraphrases, typing errors, inserted or adversarially exchanged tokens."
    missing = [
        (words, "exchanged, inserted or misspelled words"),
        ("Attacks and corruptions of pixels, which do not apply to text.", ""),
    ]
    missing += [(absence.sentence, absence.words) for absence in catalog.absences("sentences", families)]
    if "duplicates" not in checks:
        missing.append((_CHECKS["duplicates"].format(examples="sentences"), ""))
    seeds = "Other training seeds: one trained model is evaluated, and the intervals are over sentences."
    shift = "Sentences from sources other than the test set (domain shift)."
    return [*missing, (shift, "sentences from elsewhere"), (seeds, "")]

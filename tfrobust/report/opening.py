"""The opening of a report: what its measurements say, in plain words that need no knowledge of the field."""

from __future__ import annotations

import dataclasses
from functools import partial

from tfrobust.report import attack_table, catalog, formats, missing, parts, protocol, reading
from tfrobust.report.attack_table import AttackRow
from tfrobust.report.blocks import Figure
from tfrobust.report.blocks.pictures import strips, titled_rows
from tfrobust.report.catalog import spelling
from tfrobust.report.catalog.natural import CORRUPTION_MEAN
from tfrobust.report.catalog.under_attack import CLEAN
from tfrobust.report.schema import Report
from tfrobust.report.sections.examples import Example, Examples
from tfrobust.report.threat import enumerated
from tfrobust.structs import Measurement

_LONGEST_NAME = 80
_CLEAN = CLEAN.id("clean")
# Budgets besides the main one that the opening mentions.
_MOST_BUDGETS = 2
# More corruptions than these are counted in place of named.
_MOST_CORRUPTIONS = 3
# Settings of a reference's number that do not describe the attack.
_OF_REFERENCE = ("reference", "method", "undefended")


@dataclasses.dataclass(frozen=True)
class Opening:
    """The opening of a report.

    Attributes:
        answer: the main sentence: what an attacker may change, and on how many images the model is then wrong.
        details: further sentences: errors without an attack, of other models, and of the worst class.
        untried: the sentence on what was not tried; may be "".
        verdict: "pass", "warn" or "fail" of the evaluation's checks; "" if they did not run.
        checks: the sentence on these checks.
        pair: an image, the attacked image and their difference; None without examples within the budget.
    """

    answer: str
    details: tuple[str, ...]
    untried: str
    verdict: str
    checks: str
    pair: Figure | None

    @property
    def paragraph(self) -> str:
        """All sentences."""
        return " ".join(filter(None, [self.answer, *self.details, self.untried, self.checks]))


def opening(report: Report) -> Opening:
    """Return the opening of a report, as far as its measurements allow."""
    examples = reading.examples_of(report.data)
    row = main_attack(report)
    answer = _attacked(row, examples) if row else _without_attack(report, examples)
    details = [*_natural(report, row, examples), *_compared(report, row, examples), *_worst(report, row)]
    details += [*_proven(report, row, examples), *_other_budgets(report, row, examples)]
    verdict, checks = _checks(report)
    pair = _pair(report, row) if row else None
    return Opening(answer, tuple(details), _untried(report), verdict, checks, pair)


def main_attack(report: Report) -> AttackRow | None:
    """Return the attack that left the least accuracy within the radius of training, or within any; None without one."""
    rows = [row for row in attack_table.attack_rows(report.measurements) if row.accuracy.value is not None]
    norm, epsilon = report.training.get("norm"), report.training.get("epsilon")
    trained = []
    if isinstance(epsilon, (int, float)):
        ball = norm, f"{epsilon:.6g}", _restriction(norm, spelling.frames(report.training))
        trained = [row for row in rows if (row.norm, row.epsilon, _restriction(row.norm, row.frames)) == ball]
    return attack_table.strongest(trained or rows)


def _restriction(norm: str | None, frames: str) -> str:
    """Return the restriction to frames as in ids, without `per_frame` in Linf, where it makes no difference."""
    return frames.removeprefix("_per_frame") if norm == "linf" else frames


def reference_of(report: Report, accuracy: Measurement) -> Measurement | None:
    """Return the accuracy of the reference model in the same measurement; None if none, or under another protocol."""
    other = report.get(f"{catalog.REFERENCE}{accuracy.id}")
    if other is None or other.value is None:
        return None
    settings = {name: value for name, value in other.settings.items() if name not in _OF_REFERENCE}
    alike = dataclasses.replace(other, id=accuracy.id, settings=settings)
    return None if protocol.differences(accuracy, alike) else other


def reference_name(accuracy: Measurement) -> str:
    """Return the name of the model that an accuracy of a reference belongs to."""
    return str(accuracy.settings.get("reference", "unnamed"))[:_LONGEST_NAME]


def of_hundred(share: float, examples: str = "images") -> str:
    """Return a share in words: "34 of 100 images", "none of the images", "fewer than 1 of 100 images".

    Args:
        share: fraction.
        examples: their name; "" to leave it out: "34 of 100".
    """
    if share in (0, 1):
        text = f"all {examples}" if share else f"none of the {examples}"
        return text if examples else text.split()[0]
    count = f"{100 * share:.0f}"
    if not 0.005 < share < 0.995:
        count = "fewer than 1" if share < 0.5 else "more than 99"
    return f"{count} of 100 {examples}".rstrip()


def power(row: AttackRow, examples: str = "images") -> str:
    """Return what an attack may change, in plain words: "change every pixel by up to 10 % of full scale"."""
    try:
        size = float(row.epsilon)
    except ValueError:  # an id of another program
        return f"change the {examples.removesuffix('s')} within {row.budget}"
    per_frame = " in every frame" if row.frames.startswith("_per_frame") else ""
    _, _, count = row.frames.partition("_max_frames_")
    frames = f", in at most {count} frame{'s' * (count != '1')}" if count else ""
    if row.norm == "linf":
        words = f"change every pixel by up to {100 * size:.3g} % of full scale"
    elif row.norm == "l0":
        words = f"replace {row.epsilon} pixel values"
    else:
        values = size if row.norm == "l1" else size * size
        alike = f"turning {values:.3g} pixel values from black to white"
        if row.norm == "l2" and size <= 1:
            alike = f"changing one pixel value by {100 * size:.3g} % of full scale"
        words = f"change all pixels together by as much as {alike}"
    return f"{words}{per_frame}{frames}"


def _wrong(accuracy: Measurement, examples: str) -> str:
    """Return the share of errors with its interval: "34 of 100 images (33 to 35)"."""
    bound = "at least " if accuracy.settings.get("bound") == "upper" else ""
    text = bound + of_hundred(1 - accuracy.value, examples)
    if accuracy.low is None or accuracy.high is None:
        return text
    low, high = (f"{100 * (1 - end):.0f}" for end in (accuracy.high, accuracy.low))
    return text if low == high else f"{text} ({low} to {high})"


def _attacked(row: AttackRow, examples: str) -> str:
    wrong = _wrong(row.accuracy, examples)
    return f"An attacker allowed to {power(row, examples)} makes this model wrong on {wrong}."


def _without_attack(report: Report, examples: str) -> str:
    clean = _measurement_with_value(report, _CLEAN)
    errors = f"On unmodified {examples} this model is wrong on {_wrong(clean, examples)}. " if clean else ""
    radii = catalog.other_radii([*report.measurements, *report.series])
    if radii:
        return f"{errors}It was attacked within {enumerated(radii)} alone; the numbers are below."
    return f"{errors}No attack was run, so nothing is known about its robustness to attackers."


def _natural(report: Report, row: AttackRow | None, examples: str) -> list[str]:
    """Return the sentences on errors without an attacker: on unmodified and on corrupted images."""
    clean, corrupted = (
        _measurement_with_value(report, identity) for identity in (_CLEAN, CORRUPTION_MEAN.id("mean.accuracy"))
    )
    sentences = [f"Without any attack it is wrong on {_wrong(clean, examples)}."] if row and clean else []
    if corrupted:
        changes = some_corruptions(corrupted) or "noise, blur, weather and digital artifacts"
        sentences.append(f"With {changes} it is wrong on {_wrong(corrupted, examples)}.")
    return sentences


def some_corruptions(mean: Measurement) -> str:
    """Return the corruptions of a mean over only some of the 15, in words: "fog and snow"; "" for all of them."""
    names = mean.settings.get("names")
    if not isinstance(names, list) or not names:
        return ""
    few = [formats.nice(str(name)).lower() for name in names[:_MOST_CORRUPTIONS]]
    return enumerated(few) if len(names) <= _MOST_CORRUPTIONS else f"{len(names)} of the 15 corruptions"


def _compared(report: Report, row: AttackRow | None, examples: str) -> list[str]:
    """Return the sentence on a reference model under the same attack, or else on guessing."""
    if row is None:
        return []
    other = reference_of(report, row.accuracy)
    if other is None:
        # Not the classes of the test examples, which may be some of the model's alone.
        count = len(report.data.get("class_names") or ())
        wrong = of_hundred(1 - 1 / count, examples) if count > 1 else ""
        guess = f"; guessing among {count} classes is wrong on {wrong}" if wrong else ""
        return [f"No other model was measured for comparison{guess}."]
    settings = other.settings
    name = reference_name(other)
    kind = "An undefended model" if settings.get("undefended") else "Another model"
    clean = _measurement_with_value(report, f"{catalog.REFERENCE}{_CLEAN}")
    without = f", and on {of_hundred(1 - clean.value, '').strip()} without one" if clean else ""
    return [f"{kind} ({name}) is wrong on {of_hundred(1 - other.value, examples)} under the same attack{without}."]


def _worst(report: Report, row: AttackRow | None) -> list[str]:
    """Return a sentence on the class, and one on the group, with the lowest accuracy."""
    accuracy, under = (row.accuracy, "under attack ") if row else (report.get(_CLEAN), "")
    sentences = []
    for kind, noun in ((parts.CLASSES, "class"), (parts.GROUPS, "group")):
        rows = parts.of(report, accuracy.id, kind) if accuracy else []
        if row and not rows:  # of another attack within the same budget
            rivals = [rival for rival in attack_table.attack_rows(report.measurements) if rival.budget == row.budget]
            measured = [rival for rival in rivals if parts.of(report, rival.accuracy.id, kind)]
            rival = attack_table.strongest(measured)
            rows = parts.of(report, rival.accuracy.id, kind) if rival else []
        lowest = parts.worst(rows)
        if lowest and len(rows) > 1:
            name = lowest.name.removeprefix(f"{noun} ")
            sentences.append(f"The worst {noun} is {name}: {under}wrong on {_wrong(lowest.accuracy, '')}.")
    return sentences


def _proven(report: Report, row: AttackRow | None, examples: str) -> list[str]:
    """Return the sentence on images that no attack within the budget can change, if some are certified."""
    brackets = attack_table.brackets(report.measurements, report.series)
    shares = {bracket.budget: bracket.certified for bracket in brackets}
    certified = shares.get(row.budget) if row else None
    if row is None or not certified or not certified.value:
        return []
    proven, sample = "it is proven that no such attacker can succeed", certified.settings.get("sample")
    if attack_table.is_on_images_of(certified, row.accuracy):
        return [f"For {of_hundred(certified.value, examples)} {proven}."]
    certified_images = f"the {sample} {examples}" if sample else f"{certified.n} {examples}"
    return [f"Of {certified_images}, for {of_hundred(certified.value, '')} {proven}."]


def _other_budgets(report: Report, row: AttackRow | None, examples: str) -> list[str]:
    """Return a sentence per other budget, with the strongest attack within it."""
    if row is None:
        return []
    rows = [rival for rival in attack_table.attack_rows(report.measurements) if rival.accuracy.value is not None]
    budgets = [budget for budget in dict.fromkeys(rival.budget for rival in rows) if budget != row.budget]
    strongest = [attack_table.strongest([rival for rival in rows if rival.budget == budget]) for budget in budgets]
    return [
        f"Allowed to {power(rival, examples)}, an attacker makes it wrong on {_wrong(rival.accuracy, examples)}."
        for rival in strongest[:_MOST_BUDGETS]
    ]


def _untried(report: Report) -> str:
    subjects = missing.untried(report)
    return f"Not tried: {', '.join(subjects)}." if subjects else ""


def _checks(report: Report) -> tuple[str, str]:
    """Return the verdict of the evaluation's checks, and a sentence that does not praise the model."""
    counts, total = reading.doctor_counts(report), len(report.doctor)
    named = {
        verdict: ", ".join(formats.nice(finding.check) for finding in report.doctor if finding.verdict == verdict)
        for verdict in counts
    }
    if counts["fail"]:
        return "fail", f"Do not rely on these numbers: {counts['fail']} of {total} checks failed ({named['fail']})."
    if not reading.has_doctor(report):
        text = (
            f", and {counts['warn']} of {total} other checks did not pass ({named['warn']})" if counts["warn"] else ""
        )
        return "warn" if text else "", f"The evaluation itself was not checked: the doctor did not run{text}."
    if counts["warn"]:
        return "warn", f"The evaluation is in order except for {counts['warn']} of {total} checks ({named['warn']})."
    passed = f"all {total} checks passed. They test" if total > 1 else "the only check passed. It tests"
    return "pass", f"The evaluation is in order: {passed} the measurement, not the model."


def _pair(report: Report, row: AttackRow) -> Figure | None:
    """Return a picture of an image, the attacked image and the difference, from the examples within the budget."""
    for shown in Examples(report).shown:
        if shown.ball == row.ball:
            example = min(shown.examples, key=lambda example: not example.misclassified)
            draw = _drawn(example, shown.factor, shown.frames)
            attack = shown.attack.partition(",")[0]
            caption = f"One of the {reading.examples_of(report.data)} before and after a change of this size ({attack})"
            return Figure("opening-pair", caption, draw)
    return None


def _drawn(example: Example, factor: str, frames: int):
    times = f" \u00d7 {factor}" if factor else ""
    titles = (f"original: {example.clean}", f"attacked: {example.attacked}", f"difference{times}")
    titles = tuple(title.replace(" %", "\u00a0%").replace("\u00d7 ", "\u00d7\u00a0") for title in titles)
    rows = [(example.name if frames else "", list(zip(titles, example.pictures, strict=True)))]
    return partial(strips, rows=rows, frames=frames) if frames else partial(titled_rows, rows=rows, small=True)


def _measurement_with_value(report: Report, identity: str) -> Measurement | None:
    measured = report.get(identity)
    return measured if measured is not None and measured.value is not None else None

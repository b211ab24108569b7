"""Evaluation checks of the claims: labels, number of test images, classes, and the split that selected."""

from __future__ import annotations

import numpy as np

from tfrobust.data import summary
from tfrobust.evaluation.doctor.limits import graded, verdict
from tfrobust.evaluation.doctor.pixels import chance
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding

_IMAGES_FOR_FIVE_POINTS = int(np.ceil((statistics.Z / 0.1) ** 2))


def check_accuracy(setting: Setting) -> Finding:
    """Check that clean images are classified better than by always predicting the most frequent class."""
    correct, count = int(setting.clean_correct.sum()), len(setting.labels)
    constant = chance(setting)  # the accuracy of a constant prediction
    low, high = statistics.wilson_interval(correct, count)
    evidence = (
        f"{correct / count:.1%} of {count} clean {setting.examples} are correctly classified (95 % interval {low:.1%} "
        f"to {high:.1%})"
    )
    evidence += f"; always predicting the most frequent class gives {constant:.1%}."
    scaled = "the vocabulary is" if setting.predictor.is_text else "pixels are scaled as"
    remedy = f"Check that labels and classes are in the model's order and that {scaled} in its training."
    beats_constant = "pass" if low > constant else "warn" if correct / count > constant else "fail"
    if constant == 1:  # no model is better than a constant prediction
        label = int(setting.labels[0])
        name = setting.class_names[label] if setting.class_names else f"class {label}"
        evidence += f" All of them are of one class, {name}."
        remedy = "Evaluate on examples of several classes: on those of one, a constant prediction is always correct."
        beats_constant = "warn" if correct / count > 1 / setting.predictor.class_count else "fail"
    return graded("clean_accuracy", evidence, remedy, beats_constant)


def check_test_size(setting: Setting, robust: np.ndarray | None) -> Finding:
    """Check that there are enough test images for the claimed percentages.

    Args:
        setting: the setting, for the number of images.
        robust: bool [m], which of the attacked images remain correctly classified under the doctor's attack; None: the
            clean accuracy is the only claim.
    """
    count, claims = len(setting.labels), {"a clean accuracy": setting.clean_correct}
    if robust is not None:
        claims["an accuracy under the doctor's attack"] = robust
    halves, sentence = [], f"{count} test {setting.examples} determine "
    for name, correct in claims.items():
        low, high = statistics.wilson_interval(int(correct.sum()), len(correct))
        halves.append((high - low) / 2)
        joined = " and " if len(halves) > 1 else ""
        fewer = f"{len(correct)} of them " if len(correct) < count else ""
        sentence += f"{joined}{fewer}{name} of {correct.mean():.1%} to within {halves[-1]:.1%}"
    return graded(
        "test_size",
        f"{sentence} (95 % intervals).",
        f"Evaluate on {_IMAGES_FOR_FIVE_POINTS} {setting.examples}, which determine any share to within 5 %, or claim "
        "no more than this.",
        verdict("test_size", max(halves)),
    )


def check_classes(setting: Setting) -> Finding | None:
    """Warn of classes without test images, about which no number says anything, or without training images.

    None if every class has both, as far as is known.
    """
    count = setting.predictor.class_count
    names = setting.class_names or tuple(map(str, range(count)))
    counts = {"test": np.bincount(setting.labels, minlength=count), "training": setting.train_counts}
    missing = {part: summary.without_examples(held, names) for part, held in counts.items() if held is not None}
    gaps = [f"{part} {setting.examples}: {classes}" for part, classes in missing.items() if classes]
    if not gaps:
        return None
    remedy = (
        "Add examples of these classes, or leave the classes out (ClassSubset): the numbers say nothing about them."
    )
    return Finding("classes", "warn", f"Of {count} classes, {'; '.join(gaps)}.", remedy)


def check_selection(setting: Setting) -> Finding:
    """Check that the published weights were not selected on the test split."""
    chosen = setting.selected_on
    if chosen == "test":
        remedy = "Choose on a validation split: numbers on the split that chose are too good."
        return Finding("selection", "fail", "The weights were chosen by their test results.", remedy)
    if chosen:
        return Finding(
            "selection",
            "pass",
            "The weights are those of the last epoch."
            if chosen == "last"
            else f"The weights were chosen on the {chosen} split, not on test.",
        )
    return Finding(
        "selection",
        "warn",
        "It is not known on which split the weights were chosen.",
        "Ask the authors of the model; many published weights were selected by test results.",
    )

"""The sections on prediction sets and on images from another distribution: numbers, sentences, names, comparisons."""

from report.synthetic import extended, fraction, written

from tfrobust.report import gate, protocol
from tfrobust.report.sections.out_of_distribution import OutOfDistribution
from tfrobust.report.sections.prediction_sets import PredictionSets
from tfrobust.structs import Measurement, Series


def sets(prefix, coverage, size, empty, **settings):
    settings |= {"level": 0.9, "calibration_images": 98}
    return [
        fraction(f"{prefix}.coverage", coverage, **settings),
        Measurement(f"{prefix}.size", size, "classes", 360, size - 0.05, size + 0.05, settings),
        fraction(f"{prefix}.empty", empty, **settings),
    ]


def report_of_sets(threshold=0.4, images=98):
    attack = {"attack": "pgd", "norm": "linf", "epsilon": 0.2, "steps": 20, "threshold": threshold}
    numbers = [*sets("conformal.lac_0.9", 0.91, 0.93, 0.07), *sets("conformal.aps_0.9", 0.92, 1.08, 0.0)]
    numbers += sets("conformal.pgd20_linf_0.2.lac_0.9", 0.342, 0.38, 0.62, **attack)
    for number in numbers:
        number.settings["calibration_images"] = images
    return extended(numbers)


def report_of_detection(**columns):
    numbers = []
    for score, auroc, rate in (("max_softmax", 0.91, 0.4), ("energy", 0.88, 0.45)):
        settings = {"source": "generated", "score": score}
        numbers.append(fraction(f"ood.corruptions_5.{score}.auroc", auroc, **settings))
        numbers.append(fraction(f"ood.corruptions_5.{score}.fpr95", rate, **settings))
    columns = {
        "set": ["fog", "jpeg_compression"],
        "max_softmax_auroc": [0.95, 0.87],
        "energy_auroc": [0.9, 0.86],
    } | columns
    return extended(numbers, [Series("ood.corruptions_5", "AUROC against each corruption", columns)])


def test_detection_has_bars_unless_columns_are_no_numbers():
    _, body = written(OutOfDistribution, report_of_detection())
    assert "<svg" in body
    _, body = written(OutOfDistribution, report_of_detection(energy_auroc=["<b>", None]))
    assert "<svg" not in body and "<b>" not in body
    assert written(OutOfDistribution, extended()) is None is written(PredictionSets, extended())


def test_gates_and_comparisons():
    report, name = report_of_sets(), "conformal.pgd20_linf_0.2.lac_0.9.coverage"
    lines = ("conformal.lac_0.9.coverage >= 0.9", f"{name} >= 0.5")
    assert gate.Gate(require=lines).failures(report) == [f"{lines[1]}: it is 0.342"]
    # Each model has its own threshold; another number of calibration images is another protocol.
    assert protocol.differences(report[name], report_of_sets(threshold=0.1)[name]) == []
    assert protocol.differences(report[name], report_of_sets(images=50)[name]) == ["calibration_images"]

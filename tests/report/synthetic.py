"""A made-up but realistic report: the shapes and magnitudes of leaked ASCL on the digits."""

import base64
import dataclasses
import io
import math
import re

import numpy as np
import PIL.Image
import stored

from tfrobust.common import thumbnails
from tfrobust.report import Report, not_measured, threat_statement
from tfrobust.report.renderers import html
from tfrobust.structs import Finding, Measurement, Series  # noqa: F401

CLASSES = [str(digit) for digit in range(10)]


def wilson(value, n, z=1.96):
    centre = (value + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(value * (1 - value) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def fraction(identity, value, n=360, **settings):
    low, high = wilson(value, n)
    return Measurement(identity, value, "fraction", n, low, high, {"interval": "wilson, images", **settings})


def attack(name, value, clean, n=360, norm="linf", epsilon=0.2, **settings):
    prefix = f"attack.{name}_{norm}_{epsilon:.6g}"
    common = {"attack": name, "norm": norm, "epsilon": epsilon, "seed": 0, **settings}
    drop = Measurement(f"{prefix}.drop", 1 - value / clean, "fraction", n, None, None, common)
    return [fraction(f"{prefix}.accuracy", value, n, **common), drop]


def measurements(clean, fgsm, pgd, steps=100, epsilon=0.2):
    return [
        fraction("accuracy.clean", clean),
        *attack("fgsm", fgsm, clean, epsilon=epsilon, steps=1),
        *attack("pgd", pgd, clean, epsilon=epsilon, steps=steps, restarts=1, step_size=2.5 * epsilon / steps),
        *attack("multi_targeted_pgd", pgd - 0.019, clean, epsilon=epsilon, steps=20, targets=10),
        Measurement("calibration.ece", 0.0312, "fraction", 360, 0.021, 0.047, {"bins": 15, "interval": "bootstrap"}),
        Measurement("calibration.aurra", 0.9966, "fraction", 360),
        Measurement("geometry.r_div", 0.482, "ratio", 360, None, None, {"batch": 128}),
        Measurement("geometry.intra_class_divergence", 0.213, "cosine distance", 360),
        Measurement("cost.evaluation_seconds", 31.4, "s"),
    ]


def curve(clean, at_budget, n=360):
    epsilons = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    power = math.log(max(1e-3, at_budget) / clean)
    values = [clean * math.exp(power * (epsilon / 0.2) ** 1.6) for epsilon in epsilons]
    bounds = [wilson(value, n) for value in values]
    return Series(
        "attack.pgd_linf.curve",
        "Accuracy against epsilon, pgd, Linf",
        {
            "epsilon": epsilons,
            "accuracy": values,
            "low": [low for low, _ in bounds],
            "high": [high for _, high in bounds],
            "n": [n] * len(epsilons),
        },
        {"interval": "95 % over images, Wilson"},
    )


def divergence_curve():
    epsilon = np.linspace(0, 0.3, 7)
    intra, inter = 0.12 + 1.1 * epsilon, 0.62 - 0.25 * epsilon
    accuracy = 0.98 * np.exp(-2.4 * (epsilon / 0.3) ** 1.7)
    columns = {"epsilon": epsilon, "r_div": intra / inter, "intra": intra, "inter": inter, "accuracy": accuracy}
    return Series("geometry.divergence_curve", "Divergence against epsilon", columns)


def history(epochs=40):
    epoch = np.arange(1, epochs + 1)
    decay = np.exp(-epoch / 12)
    columns = stored.table(globals() | {"epoch": epoch, "epochs": epochs, "decay": decay}, "history")
    return Series("training.history", "Training", columns)


def feature_map(per_class=20):
    generator = np.random.default_rng(5)
    columns = {name: [] for name in ("x", "y", "label", "adversarial", "entropy")}
    for label in range(10):
        angle = 2 * math.pi * label / 10
        centre = np.array([30 * math.cos(angle), 24 * math.sin(angle)]) + generator.normal(0, 3, 2)
        for adversarial in (0, 1):
            spread = 3.0 + 5.0 * adversarial
            for x, y in centre * (1 - 0.25 * adversarial) + generator.normal(0, spread, (per_class, 2)):
                entropy = float(np.clip(generator.gamma(1.0 + 2 * adversarial, 0.25), 0, 2.3))
                for name, value in zip(columns, (x, y, label, adversarial, entropy), strict=True):
                    columns[name].append(value)
    return Series("geometry.feature_map", "Feature map", columns)


def reliability():
    confidence = [None, None, 0.25, 0.34, 0.46, 0.55, 0.64, 0.76, 0.85, 0.97]
    accuracy = [None, None, 0.0, 0.5, 0.4, 0.67, 0.71, 0.7, 0.93, 0.995]
    count = [0, 0, 1, 2, 5, 6, 7, 10, 29, 300]
    columns = {"confidence": confidence, "accuracy": accuracy, "count": count}
    return Series("calibration.reliability", "Reliability, clean images", columns)


def attacked_reliability():
    columns = reliability().columns
    accuracy = [None, None, 0.0, 0.0, 0.4, 0.5, 0.29, 0.5, 0.55, 0.62]
    ends = [wilson(value, n) if n else (None, None) for value, n in zip(accuracy, columns["count"], strict=True)]
    columns = {**columns, "accuracy": accuracy, "low": [low for low, _ in ends], "high": [high for _, high in ends]}
    settings = {"interval": "95 % over images of the bin, Wilson"}
    return Series("calibration.reliability.pgd20_linf_0.2", "Reliability under pgd20_linf_0.2", columns, settings)


def classes(prefix, accuracy, count=36):
    """Class after class a little less."""
    values = [max(0.0, accuracy - 0.02 * label) for label in range(10)]
    ends = [wilson(value, count) for value in values]
    columns = {"label": list(range(10)), "n": [count] * 10, "accuracy": values}
    columns |= {"low": [low for low, _ in ends], "high": [high for _, high in ends]}
    return Series(
        f"{prefix}.classes", "Accuracy of each class", columns, {"interval": "95 % over images of the class, Wilson"}
    )


def examples(fallen=2, standing=1, side=8, channels=1, factor=2.5):
    generator = np.random.default_rng(7)
    rows = []
    for number in range(fallen + standing):
        image = generator.integers(0, 256, (side, side, channels)) / 255
        adversarial = np.clip(image + 0.2 * generator.choice([-1, 1], image.shape), 0, 1)
        drawn = {"image": image, "adversarial": adversarial, "difference": 0.5 + factor * (adversarial - image)}
        attacked = number if number >= fallen else 9 - number
        row = {"position": 10 * number, "label": number, "clean_class": number, "clean_confidence": 0.98}
        row |= {"attacked_class": attacked, "attacked_confidence": 0.71}
        row |= {"height": side, "width": side, "channels": channels}
        rows.append(row | {name: thumbnails.encode(picture) for name, picture in drawn.items()})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    settings = {"attack": "pgd", "norm": "linf", "epsilon": 0.2, "difference_factor": factor}
    return Series("attack.pgd20_linf_0.2.examples", "Images clean and attacked", columns, settings)


def response_rate():
    rate = np.linspace(1 / 360, 1.0, 60)
    return Series(
        "calibration.response_rate", "Response rate", {"response_rate": rate, "accuracy": 1 - 0.017 * rate**4}
    )


CONFIGURATION = stored.text(globals(), "configuration")


def make_report(name="ascl_leaked", version=3, clean=0.983, fgsm=0.753, pgd=0.631, **changes):
    numbers = changes.pop("measurements", None) or measurements(clean, fgsm, pgd)
    fields = {
        **stored.table(globals(), "report_fields"),
        "model": {"name": name, "version": version, "weights_sha256": "5f" * 32, "parameters": 130_762},
        "measurements": numbers,
        "doctor": stored.table(globals(), "findings"),
        "threat": threat_statement(numbers),
        "not_measured": not_measured(numbers),
        "configuration": CONFIGURATION,
        "series": [
            *(curve(clean, pgd), divergence_curve(), history(), feature_map(), reliability(), response_rate()),
            *(attacked_reliability(), examples()),
            *(classes("accuracy", 0.99), classes("attack.multi_targeted_pgd_linf_0.2", 0.7)),
        ],
    }
    return Report(**{**fields, **changes})


def extended(measurements=(), series=(), **changes):
    """The example without its own plots, and with more numbers and series."""
    plain = make_report(series=series)
    report = dataclasses.replace(plain, measurements=(*plain.measurements, *measurements), **changes)
    report.validate()
    return report


def written(kind, report):
    """The lead and the HTML of one section, None if it does not apply."""
    section = kind(report)
    return (section.lead, html.write(section.content)) if section.content else None


def images(body):
    """The pictures drawn in HTML, uint8 [h, w, 3], in order."""
    texts = re.findall(r'xlink:href="data:image/png;base64,([^"]*)"', body)
    return [np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")) for text in texts]

"""Reports and comparisons whose whole text is stored in texts/, for test_texts.py.

    PYTHONPATH=.:tests python -m report.texts

writes the texts anew; read what `git diff` then shows.
"""

import dataclasses
import functools
import pathlib

import numpy as np
from report.synthetic import attack, examples, extended, fraction, make_report, measurements

from tfrobust.report import schema, sections
from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views
from tfrobust.report.opening import opening
from tfrobust.report.renderers import markdown
from tfrobust.report.renderers.console import console_table
from tfrobust.structs import Finding, Measurement, Series

FOLDER = pathlib.Path(__file__).parent / "texts"
DULL = ("configuration", "identity", "cost", "protocol", "epochs", "history", "doctor")
CLEAN, PGD = "accuracy.clean", "attack.pgd_linf_0.2.accuracy"


# ------------------------------------------------------------------------------------------------------ reports


def natural() -> schema.Report:
    """Corruptions with generated frost, sequences against a baseline, random pixels, and all that features tell."""
    frost, base = {"source": "generated", "frost": "textures of tfrobust"}, {"baseline": "a<b>"}
    rates = [("gaussian_noise", 0.125, "first frame"), ("rotate", 0.0625, "previous frame")]
    unit = "fraction of the baseline's flip probability"
    numbers = [
        *(fraction(f"corruption.frost.{severity}.accuracy", 0.9 / severity, **frost) for severity in (1, 5)),
        *(fraction(f"corruption.frost.{severity}.drop", 0.0625, **frost) for severity in (1, 5)),
        *(fraction(f"corruption.{name}", 0.5, **frost) for name in ("fog.5.accuracy", "mean.accuracy", "mce")),
        *(fraction(f"stability.{name}.flip_probability", value, reference=by) for name, value, by in rates),
        *(Measurement(f"stability.{n}.flip_rate", 4 * v, unit, 360, settings=base) for n, v, _ in rates),
        Measurement("stability.mfr", 0.58, unit, 360, settings=base),
        *(fraction(f"noise.{name}.accuracy", v, share=0.15) for name, v in (("uniform", 0.7), ("non_uniform", 0.8))),
        fraction("shift.imagenet_r.accuracy", 0.4),
        Measurement("sensitivity.agreement", 0.45, "ratio", 256, 0.43, 0.47),
        Measurement("sensitivity.tokens.correlation", 0.761, "ratio", 640, 0.75, 0.772),
        Measurement("novel.kind", 0.4321, n=9),
    ]
    return make_report(measurements=[*measurements(0.9, 0.7, 0.6), *numbers], series=())


def outputs() -> schema.Report:
    """Prediction sets, clean and under an attack, and the detection of other images."""
    under = {"attack": "pgd", "norm": "linf", "epsilon": 0.2, "steps": 20}
    numbers, kinds = [], (("lac_0.9", 0.91, 0.93, {}), ("pgd20_linf_0.2.lac_0.9", 0.342, 0.38, under))
    for name, coverage, size, more in kinds:
        settings = {"level": 0.9, "calibration_images": 98, **more}
        numbers.append(fraction(f"conformal.{name}.coverage", coverage, **settings))
        numbers.append(Measurement(f"conformal.{name}.size", size, "classes", 360, size - 0.05, size + 0.05, settings))
        numbers.append(fraction(f"conformal.{name}.empty", 1 - coverage, **settings))
    for score, auroc in (("max_softmax", 0.91), ("energy", 0.88)):
        settings = {"source": "generated", "score": score}
        numbers.append(fraction(f"ood.corruptions_5.{score}.auroc", auroc, **settings))
        numbers.append(fraction(f"ood.corruptions_5.{score}.fpr95", auroc / 2, **settings))
    columns = {"set": ["fog", "jpeg_compression"], "max_softmax_auroc": [0.95, 0.87], "energy_auroc": [0.9, 0.86]}
    return extended(numbers, [Series("ood.corruptions_5", "AUROC against each corruption", columns)])


def attacks() -> schema.Report:
    """Ensembles, few images, budgets of frames, searches cut short, a minimal attack, bounds, and another model."""
    efforts = ["apgd_ce (50 steps, 1 restart)", "square (300 steps, 1 restart)"]
    named = {"reference": "plain/1", "undefended": True}
    pgd = attack("pgd", 0.5, 0.9, steps=100, restarts=1)
    few = [dataclasses.replace(m, n=100) for m in attack("autoattack", 0.45, 0.9)]
    numbers = [
        *(fraction(CLEAN, 0.9), *pgd, *few),
        *attack("ensemble", 0.4, 0.9, members=["apgd_ce", "square"], member_efforts=efforts),
        *attack("apgd", 0.5, 0.9, norm="l2", epsilon=0.5, bound="upper"),
        *attack("prox_log_barrier", 0.5, 0.9, norm="l2", epsilon=1),
        Measurement("attack.prox_log_barrier_l2_1.median_distance", 0.25, "pixel units", 360),
        Measurement("attack.pgd_l2_0.5_per_frame_max_frames_12.accuracy", 0.5, "fraction", 360),
        fraction("certified.linf_0.2.accuracy", 0.2, method="ibp", norm="linf", epsilon=0.2),
        Measurement("certified.l2_0.5.accuracy", None, settings={"method": "ibp", "reason": "layer 3 has no bound"}),
        fraction("reference.accuracy.clean", 0.95, **named),
        fraction(f"reference.{PGD}", 0.04, **pgd[0].settings, **named),
    ]
    return make_report(
        measurements=numbers, series=(), doctor=[Finding("a", "fail", "masked"), Finding("b", "warn", "")]
    )


def parts() -> schema.Report:
    """The weakest of many classes, groups, and pictures of an attack that another attack of the report contradicts."""
    values = np.random.default_rng(0).permutation(35) / 35
    columns = {"label": list(range(35)), "n": [50] * 35, "accuracy": values, "low": values, "high": values}
    groups = {"group": ["clinic", "lab"], "n": [5, 6], "accuracy": [0.4, 0.2], "low": [0.1] * 2, "high": [0.6] * 2}
    row = "1" * 5 + "0" * 10 + "1" * 5 + "0" + "0" * 4 + "1" * 5
    shown = [
        *(Series("accuracy.classes", "", columns), Series("attack.pgd_linf_0.2.groups", "", groups)),
        *(examples(), Series(f"outcomes.{PGD}", "", {"right": [row]})),
    ]
    return make_report(measurements=[fraction(CLEAN, 0.9), *attack("pgd", 0.5, 0.9, n=30)], series=shown)


def stages() -> schema.Report:
    """Histories of two stages, with shares of false negatives, and features of natural images alone."""
    shares = {"false_negatives_found": [0.1, 0.4], "true_negatives_removed": [0.0, 0.02]}
    cloud = {"x": [0.0, 1.0], "y": [0.0, 1.0], "label": [0, 1], "entropy": [0.1, 0.2], "adversarial": [0, 0]}
    first = {"epoch": [1, 2], "contrastive": [3.0, 2.0], "accuracy": [0.1, 0.8], **shares}
    second = {"epoch": [1], "ce": [0.5], "accuracy": [0.9], "negatives_clean": [100.0]}
    histories = Series("pretraining.history", "Title", first), Series("training.history", "Title", second)
    return make_report(
        measurements=[fraction(CLEAN, 0.9)], series=(*histories, Series("geometry.feature_map", "", cloud))
    )


def bare() -> schema.Report:
    """Nothing but its identity."""
    sizes = dict.fromkeys(("fingerprint", "train_size", "validation_size", "test_size"))
    return schema.Report(
        model={"name": "m", "version": None, "weights_sha256": None, "parameters": None}, data={"name": "d"} | sizes
    )


def document(report: schema.Report) -> str:
    """The opening, the sections that depend on the case, and the console's table."""
    parts = [opening(report).paragraph]
    for section in sections.build(report):
        if section.anchor not in DULL:
            blocks = [part for block in section.content for part in markdown.write(block)]
            parts += [f"## {section.heading}", section.sentence, section.introduction, *blocks]
    return "\n\n".join([*filter(None, parts), console_table(report)]) + "\n"


# -------------------------------------------------------------------------------------------------- comparisons


def run(name, clean, robust, n=1000, **changes) -> schema.Report:
    """A report of so many correct images of n; its outcomes are the first ones of a row."""
    measured = [fraction(CLEAN, clean / n, n), *attack("pgd", robust / n, clean / n, n, steps=20)]
    series = [
        Series(f"outcomes.{name}", "", {"right": ["1" * count + "0" * (n - count)]})
        for name, count in ((CLEAN, clean), (PGD, robust))
    ]
    return make_report(name, 1, series=series, **{"cost": {}, "doctor": (), "measurements": measured} | changes)


def gap(name, *drops, steps=20) -> schema.Report:
    """A report of relative drops under FGSM and AutoAttack."""
    numbers = [fraction(CLEAN, 0.9)]
    for kind, drop in zip(("fgsm", "autoattack"), drops, strict=False):
        numbers += attack(kind, 0.9 * (1 - drop), 0.9, epsilon=8 / 255, steps=steps)
    return make_report(name, 1, measurements=numbers, series=())


def compared(*runs, ends=None, width=None, **order) -> str:
    """The console's view of a comparison, and all its warnings."""
    comparison = compare.arrange([(f"{number}.json", report) for number, report in enumerate(runs)], **order)
    return "\n".join([views.table(comparison, ends, width), "", *comparison.notes, ""])


OTHER_DATA = {"data": make_report().data | {"fingerprint": "b2" * 32}}
LESS = {"measurements": [fraction(CLEAN, 0.8), *attack("pgd", 0.5, 0.8, steps=7)]}
BOUND = {"measurements": [fraction(CLEAN, 0.8), *attack("pgd", 0.5, 0.8, bound="upper")]}
FAILED = {"doctor": [Finding("gradients", "fail", "masked")]}
A, B = run("a", 800, 600), functools.partial(run, "b", 800, 500)
ENDS, GROUPED = {"ends": ("simclr", "supcon")}, {"grouped": True}


def seeds(**robust) -> list[schema.Report]:
    """Runs of two seeds, by the name of the method."""
    pairs = [(name, seed, count) for name, counts in robust.items() for seed, count in enumerate(counts)]
    return [run(f"{name}-seed{seed}", 800 + 20 * seed, count) for name, seed, count in pairs]


@functools.cache
def comparisons() -> dict[str, tuple[list[schema.Report], dict]]:
    """Name -> (reports, how they are compared)."""
    by_seed = seeds(a=(500, 503), b=(600, 603))
    four = [run(name, 800, robust) for name, robust in zip("abcd", (600, 601, 500, 400), strict=True)]
    models = [
        run(n, c, r, cost={"training_seconds": s})
        for n, c, r, s in (("plain", 880, 500, 60), ("trades", 800, 600, 600))
    ]
    wide = [make_report(name, 1, pgd=pgd) for name, pgd in (("ascl", 0.6), ("\x1b[2Jgone", 0.5))]
    budgets = make_report("d", 1, measurements=measurements(0.9, 0.6, 0.5, epsilon=0.3))
    clean = [run(name, 800, 0, measurements=[fraction(CLEAN, share, 1000)]) for name, share in (("e", 0.7), ("f", 0.8))]
    closed = [gap("simclr", 0.71, 0.85), gap("supcon", 0.59, 0.74), gap("adaptive", 0.64, 0.79), gap("fnc", 0.7)]
    return {
        "two models": (models, {}),
        "not distinguishable": ([run("a", 800, 500), run("b", 800, 501)], {}),
        "more accurate too": ([run("a", 880, 600), B()], {}),
        "four and a reference": (four, {"reference": "c"}),
        "narrow": (wide, {"width": 60}),
        "other data": ([A, B(**OTHER_DATA)], {}),
        "failed checks": ([A, B(**FAILED)], {}),
        "other steps": ([A, B(**LESS)], {}),
        "a bound": ([A, B(**BOUND)], {}),
        "bounds alone": ([B(**BOUND), run("a", 800, 600, **BOUND)], {}),
        "one model": ([A], {}),
        "no common attack": ([A, B(), clean[0]], {}),
        "clean alone": (clean, {}),
        "other budgets": ([make_report("a", 1), budgets], {}),
        "groups": ([*by_seed, run("alone", 700, 200)], {**GROUPED, "reference": "a", "width": 100}),
        "groups that overlap": (seeds(a=(500, 600), b=(600, 520)), GROUPED),
        "groups with gaps": ([by_seed[0], run("a-seed1", 820, 503, **OTHER_DATA), *by_seed[2:]], GROUPED),
        "gap closed": (closed, ENDS),
        "gap of other steps": ([gap("simclr", 0.71, steps=1), *closed[1:3]], ENDS),
    }


DOCUMENTS = {kind.__name__: kind for kind in (natural, outputs, attacks, parts, stages, bare)}
NAMES = ("whole", *DOCUMENTS, *comparisons())


def text(name: str) -> str:
    """The text of a case."""
    if name == "whole":
        report = make_report()
        return "\n".join([markdown.render(report), console_table(report), console_table(report, short=True)]) + "\n"
    if name in DOCUMENTS:
        return document(DOCUMENTS[name]())
    reports, order = comparisons()[name]
    return compared(*reports, **order)


def path(name: str) -> pathlib.Path:
    """The file of a case."""
    return FOLDER / f"{name.replace(' ', '_')}.txt"


if __name__ == "__main__":
    for name in NAMES:
        path(name).write_text(text(name), "utf-8")

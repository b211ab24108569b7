#!/usr/bin/env python3
"""Make the table of what quantization costs: accuracy, accuracy under the union of attacks, bytes, and speed.

For each model NAME and each kind the export NAME-<kind>, which holds `model.tflite` and its own report, is compared
with NAME-float32 on the same images. The command `export` with --litert=float32,float16,int8 makes them.

    python tools/benchmarks/quantization_table.py --exports=exported --names=trades

Speed is the time of NAME's SavedModel per batch of 64 images over that of the file, the median of ratios of calls in
turn, so that the machine's load cancels. Both have one thread. The output is Markdown.
"""

import argparse
import os
import pathlib
import statistics as median_of
import sys
import time

from _result_tables import difference, row, share

from tfrobust.commands import failures
from tfrobust.common import files
from tfrobust.errors import InputError

KINDS = ("float32", "float16", "int8")
BATCH, CALLS = 64, 100
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # read when TensorFlow is imported


def outcomes(folder: pathlib.Path) -> dict[str, list[int]]:
    """Return what an export's report says of each image, 0 or 1: `clean`, `union`.

    Raises:
        InputError: there is no report, or none with a union of attacks.
    """
    from tfrobust.report.comparison.reports import find_report
    from tfrobust.report.schema import Report

    path = find_report(folder)
    report = Report.from_json(files.read_bounded(path)) if path else None
    columns_by_id = {} if report is None else {series.id: series.columns for series in report.series}
    unions = [
        name for name in columns_by_id if name.startswith("outcomes.attack.union_") and name.endswith(".accuracy")
    ]
    if not unions:
        raise InputError(f"{folder} has no report of gin/eval/litert.gin.")
    rows = {"clean": columns_by_id["outcomes.accuracy.clean"], "union": columns_by_id[unions[0]]}
    return {name: [int(digit) for digit in columns["right"][0]] for name, columns in rows.items()}


def times_as_fast(model, folder: pathlib.Path) -> float:
    """Return the median ratio of the times that a SavedModel's predictor and a file take, called in turn."""
    import numpy as np
    import tensorflow as tf

    from tfrobust.evaluation.engine import litert
    from tfrobust.security import litert_files

    file = litert.File(litert_files.load(files.model_directory(folder) / files.LITERT_FILE), folder.name)
    images = np.random.default_rng(0).uniform(size=(BATCH, *file.image_shape)).astype(np.float32)
    output, batch, ratios = file.graph.outputs["logits"], tf.constant(images), []
    for call in range(CALLS + 5):
        began = time.perf_counter()
        model.compiled_logits(batch).numpy()
        between = time.perf_counter()
        file.run(images, output)
        if call >= 5:  # the first calls prepare
            ratios.append((between - began) / (time.perf_counter() - between))
    return median_of.median(ratios)


def table(names: list[str], kinds: list[str], outcomes_by_export: dict, sizes: dict, speeds: dict) -> str:
    """Format the results: a table of accuracies, and one of bytes and speed; "-" for a kind that was not exported.

    Args:
        names: of the models, in the order of the rows.
        kinds: in the order of the columns; the first is the reference.
        outcomes_by_export: (name, kind) -> `outcomes`.
        sizes: (name, kind) -> bytes.
        speeds: (name, kind) -> times as fast as the SavedModel.
    """
    first, *other_kinds = kinds
    lines = [["accuracy, %", *(f"clean, {kind}" for kind in kinds), *(f"union, {kind}" for kind in kinds)]]
    lines[0] += [f"union, {kind} minus {first}" for kind in other_kinds]
    for name in names:
        outcomes_by_kind = {kind: outcomes_by_export.get((name, kind), {"clean": [], "union": []}) for kind in kinds}
        cells = [outcomes_by_kind[kind][case] for case in ("clean", "union") for kind in kinds]
        union = [difference(outcomes_by_kind[kind]["union"], outcomes_by_kind[first]["union"]) for kind in other_kinds]
        lines.append([name, *(short(cell) for cell in cells), *union])
    second = [["", *(f"KiB, {kind}" for kind in kinds), *(f"times as fast, {kind}" for kind in kinds)]]
    for name in names:
        pairs = [(name, kind) for kind in kinds]
        bytes_of = [f"{sizes[pair] / 1024:.0f}" if pair in sizes else "-" for pair in pairs]
        second.append([name, *bytes_of, *(f"{speeds[pair]:.1f}" if pair in speeds else "-" for pair in pairs)])
    return aligned(lines) + "\n" + aligned(second)


def short(outcomes: list[int]) -> str:
    """Format an accuracy in per cent, without its interval."""
    return share(outcomes).partition(" ")[0]


def aligned(lines: list[list[str]]) -> str:
    """Format rows as a Markdown table whose columns are aligned; the first row is the header."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    texts = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in [lines[0], rule, *lines[1:]]]
    return "".join(row(*line) for line in texts)


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--exports", type=pathlib.Path, default=pathlib.Path("exported"), help="default: %(default)s")
    flags.add_argument("--names", required=True, help="folders of the SavedModels in it, by comma")
    flags.add_argument("--kinds", default=",".join(KINDS), help="default: %(default)s")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Read the reports, measure the speed, and print the tables."""
    from tfrobust.evaluation.engine import loading

    names, kinds = flags.names.split(","), flags.kinds.split(",")
    places = {(name, kind): flags.exports / f"{name}-{kind}" for name in names for kind in kinds}
    needed = [flags.exports / name for name in names] + [places[name, kinds[0]] for name in names]
    for folder in needed:
        if not folder.is_dir():
            raise InputError(f"there is no export {folder}.")
    places = {pair: folder for pair, folder in places.items() if folder.is_dir()}
    outcomes_by_export = {pair: outcomes(folder) for pair, folder in places.items()}
    sizes = {
        pair: (files.model_directory(folder) / files.LITERT_FILE).stat().st_size for pair, folder in places.items()
    }
    models = {name: loading.load(str(flags.exports / name)) for name in names}
    speeds = {(name, kind): times_as_fast(models[name], folder) for (name, kind), folder in places.items()}
    print(table(names, kinds, outcomes_by_export, sizes, speeds), end="")


if __name__ == "__main__":
    sys.exit(failures.main(parser(), run))
